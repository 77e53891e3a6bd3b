"""The choice between KVM and TCG for guests, tested by running a guest.

A /dev/kvm that opens proves little: on a virtualised host a guest under KVM may be slower than an emulated one, or
never finish booting. So a boot sector counts and ends QEMU, once under each. As a program, this module prints its
choice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import time
from pathlib import Path

from kilonova.domain.errors import Failed

logger = logging.getLogger(__name__)
KVM, TCG = "kvm", "qemu"  # as libvirt names the types of domains
DEVICE = Path("/dev/kvm")
LOOPS = 20  # of 2**20 each
EXIT_PORT, EXIT_VALUE = 0xF4, 0x21
EXIT_CODE = EXIT_VALUE << 1 | 1  # how isa-debug-exit ends QEMU
TCG_SECONDS = 60.0
QEMU = ("qemu-system-x86_64", "-machine", "pc", "-cpu", "qemu64", "-m", "16", "-nodefaults", "-nographic", "-no-reboot")


async def choose(wanted: str, host: str) -> str:
    """`wanted`: [libvirt] virt_type; "" asks for the faster one."""
    if wanted:
        logger.info("accelerator: host=%s type=%s reason=[libvirt] virt_type", host, _named(wanted))
        return wanted
    chosen, reason = await _probe()
    logger.info("accelerator: host=%s type=%s reason=%s", host, _named(chosen), reason)
    return chosen


async def _probe() -> tuple[str, str]:
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return TCG, f"{DEVICE} cannot be opened"
    with tempfile.TemporaryDirectory(prefix="kilonova-probe-") as folder:
        disk = Path(folder) / "disk"
        disk.write_bytes(boot_sector())
        emulated = await _seconds("tcg", disk, TCG_SECONDS)
        if emulated is None:
            raise Failed("no_hypervisor", f"{QEMU[0]}: a probe under TCG did not end within {TCG_SECONDS:.0f} s")
        virtual = await _seconds("kvm", disk, emulated)
    if virtual is None:
        return TCG, f"a probe took {emulated:.2f} s under TCG and did not end in that time under KVM"
    return KVM, f"a probe took {virtual:.2f} s under KVM, {emulated:.2f} s under TCG"


async def _seconds(accelerator: str, disk: Path, limit: float) -> float | None:
    """Return the duration of the test; None if it failed or exceeded the limit."""
    exits = ("-device", f"isa-debug-exit,iobase={EXIT_PORT:#x},iosize=1", "-drive", f"file={disk},format=raw,if=ide")
    began = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL", "--", *QEMU, "-accel", accelerator, *exits),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise Failed("no_hypervisor", f"{QEMU[0]} cannot be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(limit):
            code = await process.wait()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return time.monotonic() - began if code == EXIT_CODE else None


def boot_sector() -> bytes:
    """Return a boot sector that counts LOOPS times to 2**20 and exits QEMU."""
    code = bytes.fromhex("fa 66b9") + LOOPS.to_bytes(4, "little")  # cli; mov ecx, LOOPS
    code += bytes.fromhex("66b8 00001000")  # mov eax, 2**20
    code += bytes.fromhex("6648 75fc")  # dec eax; jnz there
    code += bytes.fromhex("6649 75f2")  # dec ecx; jnz to mov eax
    code += bytes((0xB0, EXIT_VALUE, 0xE6, EXIT_PORT, 0xF4))  # mov al, EXIT_VALUE; out EXIT_PORT, al; hlt
    return code.ljust(510, b"\0") + b"\x55\xaa"


def _named(accelerator: str) -> str:
    return "KVM" if accelerator == KVM else "TCG (emulation; slow)"


if __name__ == "__main__":
    print(asyncio.run(_probe())[0])
