"""Disks on their way from the agent of one host to that of another (docs/decisions/013-disks-between-agents.md)."""
