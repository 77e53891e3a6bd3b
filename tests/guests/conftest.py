"""One libvirtd for all tests of the group, and a driver on it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import running
from tests.guests.daemon import Libvirt
from tests.guests.tiny_guest import image
from tests.support.servers import ROOT, NotAvailable, Postgres, need

if TYPE_CHECKING:
    from kilonova.compute.drivers.libvirt.driver import LibvirtDriver
    from tests.guests.hosts import Hosts
    from tests.guests.lab_servers import Cloud, LabServer

IMAGE = "tiny"
FAILED: pytest.StashKey[dict[str, str]] = pytest.StashKey()  # by module: the first of its tests that failed
LAB: pytest.StashKey[Hosts] = pytest.StashKey()  # while it is there
GUEST_IMAGE = ROOT / ".cache/guest-image/kilonova-guest.qcow2"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        failed = item.config.stash.setdefault(FAILED, {})
        failed.setdefault(item.nodeid.partition("::")[0], f"{item.nodeid}: {call.excinfo.exconly()[:500]}")
    return report


@pytest.fixture(scope="module", autouse=True)
def as_it_was_found(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where a test on three hosts failed in the middle, the next module finds all of them running. If that cannot be,
    its tests fail at once, and say why."""
    yield
    failed = request.config.stash.get(FAILED, {})
    lab = request.session.stash.get(LAB, None)
    if lab is not None and request.node.nodeid in failed and not lab.broken:
        try:
            lab.mend()
        except BaseException as why:
            lab.broken = f"not mended ({why}) after {failed[request.node.nodeid]}"
            raise


@pytest.fixture(scope="session")
def libvirt() -> Iterator[Libvirt]:
    for daemon in running(Libvirt):
        (daemon.images / IMAGE).write_bytes(image(f"image:{IMAGE}"))
        yield daemon


@pytest.fixture
def driver(libvirt: Libvirt) -> Iterator[LibvirtDriver]:
    made = driver_on(libvirt)
    yield made
    asyncio.run(made.close())


def driver_on(libvirt: Libvirt, host: str = "host1") -> LibvirtDriver:
    from kilonova.compute.drivers.libvirt.driver import LibvirtDriver  # libvirt-python is there only now
    from kilonova.compute.drivers.libvirt.images import FolderImages

    images = FolderImages(libvirt.images)
    return LibvirtDriver(libvirt.uri, host, libvirt.guests, images, virt_type="qemu", shutdown_seconds=0.3)


@pytest.fixture(scope="session")
def cloud(request: pytest.FixtureRequest, fast_postgres: Postgres, guest_image: Path) -> Iterator[Cloud]:
    """On three real hosts."""
    if os.geteuid() != 0:
        pytest.skip("real hosts take root: run these tests as root, or in CI")
    from tests.guests.hosts import three_hosts  # libvirt-python is there only now
    from tests.guests.lab_servers import Cloud

    with three_hosts(fast_postgres) as lab:
        request.session.stash[LAB] = lab
        try:
            yield Cloud(lab, guest_image)
        finally:
            del request.session.stash[LAB]


@pytest.fixture(autouse=True)
def whole_lab(request: pytest.FixtureRequest) -> None:
    lab = request.session.stash.get(LAB, None)
    if lab is not None and "guests" in request.fixturenames and lab.broken:
        pytest.fail(lab.broken, pytrace=False)


@pytest.fixture(scope="session")
def guests(cloud: Cloud) -> tuple[LabServer, LabServer]:
    """Two servers that all tests on three hosts share, since a boot takes ten seconds: `web` on host1, whose storage
    host2 shares, and `db` on host3, with an empty volume. The files are in the order of the story: networks, content,
    dead hosts."""
    from tests.guests.lab_servers import GIVEN_VOLUME, encoded

    given = {"config_drive": True, "personality": [{"path": "/etc/motd", "contents": encoded("welcome\n")}]}
    web = cloud.create("web", "host1", user_data=encoded("#!/bin/sh\necho one >/root/user-data-ran\n"), **given)
    asks = "#!/bin/sh\nping -c 3 -W 5 172.24.4.1 >/root/pinged && echo reached the world outside\n"
    root = {"source_type": "image", "uuid": cloud.image, "destination_type": "local", "boot_index": 0}
    disks = [{**root, "delete_on_termination": True}, GIVEN_VOLUME]
    db = cloud.create("db", "host3", user_data=encoded(asks), block_device_mapping_v2=disks, **given)
    for server in (web, db):
        server.wait_for("ACTIVE")
    web.float()
    return web, db


@pytest.fixture(scope="session")
def guest_image() -> Path:
    """Built where it is not there or out of date."""
    try:
        need("libvirt")  # for QEMU
        need("guest-image")
    except NotAvailable as missing:
        if os.geteuid() == 0 or os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    built = subprocess.run([ROOT / "guest-image/build", GUEST_IMAGE], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return GUEST_IMAGE
