"""Identity v3: users, projects, roles, tokens."""
