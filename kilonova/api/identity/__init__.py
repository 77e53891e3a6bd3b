"""Identity v3 over HTTP, as Keystone speaks it."""
