"""Simulated machines: hosts with power, links, guests and storage, and the driver of an agent for its simulated host.

driver      the verbs, each with a middle where half of its effect is visible
hardware    the machines, independent of every process; machine reaches them over the bus, state_file saves them
storage, volumes, snapshots    disks
changes, faults    guests that end without an order, failures that are ordered from outside
"""
