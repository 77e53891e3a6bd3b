"""Compute's small resources: flavors, key pairs, and what is told of hosts."""
