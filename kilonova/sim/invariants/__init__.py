"""The invariants, checked after every story, history and crash."""
