"""Volume v3 over HTTP."""
