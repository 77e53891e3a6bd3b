"""Placement: providers, consumers and their allocations. A library with its own database; its REST API is
api/placement.

ledger      the only module that writes `used`
claims      the engine's verbs: claim, move, evacuate, release, each fenced by (server, turn, ordinal)
inventories the hosts' offers, and whether the hosts accept more
snapshot    the same in memory, as numpy columns, for the scheduler
books       the check that the allocations and `used` agree
"""
