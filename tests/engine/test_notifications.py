"""Notifications: which events each operation tells, in which order, whatever dies in between."""

import asyncio
import json
from collections import Counter

import msgspec
import pytest

from kilonova.domain.server import Flavor
from kilonova.hosts.states import declare_down, declare_up, disable, enable
from kilonova.notifications.target import NotSent
from kilonova.operations.whole_hosts.declare_gone import declare_gone
from kilonova.settings import NotificationOptions
from kilonova.sim.lab.settings import simulated
from tests.unit.notifications.published import check_message

LARGE = Flavor("large", 2, 2048, 20, id="2")
HUGE = Flavor("huge", 1000, 1024, 10, id="3")
CREATED = ["instance.create.start", "instance.create.end"]
REBUILT = ["instance.rebuild_scheduled", "instance.rebuild.start", "instance.rebuild.end"]
RESIZED = ["instance.resize.start", "instance.resize.end"]


class Receiver:
    """Takes what is sent, or does not."""

    def __init__(self):
        self.messages = []
        self.refused = 0
        self.refuses = lambda message: False
        self.on_message = None

    async def send(self, message):
        if self.refuses(message):
            self.refused += 1
            raise NotSent("the receiver refuses")
        self.messages.append(json.loads(message.body))
        check_message(self.messages[-1])
        assert (message.id, message.event_type, message.priority) == (
            self.messages[-1]["message_id"],
            self.messages[-1]["event_type"],
            self.messages[-1]["priority"],
        )
        if self.on_message is not None:
            self.on_message()
            await asyncio.Event().wait()  # its sender is dead

    def once(self):
        """Without the doubles."""
        return list({message["message_id"]: message for message in self.messages}.values())

    def events(self):
        return [message["event_type"] for message in self.once()]


@pytest.fixture
def told(cloud):
    """A cloud that tells, and the receiver."""

    def build(**shape):
        receiver = Receiver()
        settings = simulated(notifications=NotificationOptions(transport="bus"))
        return cloud(settings=settings, notified=receiver, **shape), receiver

    return build


def waiting(cloud):
    return [row for name in cloud.records().databases.values() for row in name.get("notifications", ())]


def created(cloud, receiver, **params):
    server, _ = cloud.make(**params)
    assert receiver.events() == CREATED
    receiver.messages.clear()
    return server


def asked(cloud, kind, server, seconds=60.0, **params):
    cloud.submit(kind, server, **params)
    cloud.loop.run_for(seconds)


def test_create_and_delete(told):
    cloud, receiver = told(addresses=10)
    server = created(cloud, receiver, networks=[{"network_id": cloud.laid.network}])
    asked(cloud, "delete", server)
    assert receiver.events() == ["instance.delete.start", "instance.delete.end"]
    begun, ended = receiver.messages
    assert begun["payload"]["nova_object.data"]["task_state"] == "deleting"
    assert ended["payload"]["nova_object.data"]["state"] == "deleted"
    assert ended["payload"]["nova_object.data"]["deleted_at"] is not None
    assert (
        begun["publisher_id"] == ended["publisher_id"] == f"nova-compute:{begun['payload']['nova_object.data']['host']}"
    )
    assert waiting(cloud) == []


def test_power(told):
    cloud, receiver = told()
    server = created(cloud, receiver)
    asked(cloud, "stop", server)
    asked(cloud, "start", server)
    assert receiver.events() == [
        "instance.power_off.start",
        "instance.power_off.end",
        "instance.power_on.start",
        "instance.power_on.end",
    ]
    states = [message["payload"]["nova_object.data"] for message in receiver.messages]
    assert [(data["state"], data["task_state"], data["power_state"]) for data in states] == [
        ("active", "powering-off", "running"),
        ("stopped", None, "shutdown"),
        ("stopped", "powering-on", "shutdown"),
        ("active", None, "running"),
    ]


