"""The original: openstack-placement from PyPI in an environment of its own, two gunicorn workers, on PostgreSQL."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg

from bench.measure import cpu_of
from bench.placement.data import AGGREGATES, RATIO, SERVER, TOTAL, Provider, fill
from bench.placement.sides import Side, free_port, until_answers
from tests.support.servers import Postgres

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".cache/original-placement"
PACKAGES = ("openstack-placement==16.0.0", "gunicorn==23.0.0", "psycopg2-binary", "setuptools<81")
WORKERS = 2
CONFIG = """[api]
auth_strategy = noauth2
[placement_database]
connection = {url}
"""


def install() -> None:
    if (VENV / ".installed").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    subprocess.run([str(VENV / "bin/pip"), "install", "-qq", "--disable-pip-version-check", *PACKAGES], check=True)
    (VENV / ".installed").touch()


@contextlib.contextmanager
def original(postgres: Postgres) -> Iterator[Side]:
    install()
    url = postgres.create_database("original").replace("postgresql://", "postgresql+psycopg2://")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch, contextlib.ExitStack() as opened:
        config = Path(scratch) / "placement.conf"
        config.write_text(CONFIG.format(url=url))
        environment = {"OS_PLACEMENT_CONFIG_DIR": scratch, "PATH": "/usr/bin:/bin"}
        sync = [str(VENV / "bin/placement-manage"), "--config-file", str(config), "db", "sync"]
        subprocess.run(sync, check=True, env=environment, capture_output=True)
        log = opened.enter_context(open(Path(scratch) / "log", "wb"))
        command = [str(VENV / "bin/gunicorn"), "-b", f"127.0.0.1:{port}", "-w", str(WORKERS), "-k", "gthread"]
        command += ["--threads", "8", "--keep-alive", "75", "placement.wsgi.api:application"]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            until_answers(port, process, Path(scratch) / "log")
            yield Side(
                "original",
                port,
                lambda: cpu_of(process.pid),
                lambda: cpu_of(postgres.pid),
                database=("original", postgres),
            )
        finally:
            process.terminate()
            process.wait()


Rows = tuple[list[str], list[tuple[object, ...]]]  # columns, values
INVENTORY = ["resource_provider_id", "resource_class_id", "total", "reserved", "min_unit", "max_unit", "step_size"]


async def fill_directly(side: Side, count: int) -> None:
    """The same data through the original's database: over its REST ten thousand would take an hour."""
    assert side.database is not None
    name, postgres = side.database
    await fill(side.port, 1)  # its own hand makes the traits, the project and the user
    connection = await asyncpg.connect(postgres.url(name))
    known = dict(await connection.fetch("SELECT uuid, id FROM placement_aggregates"))
    new = [(uuid,) for uuid in AGGREGATES if uuid not in known]
    await connection.copy_records_to_table("placement_aggregates", records=new, columns=["uuid"])
    providers = [Provider(number) for number in range(1, count)]
    for rows_of in (_providers, _claims):  # the claims name providers that are there by then
        for table, (columns, rows) in (await rows_of(connection, providers)).items():
            await connection.copy_records_to_table(table, records=rows, columns=columns)
            if "id" in columns:
                await connection.execute(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))")
    await connection.execute("ANALYZE")
    await connection.close()


async def _providers(connection: Any, providers: list[Provider]) -> dict[str, Rows]:
    classes = dict(await connection.fetch("SELECT name, id FROM resource_classes"))
    traits = dict(await connection.fetch("SELECT name, id FROM traits"))
    aggregates = dict(await connection.fetch("SELECT uuid, id FROM placement_aggregates"))
    first = await connection.fetchval("SELECT max(id) FROM resource_providers") + 1
    numbered = list(enumerate(providers, first))
    return {
        "resource_providers": (
            ["id", "uuid", "name", "generation", "root_provider_id"],
            [(id_, one.uuid, one.name, 4, id_) for id_, one in numbered],
        ),
        "inventories": (
            [*INVENTORY, "allocation_ratio"],
            [
                (id_, classes[name], total, 0, 1, 2147483647, 1, RATIO[name])
                for id_, _ in numbered
                for name, total in TOTAL.items()
            ],
        ),
        "resource_provider_traits": (
            ["resource_provider_id", "trait_id"],
            [(id_, traits[trait]) for id_, one in numbered for trait in one.traits],
        ),
        "resource_provider_aggregates": (
            ["resource_provider_id", "aggregate_id"],
            [(id_, aggregates[uuid]) for id_, one in numbered for uuid in set(one.aggregates)],
        ),
    }


async def _claims(connection: Any, providers: list[Provider]) -> dict[str, Rows]:
    classes = dict(await connection.fetch("SELECT name, id FROM resource_classes"))
    ids = dict(await connection.fetch("SELECT uuid, id FROM resource_providers"))
    project, user = [await connection.fetchval(f"SELECT id FROM {table}") for table in ("projects", "users")]
    first = await connection.fetchval("SELECT max(id) FROM consumers") + 1
    servers = [(consumer, ids[one.uuid]) for one in providers for consumer in one.consumers]
    return {
        "consumers": (
            ["id", "uuid", "project_id", "user_id", "generation"],
            [(id_, consumer, project, user, 1) for id_, (consumer, _) in enumerate(servers, first)],
        ),
        "allocations": (
            ["resource_provider_id", "consumer_id", "resource_class_id", "used"],
            [(host, consumer, classes[name], used) for consumer, host in servers for name, used in SERVER.items()],
        ),
    }
