"""The config drive of a copy: an ISO image beside its disk, for its owner alone."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kilonova.compute.config_drive import SEED_BYTES, Telling, config_drive
from kilonova.compute.drivers.libvirt.disks import CONFIG_DRIVE
from kilonova.compute.drivers.libvirt.images import PRIVATE
from kilonova.compute.drivers.libvirt.programs import run
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from kilonova.domain.guest_contents import GuestSecrets
from kilonova.store.data_directory import finish_file
from kilonova.threads import FILES

LABEL = "config-2"  # by which guests find it
HALF, DRAFT = "config.half", ".config-"


async def ensure_config_drive(directory: Path, guest: GuestSpec, secrets: GuestSecrets | None, domain: str) -> None:
    """Write the config drive. Without `secrets` keep an existing one: it has the secrets that the guest was defined
    with.

    `domain`: the domain of the guest's host name.
    """
    if secrets is None and (directory / CONFIG_DRIVE).is_file():
        return
    telling = Telling(dhcp_domain=domain, seed=os.urandom(SEED_BYTES))
    await write_iso(directory / CONFIG_DRIVE, config_drive(guest, secrets or GuestSecrets(), telling))


async def write_iso(path: Path, tree: Mapping[str, bytes]) -> None:
    """Write the image completely or not at all. A running guest keeps the one that it has open."""
    half = path.with_name(HALF)
    folder = Path(await FILES.run(_lay_out, path.parent, tree))
    try:
        options = ("-quiet", "-J", "-r", "-V", LABEL, "-allow-lowercase", "-allow-multidot", "-l", "-ldots")
        await run("genisoimage", *options, "-o", str(half), str(folder))
        half.chmod(PRIVATE)
        await FILES.run_to_its_end(finish_file, half, path)
    finally:
        await FILES.run(shutil.rmtree, folder, True)


def _lay_out(directory: Path, tree: Mapping[str, bytes]) -> str:
    """Write the files into a directory for their owner alone, on the same disk as the guest's other secrets."""
    for left in directory.glob(f"{DRAFT}*"):  # by an agent that was killed here
        shutil.rmtree(left, ignore_errors=True)
    half = directory / HALF
    half.unlink(missing_ok=True)
    half.touch(mode=PRIVATE)  # genisoimage writes into it: the secrets are never in a file that others can read
    folder = Path(tempfile.mkdtemp(prefix=DRAFT, dir=directory))
    for name, content in tree.items():
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or parts[0] == "/":
            raise Failed("bad_config_drive", f"config drive: {name!r} is not a path inside of it", final=True)
        file = folder.joinpath(*parts)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return str(folder)
