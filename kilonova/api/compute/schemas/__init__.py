"""Schemas of requests, per microversion. Data, named after the file that serves it."""
