"""The files that describe a guest to itself: on a config drive (label `config-2`) and from the metadata service.

OpenStack's formats: `openstack/<version>/meta_data.json`, `user_data`, `network_data.json`, `vendor_data.json`,
`vendor_data2.json` and `openstack/content/NNNN` for the files of the request. Each version has only what was defined at
its date, so that old guests find nothing unexpected. EC2's formats are in ec2_metadata.py.

Everything here is pure; the driver writes the files where only the guest reads them (law 13).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kilonova.compute.ec2_metadata import ec2_facts, ec2_files
from kilonova.compute.network_data import network_data
from kilonova.domain.guest import GuestSpec
from kilonova.domain.guest_contents import GuestSecrets
from kilonova.domain.json import Json

FOLSOM, GRIZZLY, HAVANA, LIBERTY = "2012-08-10", "2013-04-04", "2013-10-17", "2015-10-15"
NEWTON_ONE, NEWTON_TWO, OCATA, ROCKY, VICTORIA = "2016-06-30", "2016-10-06", "2017-02-22", "2018-08-27", "2020-10-14"
VERSIONS = (FOLSOM, GRIZZLY, HAVANA, LIBERTY, NEWTON_ONE, NEWTON_TWO, OCATA, ROCKY, VICTORIA)
LATEST = "latest"
EC2_ON_DRIVE = ("2009-04-04", LATEST)
EC2_VERSIONS = (
    *("1.0", "2007-01-19", "2007-03-01", "2007-08-29", "2007-10-10", "2007-12-15", "2008-02-01", "2008-09-01"),
    *EC2_ON_DRIVE,
)
UNKNOWN = "none"
SEED_BYTES = 512  # of randomness that a guest is given

ROOT, ROOT_DEVICE = "root", "/dev/vda"  # the name of the root disk among those with tags, and where the guest has it
Files = dict[str, bytes]  # by path


@dataclass(frozen=True)
class BusAddress:
    """The bus and address at which the guest finds a device."""

    bus: str = UNKNOWN
    address: str = UNKNOWN


@dataclass(frozen=True)
class Telling:
    """Host settings that go into these files beside the order."""

    dhcp_domain: str = "novalocal"  # "": the host name without a domain
    seed: bytes = b""  # SEED_BYTES of randomness; none: the guest is given none
    devices: Mapping[str, BusAddress] = field(default_factory=dict)  # by port, volume, or name of a local disk
    vendor_data: Mapping[str, Any] = field(default_factory=dict)  # of the operator


PLAIN = Telling()


def config_drive(guest: GuestSpec, secrets: GuestSecrets, telling: Telling = PLAIN) -> Files:
    """Return all files of the guest's config drive, with the password if the operation set one."""
    password = {"admin_pass": secrets.admin_password} if secrets.admin_password else {}
    files = _openstack(guest, secrets, telling, password)
    facts = msgspec.json.encode(ec2_facts(guest, _hostname(guest, telling)))
    for version in EC2_ON_DRIVE:
        files[f"ec2/{version}/meta-data.json"] = facts
        if secrets.user_data:
            files[f"ec2/{version}/user-data"] = _decoded(secrets.user_data)
    return files


def metadata_service(guest: GuestSpec, secrets: GuestSecrets, telling: Telling = PLAIN) -> Files:
    """Return all files that the guest may read over the network, never its password. `find` answers for folders,
    too."""
    files = _openstack(guest, secrets, telling, {})
    about = ec2_files(ec2_facts(guest, _hostname(guest, telling)))
    for version in EC2_VERSIONS:
        files.update({f"{version}/meta-data/{path}": text for path, text in about.items()})
        if secrets.user_data:
            files[f"{version}/user-data"] = _decoded(secrets.user_data)
    return files


def find(files: Files, path: str) -> bytes | None:
    """Return the file, or the list of the folder, one name in each line; None if there is neither."""
    path = path.strip("/")
    inside = f"{path}/" if path else ""
    listed = files.get(path, files.get(inside))
    if listed is not None:
        return listed
    below = [name.removeprefix(inside) for name in files if name.startswith(inside)]
    if not below:
        return None
    # a folder ends with a slash where EC2 says so; OpenStack's versions are folders without one
    slash = "" if path in ("", "openstack") else "/"
    return "\n".join(sorted({one.partition("/")[0] + (slash if "/" in one else "") for one in below})).encode()


