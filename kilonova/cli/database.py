"""`kilonova db …`: the schema of the databases."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from kilonova.cli.options import DEFAULT_DATA, Config, Data, Form, Format, Overrides
from kilonova.cli.output import print_list
from kilonova.domain.errors import Failed, KilonovaError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from kilonova.domain.errors import StoreError
    from kilonova.settings import Settings

app = App(name="db", help="The databases: status, upgrade, check, restored, lost, purge.")

STATUS_HEADERS = ("database", "revision", "needs", "state", "address")
SEAL_KEY_NAME = "seal.key"
EMBEDDED = ("control", "placement", "cell0")


def addresses(settings: Settings, data: Path) -> dict[str, str]:
    """By name: those of the configuration, else the files of the data directory."""
    database = settings.database
    if database.is_set:
        return {"control": database.control, "placement": database.placement, **database.cells}
    from kilonova.store.open import file_url

    cells = [f"cell{number}" for number in range(1, settings.simulated.cells + 1)]
    return {name: file_url(data, name) for name in (*EMBEDDED, *cells)}


def address_opener(settings: Settings, data: Path) -> Callable[[str], str]:
    """Opens the addresses that control has sealed; reads the key when there is one to open."""

    def unseal(sealed: str) -> str:
        from kilonova.domain.errors import StoreError
        from kilonova.engine.secrets import Seal
        from kilonova.store.directory import read_secret

        fleet = settings.database.is_set
        file = Path(settings.secrets.key_file) if fleet and settings.secrets.key_file else data / SEAL_KEY_NAME
        try:
            return Seal(read_secret(file).encode()).open_text(sealed)
        except (Failed, ValueError):
            text = f"its address was sealed with another key than {file}; every process of a cloud needs the same key"
            raise StoreError(text) from None

    return unseal


@app.command
def status(
    *, data: Data = DEFAULT_DATA, config: Config = None, overrides: Overrides = None, form: Format = "table"
) -> None:
    """Show the schema revision of each database and the one that this program needs. Changes nothing."""
    from kilonova.schema.revisions import role_of
    from kilonova.settings import load
    from kilonova.store.upgrade import status_blocking

    settings = load(data, config, overrides or [])
    records = []
    for name, url in _with_made(settings, addresses(settings, data), data).items():
        found = status_blocking(url, role_of(name))
        word = "current" if found.is_current else "newer than this program" if found.is_newer else "to be upgraded"
        record = {"database": name, "revision": found.current, "needs": found.head, "state": word}
        records.append({**record, "address": found.where})
    print_list(records, {header: header for header in STATUS_HEADERS}, form)


@app.command
def upgrade(*, data: Data = DEFAULT_DATA, config: Config = None, overrides: Overrides = None) -> None:
    """Upgrade every database to the revision that this program needs. Refused while another process uses the directory.

    Exit code 4 when it stopped half-way; the message says which databases were upgraded.
    """
    from kilonova.settings import load

    settings = load(data, config, overrides or [])
    urls = addresses(settings, data)
    if settings.database.is_set:
        _upgrade_all(settings, urls, data)
        return
    from kilonova.store.directory import DataDirectory

    refuse_newer(urls)
    with DataDirectory(data) as directory:
        _upgrade_all(settings, urls, data)
        directory.keep_all()


@app.command
def restored(*, data: Data = DEFAULT_DATA, config: Config = None, overrides: Overrides = None) -> None:
    """Resume after an older copy of a database was restored: begin a new era. May be repeated.

    Operations that were under way end as abandoned, and hosts report their guests again. No copy of a guest is removed.
    Work on files of volumes and images that was under way is ended and listed; no file is removed or overwritten.
    Volumes that went with their servers are kept and listed.
    Refused while another process uses the directory; the processes of a fleet resume by themselves.
    """
    import asyncio

    from kilonova.settings import load
    from kilonova.store.directory import DataDirectory

    settings = load(data, config, overrides or [])
    if settings.database.is_set:
        asyncio.run(_restored(settings, data))
        return
    if not (data / "control.db").exists():
        raise Refused("no_databases", f"data directory {data}: no control.db there; name the directory with --data")
    with DataDirectory(data) as directory:
        directory.keep_all()
        asyncio.run(_restored(settings, data))


async def _restored(settings: Settings, data: Path) -> None:
    from kilonova.engine.restored import begin_era
    from kilonova.runtime import SystemClock
    from kilonova.store.open import open_stores

    _set_up_logs(settings)
    urls, fleet = addresses(settings, data), settings.database.is_set
    unseal = address_opener(settings, data)
    stores = await open_stores(urls, None if fleet else data, unseal, clock=SystemClock(), upgrading=False)
    try:
        for done in await begin_era(stores):
            told = f"operations abandoned: {done.abandoned}, servers to be compared: {done.servers}"
            told += f", records made again: {done.recorded}" if done.recorded else ""
            told += f", attached volumes recorded again: {done.attached}" if done.attached else ""
            told += f", servers mapped again: {done.mapped}" if done.mapped else ""
            told += f", pieces of file work ended: {len(done.files)}" if done.files else ""
            told += f", volumes that go with their server no more: {len(done.kept)}" if done.kept else ""
            print(f"{done.name:<10} era {done.before} -> {done.era}   {told}")
            for sentence in (*done.files, *done.kept):
                print(f"{done.name:<10} {sentence}")
    finally:
        await stores.close()
    print("hosts report their guests now; see `kilonova quarantine list`, `kilonova host list` and `kilonova audit`")


@app.command
def lost(
    name: Annotated[str, Parameter(help="Name of the cell.")],
    /,
    *,
    reason: Annotated[str, Parameter(help="Why; it is recorded in the control database and in the log.")],
    data: Data = DEFAULT_DATA,
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Replace a cell's database that is lost and has no backup by an empty one. May be repeated until it is done.

    Refused while the cell's own database answers. Servers and hosts are recorded again from control and placement;
    hosts then report their guests. Refused while another process uses the directory, or a conductor of the fleet works.
    """
    import asyncio

    from kilonova.settings import load
    from kilonova.store.directory import DataDirectory

    settings = load(data, config, overrides or [])
    if settings.database.is_set:
        everything = _with_made(settings, addresses(settings, data), data)
        asyncio.run(_lost(settings, data, name, everything.get(name, ""), reason))
        return
    if not (data / "control.db").exists():
        raise Refused("no_databases", f"data directory {data}: no control.db there; name the directory with --data")
    with DataDirectory(data) as directory:
        directory.keep_all()
        everything = _with_made(settings, addresses(settings, data), data)
        asyncio.run(_lost(settings, data, name, everything.get(name, ""), reason))


