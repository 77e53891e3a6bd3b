"""A guest in EC2's format: one JSON document on a config drive, one file per key at the metadata service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kilonova.domain.guest import GuestSpec
from kilonova.domain.json import Json

SHORT_ID = 8  # hexadecimal digits
NO_MANIFEST = "FIXME"  # Nova's value: images have none
PUBLIC_KEYS = "public-keys"
NAMED = "_name"  # of a key in the document: its number and name


def ec2_facts(guest: GuestSpec, hostname: str) -> dict[str, Json]:
    """Return the metadata by EC2's names; a value may be a table of the same kind."""
    contents, addresses = guest.contents, [one for port in guest.ports for one in port.addresses]
    local = next((one.address for one in addresses if one.version == 4), "")
    facts: dict[str, Json] = {
        "ami-id": _short("ami", guest.image),
        "ami-launch-index": contents.launch_index,
        "ami-manifest-path": NO_MANIFEST,
        "block-device-mapping": {"ami": "vda", "root": "/dev/vda"},
        "hostname": hostname,
        "instance-action": "none",
        "instance-id": _short("i", guest.server),
        "instance-type": contents.flavor_name,
        "local-hostname": hostname,
        "local-ipv4": local,
        "placement": {"availability-zone": contents.availability_zone},
        "public-hostname": hostname,
        "public-ipv4": "",  # a floating address may come and go without the host
        "reservation-id": contents.reservation_id,
        "security-groups": list(dict.fromkeys(name for port in guest.ports for name in port.security_groups)),
    }
    if contents.public_keys:
        facts[PUBLIC_KEYS] = {
            str(number): {NAMED: f"{number}={key.name}", "openssh-key": key.text}
            for number, key in enumerate(contents.public_keys)
        }
    return facts


def ec2_files(facts: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files by path. A path that ends with a slash is the list of that folder, if it is not just the names:
    EC2 lists keys as `number=name`."""
    files: dict[str, bytes] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            files.update({f"{name}/{path}": text for path, text in ec2_files(value).items()})
        elif name != NAMED:
            files[name] = "\n".join(value).encode() if isinstance(value, list) else str(value).encode()
    keys = facts.get(PUBLIC_KEYS, {})
    if keys:
        files[f"{PUBLIC_KEYS}/"] = "\n".join(key[NAMED] for key in keys.values()).encode()
    return files


def _short(kind: str, uuid: str) -> str:
    """Return an id of EC2's length: the first digits of ours."""
    return f"{kind}-{uuid.replace('-', '')[:SHORT_ID]:0>{SHORT_ID}}"
