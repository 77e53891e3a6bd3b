"""The token of an upload opens one image, for the host that has the step now, and for nobody else."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kilonova.domain.errors import Refused
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.secrets import Seal
from kilonova.engine.submit import submit
from kilonova.engine.tickets import CACHE_SECONDS, FETCH, SEND, Ticket, disk_token, issue, issue_for_cache, redeem
from kilonova.operations.create.accept import NewServer, create
from kilonova.operations.snapshot import submit_snapshot
from kilonova.sim.lab.cloud import SEAL_KEY, SimCloud
from kilonova.sim.lab.flavors import SMALL
from kilonova.sim.lab.records import read_records
from kilonova.sim.lab.shape import CloudShape
from kilonova.sim.lab.uploads import image_params
from kilonova.world import Tx
from tests.engine.rows_of_one import NOW, engine_of, play

SERVER = "5e7e0000-0000-4000-8000-000000000001"
IMAGE = "5e7e0000-0000-4000-8000-0000000000ff"
SEAL = Seal(SEAL_KEY)


@pytest.fixture
def cloud() -> Iterator[SimCloud]:
    """Its only host uploads an image, and takes ten seconds for each half of it."""
    cloud = SimCloud(CloudShape(hosts=1, copy_seconds=10.0))
    try:
        cloud.start_all()
        cloud.loop.run_for(5.0)
        new = NewServer(id=SERVER, name="a", flavor=SMALL, image="cirros")
        cloud.do(lambda engine: create(engine, new, cloud.cause()))
        cloud.loop.run_for(20.0)
        ask = Ask(kind="snapshot", server_id=SERVER, cause=cloud.cause(), params=image_params(IMAGE, "image", SERVER))
        cloud.do(lambda engine: submit_snapshot(engine, ask))
        cloud.loop.run_for(14.0)
        yield cloud
    finally:
        cloud.close()


def ticket_of(cloud: SimCloud) -> Ticket:
    step = next(row for row in read_records(cloud).table("steps") if row["name"] == "upload_image" and row["open"])
    return Ticket("cell1", step["operation_id"], step["ordinal"], step["host"], IMAGE)


def refusal(cloud: SimCloud, token: str, image: str = IMAGE, verb: str = SEND) -> str:
    async def ask(engine: Engine) -> str:
        try:
            await redeem(engine, token, image, verb)
        except Refused as why:
            assert why.code == "bad_image_token"
            return why.message
        return ""

    return cloud.do(ask)


def test_only_the_step_that_is_under_way(cloud: SimCloud) -> None:
    right = ticket_of(cloud)
    token = issue(SEAL, right)
    assert refusal(cloud, token) == ""
    assert "another image" in refusal(cloud, token, SERVER)
    wrong = {"host": "host2", "ordinal": right.ordinal - 1, "operation": SERVER, "journal": "cell7"}
    for name, value in wrong.items():
        forged = issue(SEAL, msgspec.structs.replace(right, **{name: value}))
        assert refusal(cloud, forged) != "", f"another {name} is let in"
    assert "send the image, not fetch it" in refusal(cloud, token, verb=FETCH)
    assert "fetch the image, not send it" in refusal(cloud, issue(SEAL, msgspec.structs.replace(right, verb=FETCH)))
    content, _, signature = token.partition(".")
    other, _, _ = issue(SEAL, msgspec.structs.replace(right, image=SERVER)).partition(".")
    for text in ("", ".", content, f"{other}.{signature}", f"{content}.{'0' * 64}", "ö.ü"):
        assert "signature" in refusal(cloud, text, SERVER)


def test_a_token_without_a_step_expires(cloud: SimCloud) -> None:
    """Of an image that a host shall have before a step needs it."""
    now = cloud.do(_now)
    token = issue_for_cache(SEAL, "host1", IMAGE, now)
    assert refusal(cloud, token, verb=FETCH) == "" and refusal(cloud, token) != ""
    assert "another image" in refusal(cloud, token, SERVER, FETCH)
    late = issue_for_cache(SEAL, "host1", IMAGE, now - CACHE_SECONDS - 1)
    assert "has expired" in refusal(cloud, late, verb=FETCH)


def test_a_token_without_a_step_is_good_until_the_second_it_expires(tmp_path: Path) -> None:
    async def body(tx: Tx) -> None:
        engine: Engine = engine_of(tx)
        engine.seal = SEAL
        token = issue_for_cache(SEAL, "host1", IMAGE, NOW - CACHE_SECONDS)
        assert (await redeem(engine, token, IMAGE, FETCH)).host == "host1"
        with pytest.raises(Refused, match="has expired"):
            await redeem(engine, issue_for_cache(SEAL, "host1", IMAGE, NOW - CACHE_SECONDS - 0.1), IMAGE, FETCH)

    play(tmp_path, body)


async def _now(engine: Engine) -> float:
    return engine.world.clock.now()


def test_both_hosts_of_a_move_and_nobody_else_know_its_token() -> None:
    right = ("operation", SERVER, "host2", 5)
    token = disk_token(SEAL, *right)
    assert token == disk_token(SEAL, *right) and len(token) == 64
    others = [("another", SERVER, "host2", 5), ("operation", IMAGE, "host2", 5), ("operation", SERVER, "host3", 5)]
    others += [("operation", SERVER, "host2", 6)]
    stranger = Seal(base64.urlsafe_b64encode(bytes(32)))
    assert token not in {*(disk_token(SEAL, *one) for one in others), disk_token(stranger, *right)}


def test_nothing_after_the_end(cloud: SimCloud) -> None:
    token = issue(SEAL, ticket_of(cloud))
    cloud.loop.run_for(60.0)
    op = next(row for row in read_records(cloud).table("operations") if row["kind"] == "snapshot")
    assert (op["state"], msgspec.json.decode(op["facts"])["size"]) == ("done", 4096)
    assert "has ended" in refusal(cloud, token)


def test_nothing_after_the_server_was_deleted(cloud: SimCloud) -> None:
    token = issue(SEAL, ticket_of(cloud))
    ask = Ask(kind="delete", server_id=SERVER, cause=cloud.cause())
    cloud.do(lambda engine: submit(engine, ask))
    assert "has ended" in refusal(cloud, token)
    cloud.loop.run_for(30.0)
    assert read_records(cloud).table("images") == []