def _openstack(guest: GuestSpec, secrets: GuestSecrets, telling: Telling, extra: Mapping[str, Any]) -> Files:
    files: Files = {f"openstack/content/{n:04}": _decoded(one.contents) for n, one in enumerate(secrets.files)}
    network, vendor = msgspec.json.encode(network_data(guest.ports)), dict(telling.vendor_data)
    for folder in (*VERSIONS, LATEST):
        version = VICTORIA if folder == LATEST else folder
        files[f"openstack/{folder}/meta_data.json"] = msgspec.json.encode(
            {**extra, **_meta_data(guest, secrets, telling, version)}
        )
        if secrets.user_data:
            files[f"openstack/{folder}/user_data"] = _decoded(secrets.user_data)
        if version >= HAVANA:
            files[f"openstack/{folder}/vendor_data.json"] = msgspec.json.encode(vendor)
        if version >= LIBERTY:
            files[f"openstack/{folder}/network_data.json"] = network
        if version >= NEWTON_TWO:
            files[f"openstack/{folder}/vendor_data2.json"] = msgspec.json.encode({"static": vendor})
    return files


def _meta_data(guest: GuestSpec, secrets: GuestSecrets, telling: Telling, version: str) -> dict[str, Json]:
    contents = guest.contents
    document: dict[str, Json] = {"uuid": guest.server}
    if contents.metadata:
        document["meta"] = contents.metadata
    if secrets.files:
        document["files"] = [
            {"content_path": f"/content/{n:04}", "path": one.path} for n, one in enumerate(secrets.files)
        ]
    if contents.public_keys:
        document["public_keys"] = {key.name: key.text for key in contents.public_keys}
        document["keys"] = [{"name": key.name, "type": key.type, "data": key.text} for key in contents.public_keys]
    document |= {
        "hostname": _hostname(guest, telling),
        "name": guest.name,
        "launch_index": contents.launch_index,
        "availability_zone": contents.availability_zone,
    }
    if version >= GRIZZLY and telling.seed:
        document["random_seed"] = base64.b64encode(telling.seed).decode()
    if version >= LIBERTY:
        document["project_id"] = contents.project_id
    if version >= NEWTON_ONE:
        document["devices"] = _devices(guest, telling, version)
    if version >= VICTORIA:
        cells = guest.claim.cells if guest.claim is not None else ()
        document["dedicated_cpus"] = sorted(vcpu for cell in cells for vcpu, _ in cell.pinning)
    return document


def _devices(guest: GuestSpec, telling: Telling, version: str) -> list[dict[str, Json]]:
    """Return the devices with a tag. The guest finds a network device by its MAC, a volume or local disk by its
    serial; its root disk is always the first."""
    devices: list[dict[str, Json]] = []
    for port in (port for port in guest.ports if port.tag):
        at = telling.devices.get(port.port_id, BusAddress())
        nic: dict[str, Json] = {
            "type": "nic",
            "bus": at.bus,
            "address": at.address,
            "mac": port.mac,
            "tags": [port.tag],
        }
        devices.append({**nic, "vf_trusted": False} if version >= ROCKY else nic)
    for volume in (volume for volume in guest.volumes if volume.tag):
        at = telling.devices.get(volume.volume, BusAddress())
        disk = {"type": "disk", "bus": at.bus, "address": at.address, "serial": volume.volume}
        devices.append({**disk, "path": volume.device, "tags": [volume.tag]})
    for name, tag in guest.disk_tags.items():
        at = telling.devices.get(name, BusAddress())
        identity = {"path": ROOT_DEVICE} if name == ROOT else {"serial": name}
        devices.append({"type": "disk", "bus": at.bus, "address": at.address, **identity, "tags": [tag]})
    return devices


def _hostname(guest: GuestSpec, telling: Telling) -> str:
    """Return the host name with the domain, unless the owner named one (microversion 2.94)."""
    name = guest.contents.hostname or guest.server
    return f"{name}.{telling.dhcp_domain}" if telling.dhcp_domain and "." not in name else name


def _decoded(text: str) -> bytes:
    return base64.b64decode("".join(text.split()))
