"""Quotas: counted from the mappings in the control database, so that a check never asks a cell."""
