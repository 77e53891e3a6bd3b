"""HTTP: parse, check the token, ask `operations` or read the stores, answer. Nothing is decided here."""