async def _lost(settings: Settings, data: Path, name: str, url: str, reason: str) -> None:
    from kilonova.engine.lost_cell import remake
    from kilonova.runtime import SystemClock, Uuids
    from kilonova.store.lost import refuse_while_conductors_work, replace_lost
    from kilonova.store.open import open_stores

    _set_up_logs(settings)
    urls, fleet, clock = addresses(settings, data), settings.database.is_set, SystemClock()
    unseal = address_opener(settings, data)
    directory = None if fleet else data
    stores = await open_stores(urls, directory, unseal, clock=clock, upgrading=False, goes_on=True)
    try:
        if fleet:
            await refuse_while_conductors_work(stores)
        word = await replace_lost(stores, name, url, reason, new_id=Uuids().uuid, clock=clock)
        remade = await remake(stores, word)
    finally:
        await stores.close()
    print(f"{name:<10} store {word['store_id']} is replaced by {word['replacement']}, era {word['era']}")
    print(f"{name:<10} servers recorded again: {remade.servers}, hosts recorded again: {remade.hosts}")
    if remade.unrecorded:
        print(f"{name:<10} servers without a request spec, not recorded: {remade.unrecorded}; see `kilonova audit`")
    print("hosts report their guests now; see `kilonova host list`, `kilonova quarantine list` and `kilonova audit`")


def _set_up_logs(settings: Settings) -> None:
    """An administrator's word has a line in the log, also when a command carries it out."""
    from kilonova.logs import set_up

    if not logging.getLogger().hasHandlers():  # a program that calls this has its own
        set_up(settings.default.log_level, use_json=settings.default.use_json)


@app.command
def purge(
    *,
    before: Annotated[float | None, Parameter(help="Age in days, at least 1. Without it: [retention] days.")] = None,
    data: Data = DEFAULT_DATA,
    config: Config = None,
    overrides: Overrides = None,
    form: Format = "table",
) -> None:
    """Remove records of operations that ended, and of servers that were deleted, more than --before DAYS ago.

    Records of the failure watch about hosts that came back go, too. What is live, owed by a host, in quarantine or a
    finding stays. Refused while another process uses the directory; the processes of a fleet may run meanwhile.
    """
    import asyncio

    from kilonova.settings import load
    from kilonova.store.directory import DataDirectory
    from kilonova.store.forgetting import LEAST_DAYS

    settings = load(data, config, overrides or [])
    days = settings.retention.days if before is None else before
    if before is None and not days:
        raise Refused("no_retention", "[retention] days = 0 keeps records for ever; use --before DAYS to purge now")
    if days < LEAST_DAYS:
        raise Refused(
            "too_young", f"--before {days:g}: records stay at least {LEAST_DAYS:g} day; use --before 1 or more"
        )
    if settings.database.is_set:
        asyncio.run(_purge(settings, data, days, form))
        return
    if not (data / "control.db").exists():
        raise Refused("no_databases", f"data directory {data}: no control.db there; name the directory with --data")
    with DataDirectory(data) as directory:
        directory.keep_all()
        asyncio.run(_purge(settings, data, days, form))


