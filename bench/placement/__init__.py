"""Ours beside the original: the same data, the same requests, in one run. `make bench-placement`."""
