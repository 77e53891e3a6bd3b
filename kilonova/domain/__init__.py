"""Nouns and laws: no I/O, no HTTP, no SQL."""
