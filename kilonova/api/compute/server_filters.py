"""The filters and the order of server lists, as in Nova. Filters that need a right are left out without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kilonova.api.call import Call
from kilonova.api.compute.paging import limit_of, time_of
from kilonova.api.compute.patterns import matcher
from kilonova.api.compute.server_view import zone_of
from kilonova.domain.errors import Refused, Unreachable
from kilonova.domain.flags import flag_of, is_true
from kilonova.domain.server import SOFT_DELETED
from kilonova.domain.status import status_of, vm_states_of
from kilonova.services.compute.server_lists import ServerQuery
from kilonova.services.compute.server_order import ServerOrder, ServerPage, SortKey, column_key
from kilonova.store.server_records import ServerRecord, find, find_partial

Getter = Callable[[ServerRecord], Any]
Test = Callable[[ServerRecord], bool]

ALL_FILTERS = "os_compute_api:servers:allow_all_filters"
LATE = {(2, 5): ("ip6",), (2, 26): ("tags", "tags-any", "not-tags", "not-tags-any"), (2, 66): ("changes-before",)}
LATE |= {(2, 73): ("locked",), (2, 90): ("hostname",)}
LATE[2, 83] = (
    *("availability_zone", "config_drive", "key_name", "created_at", "launched_at", "terminated_at", "power_state"),
    *("task_state", "vm_state", "progress", "user_id"),
)
FOR_ALL = {"reservation_id", "name", "display_name", "status", "image", "image_ref", "flavor", "instance_type_id", "ip"}
FOR_ALL |= {"changes-since"}
SHOWS_SOFT_DELETED = {"soft_deleted", "status", "vm_state"}
KNOWN_OF_ALL = {"project_id", "tenant_id", "deleted"}  # also of servers in unreachable cells
NOT_FILTERS = {"limit", "marker", "sort_key", "sort_dir", "all_tenants"}


def _is(getter: Getter) -> Callable[[list[str]], Test]:
    def make(values: list[str]) -> Test:
        wanted = set(values)
        return lambda record: str(getter(record)) in wanted

    return make


def _matches(getter: Getter) -> Callable[[list[str]], Test]:
    """Return a filter by pattern. The schema has checked the pattern. A missing value matches none."""

    def make(values: list[str]) -> Test:
        fits = matcher(values[-1], "pattern")
        return lambda record: any(fits(text) for text in getter(record) if text is not None)

    return make


def _flag(getter: Getter) -> Callable[[list[str]], Test]:
    def make(values: list[str]) -> Test:
        wanted = is_true(values[-1])
        return lambda record: bool(getter(record)) is wanted

    return make


def _addresses(version: int) -> Getter:
    return lambda record: [a.address for vif in record.vifs for a in vif.addresses if a.version == version]


def _tags(every: bool, negated: bool) -> Callable[[list[str]], Test]:
    def make(values: list[str]) -> Test:
        wanted = {tag for value in values for tag in value.split(",")}

        def test(record: ServerRecord) -> bool:
            has = wanted.intersection(record.details.tags)
            return (has == wanted if every else bool(has)) is not negated

        return test

    return make


def _moment(getter: Getter, name: str) -> Callable[[list[str]], Test]:
    def make(values: list[str]) -> Test:
        at = time_of(values[-1], name)
        return lambda record: getter(record) is not None and int(getter(record)) == int(at)

    return make


TESTS: dict[str, Callable[[list[str]], Test]] = {
    "reservation_id": _matches(lambda r: [r.details.reservation_id]),
    "name": _matches(lambda r: [r.name]),
    "display_name": _matches(lambda r: [r.name]),
    "status": lambda values: _status(values),
    "image": _is(lambda r: r.image_ref),
    "image_ref": _is(lambda r: r.image_ref),
    "flavor": _is(lambda r: r.flavor.id),
    "instance_type_id": _is(lambda r: r.flavor.id),
    "ip": _matches(_addresses(4)),
    "ip6": _matches(_addresses(6)),
    "tags": _tags(every=True, negated=False),
    "tags-any": _tags(every=False, negated=False),
    "not-tags": _tags(every=True, negated=True),
    "not-tags-any": _tags(every=False, negated=True),
    "locked": _flag(lambda r: r.details.locked_by is not None),
    "locked_by": _matches(lambda r: [r.details.locked_by]),
    "hostname": _matches(lambda r: [r.details.hostname]),
    "availability_zone": _matches(lambda r: [zone_of(r)]),
    "config_drive": _flag(lambda r: r.details.config_drive),
    "key_name": _matches(lambda r: [r.details.key_name]),
    "created_at": _moment(lambda r: r.created_at, "created_at"),
    "launched_at": _moment(lambda r: r.launched_at, "launched_at"),
    "terminated_at": _moment(lambda r: r.terminated_at, "terminated_at"),
    "power_state": _is(lambda r: r.power_state),
    "task_state": _is(lambda r: r.task_state),
    "vm_state": _is(lambda r: r.vm_state),
    "progress": _is(lambda r: 0),
    "user_id": _is(lambda r: r.user_id),
    "host": _is(lambda r: r.host),
    "node": _matches(lambda r: [r.host]),
    "uuid": _is(lambda r: r.id),
    "launch_index": _is(lambda r: r.details.launch_index),
    "kernel_id": _is(lambda r: ""),
    "ramdisk_id": _is(lambda r: ""),
    "description": _matches(lambda r: [r.details.description or ""]),
    "display_description": _matches(lambda r: [r.details.description or ""]),
    "root_device_name": _matches(lambda r: [r.details.root_device_name]),
    "access_ip_v4": _matches(lambda r: [r.details.access_ip_v4]),
    "access_ip_v6": _matches(lambda r: [r.details.access_ip_v6]),
    "auto_disk_config": _flag(lambda r: r.details.disk_config == "AUTO"),
    "soft_deleted": _flag(lambda r: r.vm_state == SOFT_DELETED),
}
SORT: dict[str, str | Getter] = {  # a column of the row, or a function of the record
    "access_ip_v4": lambda r: r.details.access_ip_v4,
    "access_ip_v6": lambda r: r.details.access_ip_v6,
    "auto_disk_config": lambda r: r.details.disk_config == "AUTO",
    "availability_zone": zone_of,
    "config_drive": lambda r: r.details.config_drive,
    "created_at": "created_at",
    "display_description": lambda r: r.details.description,
    "display_name": "name",
    "host": "host",
    "hostname": lambda r: r.details.hostname,
    "image_ref": "image_ref",
    "instance_type_id": lambda r: r.flavor.id,
    "key_name": lambda r: r.details.key_name,
    "launch_index": lambda r: r.details.launch_index,
    "launched_at": "launched_at",
    "locked": lambda r: r.details.locked_by is not None,
    "locked_by": lambda r: r.details.locked_by,
    "node": "host",
    "power_state": "power_state",
    "project_id": "project_id",
    "root_device_name": lambda r: r.details.root_device_name,
    "task_state": "task_state",
    "terminated_at": "terminated_at",
    "updated_at": "updated_at",
    "user_id": "user_id",
    "uuid": "id",
    "vm_state": "vm_state",
}
ALL_ALIKE = ("kernel_id", "progress", "ramdisk_id")  # keys that may be given and sort nothing


def _status(values: list[str]) -> Test:
    wanted = {value.upper() for value in values}
    return lambda record: status_of("deleted" if record.deleted else record.vm_state, record.task_state) in wanted


async def requested(call: Call, all_tenants_rule: str) -> tuple[ServerQuery, ServerOrder, ServerPage] | None:
    """Return what a list request selects, its order and its page; None if nothing can match."""
    given = _allowed(call)
    wanted = ServerQuery(project_id=_project(call, given, all_tenants_rule))
    wanted.skips_away = call.settings.api.list_records_by_skipping_down_cells
    tests = [TESTS[name](values) for name, values in given.items() if name in TESTS]
    if "status" in given and not _possible(call, given["status"]):
        return None
    _deleted(call, given, wanted)
    wanted.partial = call.at(2, 69) and given.keys() <= KNOWN_OF_ALL and wanted.deleted is False
    if "host" in given and len(set(given["host"])) == 1:
        wanted.host = given["host"][0]
    _changes(call, given, wanted)
    if (
        call.settings.default.reclaim_instance_interval
        and wanted.deleted is False
        and not SHOWS_SOFT_DELETED & given.keys()
    ):
        tests.append(lambda record: record.vm_state != SOFT_DELETED)
    if tests:
        wanted.matches = lambda record: all(test(record) for test in tests)
    return wanted, _order(call), await _page(call)


def _allowed(call: Call) -> dict[str, list[str]]:
    """Return the filters that the caller may use: without the right to all of them, those of the version. Others are
    ignored (from 2.75 the schema refuses them)."""
    given = {name: call.query.getlist(name) for name in call.query if name not in NOT_FILTERS}
    if call.allows(ALL_FILTERS):
        return given
    known = FOR_ALL | {name for since, names in LATE.items() if call.version >= since for name in names}
    return {name: values for name, values in given.items() if name in known}


def by_address(call: Call) -> bool:
    return "ip" in call.query or "ip6" in call.query


def by_zone(call: Call) -> bool:
    return "availability_zone" in (*call.query.keys(), *call.query.getlist("sort_key"))


def _project(call: Call, given: dict[str, list[str]], rule: str) -> str | None:
    given_all = call.query.get("all_tenants", "0")
    everybody = flag_of(given_all) if given_all else True
    if everybody is None:
        raise Refused(400, f"all_tenants: {given_all[:40]!r} is neither true nor false")
    if not everybody:
        return call.caller.project_id
    call.require(rule)
    named = given.get("project_id") or given.get("tenant_id")
    return named[-1] if named else None


def _possible(call: Call, statuses: list[str]) -> bool:
    """Return False if no status is known; from 2.38 on, raise `Refused` instead."""
    vm_states = vm_states_of(statuses)
    if not vm_states and call.at(2, 38):
        raise Refused(400, f"Invalid status value: {statuses[-1][:60]}")
    return bool(vm_states)


def _deleted(call: Call, given: dict[str, list[str]], wanted: ServerQuery) -> None:
    statuses = {status.upper() for status in given.get("status", [])}
    if "DELETED" in statuses:
        if not call.caller.is_admin:
            raise Refused(403, "Only administrators may list deleted instances")
        wanted.deleted = None if len(statuses) > 1 else True
    elif "deleted" in given:
        wanted.deleted = is_true(given["deleted"][-1])


def _changes(call: Call, given: dict[str, list[str]], wanted: ServerQuery) -> None:
    """Read the filters on changes. Changes include deletions. The database applies these filters, so that a client that
    polls every minute does not read all servers that ever existed."""
    since, before = given.get("changes-since"), given.get("changes-before")
    if since:
        wanted.changed_since = time_of(since[-1], "changes-since")
    if before:
        latest = time_of(before[-1], "changes-before")
        if since and latest < time_of(since[-1], "changes-since"):
            raise Refused(400, "The value of changes-since must be less than or equal to changes-before.")
        wanted.changed_before = latest
    if (since or before) and "deleted" not in given and "status" not in given:
        wanted.deleted = None


def _order(call: Call) -> ServerOrder:
    keys, directions = call.query.getlist("sort_key"), call.query.getlist("sort_dir")
    if len(directions) > len(keys) and not (len(directions) == 1 and not keys):
        raise Refused(400, "Sort direction array is longer than the sort keys")
    if {"host", "node"}.intersection(keys) and not call.allows(ALL_FILTERS):
        raise Refused(403, "Only administrators can sort servers by host or node")
    if not keys and directions == ["asc"]:
        keys = ["created_at", "uuid"]
    sort_keys = []
    for n, key in enumerate(keys):
        direction = directions[n] if n < len(directions) else directions[0] if directions else "desc"
        if key not in ALL_ALIKE:
            sort_keys.append(key_of(key, direction == "desc"))
    return ServerOrder(sort_keys)


def key_of(name: str, descending: bool) -> SortKey:
    by = SORT[name]
    return column_key(by, descending) if isinstance(by, str) else SortKey(by, descending)


async def _page(call: Call) -> ServerPage:
    page = ServerPage(limit_of(call))
    marker = call.query.get("marker")
    if marker:
        try:
            page.after = await find(call.db, marker, deleted=True)
        except Unreachable:
            page.after = await find_partial(call.db, marker)
        if page.after is None or (page.after.project_id != call.caller.project_id and not call.caller.is_admin):
            raise Refused(400, f"marker [{marker[:60]}] not found")
    return page
