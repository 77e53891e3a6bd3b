"""POST /servers: everything that can be known to be wrong is said before anything is stored."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import string
from typing import Any

import msgspec
from starlette.responses import Response

from kilonova.api.call import OPERATION_HEADER, Call, answer
from kilonova.api.compute.image_devices import devices_in, merged
from kilonova.api.compute.repeating import idempotency_key, random_text
from kilonova.api.compute.schemas.types import is_true
from kilonova.api.compute.server_destination import destination_of, zone_with_volumes
from kilonova.api.compute.server_devices import check_devices, devices_of, disk_tags, with_local_disks, wrong
from kilonova.api.compute.server_disks import Disks, disks_for, find_image, image_details
from kilonova.api.compute.server_hardware import with_hardware
from kilonova.api.compute.server_networks import networks_for
from kilonova.domain.details import Details
from kilonova.domain.errors import Refused
from kilonova.domain.guest_contents import PublicKey, is_mandatory
from kilonova.domain.server import Flavor, to_json
from kilonova.operations.new_servers import NewServer, NewServers, create_many, known_creates
from kilonova.services.compute.server_groups import unknown
from kilonova.services.image.image import Image
from kilonova.store.server_records import find

CERTIFICATES = "os_compute_api:servers:create:trusted_certs"
PASSWORD_LENGTH = 12
VOLUME_GONE = ("invalid_volume", "volume_not_found")  # somebody else was faster
MOST_AT_ONCE = 1000  # also where no quota ends it: they are all in one transaction


async def create(call: Call) -> Response:
    wish = call.body["server"]
    password = wish.get("adminPass") or new_password(call)
    if (before := await _made_before(call)) is not None:
        server, operation, details = before
        return _answer(call, wish, server, operation, details, password)
    wanted, details = await checked(call, wish, password)
    try:
        made = await create_many(call.engine, wanted, call.cause, idempotency_key(call))
    except Refused as why:
        raise wrong(why.message) if why.code in VOLUME_GONE else why from None
    return _answer(call, wish, made[0][0], made[0][1].operation_id, details, password)


async def checked(call: Call, wish: dict[str, Any], password: str, *, dry: bool = False) -> tuple[NewServers, Details]:
    """What is asked for, once nothing is wrong with it; a dry run (api/extra/plan_create.py) goes no further."""
    least, most = _counts(wish)
    destination = await destination_of(call, wish)
    devices, image = devices_of(wish), await _image(call, wish)
    if image is not None:
        devices = merged(devices, devices_in(image.properties, image.id))
    flavor = await _flavor(call, wish)
    check_devices(devices, flavor, call.settings.default.max_local_block_devices)
    disks = await disks_for(call, devices, image, flavor, most)
    _check_certificates(call, wish, disks)
    flavor = with_local_disks(with_hardware(call, flavor, disks.image), devices)
    zone = zone_with_volumes(call, destination, disks.zones)
    networks = await networks_for(call, wish, most)
    most = await call.service.networks.room(call.caller, networks, least, most)
    groups = _group_names(wish)
    check_groups = call.service.networks.check_security_groups
    group_ids = await check_groups(call.caller, groups, may_make=not dry) if groups else []
    await check_files(call, wish)
    group = await _server_group(call)
    details = await _details(call, wish, disks, groups, zone)
    details.disk_tags = disk_tags(devices, flavor)

    def make(count: int) -> list[NewServer]:
        return [
            NewServer(
                name=_numbered(wish["name"], n, count),
                flavor=flavor,
                image="" if disks.volume_backed or disks.image is None else disks.image.id,
                host=destination.host,
                forced=destination.forced,
                details=_own_details(details, n, count, wish),
                networks=[msgspec.to_builtins(port) for port in networks],
                security_groups=group_ids,
                volumes=[msgspec.to_builtins(one) for one in disks.volumes],
                secrets={"admin_pass": password},
                group=group,
            )
            for n in range(count)
        ]

    return NewServers(flavor=flavor, least=least, most=most, make=make), details


async def _made_before(call: Call) -> tuple[str, str, Details] | None:
    """By the same request with the same key. It is answered before anything is checked: what it has made may be just
    what there is no room for a second time."""
    key = idempotency_key(call)
    made = await known_creates(call.engine, key, call.cause) if key is not None else []
    if not made:
        return None
    record = await find(call.db, made[0][0], deleted=True)
    return made[0][0], made[0][1].operation_id, Details() if record is None else record.details


def _group_names(wish: dict[str, Any]) -> list[str]:
    return [group["name"] for group in wish.get("security_groups", []) if "name" in group]


def _answer(call: Call, wish: dict[str, Any], server: str, operation: str, details: Details, password: str) -> Response:
    headers = {OPERATION_HEADER: operation}
    if is_true(wish.get("return_reservation_id", False)):
        return answer({"reservation_id": details.reservation_id}, 202, headers)
    href = call.url(f"/servers/{server}")
    shown = {
        "id": server,
        "links": [
            {"rel": "self", "href": href},
            {"rel": "bookmark", "href": f"{call.service.public_url}/compute/servers/{server}"},
        ],
        "OS-DCF:diskConfig": details.disk_config,
        "security_groups": [{"name": name} for name in (_group_names(wish) or ["default"])],
        **shown_password(call, password),
    }
    return answer({"server": shown}, 202, {**headers, "Location": href})


def shown_password(call: Call, password: str) -> dict[str, str]:
    """Where guests do not take it, telling one would mislead."""
    return {"adminPass": password} if call.settings.api.enable_instance_password else {}


def _counts(wish: dict[str, Any]) -> tuple[int, int]:
    """At least and at most: as many are made as the quotas have room for."""
    low = int(wish.get("min_count", 1))
    high = int(wish.get("max_count", low))
    if low > high:
        raise Refused(400, "min_count must be <= max_count")
    if low > MOST_AT_ONCE:
        raise Refused(403, f"Quota exceeded: one request makes at most {MOST_AT_ONCE} servers, not {low}.")
    if high > 1 and wish.get("hostname"):
        raise Refused(400, "Cannot create multiple servers with a specific hostname.")
    return low, min(high, MOST_AT_ONCE)


async def _flavor(call: Call, wish: dict[str, Any]) -> Flavor:
    try:
        found = await call.service.flavors.find(str(wish["flavorRef"]), caller=call.caller)
    except Refused as why:
        raise Refused(400, why.message) from None
    return found.shape()


async def _image(call: Call, wish: dict[str, Any]) -> Image | None:
    image_id = wish.get("imageRef", "")
    if not image_id:
        if wish.get("block_device_mapping") or wish.get("block_device_mapping_v2"):
            return None
        raise Refused(400, "Invalid imageRef provided.")
    return await find_image(call, image_id)


def _check_certificates(call: Call, wish: dict[str, Any], disks: Disks) -> None:
    if not wish.get("trusted_image_certificates"):
        return
    call.require(CERTIFICATES)
    if disks.volume_backed:
        raise Refused(400, "Image certificate validation is not supported when booting from volume")


async def _details(call: Call, wish: dict[str, Any], disks: Disks, groups: list[str], zone: str | None) -> Details:
    key_name = wish.get("key_name")
    public_key = None if key_name is None else await find_key(call, key_name)
    if wish.get("user_data") is not None:
        check_user_data(wish["user_data"])
    metadata = wish.get("metadata", {})
    await call.service.quotas.check_metadata(call.caller, len(metadata))
    image = disks.image
    description = wish.get("description") if call.at(2, 19) else wish["name"]
    hints = _hints(call)
    return Details(
        metadata=metadata,
        tags=list(dict.fromkeys(wish.get("tags", []))),
        description=description,
        hostname=wish.get("hostname") or "",
        key_name=key_name,
        public_key=public_key,
        user_data=sealed_user_data(call, wish.get("user_data")),
        personality=sealed_files(call, wish),
        config_drive=_needs_config_drive(call, wish, image),
        disk_config=wish.get("OS-DCF:diskConfig", "MANUAL"),
        access_ip_v4=wish.get("accessIPv4", ""),
        access_ip_v6=plain_address(wish.get("accessIPv6")),
        availability_zone=zone,
        pinned_zone=zone,
        reservation_id=f"r-{random_text(call, 'reservation', string.ascii_lowercase + string.digits, 8)}",
        security_groups=groups or ["default"],
        **(image_details(image) if image is not None else {}),
        volume_backed=disks.volume_backed,
        trusted_image_certificates=wish.get("trusted_image_certificates"),
        scheduler_hints={name: value if isinstance(value, list) else [value] for name, value in hints.items()},
    )


async def _server_group(call: Call) -> str | None:
    """Of the caller's own project."""
    named = _hints(call).get("group")
    if named is None:
        return None
    try:
        group = await call.service.server_groups.find(named)
    except Refused as why:
        raise Refused(400, why.message) from None
    if group.project_id != call.caller.project_id:
        raise Refused(400, unknown(named).message)
    return group.id


