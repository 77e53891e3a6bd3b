"""SQL is the only truth: one interface (world.Store), two engines (sqlite.py, postgres.py), the tables of schema/."""