def test_rebuild(told):
    cloud, receiver = told()
    server = created(cloud, receiver)
    asked(cloud, "rebuild", server, image="other")
    assert receiver.events() == REBUILT
    assert receiver.messages[0]["publisher_id"] == "nova-conductor:machine1"
    assert receiver.messages[-1]["payload"]["nova_object.data"]["image_uuid"] == "other"


def test_evacuate(told):
    cloud, receiver = told(hosts=2)
    server = created(cloud, receiver, host="host1")
    cloud.hardware.switch_power("host1", False)
    cloud.loop.run_for(70.0)
    asked(cloud, "evacuate", server)
    assert receiver.events() == ["instance.evacuate", *REBUILT]
    publishers = [message["publisher_id"] for message in receiver.messages]
    assert publishers == ["nova-api:machine1", "nova-conductor:machine1", "nova-compute:host2", "nova-compute:host2"]
    assert receiver.messages[-1]["payload"]["nova_object.data"]["host"] == "host2"


@pytest.mark.parametrize(
    ("answer", "events"),
    [
        ("confirm_resize", ["instance.resize_confirm.start", "instance.resize_confirm.end"]),
        ("revert_resize", ["instance.resize_revert.start", "instance.resize_revert.end"]),
    ],
)
@pytest.mark.parametrize(("kind", "params"), [("resize", {"flavor": msgspec.to_builtins(LARGE)}), ("migrate", {})])
def test_moves(told, kind, params, answer, events):
    cloud, receiver = told()
    server = created(cloud, receiver)
    asked(cloud, kind, server, **params)
    asked(cloud, answer, server)
    assert receiver.events() == [*RESIZED, *events]


def test_a_host_that_refuses_is_told_as_an_error_and_the_next_one_as_another_start(told):
    cloud, receiver = told(hosts=2)
    for host in ("host1", "host2"):
        cloud.hardware.fail(host, "ensure_disk", 1, "error")
    cloud.make()
    cloud.loop.run_for(60.0)
    start, error = "instance.create.start", "instance.create.error"
    assert receiver.events() == [start, error, start, error, "compute_task.build_instances.error"]
    failed = receiver.messages[1]
    assert failed["priority"] == "ERROR"
    fault = failed["payload"]["nova_object.data"]["fault"]["nova_object.data"]
    assert fault["function_name"] == "build_and_run_instance"
    buried = receiver.messages[-1]
    assert (buried["priority"], buried["publisher_id"]) == ("ERROR", "nova-conductor:machine1")
    assert buried["payload"]["nova_object.data"]["state"] == "error"


def test_a_burial(told):
    cloud, receiver = told()
    server, _ = cloud.make(flavor=HUGE)
    assert receiver.events() == ["compute_task.build_instances.error"]
    data = receiver.messages[0]["payload"]["nova_object.data"]
    assert (data["instance_uuid"], data["state"]) == (server, "error")
    assert data["reason"]["nova_object.data"]["exception"] == "NoValidHost"
    receiver.messages.clear()
    asked(cloud, "delete", server)
    assert receiver.events() == ["instance.delete.start", "instance.delete.end"]
    assert {message["publisher_id"] for message in receiver.messages} == {"nova-api:machine1"}


def test_a_server_that_is_deleted_before_it_has_a_host(told):
    cloud, receiver = told()
    cloud.kill("conductor1")
    server, _ = cloud.make(wait=1.0)
    cloud.submit("delete", server)
    cloud.start("conductor1")
    cloud.loop.run_for(60.0)
    assert receiver.events() == ["instance.delete.start", "instance.delete.end"]
    assert [m["payload"]["nova_object.data"]["state"] for m in receiver.messages] == ["building", "deleted"]


def test_moves_that_find_no_host(told):
    cloud, receiver = told(hosts=1)
    server = created(cloud, receiver)
    asked(cloud, "migrate", server)
    asked(cloud, "resize", server, flavor=msgspec.to_builtins(HUGE))
    assert receiver.events() == ["compute_task.migrate_server.error"] * 2
    cloud.hardware.switch_power("host1", False)
    cloud.loop.run_for(70.0)
    receiver.messages.clear()
    asked(cloud, "evacuate", server)
    assert receiver.events() == ["instance.evacuate", "compute_task.rebuild_server.error"]


