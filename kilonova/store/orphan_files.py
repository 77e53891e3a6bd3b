"""`lost+found/` of a file directory: files that no record knows are moved there, and removed after 30 days.

A missing record is never a reason to delete what a user made (law 15): the record may be missing because an older
database was restored. Each day has its own folder, `lost+found/2026-11-16/NAME`, so that the age of a file is seen and
survives copies of the directory.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

logger = logging.getLogger(__name__)
LOST_FOUND = "lost+found"
EXPIRE_DAYS = 30
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def unfinished(prefixes: str, suffix: str) -> re.Pattern[str]:
    """Return the pattern of temporary files that this program makes itself: they may be removed at any start."""
    return re.compile(f"({prefixes}){_UUID}{re.escape(suffix)}")


def file_names(folder: Path) -> list[str]:
    """Return the names of all entries but `lost+found` and hidden ones, which do not hold users' bytes."""
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith(".") and not _is_lost(entry))


def _is_lost(entry: os.DirEntry[str]) -> bool:
    return entry.name == LOST_FOUND


def set_aside(folder: Path, name: str, now: float, why: str = "not in the records") -> None:
    """Move the file to today's folder in `lost+found` and log it; one that cannot be moved stays."""
    day = folder / LOST_FOUND / f"{_date(now):%Y-%m-%d}"
    try:
        day.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = _free_name(day, name)
        os.rename(folder / name, target)
    except FileNotFoundError:
        return  # another process has moved or removed it
    except OSError as error:
        logger.warning("file %s: %s, and it cannot be moved: %s; left there", folder / name, why, error)
        return
    logger.warning("file %s: %s; moved to %s, removed after %d days", folder / name, why, target, EXPIRE_DAYS)


def remove_expired(folder: Path, now: float) -> None:
    """Remove files that have been in `lost+found` for 30 days."""
    oldest = _date(now) - timedelta(days=EXPIRE_DAYS)
    for day in _days(folder):
        if datetime.strptime(day.name, "%Y-%m-%d").replace(tzinfo=UTC) + timedelta(days=1) <= oldest:
            logger.warning("folder %s: kept for %d days; removed", day, EXPIRE_DAYS)
            shutil.rmtree(day, ignore_errors=True)


def keep_longer(folder: Path, now: float) -> None:
    """Begin the 30 days again for all these files: days on which databases were `restored` do not count."""
    today = folder / LOST_FOUND / f"{_date(now):%Y-%m-%d}"
    for day in _days(folder):
        if day == today:
            continue
        today.mkdir(mode=0o700, exist_ok=True)
        for entry in sorted(day.iterdir()):
            os.rename(entry, _free_name(today, entry.name))
        day.rmdir()


def _days(folder: Path) -> list[Path]:
    lost = folder / LOST_FOUND
    if not lost.is_dir() or not os.access(lost, os.R_OK | os.X_OK):  # of a file system's own root, perhaps
        return []
    return sorted(day for day in lost.iterdir() if re.fullmatch(r"\d{4}-\d\d-\d\d", day.name) and day.is_dir())


def _free_name(day: Path, name: str) -> Path:
    target, number = day / name, 1
    while target.exists():
        target, number = day / f"{name}.{number}", number + 1
    return target


def _date(now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC)
