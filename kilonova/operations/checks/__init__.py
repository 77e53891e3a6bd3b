"""Checks that several operations make before a request is accepted."""
