"""The check of a backup: its databases and directories belong together, and none is older than the others have seen it.

It only reads. The marks that a database has seen of its peers are compared with theirs, as a start does it
(store/marks.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kilonova.domain.errors import StoreError
from kilonova.store.badges import Sighting, StoreIdentity, look_at, read_directory_badge
from kilonova.store.roll import CONTROL, Roll
from kilonova.store.sqlite_connection import connect_to_look
from kilonova.store.url import SqliteUrl, parse_url

_FILES = (
    ("image", "images", "SELECT id, file FROM images WHERE file IS NOT NULL AND status IN ('active', 'deactivated')"),
    (
        "volume",
        "volumes",
        "SELECT id, 'volume-' || id FROM volumes WHERE backend = ? AND status IN ('available', 'in-use')",
    ),
    (
        "snapshot",
        "volumes",
        "SELECT id, 'snapshot-' || id FROM volume_snapshots WHERE backend = ? AND status = 'available'",
    ),
)


@dataclass
class Wholeness:
    lines: list[str] = field(default_factory=list)  # one per store
    wrong: list[str] = field(default_factory=list)


async def check_whole(urls: Mapping[str, str], folders: Mapping[str, Path] | None) -> Wholeness:
    """`folders` are the directories of an embedded cloud, by name; its files are then looked at too."""
    report = Wholeness()
    looks: dict[str, StoreIdentity] = {}
    for name, url in urls.items():
        try:
            looks[name] = await look_at(url, name)
            _check_file(url, name)
        except StoreError as why:
            report.wrong.append(str(why))
    _check_badges(report, looks)
    seen = [(name, peer, known.seen) for name, look in looks.items() for peer, known in look.known.items()]
    if folders is not None:
        seen += _seen_by_directories(report, looks, folders)
    _check_marks(report, looks, seen)
    if folders is not None and CONTROL in looks and looks[CONTROL].badge is not None:
        _check_files(report, Path(looks[CONTROL].where), folders)
    return report


def _check_file(url: str, name: str) -> None:
    location = parse_url(url)
    if not isinstance(location, SqliteUrl) or not location.path.exists():
        return
    connection = connect_to_look(name, location.path)
    try:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        result = str(error)
    finally:
        connection.close()
    if result != "ok":
        raise StoreError(f"{name} database {location.path}: it is damaged: {result}")


def _check_badges(report: Wholeness, looks: Mapping[str, StoreIdentity]) -> None:
    control = looks.get(CONTROL)
    if control is None or control.badge is None:
        report.wrong.append("control database: it belongs to no cloud")
        return
    roll = Roll(control.badge.cloud, dict(control.known))
    for name, look in looks.items():
        try:
            roll.judge(name, look)
        except StoreError as why:
            report.wrong.append(str(why))
        if look.badge is not None:
            reached = look.badge.reached
            report.lines.append(f"{name:<10} store {look.badge.store} era {reached.era} mark {reached.mark}")
            if look.badge.restored:
                report.wrong.append(f"{look.badge.restored}; run `kilonova db restored`")


def _seen_by_directories(
    report: Wholeness, looks: Mapping[str, StoreIdentity], folders: Mapping[str, Path]
) -> list[tuple[str, str, Sighting]]:
    control, seen = looks.get(CONTROL), []
    listed = {name.partition(" ")[0] for name in control.known} if control is not None else set()
    for name, folder in folders.items():
        badge = read_directory_badge(folder)
        if badge is None:
            if name in listed:
                report.wrong.append(f"{name} directory {folder}: it is missing or empty")
            continue
        report.lines.append(f"{name:<10} store {badge.store} era {badge.era}")
        if control is not None and control.badge is not None and badge.cloud != control.badge.cloud:
            report.wrong.append(
                f"{name} directory {folder}: it belongs to cloud {badge.cloud}, not to cloud {control.badge.cloud}"
            )
        seen += [(f"{name} directory", peer, sighting) for peer, sighting in badge.seen.items()]
    return seen


def _check_marks(report: Wholeness, looks: Mapping[str, StoreIdentity], seen: list[tuple[str, str, Sighting]]) -> None:
    for who, name, sighting in seen:
        badge = looks[name].badge if name in looks else None
        if badge is not None and sighting > badge.reached:
            text = (
                f"{name} database: it is at mark {badge.era}.{badge.mark}, and {who} saw {sighting.era}.{sighting.mark}"
            )
            report.wrong.append(f"{text}: an older copy than the rest")


def _check_files(report: Wholeness, control: Path, folders: Mapping[str, Path]) -> None:
    """Files that records name and that are not there."""
    backend = read_directory_badge(folders["volumes"])
    connection = connect_to_look(CONTROL, control)
    try:
        for what, folder, query in _FILES:
            values = () if "?" not in query else (backend.store if backend is not None else "",)
            for record, file in connection.execute(query, values).fetchall():
                if not (folders[folder] / file).exists():
                    report.wrong.append(f"{what} {record}: its file {folders[folder] / file} is missing")
    except sqlite3.Error as error:
        report.wrong.append(f"control database {control}: {error}")
    finally:
        connection.close()
