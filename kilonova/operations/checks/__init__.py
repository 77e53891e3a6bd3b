"""What several operations check about a request before they are accepted."""
