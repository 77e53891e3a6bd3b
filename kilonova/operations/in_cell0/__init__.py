"""Servers in cell0 (they never found a host): listed with the reason, tried again, and rehearsed.

The operation that tries one again is rebuild_in_cell0.py.
"""
