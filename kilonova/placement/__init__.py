"""Placement: who holds what, where. A library with its own database; its REST face is api/placement.

ledger      the one place that writes `used`
claims      the engine's verbs: claim, move, evacuate, release, each fenced by (server, turn, ordinal)
inventories what hosts offer, and whether they take more
snapshot    the same in memory, as numpy columns, for the scheduler
books       do the allocations and `used` agree?
"""
