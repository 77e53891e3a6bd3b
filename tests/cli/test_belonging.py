"""A cloud knows its own stores (law 15): D1, D2, D4 and D5, with the program as a user has it.

What is refused exits 3, names both ids and leaves every file as it was.
"""

from __future__ import annotations

import re
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program import Cloud, Role, kilonova
from tests.support.servers import Nats, Postgres, free_port
from tests.support.sparse import copy_tree, digest

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DATABASES = ("control", "placement", "cell0", "cell1")


def sums(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(directory)): digest(path) for path in files}


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def refused(directory: Path, *arguments: object) -> str:
    """The message, when the program has refused to start and changed nothing."""
    before, used = sums(directory), cpu_of_children()
    done = kilonova(*arguments, "--data", directory, "--listen", f"127.0.0.1:{free_port()}")
    assert cpu_of_children() - used < 5.0  # of the clock on an idle machine
    assert done.returncode == 3, (done.returncode, done.stderr)
    assert sums(directory) == before
    return done.stderr


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cloud with an image, a volume and a server, stopped."""
    directory = tmp_path_factory.mktemp("origin") / "var"
    with Cloud(directory) as cloud:
        made = cloud.http.create("web")
        cloud.http.ended(made["operation"])
        done = cloud.http.ask("POST", f"/volume/v3/{project(cloud)}/volumes", {"volume": {"size": 1}})
        assert done.status == 202, done.body
        cloud.terminate()
    return directory


def project(cloud: Cloud) -> str:
    found = cloud.http.ask("GET", "/identity/v3/auth/tokens", headers={"X-Subject-Token": cloud.http.token})
    return str(found.json["token"]["project"]["id"])


@pytest.fixture
def var(origin: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the whole directory, which just starts (D4)."""
    yield copy_tree(origin, tmp_path / "var")


def works(directory: Path) -> None:
    with Cloud(directory) as cloud:
        assert len(cloud.http.ask("GET", "/compute/v2.1/servers").json["servers"]) == 1
        assert cloud.terminate() == 0


def test_a_copy_of_the_whole_just_starts(var: Path) -> None:
    """D4; and again after it was moved."""
    works(var)
    works(var.rename(var.with_name("moved")))
    assert not list(var.parent.rglob("lost+found"))


def test_a_lost_control_database(var: Path) -> None:
    """D1: the three kinds of witnesses are named, and both clouds."""
    (var / "control.db").unlink()
    why = refused(var, "serve")
    assert "it is new" in why and len(set(UUID.findall(why))) == 2, why
    assert "placement database" in why and f"volumes directory {var}/volumes" in why


@pytest.mark.parametrize("left", ["images", "volumes", "simulated.db"])
def test_one_witness_is_enough(var: Path, left: str) -> None:
    """Also the hosts' own memories: a new cloud would not know their guests."""
    for path in var.iterdir():
        if path.name != left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    why = refused(var, "serve")
    assert len(set(UUID.findall(why))) == 2 and str(var / left) in why, why


def test_the_control_database_of_another_cloud(var: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with Cloud(other) as cloud:
        cloud.terminate()
    shutil.copy(other / "control.db", var / "control.db")
    why = refused(var, "serve")
    assert "it belongs to cloud" in why and len(set(UUID.findall(why))) == 2, why


@pytest.mark.parametrize("name", ["placement", "cell0", "cell1"])
def test_another_lost_database(var: Path, name: str) -> None:
    """It is not replaced by an empty one; neither by db upgrade, nor by placement alone."""
    (var / f"{name}.db").unlink()
    why = refused(var, "serve")
    assert f"{name} database {var}/{name}.db: it is empty" in why and len(set(UUID.findall(why))) == 2, why
    before = sums(var)
    done = kilonova("db", "upgrade", "--data", var)
    assert done.returncode == 3 and "it is empty" in done.stderr
    assert sums(var) == before
    if name == "placement":
        assert "it is empty" in refused(var, "placement")


def test_swapped_databases(var: Path) -> None:
    (var / "cell0.db").rename(var / "cell.db")
    (var / "cell1.db").rename(var / "cell0.db")
    (var / "cell.db").rename(var / "cell1.db")
    why = refused(var, "serve")
    assert "it is store" in why and "(cell1)" in why, why


@pytest.mark.parametrize("name", ["images", "volumes"])
def test_a_directory_that_is_not_mounted(var: Path, name: str) -> None:
    shutil.move(var / name, var.parent / name)
    (var / name).mkdir()
    why = refused(var, "serve")
    assert f"{name} directory {var}/{name}: it is empty" in why and len(set(UUID.findall(why))) == 2, why
    (var / name).rmdir()
    shutil.move(var.parent / name, var / name)
    works(var)


def test_the_id_of_the_volumes_is_found_in_their_directory(var: Path) -> None:
    before = (var / "volumes.id").read_text()
    (var / "volumes.id").unlink()
    works(var)
    assert (var / "volumes.id").read_text() == before and not list(var.rglob("lost+found"))


def test_what_is_new_starts_without_a_question(tmp_path: Path) -> None:
    """D5: placement alone and the cloud beside it afterwards, a cell made at run time, more hosts later."""
    var = tmp_path / "var"
    where = ("--data", var, "--listen", f"127.0.0.1:{free_port()}")
    with Role("placement", *where) as alone:
        alone.terminate()
    with Cloud(var, "--hosts", 1) as cloud:
        assert cloud.http.ask("POST", "/kilonova/v1/cells", {"name": "cell2"}).status == 201
        cloud.terminate()
    with Cloud(var, "--hosts", 2) as cloud:
        assert {cell["name"] for cell in cloud.http.get("/cells")["cells"]} == {"cell0", "cell1", "cell2"}
        cloud.terminate()
    (var / "cell2.db").unlink()
    assert f"cell2 database {var}/cell2.db: it is empty" in refused(var, "serve", "--hosts", 2)


FLEET = """
[bus]
url = "{nats}"
prefix = "{name}"
[secrets]
key_file = "{key}"
[database]
control = "{database}?schema=control"
placement = "{database}?schema=placement"
[database.cells]
cell0 = "{database}?schema=cell0"
cell1 = "{database}?schema=cell1"
"""


def configured(folder: Path, postgres: Postgres, nats: Nats, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    key, file = folder / "seal.key", folder / f"{name}.toml"
    key.write_text("c2ltdWxhdGVkLXNlYWwta2V5LTMyLWJ5dGVzLWxvbmc=")
    database = postgres.create_database(name)
    file.write_text(FLEET.format(nats=nats.url, name=name, key=key, database=database))
    return file


def test_an_api_on_the_databases_of_another_cloud(tmp_path: Path, postgres: Postgres, nats: Nats) -> None:
    """D2: an empty database, one without a cloud yet, and another cloud's, each over the data directory of this one."""
    ours, other = (configured(tmp_path / "conf", postgres, nats, name) for name in ("d2_ours", "d2_other"))
    data = tmp_path / "api"
    assert kilonova("db", "upgrade", "--config", ours).returncode == 0
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    with Role("api", "--config", ours, "--data", data, *listen) as api:
        api.terminate()
    (data / "volumes" / "volume-1").write_text("a user's")
    assert len(set(UUID.findall(refused(data, "api", "--config", other)))) == 2
    assert kilonova("db", "upgrade", "--config", other).returncode == 0
    why = refused(data, "api", "--config", other)
    assert "it belongs to cloud" in why and len(set(UUID.findall(why))) == 2, why
