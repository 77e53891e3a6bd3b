"""Checks of requests that several operations share, made before they are accepted."""
