"""The event loop in virtual time with simulated processes, and the faults of its bus and commits."""
