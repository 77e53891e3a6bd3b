"""Records of any kind: a kind as data, one query that lists it, one noun that changes it, one engine of quotas."""
