"""The embedded services: compute, identity, image, network, volume. Their HTTP is in `api/` under the same names."""
