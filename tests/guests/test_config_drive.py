"""The config drive as an ISO image: what is in it, who may read it, and that nothing else is left."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
import subprocess
from pathlib import Path

import pytest

from kilonova.compute.drivers.libvirt.config_drive import DRAFT, ensure_config_drive, write_iso
from kilonova.compute.drivers.libvirt.disks import CONFIG_DRIVE
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from kilonova.domain.guest_contents import GuestContents, GuestSecrets
from tests.guests.daemon import Libvirt

SECRETS = GuestSecrets(user_data=base64.b64encode(b"#!/bin/sh").decode(), admin_password="pass-word-1")
GUEST = GuestSpec(
    server="s", copy=1, name="a", vcpus=1, memory_mb=32, disk_gb=1, contents=GuestContents(hostname="a-host")
)


def read(place: Path, name: str) -> bytes:
    command = ["isoinfo", "-J", "-i", str(place / CONFIG_DRIVE), "-x", f"/{name}"]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_it_has_what_the_guest_is_told(libvirt: Libvirt, tmp_path: Path) -> None:
    (tmp_path / f"{DRAFT}left").mkdir()
    (tmp_path / f"{DRAFT}left" / "user_data").write_text("of an agent that was killed")
    asyncio.run(ensure_config_drive(tmp_path, GUEST, SECRETS, "novalocal"))
    assert [path.name for path in tmp_path.iterdir()] == [CONFIG_DRIVE]
    assert stat.S_IMODE((tmp_path / CONFIG_DRIVE).stat().st_mode) == 0o600
    assert b"config-2" in (tmp_path / CONFIG_DRIVE).read_bytes()[:40000]
    told = json.loads(read(tmp_path, "openstack/latest/meta_data.json"))
    assert (told["uuid"], told["hostname"], told["admin_pass"]) == ("s", "a-host.novalocal", "pass-word-1")
    assert read(tmp_path, "openstack/latest/user_data") == b"#!/bin/sh"


def test_it_stays_where_no_secrets_come(libvirt: Libvirt, tmp_path: Path) -> None:
    """Defined anew without them, the guest keeps those it was given."""
    asyncio.run(ensure_config_drive(tmp_path, GUEST, SECRETS, ""))
    before = (tmp_path / CONFIG_DRIVE).read_bytes()
    asyncio.run(ensure_config_drive(tmp_path, GUEST, None, ""))
    assert (tmp_path / CONFIG_DRIVE).read_bytes() == before
    asyncio.run(ensure_config_drive(tmp_path, GUEST, GuestSecrets(), ""))
    assert b"pass-word-1" not in (tmp_path / CONFIG_DRIVE).read_bytes()


def test_no_file_leaves_it(libvirt: Libvirt, tmp_path: Path) -> None:
    for name in ("../out", "/etc/out", ""):
        with pytest.raises(Failed, match="is not a path inside of it"):
            asyncio.run(write_iso(tmp_path / CONFIG_DRIVE, {name: b"x"}))
