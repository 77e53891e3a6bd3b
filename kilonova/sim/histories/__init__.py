"""Random histories: the acts, drawn from a seed, who does them, and what strikes meanwhile."""
