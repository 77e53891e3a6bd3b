"""Kilonova's own REST, beyond OpenStack's: operations, servers and hosts as the journals and cells know them."""