@pytest.mark.parametrize(
    ("kind", "params", "verb", "events"),
    [
        ("rebuild", {"image": "other"}, "ensure_disk", [*REBUILT[:2], "instance.rebuild.error"]),
        ("migrate", {}, "send_disk", [RESIZED[0], "instance.resize.error"]),
        ("stop", {}, "ensure_power", ["instance.power_off.start"]),
    ],
)
def test_failures_on_a_host(told, kind, params, verb, events):
    cloud, receiver = told(hosts=2)
    server = created(cloud, receiver, host="host1")
    cloud.hardware.fail("host1", verb, 1, "refuse")
    asked(cloud, kind, server, seconds=120.0, **params)
    assert receiver.events() == events


def test_what_is_superseded_ends_as_an_error(told):
    cloud, receiver = told(boot_seconds=30.0)
    server, _ = cloud.make(wait=5.0)
    asked(cloud, "delete", server, seconds=120.0)
    assert receiver.events() == [
        "instance.create.start",
        "instance.create.error",
        "instance.delete.start",
        "instance.delete.end",
    ]


def test_an_evacuation_with_nothing_left_to_do_tells_no_rebuild(told):
    """Undoing the move that it supersedes brings the server back to a host that lives."""
    cloud, receiver = told(boot_seconds=30.0)
    server = created(cloud, receiver, host="host1")
    cloud.submit("migrate", server, host="host2")
    while cloud.server(server)["host"] != "host2":
        cloud.loop.run_for(0.5)
    cloud.hardware.switch_power("host2", False)
    cloud.do(lambda engine: declare_down(engine, "host2"))
    asked(cloud, "evacuate", server, seconds=120.0)
    assert cloud.server(server)["host"] == "host1"
    events = [event for event in receiver.events() if event != "service.update"]
    assert events == [*RESIZED, "instance.resize.error", "instance.evacuate"]


def test_what_is_cancelled_ends_as_an_error(told):
    cloud, receiver = told(copy_seconds=30.0)
    server = created(cloud, receiver)
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(5.0)
    cloud.cancel(operation)
    cloud.loop.run_for(120.0)
    assert receiver.events() == ["instance.resize.start", "instance.resize.error"]


def test_words_about_a_host(told):
    cloud, receiver = told()
    for word in (disable, disable, enable, declare_down, declare_up):
        cloud.do(lambda engine, word=word: word(engine, "host1"))
    cloud.loop.run_for(5.0)
    assert receiver.events() == ["service.update"] * 4  # what is said twice changes nothing
    data = [message["payload"]["nova_object.data"] for message in receiver.messages]
    assert [(one["disabled"], one["forced_down"]) for one in data] == [
        (True, False),
        (False, False),
        (False, True),
        (False, False),
    ]
    assert {message["publisher_id"] for message in receiver.messages} == {"nova-compute:host1"}


def test_a_host_that_is_declared_gone(told):
    cloud, receiver = told()
    cloud.hardware.switch_power("host3", False)
    cloud.loop.run_for(70.0)
    cloud.do(lambda engine: declare_gone(engine, engine.world.db.cell("cell1"), "host3", "burnt", cloud.cause()))
    cloud.loop.run_for(30.0)
    assert receiver.events() == ["service.update"]
    assert receiver.messages[0]["payload"]["nova_object.data"]["forced_down"]


def test_nothing_is_written_by_default(cloud):
    cloud = cloud()
    server, _ = cloud.make()
    asked(cloud, "stop", server)
    cloud.do(lambda engine: disable(engine, "host1"))
    asked(cloud, "delete", server)
    cloud.make(flavor=HUGE)
    assert "notifications" in cloud.records().databases["cell1"]
    assert waiting(cloud) == []


