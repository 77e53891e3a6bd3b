"""Kilonova: a compute control plane that speaks OpenStack's Compute and Placement APIs."""
