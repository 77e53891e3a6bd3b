"""Steps that several operations share; each is short and safe to do twice."""
