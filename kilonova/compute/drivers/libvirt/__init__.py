"""Real guests through libvirt and QEMU, with the same verbs as the simulated driver."""
