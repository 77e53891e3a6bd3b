"""Compute's small resources (flavors, key pairs, aggregates, groups), and views of hosts and servers over all cells."""
