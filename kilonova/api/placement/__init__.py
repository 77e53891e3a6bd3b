"""Placement's HTTP, 1.0 to 1.39: one topic one file, each with its ROUTES; dialect.py says how it speaks."""
