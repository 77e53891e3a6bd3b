"""`kilonova db …`: the schema of the databases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from kilonova.cli.after_loss import lost, restored
from kilonova.cli.opening import address_opener, addresses, refuse_newer, set_up_logs, with_created
from kilonova.cli.options import DEFAULT_DATA, Config, Data, Form, Format, Overrides
from kilonova.cli.output import print_list, print_outcome
from kilonova.domain.errors import Failed, KilonovaError, Refused

if TYPE_CHECKING:
    from kilonova.domain.errors import StoreError
    from kilonova.settings import Settings

app = App(name="db", help="The databases: status, upgrade, check, restored, lost, purge.")

STATUS_HEADERS = ("database", "revision", "needs", "state", "address")


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
    for name, url in with_created(settings, addresses(settings, data), data).items():
        revision = status_blocking(url, role_of(name))
        state = (
            "current" if revision.is_current else "newer than this program" if revision.is_newer else "to be upgraded"
        )
        record = {"database": name, "revision": revision.current, "needs": revision.head, "state": state}
        records.append({**record, "address": revision.where})
    print_list(records, {header: header for header in STATUS_HEADERS}, form)


@app.command
def upgrade(
    *, data: Data = DEFAULT_DATA, config: Config = None, overrides: Overrides = None, form: Format = "table"
) -> None:
    """Upgrade every database to the revision that this program needs. Refused while another process uses the directory.

    Exit code 4 when it stopped half-way; the message says which databases were upgraded.
    """
    from kilonova.settings import load

    settings = load(data, config, overrides or [])
    urls = addresses(settings, data)
    if settings.database.is_set:
        _upgrade_all(settings, urls, data, form)
        return
    from kilonova.store.data_directory import DataDirectory

    refuse_newer(urls)
    with DataDirectory(data) as directory:
        _upgrade_all(settings, urls, data, form)
        directory.keep_all()


app.command(restored)
app.command(lost)


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
    from kilonova.store.data_directory import DataDirectory
    from kilonova.store.expiry import LEAST_DAYS

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
    from kilonova.store.open_stores import open_stores
    from kilonova.store.purge import log_purge
    from kilonova.store.purge import purge as purge_stores

    set_up_logs(settings)
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
def check(
    *, data: Data = DEFAULT_DATA, config: Config = None, overrides: Overrides = None, form: Format = "table"
) -> None:
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
    everything = with_created(settings, urls, data)
    named = settings.image.filesystem_store_datadir
    folders = {"images": Path(named) if named else data / "images", "volumes": data / "volumes"}
    report = asyncio.run(check_whole(everything, None if fleet else folders))
    print_outcome(report.lines, {"whole": not report.wrong, "lines": report.lines, "wrong": report.wrong}, form)
    if report.wrong:
        raise Refused("not_whole", "not whole: " + "; ".join(report.wrong))
    if form == "table":
        print("whole: databases and directories belong together and are of one moment")


def _upgrade_all(settings: Settings, urls: dict[str, str], data: Path, form: Form) -> None:
    """Upgrade control first, because it lists more cells. All databases are read before the first one is changed."""
    import asyncio

    from kilonova.domain.errors import StoreError
    from kilonova.runtime import SystemClock, Uuids
    from kilonova.store.open_stores import claim_all
    from kilonova.store.roll import call_roll

    refuse_newer(urls)
    roll = asyncio.run(call_roll(urls, {}, new_id=Uuids().uuid, may_begin=True))
    everything = with_created(settings, urls, data)
    for name, url in everything.items():
        asyncio.run(roll.check(name, url))
    pending = ["control", *(name for name in everything if name != "control")]
    done: list[dict[str, str | None]] = []
    try:
        while pending:
            done.append(_upgrade(pending[0], everything[pending[0]], form))
            del pending[0]
        asyncio.run(claim_all(roll, everything, SystemClock()))
    except StoreError as error:
        upgraded = [str(one["database"]) for one in done if one["before"] != one["revision"]]
        raise _half_upgraded(error, upgraded, pending, list(roll.unlisted)) from error
    if form != "table":
        print_list(done, {name: name for name in ("database", "before", "revision")}, form)


def _upgrade(name: str, url: str, form: Form) -> dict[str, str | None]:
    """The revision of the database before, and now."""
    from kilonova.schema.revisions import role_of
    from kilonova.store.upgrade import upgrade_blocking

    before = upgrade_blocking(url, role_of(name))
    if form == "table":
        print(f"{name:<10} {before.current or 'none'} -> {before.head}", flush=True)
    return {"database": name, "before": before.current, "revision": before.head}


def _half_upgraded(error: StoreError, upgraded: list[str], pending: list[str], marked: list[str]) -> KilonovaError:
    """Return the error with the names of the databases that were already changed. `marked`: those that have the cloud's
    id."""
    where = f"at {pending[0]}" if pending else "after the last revision, when databases got the id of their cloud"
    text = f"db upgrade stopped {where}: {error}"
    if not upgraded and not marked:
        return Refused("not_upgraded", f"{text}; nothing was changed")
    changes = [f"upgraded: {', '.join(upgraded) or 'none'}"]
    if pending:
        changes.append(f"not upgraded: {', '.join(pending)}")
    changes.append("repair the cause and run `kilonova db upgrade` again, it continues there")
    return Failed("half_upgraded", "; ".join([text, *changes]))
