"""Permissions of what holds secrets: for the owner alone, repaired where they are wider."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger(__name__)
PRIVATE = 0o077  # files of a role are for its own user; the umask of every command that runs one
OPERATORS = ("kilonova.toml", "policy.yaml")  # written by hand; their modes are their writer's
EXPORTS_NAME, RELAYS_NAME = "exports", "relays"  # sockets of volumes: QEMU's user passes to those that it may open
INSTANCES_NAME = "instances"  # disks of real guests: QEMU's user passes through it, and can read nothing in it


def repair_modes(directory: Path) -> None:
    """Make private all entries of a data directory that other users may read or enter."""
    for entry in os.scandir(directory):
        if entry.name not in (*OPERATORS, INSTANCES_NAME, EXPORTS_NAME, RELAYS_NAME) and not entry.is_symlink():
            keep_private(Path(entry.path))


def keep_private(path: Path) -> None:
    """Take every permission of group and others from a file or directory, with a warning.

    For a file of another user only warn, and only if all users can read it: its group may be the reason why this
    process can.
    """
    try:
        status = path.stat()
        mode = stat.S_IMODE(status.st_mode)
        if not mode & PRIVATE:
            return
        if status.st_uid == os.geteuid():
            path.chmod(mode & ~PRIVATE)
            logger.warning("%s had the mode %04o: others could read it; changed to %04o", path, mode, mode & ~PRIVATE)
        elif mode & 0o007:
            logger.warning("%s has the mode %04o: everybody can read it, and another user owns it", path, mode)
    except OSError as error:
        logger.warning("the mode of %s cannot be read or changed: %s", path, error.strerror)