async def _purge(settings: Settings, data: Path, days: float, form: Form) -> None:
    from kilonova.runtime import SystemClock
    from kilonova.store.open import open_stores
    from kilonova.store.purge import log_purge
    from kilonova.store.purge import purge as purge_stores

    _set_up_logs(settings)
    urls, fleet = addresses(settings, data), settings.database.is_set
    unseal = address_opener(settings, data)
    stores = await open_stores(urls, None if fleet else data, unseal, clock=SystemClock(), upgrading=False)
    try:
        counts = await purge_stores(stores, days)
    finally:
        await stores.close()
    log_purge(days, counts)
    rows = [{"table": table, "rows": count} for table, count in sorted(counts.items())]
    print_list(rows, {"table": "table", "rows": "rows"}, form)
    if form == "table":
        print(f"purged: {counts.total()} rows of records that ended more than {days:g} days ago")


@app.command
def check(*, data: Data = DEFAULT_DATA, config: Config = None, overrides: Overrides = None) -> None:
    """Check that databases and directories belong to one cloud and one moment, as a backup must. Changes nothing.

    Exit code 3 and the reasons when they are not.
    """
    import asyncio

    from kilonova.settings import load
    from kilonova.store.wholeness import check_whole

    settings = load(data, config, overrides or [])
    urls = addresses(settings, data)
    fleet = settings.database.is_set
    if not fleet and not (data / "control.db").exists():
        raise Refused("no_databases", f"data directory {data}: no control.db there; name the directory with --data")
    everything = _with_made(settings, urls, data)
    named = settings.image.filesystem_store_datadir
    folders = {"images": Path(named) if named else data / "images", "volumes": data / "volumes"}
    report = asyncio.run(check_whole(everything, None if fleet else folders))
    for line in report.lines:
        print(line)
    if report.wrong:
        raise Refused("not_whole", "not whole: " + "; ".join(report.wrong))
    print("whole: databases and directories belong together and are of one moment")


def _upgrade_all(settings: Settings, urls: dict[str, str], data: Path) -> None:
    """Upgrade control first, because it lists more cells. All databases are read before the first one is changed."""
    import asyncio

    from kilonova.domain.errors import StoreError
    from kilonova.runtime import SystemClock, Uuids
    from kilonova.store.open import claim_all
    from kilonova.store.roll import call_roll

    refuse_newer(urls)
    roll = asyncio.run(call_roll(urls, {}, new_id=Uuids().uuid, may_begin=True))
    everything = _with_made(settings, urls, data)
    for name, url in everything.items():
        asyncio.run(roll.check(name, url))
    pending = ["control", *(name for name in everything if name != "control")]
    upgraded: list[str] = []
    try:
        while pending:
            if _upgrade(pending[0], everything[pending[0]]):
                upgraded.append(pending[0])
            del pending[0]
        asyncio.run(claim_all(roll, everything, SystemClock()))
    except StoreError as error:
        raise _half_upgraded(error, upgraded, pending, list(roll.unlisted)) from error


def _upgrade(name: str, url: str) -> bool:
    """Return whether the database was changed."""
    from kilonova.schema.revisions import role_of
    from kilonova.store.upgrade import upgrade_blocking

    before = upgrade_blocking(url, role_of(name))
    print(f"{name:<10} {before.current or 'none'} -> {before.head}", flush=True)
    return not before.is_current


def _half_upgraded(error: StoreError, upgraded: list[str], pending: list[str], marked: list[str]) -> KilonovaError:
    """The error with the names of the databases that were changed before it. `marked` have the cloud's id already."""
    where = f"at {pending[0]}" if pending else "after the last revision, when databases got the id of their cloud"
    text = f"db upgrade stopped {where}: {error}"
    if not upgraded and not marked:
        return Refused("not_upgraded", f"{text}; nothing was changed")
    changes = [f"upgraded: {', '.join(upgraded) or 'none'}"]
    if pending:
        changes.append(f"not upgraded: {', '.join(pending)}")
    changes.append("repair the cause and run `kilonova db upgrade` again, it continues there")
    return Failed("half_upgraded", "; ".join([text, *changes]))


def _with_made(settings: Settings, urls: dict[str, str], data: Path) -> dict[str, str]:
    """Those of the configuration, and the cells that were made since; only control knows these."""
    import asyncio

    from kilonova.runtime import SystemClock
    from kilonova.store.open import made_cells

    made = made_cells(urls["control"], data, address_opener(settings, data), SystemClock())
    return {**asyncio.run(made), **urls}


def refuse_newer(urls: dict[str, str]) -> None:
    """Look at all of them before the first one is touched."""
    from kilonova.schema.revisions import role_of
    from kilonova.store.upgrade import status_blocking

    for name, url in urls.items():
        status_blocking(url, role_of(name)).refuse_newer()
