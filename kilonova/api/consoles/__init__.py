"""The proxy between users and the consoles of their guests."""
