"""What runs on a host: the agent and the drivers that make guests."""
