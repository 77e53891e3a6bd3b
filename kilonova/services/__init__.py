"""The embedded services: identity, image, network. What they do; their HTTP is in `api/` under the same names."""
