"""Images v2: records and files."""
