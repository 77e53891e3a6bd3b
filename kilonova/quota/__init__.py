"""Quotas: counted in the control database with the servers' mappings, so that a check never asks a cell."""
