"""Hypervisors behind `world.Driver`: simulated machines here, real guests in libvirt/."""