@pytest.mark.parametrize("kind", ["resize", "rebuild", "evacuate", "delete"])
def test_a_sender_that_dies_loses_nothing_and_doubles_keep_their_id(told, kind):
    """It dies after the receiver has each message, before it knows."""
    params = {"resize": {"flavor": msgspec.to_builtins(LARGE)}, "rebuild": {"image": "other"}}
    events = {
        "resize": RESIZED,
        "rebuild": REBUILT,
        "evacuate": ["instance.evacuate", *REBUILT],
        "delete": ["instance.delete.start", "instance.delete.end"],
    }
    cloud, receiver = told(hosts=2, conductors=2)
    server = created(cloud, receiver, host="host1")
    if kind == "evacuate":
        cloud.hardware.switch_power("host1", False)
        cloud.loop.run_for(70.0)
    crashed = set()

    def crash():
        message = receiver.messages[-1]["message_id"]
        if message not in crashed:
            crashed.add(message)
            for name in ("conductor1", "conductor2"):
                cloud.crash(name)

    receiver.on_message = crash
    sends = receiver.send

    async def send(message):
        if message.id in crashed:
            receiver.on_message = None
        else:
            receiver.on_message = crash
        await sends(message)

    receiver.send = send
    asked(cloud, kind, server, seconds=900.0, **params.get(kind, {}))
    assert receiver.events() == events[kind]
    counted = Counter(json.dumps(message, sort_keys=True) for message in receiver.messages)
    assert set(counted.values()) == {2}
    assert waiting(cloud) == []


def test_one_sender_at_a_time_has_a_message(told):
    cloud, receiver = told(conductors=3)
    sends = receiver.send

    async def slowly(message):
        await sends(message)
        await asyncio.sleep(5.0)

    receiver.send = slowly
    server, _ = cloud.make(wait=30.0)
    asked(cloud, "delete", server)
    assert len(receiver.messages) == len(receiver.events()) == 4


def test_a_deleted_request_leaves_nothing_that_is_sealed(told):
    cloud, _ = told()
    cloud.kill("conductor1")
    server, _ = cloud.make(wait=1.0, details={"user_data": "SEALED-USER-DATA"})
    cloud.submit("delete", server)
    operations = cloud.records().databases["control"]["operations"]
    assert "SEALED" not in repr([row for row in operations if row["kind"] == "delete_unplaced"])
    cloud.start("conductor1")
    cloud.loop.run_for(60.0)
    assert "SEALED" not in repr(cloud.records().databases)


def test_one_that_is_refused_holds_up_only_its_own_server(told):
    cloud, receiver = told(conductors=2)
    server = created(cloud, receiver)
    receiver.refuses = lambda message: server in message.body.decode()
    asked(cloud, "stop", server)
    cloud.make("b")
    assert receiver.events() == CREATED
    assert [row["event_type"] for row in waiting(cloud)] == ["instance.power_off.start", "instance.power_off.end"]
    assert 4 <= receiver.refused <= 9  # pauses grow
    receiver.refuses = lambda message: False
    cloud.loop.run_for(61.0)
    assert receiver.events()[2:] == ["instance.power_off.start", "instance.power_off.end"]


def test_one_that_is_refused_for_too_long_is_given_up(told):
    cloud, receiver = told()
    server = created(cloud, receiver)
    receiver.refuses = lambda message: message.event_type.endswith("off.start")
    asked(cloud, "stop", server, seconds=3500.0)
    assert receiver.events() == []
    cloud.loop.run_for(200.0)
    assert receiver.events() == ["instance.power_off.end"]
    assert waiting(cloud) == []


def test_the_oldest_are_dropped_when_too_many_wait(told):
    cloud, receiver = told(most_notifications=3)
    server = created(cloud, receiver)
    receiver.refuses = lambda message: True
    for kind in ("stop", "start", "stop", "start"):
        asked(cloud, kind, server, seconds=20.0)
    cloud.loop.run_for(5.0)
    assert [row["event_type"] for row in waiting(cloud)] == [
        "instance.power_off.end",
        "instance.power_on.start",
        "instance.power_on.end",
    ]
