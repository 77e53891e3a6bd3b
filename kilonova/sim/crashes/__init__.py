"""A crash at every point of an operation: scenarios, outcomes, and the moments where crashes differ."""
