"""Volumes of a program that is killed in the middle: each is finished or says why not, and no file is left behind."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

from kilonova.services.volume.files import GIBIBYTE
from tests.support.program import Cloud, until

V3 = "/volume/v3"
MEGABYTE = 1024 * 1024
SIZE = 96 * MEGABYTE  # of the image: long enough to be killed while it is copied


def done(cloud: Cloud, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
    found = cloud.http.ask(method, path, body, headers)
    assert found.status < 300, (path, found.status, found.body)
    return found.json if found.body else None


def new_image(cloud: Cloud, content: bytes) -> str:
    formats = {"name": "big", "disk_format": "raw", "container_format": "bare"}
    image: str = done(cloud, "POST", "/image/v2/images", formats)["id"]
    done(cloud, "PUT", f"/image/v2/images/{image}/file", content, {"Content-Type": "application/octet-stream"})
    return image


def new_volume(cloud: Cloud, **wish: Any) -> str:
    made: str = done(cloud, "POST", f"{V3}/volumes", {"volume": {"size": 1, **wish}})["volume"]["id"]
    return made


def settled(cloud: Cloud) -> dict[str, dict[str, Any]]:
    """All volumes by id, once nothing is under way."""

    def look() -> dict[str, dict[str, Any]] | None:
        found = done(cloud, "GET", f"{V3}/volumes/detail")["volumes"]
        return None if any(one["status"].endswith("ing") for one in found) else {one["id"]: one for one in found}

    return dict(until(look, 60.0, "all volumes have settled"))


def test_killed_in_the_middle_it_goes_on_and_leaves_nothing_behind(tmp_path: Path) -> None:
    data, content = tmp_path / "var", random.Random(7).randbytes(SIZE)
    with Cloud(data, "--hosts", 1) as cloud:
        image = new_image(cloud, content)
        kept = new_volume(cloud)
        doomed = new_volume(cloud)
        settled(cloud)
        copies = [new_volume(cloud, imageRef=image) for _ in range(3)]
        done(cloud, "POST", f"{V3}/volumes/{kept}/action", {"os-extend": {"new_size": 2}})
        done(cloud, "DELETE", f"{V3}/volumes/{doomed}")
        cloud.kill9()
        folder = data / "volumes"
        (folder / "volume-nobody").write_bytes(b"of a volume that is gone")
        (folder / f"volume-{copies[0]}.part").write_bytes(b"half")
    with Cloud(data, "--hosts", 1) as cloud:
        found = settled(cloud)
        assert {one["status"] for one in found.values()} == {"available"}
        assert set(found) == {kept, *copies} and found[kept]["size"] == 2
        until(lambda: not list(folder.glob("*.part")), 30.0, "no unfinished file is left")
        assert {path.name for path in folder.glob("volume-*")} == {f"volume-{one}" for one in found}
        lost = [path for path in (folder / "lost+found").rglob("*") if path.is_file()]
        assert [path.name for path in lost] == ["volume-nobody"], "no record knows it; the deleted volume is gone"
        told = hashlib.sha256(content).hexdigest()
        for copy in copies:
            with (folder / f"volume-{copy}").open("rb") as file:
                assert hashlib.sha256(file.read(SIZE)).hexdigest() == told
            assert (folder / f"volume-{copy}").stat().st_size == GIBIBYTE
        assert (folder / f"volume-{kept}").stat().st_size == 2 * GIBIBYTE
        used = done(cloud, "GET", f"{V3}/limits")["limits"]["absolute"]
        assert (used["totalVolumesUsed"], used["totalGigabytesUsed"]) == (4, 5)