def _hints(call: Call) -> dict[str, Any]:
    hints: dict[str, Any] = call.body.get("os:scheduler_hints") or call.body.get("OS-SCH-HNT:scheduler_hints") or {}
    return hints


def _needs_config_drive(call: Call, wish: dict[str, Any], image: Image | None) -> bool:
    """The request, the operator or the image says so."""
    asked = is_true(wish.get("config_drive") or False) or call.settings.default.force_config_drive
    return asked or (image is not None and is_mandatory(image.properties))


async def find_key(call: Call, name: str) -> PublicKey:
    """The caller's key as it is now: the server keeps it, whatever becomes of the key pair."""
    try:
        found = await call.service.keypairs.find(call.caller.user_id, name)
    except Refused:
        raise Refused(400, "Invalid key_name provided.") from None
    return PublicKey(found.name, found.public_key, found.type)


def sealed_user_data(call: Call, text: str | None) -> str | None:
    """It often has passwords in it. The server keeps it, but nothing that is recorded shows it without the key."""
    return None if text is None else call.engine.seal.close_text(text)


def check_user_data(text: str) -> None:
    _decoded(text, "user_data")


def _own_details(details: Details, n: int, count: int, wish: dict[str, Any]) -> Details:
    """Several servers of one request differ by their number."""
    hostname = details.hostname or hostname_from(_numbered(wish["name"], n, count))
    return msgspec.structs.replace(details, launch_index=n, hostname=hostname or f"server-{n}")


