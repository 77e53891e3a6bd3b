"""The programs of a host: the agent and the drivers that make guests."""
