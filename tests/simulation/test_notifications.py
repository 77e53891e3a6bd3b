"""A crash at any point of an operation: what the journal says has happened was told, in order, and nothing else."""

import json
import os
from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from kilonova.settings import NotificationOptions
from kilonova.sim.commands import chosen_points
from kilonova.sim.crashes.crashes import count_points, crash_at
from kilonova.sim.crashes.scenarios import SCENARIOS
from tests.unit.notifications.published import check_message

SAMPLE = 0 if os.environ.get("KILONOVA_FULL") else 5
NAMES = (
    "create",
    "delete",
    "migrate",
    "confirm",
    "revert_a_resize",
    "stop",
    "start",
    "rebuild",
    "evacuate",
    "evacuate_host",
    "drain_host",
    "rebuild_in_cell0_and_delete",
    "no_room",
    "build_fails",
    "build_fails_and_delete",
    "abandon_a_migration",
)
# What an operation that is done has told at its end.
ENDS = {
    "build": ["create"],
    "delete": ["delete"],
    "delete_unplaced": ["delete"],
    "stop": ["power_off"],
    "start": ["power_on"],
    "rebuild": ["rebuild"],
    "evacuate": ["rebuild"],
    "confirm_resize": ["resize_confirm"],
    "revert_resize": ["resize_revert"],
    "relocate": ["resize_confirm"],
}
BEGINS = {
    "delete": "delete.start",
    "delete_unplaced": "delete.start",
    "evacuate": "evacuate",
    "stop": "power_off.start",
}


class Receiver:
    def __init__(self):
        self.messages = {}  # by id: doubles keep their first place

    async def send(self, message):
        body = json.loads(message.body)
        check_message(body)
        assert self.messages.setdefault(message.id, body) == body

    def all(self, records):
        """With those that wait to be sent."""
        waiting = sorted(records.table("notifications"), key=lambda row: row["number"])
        return {**self.messages, **{row["id"]: json.loads(row["body"]) for row in waiting}}.values()


def violations(events, operations):
    """Sentences."""
    counted, done = Counter(events), [row for row in operations if row["state"] == "done"]
    ends = Counter(f"instance.{name}.end" for row in done for name in ENDS.get(row["kind"], ()))
    for event in sorted({f"instance.{name}.end" for names in ENDS.values() for name in names}):
        if counted[event] != ends[event]:
            yield f"{event} was told {counted[event]} times, {ends[event]} operations are done"
    begins = Counter(f"instance.{BEGINS[row['kind']]}" for row in operations if row["kind"] in BEGINS)
    for event in sorted(f"instance.{name}" for name in BEGINS.values()):
        if counted[event] != begins[event]:
            yield f"{event} was told {counted[event]} times, {begins[event]} operations were accepted"
    for name in ("create", "rebuild"):
        starts, stops = counted[f"instance.{name}.start"], counted[f"instance.{name}.end"]
        stops += counted[f"instance.{name}.error"]
        if starts != stops:
            yield f"{name} was begun {starts} times and ended {stops} times"
    buried = counted["compute_task.build_instances.error"]
    failed = sum(row["kind"] in ("place", "build") and row["state"] in ("undone", "failed") for row in operations)
    if buried != failed:
        yield f"{buried} burials were told, {failed} creates have failed"


def in_order(messages):
    """Of each server: nothing ends before it begins."""
    open_ones = Counter()
    for message in messages:
        about = message["payload"]["nova_object.data"].get("uuid")
        name, _, phase = message["event_type"].rpartition(".")
        if phase == "start":
            open_ones[about, name] += 1
        elif phase == "end":
            if not open_ones[about, name]:
                yield f"{message['event_type']} came before its start"
            open_ones[about, name] -= 1


@pytest.mark.parametrize("everyone", [False, True], ids=["one role", "all roles"])
@pytest.mark.parametrize("name", NAMES)
def test_a_crash_at_any_point_loses_and_invents_nothing(name, everyone):
    scenario = next(one for one in SCENARIOS if one.name == name)
    settings = scenario.shape.settings
    settings = msgspec.structs.replace(settings, notifications=NotificationOptions(transport="bus"))
    receivers = []

    def fresh():
        receivers.append(Receiver())
        shape = replace(scenario.shape, settings=settings, notified=receivers[-1])
        return replace(scenario, shape=shape, outcome=outcome)

    def outcome(records):
        told = list(receivers[-1].all(records))
        yield from violations([message["event_type"] for message in told], records.table("operations"))
        yield from in_order(told)

    points = count_points(fresh())
    tried = chosen_points(f"notifications of {name}", points, SAMPLE, seed=1)
    tried = tried[everyone::2] if SAMPLE else tried  # of a sample each point is tried once
    failed = [c for c in (crash_at(fresh(), point, everyone=everyone) for point in tried) if c.violations]
    assert not failed, "\n".join(f"at point {c.point} ({c.who}): {c.violations}" for c in failed)
