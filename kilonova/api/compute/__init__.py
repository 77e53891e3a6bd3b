"""Compute's HTTP, with Nova's paths, versions and words. The files are named after what they serve."""
