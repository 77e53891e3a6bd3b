"""`kilonova db restored` and `kilonova db lost`: go on after a database was restored, or lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from kilonova.cli.opening import address_opener, addresses, set_up_logs, with_created
from kilonova.cli.options import DEFAULT_DATA, Config, Data, Form, Format, Overrides
from kilonova.cli.output import print_data, print_lines
from kilonova.domain.errors import Refused

if TYPE_CHECKING:
    from kilonova.engine.restored import RestoreReport
    from kilonova.settings import Settings


def restored(
    *, data: Data = DEFAULT_DATA, config: Config = None, overrides: Overrides = None, form: Format = "table"
) -> None:
    """Resume after an older copy of a database was restored: begin a new era. May be repeated.

    Operations that were under way end as abandoned, and hosts report their guests again. No copy of a guest is removed.
    Work on files of volumes and images that was under way is ended and listed; no file is removed or overwritten.
    Volumes that went with their servers are kept and listed.
    Refused while another process uses the directory; the processes of a fleet resume by themselves.
    """
    import asyncio

    from kilonova.settings import load
    from kilonova.store.data_directory import DataDirectory

    settings = load(data, config, overrides or [])
    if settings.database.is_set:
        asyncio.run(_restored(settings, data, form))
        return
    if not (data / "control.db").exists():
        raise Refused("no_databases", f"data directory {data}: no control.db there; name the directory with --data")
    with DataDirectory(data) as directory:
        directory.keep_all()
        asyncio.run(_restored(settings, data, form))


async def _restored(settings: Settings, data: Path, form: Form) -> None:
    from kilonova.engine.restored import begin_era
    from kilonova.runtime import SystemClock
    from kilonova.store.open_stores import open_stores

    set_up_logs(settings)
    urls, fleet = addresses(settings, data), settings.database.is_set
    unseal = address_opener(settings, data)
    stores = await open_stores(urls, None if fleet else data, unseal, clock=SystemClock(), upgrading=False)
    try:
        eras = await begin_era(stores)
    finally:
        await stores.close()
    if form != "table":
        print_data(
            [{**done._asdict(), "files": [*done.files], "kept": [*done.volume_sentences]} for done in eras], form
        )
        return
    print_lines([line for done in eras for line in _era_lines(done)])
    print("hosts report their guests now; see `kilonova quarantine list`, `kilonova host list` and `kilonova audit`")


def _era_lines(done: RestoreReport) -> list[str]:
    counts = {
        "operations abandoned": done.abandoned,
        "servers to be compared": done.servers,
        "records made again": done.recorded,
        "attached volumes recorded again": done.attached,
        "servers mapped again": done.mapped,
        "pieces of file work ended": len(done.files),
        "volumes that go with their server no more": len(done.volume_sentences),
    }
    always = ("operations abandoned", "servers to be compared")
    amounts = [f"{name}: {count}" for name, count in counts.items() if count or name in always]
    first = f"{done.name:<10} era {done.before} -> {done.era}   {', '.join(amounts)}"
    return [first, *(f"{done.name:<10} {sentence}" for sentence in (*done.files, *done.volume_sentences))]


def lost(
    name: Annotated[str, Parameter(help="Name of the cell.")],
    /,
    *,
    reason: Annotated[str, Parameter(help="Why; it is recorded in the control database and in the log.")],
    data: Data = DEFAULT_DATA,
    config: Config = None,
    overrides: Overrides = None,
    form: Format = "table",
) -> None:
    """Replace a cell's database that is lost and has no backup by an empty one. May be repeated until it is done.

    Refused while the cell's own database answers. Servers and hosts are recorded again from control and placement;
    hosts then report their guests. Refused while another process uses the directory, or a conductor of the fleet works.
    """
    import asyncio

    from kilonova.settings import load
    from kilonova.store.data_directory import DataDirectory

    settings = load(data, config, overrides or [])
    if settings.database.is_set:
        everything = with_created(settings, addresses(settings, data), data)
        asyncio.run(_lost(settings, data, name, everything.get(name, ""), reason, form))
        return
    if not (data / "control.db").exists():
        raise Refused("no_databases", f"data directory {data}: no control.db there; name the directory with --data")
    with DataDirectory(data) as directory:
        directory.keep_all()
        everything = with_created(settings, addresses(settings, data), data)
        asyncio.run(_lost(settings, data, name, everything.get(name, ""), reason, form))


async def _lost(settings: Settings, data: Path, name: str, url: str, reason: str, form: Form) -> None:
    from kilonova.engine.lost_cell import remake
    from kilonova.runtime import SystemClock, Uuids
    from kilonova.store.lost_databases import refuse_while_conductors_work, replace_lost
    from kilonova.store.open_stores import open_stores

    set_up_logs(settings)
    urls, fleet, clock = addresses(settings, data), settings.database.is_set, SystemClock()
    unseal = address_opener(settings, data)
    directory = None if fleet else data
    stores = await open_stores(urls, directory, unseal, clock=clock, upgrading=False, goes_on=True)
    try:
        if fleet:
            await refuse_while_conductors_work(stores)
        loss = await replace_lost(stores, name, url, reason, new_id=Uuids().uuid, clock=clock)
        remade = await remake(stores, loss)
    finally:
        await stores.close()
    counts = {"servers": remade.servers, "hosts": remade.hosts, "unrecorded": remade.unrecorded}
    if form != "table":
        print_data({"cell": name, **{key: loss[key] for key in ("store_id", "replacement", "era")}, **counts}, form)
        return
    print(f"{name:<10} store {loss['store_id']} is replaced by {loss['replacement']}, era {loss['era']}")
    print(f"{name:<10} servers recorded again: {remade.servers}, hosts recorded again: {remade.hosts}")
    if remade.unrecorded:
        print(f"{name:<10} servers without a request spec, not recorded: {remade.unrecorded}; see `kilonova audit`")
    print("hosts report their guests now; see `kilonova host list`, `kilonova quarantine list` and `kilonova audit`")