def plain_address(address: str | None) -> str:
    """The shortest form: one address, one text."""
    return str(ipaddress.ip_address(address)) if address else ""


def hostname_from(name: str) -> str:
    """A label that DNS takes, made from a name that people take."""
    label = re.sub(r"[^a-z0-9-]", "", re.sub(r"[ _.]", "-", name.lower()))
    return label.strip("-")[:63].strip("-")


def _numbered(name: str, n: int, count: int) -> str:
    return name if count == 1 else f"{name[:250]}-{n + 1}"


async def check_files(call: Call, wish: dict[str, Any]) -> None:
    """How many files, how large, how long their paths: each has its quota."""
    files = wish.get("personality", [])
    if not files:
        return
    limits = await call.service.quotas.show(call.caller.project_id, call.caller.user_id)
    amounts = {
        "injected_files": len(files),
        "injected_file_path_bytes": max(len(file["path"].encode()) for file in files),
        "injected_file_content_bytes": max(len(_decoded(file["contents"], file["path"])) for file in files),
    }
    for resource, amount in amounts.items():
        if 0 <= limits[resource].limit < amount:
            raise Refused(403, f"Quota exceeded for {resource}: {amount} of {limits[resource].limit}")


def sealed_files(call: Call, wish: dict[str, Any]) -> str | None:
    """The files belong to the server, as its user data does."""
    files = [(file["path"], file["contents"]) for file in wish.get("personality", [])]
    for path, contents in files:
        _decoded(contents, f"the contents of {path}")
    return call.engine.seal.close_text(to_json(files)) if files else None


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise Refused(400, f"Invalid input: {what} is not valid base64") from None


def new_password(call: Call) -> str:
    """Nova's alphabet: nothing that looks like something else."""
    return random_text(call, "password", "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz", PASSWORD_LENGTH)
