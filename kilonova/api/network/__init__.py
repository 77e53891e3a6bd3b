"""Network v2.0 over HTTP, as Neutron speaks it."""
