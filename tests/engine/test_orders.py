"""Which steps a host may have, and what it gets with each: decided by the records of the operation and its server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.guest_contents import GuestFile, GuestSecrets
from kilonova.domain.messages import StepOrder
from kilonova.domain.server import Flavor, Server, flavor_document, to_json
from kilonova.engine.core import Engine
from kilonova.engine.course import Go
from kilonova.engine.model import DISK_TOKEN, IMAGE_TOKEN, UPLOAD_TOKEN, AnyStep, Target
from kilonova.engine.orders import may_run, order_for
from kilonova.engine.secrets import Seal
from kilonova.engine.tickets import FETCH, SEND, Ticket, disk_token, issue
from kilonova.operations import REGISTRY
from kilonova.operations.facts import ResizeFacts
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import OPERATION, SERVER, engine_of, operation, play, store_of

SEAL = Seal(b"c2ltdWxhdGVkLXNlYWwta2V5LTMyLWJ5dGVzLWxvbmc=")
STEPS = [
    pytest.param(step, id=f"{kind} {step.name}")
    for kind, of_kind in REGISTRY.items()
    for step in of_kind.course
    if step.on.name != "control"
]
GRANTS = [("host1", 5, True), ("host2", 5, False), ("host1", 4, False), (None, None, False)]
OLD, NEW = Flavor("old", 2, 1024, 10), Flavor("new", 3, 2048, 20)
TOLD = {"user_data": SEAL.close_text("a script"), "personality": SEAL.close_text(to_json([("/etc/motd", "hello")]))}


def record(**values: Any) -> Server:
    return Server.from_row(list({**SERVER, **values}.values()))


@pytest.mark.parametrize("way", ["do", "undo"])
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_starts_a_guest_needs_the_permission_for_that_copy_there(step: AnyStep, way: str) -> None:
    go = Go(step=step.name, way=way, target=Target("host1", 5))
    starts = step.starts_guest if way == "do" else step.undo_starts_guest
    for host, copy, is_its in GRANTS:
        assert may_run(record(runner_host=host, runner_copy=copy), step, go) is (is_its or not starts)
    assert may_run(None, step, go) is not starts, "a server that is gone runs nowhere"


class Orders:
    """Orders of one operation, and of the one whose steps it undoes."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path
        self.server: Server | None = record(image_ref="img", details=to_json(TOLD))
        self.owner: dict[str, Any] = {}
        self.password = ""

    def of(
        self, kind: str, step: str, facts: Any = None, way: str = "do", *, copy: int = 5, owner: str = ""
    ) -> StepOrder:
        made: list[StepOrder] = []
        go = Go(step=step, way=way, target=Target("host1", copy), owner=owner)

        async def body(tx: Tx) -> None:
            if self.owner:
                await rows.put(tx, operations, **{**OPERATION, **self.owner})
            engine: Engine = engine_of(tx)
            engine.seal = SEAL
            if self.password:
                await SEAL.put(tx, "o", {"admin_pass": self.password})
            op = operation(kind=kind, facts=to_json(facts or {}))
            chosen = REGISTRY[self.owner.get("kind", kind)].step(step)
            made.append(await order_for(engine, tx, store_of(tx), op, chosen, go, self.server))

        play(self.path, body)
        return made[0]


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def ticket(image: str, verb: str) -> str:
    return issue(SEAL, Ticket("cell1", "o", 2, "host1", image, verb))


def test_an_order_names_the_step_and_its_copy(orders: Orders) -> None:
    order = orders.of("stop", "stop_instance", {"host": "host1", "copy": 5, "was": "active"}, copy=7)
    named = (order.journal, order.operation, order.kind, order.name, order.way, order.ordinal)
    assert named == ("cell1", "o", "stop", "stop_instance", "do", 2)
    assert (order.server, order.turn, order.copy, order.facts.was) == ("s", 5, 7, "active")
    assert (order.guest, order.guest_secrets, order.secrets) == (None, None, {}), "it needs none to stop a guest"


def test_a_step_that_makes_a_copy_gets_the_guest_its_secrets_and_the_image(orders: Orders) -> None:
    orders.password = "hunter2"
    order = orders.of("build", "build_and_run_instance", {"destination": "host1", "copy": 5})
    assert order.guest is not None and (order.guest.server, order.guest.copy) == ("s", 5)
    files = [GuestFile("/etc/motd", "hello")]
    assert order.guest_secrets == GuestSecrets(user_data="a script", files=files, admin_password="hunter2")
    assert order.secrets == {IMAGE_TOKEN: ticket("img", FETCH)}


def test_an_undo_gets_no_secrets_and_no_tokens(orders: Orders) -> None:
    orders.password = "hunter2"
    order = orders.of("build", "build_and_run_instance", {"destination": "host1", "copy": 5}, "undo")
    assert order.guest is not None
    assert (order.guest_secrets, order.secrets) == (None, {})


def test_a_password_goes_to_its_host_also_when_the_server_has_no_record(orders: Orders) -> None:
    orders.server, orders.password = None, "hunter2"
    order = orders.of("build", "build_and_run_instance", {"destination": "host1", "copy": 5})
    assert (order.guest, order.guest_secrets) == (None, GuestSecrets(admin_password="hunter2"))
    assert order.secrets == {}, "nobody knows its image"


def test_a_guest_without_an_image_gets_no_token_for_one(orders: Orders) -> None:
    orders.server = record(image_ref="")
    assert orders.of("build", "build_and_run_instance", {"destination": "host1", "copy": 5}).secrets == {}


def test_an_upload_may_send_the_image_of_the_snapshot_only(orders: Orders) -> None:
    facts = {"host": "host1", "copy": 5, "snapshot_image": "snap"}
    assert orders.of("snapshot", "upload_image", facts).secrets == {UPLOAD_TOKEN: ticket("snap", SEND)}


@pytest.mark.parametrize(
    ("step", "also"), [("prep_resize", {IMAGE_TOKEN: ticket("img", FETCH)}), ("resize_instance", {})]
)
def test_both_hosts_of_a_move_get_the_same_token_for_its_disks(orders: Orders, step: str, also: dict[str, str]) -> None:
    facts = {"source": "host1", "source_copy": 4, "destination": "host2", "copy": 5}
    order = orders.of("migrate", step, facts, copy=4 if step == "resize_instance" else 5)
    assert order.secrets == {DISK_TOKEN: disk_token(SEAL, "o", "s", "host2", 5), **also}


def test_an_inherited_undo_has_the_facts_of_the_operation_that_it_undoes(orders: Orders) -> None:
    """Also the flavor that its copy had by them."""
    flavors = {"old_flavor": flavor_document(OLD), "new_flavor": flavor_document(NEW)}
    facts = ResizeFacts(**flavors, source_copy=4, copy=5, destination="host2")
    orders.owner = {"id": "before", "kind": "resize", "facts": to_json(facts)}
    order = orders.of("evacuate", "prep_resize", {"destination": "host3", "copy": 9}, "undo", copy=4, owner="before")
    assert (order.operation, order.kind) == ("o", "resize")
    assert (order.facts.destination, order.facts.source_copy) == ("host2", 4)
    assert order.guest is not None and order.guest.vcpus == OLD.vcpus
    orders.owner = {}
    own = orders.of("resize", "prep_resize", facts, copy=5)
    assert (own.operation, own.kind, own.guest is not None and own.guest.vcpus) == ("o", "resize", NEW.vcpus)
