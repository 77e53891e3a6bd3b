"""The tables, by database role. Times are seconds since the epoch (float), documents are JSON text, flags are 0/1."""
