"""SQL is the only truth: one interface (world.Store), two engines (sqlite.py, postgres.py), one schema per role."""
