"""Volumes, snapshots and images that a backup finds in the middle of each kind of work, and that are whole by now.

Their owners have written to the files since. After a restore no byte of them may be changed because of the old records.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kilonova.services.volume.volume import CREATE, DELETE, EXTEND, REIMAGE, REVERT, UNDER_WAY, UPLOAD
from kilonova.store.orphan_files import LOST_FOUND
from tests.support.program import Http, until
from tests.support.sparse import digest

VOLUMES, SNAPSHOTS, IMAGES = "/volume/v3/volumes", "/volume/v3/snapshots", "/image/v2/images"
WORKS = (CREATE, REVERT, REIMAGE, DELETE, UPLOAD, EXTEND)
ENDED = {**dict.fromkeys((CREATE, REVERT, REIMAGE, DELETE), "error"), UPLOAD: "available", EXTEND: "available"}
GIBIBYTE = 1024**3


class FileWork:
    def __init__(self, http: Http) -> None:
        self.http = http
        self.volumes: dict[str, str] = {}  # by kind of work; and "created" since, "deleted" since
        self.snapshots: dict[str, str] = {}
        self.images: dict[str, str] = {}

    def make(self) -> None:
        """Before the backup."""
        for name in (*WORKS, "deleted"):
            self.make_volume(name)
        for name, volume in ((CREATE, EXTEND), (DELETE, EXTEND), (REVERT, REVERT)):
            body = {"snapshot": {"volume_id": self.volumes[volume], "name": name}}
            self.snapshots[name] = self._ask("POST", SNAPSHOTS, body)["snapshot"]["id"]
            self._await("snapshot", f"{SNAPSHOTS}/{self.snapshots[name]}")
        for name in ("uploading", "deleted"):
            self.upload(name)

    def old_records(self) -> list[str]:
        """SQL that lets the control database of the backup say that all of it is under way."""
        values = {CREATE: "", REVERT: self.snapshots[REVERT], REIMAGE: self.seed("cirros-sim"), DELETE: "", EXTEND: "2"}
        values[UPLOAD] = self.images["uploading"]
        pieces = [
            f"UPDATE volumes SET work = '{work}', work_id = 'old', work_value = '{values[work]}', "
            f"status = '{UNDER_WAY[work]}', previous_status = 'available' WHERE id = '{self.volumes[work]}'"
            for work in WORKS
        ]
        pieces += [
            f"UPDATE volume_snapshots SET work = '{work}', work_id = 'old', status = '{UNDER_WAY[work]}' "
            f"WHERE id = '{self.snapshots[work]}'"
            for work in (CREATE, DELETE)
        ]
        pieces.append(f"UPDATE volume_snapshots SET status = 'restoring' WHERE id = '{self.snapshots[REVERT]}'")
        gone = ", ".join(f"{name} = NULL" for name in ("size", "checksum", "hash_algorithm", "hash_value"))
        pieces.append(f"UPDATE images SET status = 'saving', {gone} WHERE id = '{self.images['uploading']}'")
        return pieces

    def change(self, folder: Path) -> None:
        """Since the backup; `folder` is the data directory of the api."""
        self._ask("POST", f"{VOLUMES}/{self.volumes[EXTEND]}/action", {"os-extend": {"new_size": 2}})
        self._await("volume", f"{VOLUMES}/{self.volumes[EXTEND]}")
        for name in WORKS:
            self._write(folder, name)
        self.make_volume("created")
        self._write(folder, "created")
        self.upload("created")
        for path in (f"{VOLUMES}/{self.volumes['deleted']}", f"{IMAGES}/{self.images['deleted']}"):
            self._ask("DELETE", path)
            until(lambda path=path: self.http.ask("GET", path).status == 404, 30, path)  # type: ignore[misc]

    def statuses(self) -> dict[str, str]:
        return {name: self._show("volume", f"{VOLUMES}/{self.volumes[name]}")["status"] for name in WORKS}

    def are_ended(self) -> None:
        """What the records say after the word, where control was put back."""
        until(lambda: self.statuses() == ENDED, 30, lambda: str(self.statuses()))
        assert self._show("volume", f"{VOLUMES}/{self.volumes[EXTEND]}")["size"] == 2
        states = {name: self._show("snapshot", f"{SNAPSHOTS}/{one}")["status"] for name, one in self.snapshots.items()}
        assert states == {CREATE: "error", DELETE: "error", REVERT: "available"}
        assert self._ask("GET", f"{IMAGES}/{self.images['uploading']}")["status"] == "queued"

    def are_in(self, report: str) -> None:
        """Of `kilonova db restored`."""
        named = [self.volumes[work] for work in WORKS if work != EXTEND]
        named += [self.snapshots[CREATE], self.snapshots[DELETE], self.images["uploading"]]
        assert [one for one in named if one not in report] == []
        assert self.volumes[EXTEND] not in report

    def can_be_removed(self) -> None:
        """An owner gets rid of all of them; some were deleted before, or are not known any more."""
        for name, snapshot in self.snapshots.items():
            self._ask("DELETE", f"{SNAPSHOTS}/{snapshot}")
            path = f"{SNAPSHOTS}/{snapshot}"
            until(lambda path=path: self.http.ask("GET", path).status == 404, 30, f"snapshot {name}")  # type: ignore[misc]
        for name, volume in self.volumes.items():
            path = f"{VOLUMES}/{volume}"
            self.http.ask("DELETE", path)
            until(lambda path=path: self.http.ask("GET", path).status == 404, 30, f"volume {name}")  # type: ignore[misc]

    # -- asking -------------------------------------------------------------------------------------------------

    def make_volume(self, name: str) -> None:
        self.volumes[name] = self._ask("POST", VOLUMES, {"volume": {"size": 1, "name": name}})["volume"]["id"]
        self._await("volume", f"{VOLUMES}/{self.volumes[name]}")

    def upload(self, name: str) -> None:
        made = self._ask("POST", IMAGES, {"name": name, "disk_format": "raw", "container_format": "bare"})
        self.images[name] = made["id"]
        kind = {"Content-Type": "application/octet-stream"}
        done = self.http.ask("PUT", f"{IMAGES}/{made['id']}/file", f"image {name}".encode() * 1000, kind)
        assert done.status == 204, done.body

    def _write(self, folder: Path, name: str) -> None:
        """As a guest would."""
        with (folder / "volumes" / f"volume-{self.volumes[name]}").open("r+b") as file:
            file.seek(GIBIBYTE // 2)
            file.write(f"written to {name} since".encode())

    def seed(self, name: str) -> str:
        images: Any = self._ask("GET", IMAGES)["images"]
        return next(str(one["id"]) for one in images if one["name"] == name)

    def _show(self, key: str, path: str) -> Any:
        return self._ask("GET", path)[key]

    def _await(self, key: str, path: str) -> None:
        until(lambda: self._show(key, path)["status"] == "available", 30, lambda: str(self._show(key, path)))

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.ask(method, path, body)
        assert answer.status < 300, (method, path, answer.status, answer.body)
        return answer.json if answer.body else None


def sums(folder: Path) -> dict[str, str]:
    """Of every file of a volume or an image, by name; those in lost+found, too."""
    paths = [path for name in ("volumes", "images") for path in (folder / name).rglob("*") if path.is_file()]
    return {path.name: digest(path) for path in paths if not path.name.startswith(".")}


def set_aside(folder: Path) -> set[str]:
    return {path.name for name in ("volumes", "images") for path in (folder / name / LOST_FOUND).rglob("*-*-*-*-*")}


def differing(before: dict[str, str], look: Callable[[], dict[str, str]]) -> list[str]:
    after = look()
    return [f"{name}: {'changed' if name in after else 'gone'}" for name in before if after.get(name) != before[name]]
