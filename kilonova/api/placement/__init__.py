"""Placement's HTTP, 1.0 to 1.39: one topic one file, each with its ROUTES; manner.py says how it speaks."""
