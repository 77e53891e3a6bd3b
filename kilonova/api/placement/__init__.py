"""Placement's HTTP. For now what 1.0 reads; part 3 adds the writing and the later versions."""
