"""The conductor: drives CONTROL steps, hands hosts theirs, watches leases and silence."""
