"""The player of a history: sends its requests to the api, and causes its faults (trouble.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from kilonova.domain.cause import Cause
from kilonova.domain.errors import CommitFailed, CommitUnknown, Refused
from kilonova.domain.json import JsonObject
from kilonova.engine.abandon import abandon, resume
from kilonova.engine.accept import Accepted, Ask, IdempotencyKey
from kilonova.engine.cancel import cancel
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.operations.create.accept import NewServers, create_many
from kilonova.operations.in_cell0.retry import ANY_FAILURE, rebuild_unplaced
from kilonova.operations.snapshot import submit_snapshot
from kilonova.operations.soft_delete import remove
from kilonova.sim.histories.acts import NEMESES, Act
from kilonova.sim.histories.new_servers import new_servers, other_flavor, volume_named
from kilonova.sim.histories.trouble import Trouble
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import Records
from kilonova.sim.lab.stock import IMAGES
from kilonova.sim.lab.uploads import image_params
from kilonova.world import Store


async def _abandon(engine: Engine, journal: Store, operation: str, cause: Cause) -> None:
    await abandon(engine, journal, operation, cause, "history")


async def _cancel(engine: Engine, journal: Store, operation: str, cause: Cause) -> None:
    await cancel(engine, journal, operation, cause.user_id)


def _rebuild_params(act: Act, number: int) -> JsonObject:
    if act.option == "refused":
        return {"image": f"img{number}", "image_properties": {"hw_architecture": "aarch64"}}
    return {"image": "img" if act.option == "first" else f"img{number}"}


def _evacuate_params(act: Act) -> JsonObject:
    """`shared` and `local` are what a request says of the storage, right or wrong."""
    params: JsonObject = {"host": act.who} if act.who else {}
    if act.option in ("shared", "local"):
        return {**params, "shared": act.option == "shared"}
    return {**params, act.option: True} if act.option and (act.who or act.option != "forced") else params


VERBS = {"cancel": _cancel, "abandon": _abandon, "resume": resume}


class HistoryPlayer:
    """The player of the acts. A request that the API refuses is part of the history; an acknowledged one must not be
    lost."""

    def __init__(self, cloud: SimCloud) -> None:
        self.cloud = cloud
        self.ids: dict[int, str] = {}
        self.lives: dict[int, int] = {}
        self.acknowledged: set[str] = set()
        self.deleted: set[str] = set()
        self.booted: set[str] = set()  # servers that boot from a volume, as far as their ids were chosen here
        self.newest: dict[int, str] = {}
        self.answers: dict[str, set[tuple[str, str]]] = {}  # by Idempotency-Key: body and operation
        self.images = 0  # of servers, asked for
        self.wrong: list[str] = []  # wrong answers
        self.trouble = Trouble(cloud, self)

    def stop(self) -> None:
        self.trouble.end()

    def perform(self, act: Act) -> None:
        if act.do in NEMESES:
            getattr(self.trouble, act.do)(act)
        else:
            self.request(act)

    def request(self, act: Act) -> None:
        if act.do in ("create", "create_many"):
            self._create(act)
        elif act.do in VERBS:
            self._say(act)
        elif act.server in self.ids:
            self._submit(act, self.ids[act.server])

    def _submit(self, act: Act, server: str) -> None:
        if act.do in ("delete", "remove"):
            self.deleted.add(server)
        params = self._params(act)
        if params is None:
            return
        kind = {"remove": "delete", "retry": "rebuild"}.get(act.do, act.do)
        if act.do == "rebuild" and server in self.booted:
            image = IMAGES[act.option == "first"]
            kind, params = "rebuild_volume", {"image": image, "reimage": bool(len(self.newest) % 2)}
        if act.do == "snapshot":
            kind, params = self._snapshot(server)
        ask = Ask(kind=kind, server_id=server, cause=self.cloud.cause(), params=params)
        work = {"remove": remove, "retry": rebuild_unplaced, "snapshot": submit_snapshot}.get(act.do, submit)

        def send(key: IdempotencyKey | None) -> None:
            keyed = msgspec.structs.replace(ask, key=key)
            self.ask(lambda engine: work(engine, keyed), lambda done: self._answered(act.server, key, done))

        self._send(act, send)

    def _snapshot(self, server: str) -> tuple[str, JsonObject]:
        self.images += 1
        image = f"1a6e0000-0000-4000-8000-{self.images:012d}"
        kind = "snapshot_volumes" if server in self.booted else "snapshot"
        return kind, image_params(image, f"image{self.images}", server)

    def _params(self, act: Act) -> JsonObject | None:
        """Return the parameters; None if the volume does not exist."""
        if act.do == "rebuild":
            return _rebuild_params(act, len(self.newest))
        if act.do == "evacuate":
            return _evacuate_params(act)
        if act.do == "migrate":
            return {"host": act.who} if act.who else {}
        if act.do == "retry":
            return ANY_FAILURE if act.server % 4 else {}
        if act.do == "resize":
            return {"flavor": msgspec.to_builtins(other_flavor(act.server + len(self.newest)))}
        if act.do not in ("attach_volume", "detach_volume"):
            return {}
        label = (act.volumes or ("1",))[0]
        volume = volume_named(self.cloud, label) if self.cloud.stock.volumes else ""
        if not volume:
            return None
        if act.do == "detach_volume":
            return {"volume_id": volume}
        record = f"bdm-{act.server}-{label}-{len(self.newest)}"
        return {"id": record, "volume_id": volume, "delete_on_termination": label.endswith("!")}

    def _send(self, act: Act, send: Callable[[IdempotencyKey | None], None]) -> None:
        """Send a request once, or, as an unsure client does, again with the same key; the last time the body differs
        (law 10)."""
        if not act.again:
            send(None)
            return
        key = IdempotencyKey(f"key-{len(self.answers)}", act.do, "body")
        self.answers[key.key] = set()
        send(key)
        for later in act.again:
            self.cloud.loop.call_later(later, send, key)
        self.cloud.loop.call_later(sum(act.again) + 1.0, send, msgspec.structs.replace(key, body_hash="another body"))

    def _create(self, act: Act) -> None:
        """Request servers. With a key the API chooses the ids: only the key makes two of these requests one."""
        count = act.number if act.do == "create_many" else 1
        slots = [slot for slot in range(act.server, act.server + count) if self._begin_life(slot)]
        if not slots:
            return
        ids = [None if act.again else f"00000000-0000-4000-8000-{slot:06d}{self.lives[slot]:06d}" for slot in slots]
        self.ids.update({slot: server for slot, server in zip(slots, ids, strict=True) if server is not None})
        servers = new_servers(self.cloud, act, slots, ids)
        self.booted |= {one.id for one in servers if one.id and any(volume.is_root for volume in one.volumes)}
        most = len(servers)
        wanted = NewServers(flavor=servers[0].flavor, least=most, most=most, make=lambda count: servers)
        cause = self.cloud.cause()

        def send(key: IdempotencyKey | None) -> None:
            self.ask(
                lambda engine: create_many(engine, wanted, cause, key),
                lambda accepted_servers: self._acknowledge(slots, key, accepted_servers),
            )

        self._send(act, send)

    def _begin_life(self, slot: int) -> bool:
        """Begin a new server in this slot. Return False if its server still lives."""
        self.lives[slot] = self.lives.get(slot, 0) + 1
        return slot not in self.ids or self.ids[slot] in self.deleted

    def _acknowledge(
        self, slots: Sequence[int], key: IdempotencyKey | None, accepted_servers: Sequence[tuple[str, Accepted]]
    ) -> None:
        for slot, (server, accepted) in zip(slots, accepted_servers, strict=True):
            self.acknowledged.add(server)
            self.ids[slot] = server
            self._answered(slot, key, accepted)

    def _answered(self, slot: int, key: IdempotencyKey | None, accepted: Accepted) -> None:
        self.newest[slot] = accepted.operation_id
        if key is not None:
            self.answers[key.key].add((key.body_hash, accepted.operation_id))

    def _say(self, act: Act) -> None:
        """A word about the newest operation of the server."""
        operation, cause = self.newest.get(act.server), self.cloud.cause()
        if operation is None:
            return

        async def everywhere(engine: Engine) -> None:
            for journal in engine.world.db.journals():
                try:
                    await VERBS[act.do](engine, journal, operation, cause)
                except (Refused, CommitFailed):  # not this journal's, or too late, or its database is away
                    continue

        self.ask(everywhere)

    def ask(
        self, work: Callable[[Engine], Awaitable[Any]], callback: Callable[[Any], None] = lambda answer: None
    ) -> None:
        def done(answer: Any) -> None:
            error = answer.exception()
            if error is None:
                callback(answer.result())
            elif not isinstance(error, (Refused, CommitFailed, CommitUnknown)):
                self.wrong.append(f"a request was answered with {type(error).__name__}: {error}")

        if "api" in self.cloud.roles:
            self.cloud.ask(work).add_done_callback(done)

    def lost(self, records: Records) -> list[str]:
        """Return the acknowledged servers that are missing although their deletion was not requested."""
        there = {row["id"] for row in records.table("servers")}
        return [
            f"server {server} was acknowledged and is lost"
            for server in sorted(self.acknowledged - there - self.deleted)
        ]

    def done_twice(self) -> list[str]:
        """Return violations of idempotency: a repeated key returns one operation, and another body is refused."""
        return [
            f"requests with {key} were answered with {sorted(answers)}"
            for key, answers in self.answers.items()
            if len(answers) > 1
        ]
