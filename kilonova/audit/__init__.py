"""The audit: what placement holds against what the servers' own records say they own, and what can be put right."""
