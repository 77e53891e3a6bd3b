"""Hosts: their states, aggregates and copies; how they register, return, are declared down and are forgotten."""
