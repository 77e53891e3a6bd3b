"""The QEMU processes of guests."""

from __future__ import annotations

from pathlib import Path


def process_of(server: str) -> int:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            command = (entry / "cmdline").read_bytes() if (entry / "cmdline").exists() else b""
            if command.startswith(b"/usr/bin/qemu-system") and f"guest=kilonova-{server}".encode() in command:
                return int(entry.name)
    raise AssertionError("no such guest runs")
