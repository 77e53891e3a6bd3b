"""Small worlds to choose from: hosts with what placement, their cell and their aggregates say of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from kilonova.domain.guest import Hypervisor
from kilonova.domain.server import Flavor
from kilonova.placement.snapshot import PlacementSnapshot
from kilonova.placement.snapshot_reading import SnapshotChanges
from kilonova.scheduler.field import Field
from kilonova.scheduler.hosts import Hosts, HostView
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.select import Selector
from kilonova.scheduler.surroundings import NOBODY, Surroundings
from kilonova.scheduler.verdict import Decision
from kilonova.scheduler.weighers import WEIGHERS, WeighedHosts, Weigher
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import FilterOptions, SchedulerOptions, Settings

FLAVOR = Flavor(name="m1", vcpus=2, memory_mb=4096, disk_gb=20)
REQUEST = ResourceRequest(flavor=FLAVOR)


class Shelf(msgspec.Struct):
    capacity: int
    used: int = 0
    min_unit: int = 1
    max_unit: int = 1_000_000
    step_size: int = 1


class Host(msgspec.Struct, kw_only=True):
    shelves: dict[str, Shelf] = {}
    accepting: bool = True
    state: str = "up"
    known: bool = True  # by placement
    traits: tuple[str, ...] = ()
    hypervisor: Hypervisor = Hypervisor("simulated", 1, [("x86_64", "simulated", "hvm")])
    address: str = ""
    cell: str = "cell1"
    servers: int = 0
    busy: int = 0
    failed: int = 0
    devices: int = 0
    below: dict[str, dict[str, Shelf]] = {}  # nested providers by name


def big(**changes: Any) -> Host:
    shelves = {"VCPU": Shelf(64), "MEMORY_MB": Shelf(262144), "DISK_GB": Shelf(4000)}
    return Host(**{"shelves": shelves, **changes})


def sized(vcpus: int = 64, memory_mb: int = 262144, disk_gb: int = 4000, **changes: Any) -> Host:
    shelves = {"VCPU": Shelf(vcpus), "MEMORY_MB": Shelf(memory_mb), "DISK_GB": Shelf(disk_gb)}
    return Host(shelves=shelves, **changes)


def aggregate(number: int, *hosts: str, **metadata: str) -> Aggregate:
    return Aggregate(id=number, uuid=f"a-{number}", name=f"agg{number}", metadata=metadata, hosts=tuple(hosts))


def asked(**changes: Any) -> ResourceRequest:
    return msgspec.structs.replace(REQUEST, **changes)


def with_specs(**changes: Any) -> ResourceRequest:
    """`hw_cpu` stands for the key `hw:cpu`: only the first underscore is a colon."""
    specs = {key.replace("__", ":"): value for key, value in changes.items()}
    return asked(flavor=msgspec.structs.replace(FLAVOR, extra_specs=specs))


def snapshot_of(
    hosts: Mapping[str, Host], aggregates: Sequence[Aggregate] = (), more: Sequence[Any] = ()
) -> PlacementSnapshot:
    """`more`: (provider row, offers) of providers that are no hosts."""
    snapshot, providers, offers = PlacementSnapshot(), [], []
    for name, host in hosts.items():
        if not host.known:
            continue
        inside = ",".join(one.uuid for one in aggregates if name in one.hosts)
        number = len(providers)
        providers.append(_row(number, f"p-{name}", name, host.accepting, host.traits, inside))
        offers += _offers(number, host.shelves)
        for child, shelves in host.below.items():
            number = len(providers)
            providers.append(_row(number, f"p-{child}", child, True, (), "", root=f"p-{name}", parent=f"p-{name}"))
            offers += _offers(number, shelves)
    for name, traits, inside, shelves in more:
        number = len(providers)
        providers.append(_row(number, f"p-{name}", name, True, traits, inside))
        offers += _offers(number, shelves)
    snapshot.take(SnapshotChanges(1, providers, offers, []))
    return snapshot


def _row(number: int, uuid: str, name: str, accepting: bool, traits: Any, inside: str, **tree: Any) -> dict[str, Any]:
    row = {"id": number, "uuid": uuid, "name": name, "generation": 1, "accepting": accepting, "updated_at": 0.0}
    return row | {"root": uuid, "parent": None, "traits": ",".join(traits) or None, "aggregates": inside or None} | tree


def _offers(number: int, shelves: Mapping[str, Shelf]) -> list[dict[str, Any]]:
    return [{"provider_id": number, "name": name} | msgspec.structs.asdict(shelf) for name, shelf in shelves.items()]


def hosts_of(hosts: Mapping[str, Host], aggregates: Sequence[Aggregate] = ()) -> Hosts:
    kept = Hosts(
        {
            name: HostView(
                provider=f"p-{name}",
                cell=host.cell,
                state=host.state,
                state_sentence=f"{name} is {host.state}",
                hypervisor=host.hypervisor,
                address=host.address,
                failed_builds=host.failed,
                servers=host.servers,
                busy=host.busy,
                devices=host.devices,
            )
            for name, host in hosts.items()
        }
    )
    kept.join(aggregates)
    return kept


def settings(*filters: str, **options: Any) -> Settings:
    chosen = FilterOptions(enabled_filters=filters or FilterOptions().enabled_filters, **options)
    return Settings(filter_scheduler=chosen)


def choose(
    hosts: Mapping[str, Host],
    request: ResourceRequest = REQUEST,
    *,
    aggregates: Sequence[Aggregate] = (),
    by: Settings | None = None,
    around: Surroundings = NOBODY,
    seed: int = 0,
    alternates: int = 2,
    cells: Sequence[str] | None = None,
    more: Sequence[Any] = (),
) -> Decision:
    return Selector(by or Settings()).select(
        snapshot_of(hosts, aggregates, more),
        hosts_of(hosts, aggregates),
        request,
        random.Random(seed),
        cells=cells,
        around=around,
        alternates=alternates,
    )


def fitting(
    hosts: Mapping[str, Host], request: ResourceRequest, aggregates: Sequence[Aggregate] = (), **options: bool
) -> list[str]:
    """Return the names of the hosts that are chosen or are alternates, by these options of [scheduler]."""
    by = Settings(scheduler=SchedulerOptions(**options))
    return sorted(choice.host for choice in choose(hosts, request, aggregates=aggregates, by=by).taken)


def field_of(
    hosts: Mapping[str, Host], *, aggregates: Sequence[Aggregate] = (), around: Surroundings = NOBODY
) -> Field:
    return Field(snapshot_of(hosts, aggregates), hosts_of(hosts, aggregates), around=around)


def passing(filter_: type[Any], hosts: Mapping[str, Host], request: ResourceRequest, **more: Any) -> list[str]:
    """Names of the hosts that a filter lets pass."""
    by = more.pop("by", None) or Settings()
    field = field_of(hosts, **more)
    mask = filter_(by).passes(field, request)
    return [name for at, name in enumerate(field.names) if mask is None or mask[at]]


def said(filter_: type[Any], hosts: Mapping[str, Host], request: ResourceRequest, host: str, **more: Any) -> str:
    by = more.pop("by", None) or Settings()
    field = field_of(hosts, **more)
    sentence: str = filter_(by).sentence(field, request, field.hosts.index[host])
    return sentence


def weigher(name: str) -> Weigher:
    """Return a row of the table by its name."""
    return {one.name: one for one in WEIGHERS}[name]


def weights(name: str, hosts: Mapping[str, Host], request: ResourceRequest = REQUEST, **more: Any) -> list[float]:
    """Return the share that a weigher gives to each host, in the order of their names; 0 where all are equal."""
    by = more.pop("by", None) or Settings()
    field, one = field_of(hosts, **more), weigher(name)
    weighed = WeighedHosts(by, field, request, np.arange(len(field)))
    values = one.values(weighed)
    low, high = (0.0, 0.0) if values is None else (float(np.min(values)), float(np.max(values)))
    if values is None or low == high:
        return [0.0] * len(field)
    multiplied = one.multipliers(weighed) * (np.asarray(values) - low) / (high - low)
    return [round(float(value), 6) for value in multiplied]
