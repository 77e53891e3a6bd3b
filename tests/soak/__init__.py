"""`make soak`: every mutation in tests/mutations must be noticed by the general suites; then fresh random histories and
crashes until the time is over."""
