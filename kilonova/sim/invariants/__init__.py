"""What must always be true, checked after every story, history and crash."""
