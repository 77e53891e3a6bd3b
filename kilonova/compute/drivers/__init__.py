"""Hypervisors behind `world.Driver`: simulated machines, later libvirt."""
