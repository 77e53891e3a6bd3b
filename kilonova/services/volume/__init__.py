"""Volumes v3: records, files, and who uses them."""
