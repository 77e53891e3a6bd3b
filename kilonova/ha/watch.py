"""The failure watch. One runs beside every conductor and checks the hosts regularly. Each host that it may act on has
one record, and three steps: fence, wait whether the host shows that the fence lied, evacuate.

A watcher takes the record for each step (store/failures.py), so that two watchers never do the same, and another one
continues the work of one that died. A failed read is repeated in the next round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Failed, Halted, KilonovaError, Refused
from kilonova.domain.failure_watch import ACTS, EVACUATED_AGAIN, HELD
from kilonova.domain.host import FENCE, HostState
from kilonova.domain.json import as_object, as_text, json_object
from kilonova.domain.operation import LIVE_STATES
from kilonova.domain.whole_hosts import SKIP
from kilonova.engine.accept import IdempotencyKey
from kilonova.engine.core import Engine
from kilonova.hosts.failures import HostObservation, Silent, look
from kilonova.hosts.states import fence
from kilonova.operations.whole_hosts.requests import Bulk, ask_for_hosts
from kilonova.schema.tables.cell import hosts
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.store.failures import begin_failure, disarm, is_armed, may_fence, note_failure, set_back, take_failure
from kilonova.store.hosts import judge_host
from kilonova.world import Row, Tx

logger = logging.getLogger(__name__)
TAKEN_FOR = 60.0  # seconds, besides the fence command's own time limit: a step that begins later is another watcher's
BEFORE_FENCE = ("fencing", "fence_failed")
LEFT = ("failed", "impossible", "refused", "not_begun")  # of an account: servers that are still there


class Watch:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._loop: asyncio.Task[None] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by host
        self._said: dict[str, str] = {}  # by host: why it is held

    async def start(self) -> None:
        if self.engine.settings.ha.automatic:
            self._loop = asyncio.create_task(self._every())

    async def stop(self) -> None:
        tasks = [task for task in (self._loop, *self._tasks.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _every(self) -> None:
        while True:
            try:
                await self.round()
            except Halted as error:
                logger.debug("failure watch: %s", error)  # it was logged once
            except KilonovaError as error:
                logger.warning("failure watch: %s", error)
            except Exception:
                logger.exception("the failure watch failed")
            await self.engine.world.clock.sleep(self.engine.settings.conductor.poll_seconds)

    async def round(self) -> None:
        """Look once, and begin whatever is due."""
        seen = await look(self.engine, self.engine.worker)
        if seen.is_ahead:  # the next round checks what is due from now on
            await self.engine.write(self.engine.world.db.control, set_back)
        self._log_held(seen)
        for host, failure in seen.failures.items():
            self._begin(host, lambda failure=failure: self._go_on(failure, seen))  # type: ignore[misc]
        for host, one in seen.silent.items():
            if one.decision is not None and one.decision.outcome == ACTS and host not in seen.failures:
                self._begin(host, lambda one=one: self._act(one))  # type: ignore[misc]

    def _log_held(self, seen: HostObservation) -> None:
        """Log a decision to hold once, and again when its reason changes."""
        held = {name: one for name, one in seen.silent.items() if one.decision and one.decision.outcome == HELD}
        sight = seen.sight
        reasons = {name: (sight.disarmed is not None, len(sight.blind), one.state.status) for name, one in held.items()}
        for name, one in held.items():
            if self._said.get(name) != repr(reasons[name]) and one.decision is not None:
                logger.warning("host not evacuated: host=%s reason=%r", name, one.decision.sentence)
        self._said = {name: repr(reason) for name, reason in reasons.items()}

    def _begin(self, host: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run one task at a time per host; one that hangs does not delay the others."""
        if host in self._tasks:
            return
        task = self._tasks[host] = asyncio.ensure_future(self._guarded(host, work))
        task.add_done_callback(lambda _: self._tasks.pop(host, None))

    async def _guarded(self, host: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Halted as error:
            logger.debug("failure watch: host=%s: %s", host, error)  # it was logged once
        except KilonovaError as error:
            logger.warning("failure watch: host=%s: %s", host, error)
        except Exception:
            logger.exception("the failure watch failed at %s", host)

    # -- one failure --------------------------------------------------------------------------------------------

    @property
    def _seconds(self) -> float:
        return self.engine.settings.ha.fence_timeout + TAKEN_FOR

    @property
    def _pauses(self) -> dict[str, float]:
        """Return the seconds until evacuation, by state: a host that was not off sends a heartbeat before."""
        return {"fenced": 2 * self.engine.settings.default.report_interval, "incomplete": EVACUATED_AGAIN}

    async def _act(self, one: Silent) -> None:
        """Act on a host without a failure record."""
        values = {"id": self.engine.world.ids.uuid(), "host": one.name, "cell": one.cell, "session": one.session}
        values["evidence"] = one.state.sentence
        rules, until = self.engine.settings.ha, self._begins_until()

        async def body(tx: Tx) -> bool:
            return await begin_failure(tx, values, self.engine.worker, self._seconds, rules)

        if await self.engine.write(self.engine.world.db.control, body):
            await self._fence({**values, "attempts": 0}, until)

    async def _go_on(self, failure: Row, seen: HostObservation) -> None:
        host, state, waited = failure["host"], failure["state"], seen.now - failure["changed_at"]
        if failure["cell"] in seen.sight.blind:
            return
        if host not in seen.declared and (host not in seen.silent or state not in BEFORE_FENCE):
            await self._answered(failure)  # also a host that fell silent again: its fence counts no longer
        elif state in BEFORE_FENCE:
            await self._fence_again(failure, seen)
        elif state == "evacuating":
            await self._look_at_evacuation(failure)
        elif seen.sight.disarmed is None and waited >= self._pauses.get(state, float("inf")):
            await self._evacuate(failure)

    async def _fence_again(self, failure: Row, seen: HostObservation) -> None:
        """Fence again, after the watcher has died or the command has failed. A host that was fenced or declared down
        since then needs no other command."""
        if failure["host"] in seen.declared:
            if await self._take(failure):
                await self._note_declared(failure, seen.declared[failure["host"]].state)
            return
        one, until = seen.silent[failure["host"]], self._begins_until()
        is_due = one.decision is not None and one.decision.outcome == ACTS

        async def may_again(tx: Tx) -> bool:
            return failure["state"] == "fencing" or await may_fence(tx, failure["host"], self.engine.settings.ha)

        if (failure["state"] == "fencing" or is_due) and await self._take(failure, may_again):
            await self._fence(failure, until)

    async def _note_declared(self, failure: Row, state: HostState) -> None:
        """Note that the host is fenced, or that an operator declared it down, which is a proof too (law 3).

        A declaration is not the fence command, so the command did not lie if the same agent answers later: the record
        then forgets the agent's session.
        """
        fenced = state.proven_by == FENCE
        has_run = fenced or failure["state"] == "fencing"  # its watcher died: the command may have run
        note = partial(self._note, failure["id"], "fenced", sentence="", proof=state.sentence, has_run=has_run)
        await (note() if fenced else note(session=None))

    async def _fence(self, failure: Mapping[str, Any] | Row, until: float) -> None:
        """`until`: when another watcher may take the record, by this machine's clock (law 16)."""
        failure_id, host, cell, attempts = (failure[name] for name in ("id", "host", "cell", "attempts"))
        has_run = False

        async def confirm() -> None:
            nonlocal has_run
            if not await self._is_dead(cell, host):
                raise Failed("host_answers", f"{host} could not be fenced: it answered again")
            if self.engine.world.clock.monotonic() > until:
                raise Failed("fence_late", f"{host} could not be fenced: this watcher was held up before it began")
            has_run = True

        if not await self._is_dead(cell, host):
            await self._note(failure_id, "returned", sentence=f"{host} answered again before it was fenced")
            return
        logger.warning("fencing host: host=%s attempt=%d", host, attempts + 1)
        try:
            proof = await fence(self.engine, host, confirm)
        except KilonovaError as why:
            logger.warning("host not fenced: host=%s reason=%s", host, why)
            result = {"sentence": str(why), "attempts": attempts + 1}
            await self._note(failure_id, "fence_failed", has_run=has_run, **result)
            return
        await self._note(failure_id, "fenced", sentence="", proof=proof, attempts=0, has_run=True)

    async def _evacuate(self, failure: Row) -> None:
        until = self._begins_until()
        if not await self._take(failure, is_armed) or self.engine.world.clock.monotonic() > until:
            return
        host, attempts = failure["host"], failure["attempts"] + 1
        request = f"req-{self.engine.world.ids.uuid()}"
        owner = {"user_id": "", "project_id": "", "through": "ha", "request_id": request}
        cause = Cause(**owner, reason=f"{failure['evidence']}; {failure['proof']}", is_admin=True)
        key = IdempotencyKey(f"{failure['id']}:{attempts}", "ha", "")
        bulk = Bulk(on_misfit=SKIP, accept_unfenced=False)
        try:
            accepted = await ask_for_hosts(self.engine, "evacuate_host", [host], cause, key, bulk)
        except Refused as why:
            await self._note(failure["id"], failure["state"], sentence=f"not evacuated: {why.message}")
            return
        operation = next(iter(accepted.values())).operation_id
        logger.warning("evacuating host: host=%s operation=%s", host, operation)
        await self._note(failure["id"], "evacuating", sentence="", operation_id=operation, attempts=attempts)

    async def _look_at_evacuation(self, failure: Row) -> None:
        async def body(tx: Tx) -> Row | None:
            return await rows.fetch(tx, operations, id=failure["operation_id"])

        row = await self.engine.world.db.cell(failure["cell"]).read(body)
        if row is not None and row["state"] in LIVE_STATES:
            return
        account = {} if row is None else as_object(json_object(row["facts"]).get("account"))
        error = {} if row is None else json_object(row["error"])
        sentence = as_text(account.get("sentence")) or as_text(error.get("message")) or "the evacuation has ended"
        is_left = any(account.get(key) for key in LEFT) or (row is not None and row["state"] in ("undone", "failed"))
        stopped = row is not None and row["state"] == "cancelled"  # by an operator, whose decision counts
        if await self._take(failure):
            state = "incomplete" if is_left and not stopped else "done"
            logger.warning("host evacuated: host=%s state=%s account=%r", failure["host"], state, sentence)
            await self._note(failure["id"], state, sentence=sentence)

    async def _answered(self, failure: Row) -> None:
        """Note that the host answers again, or was removed. If it is the agent from before the fence, it was never
        off."""
        host = failure["host"]

        async def body(tx: Tx) -> Row | None:
            return await rows.fetch(tx, hosts, name=host)

        row = await self.engine.world.db.cell(failure["cell"]).read(body)
        if not await self._take(failure):
            return
        if row is None:
            await self._note(failure["id"], "gone", sentence=f"{host} is no longer recorded")
        elif failure["proof"] and failure["session"] and row["session"] == failure["session"]:
            reason = (
                f"the fence command said that {host} was off, but its agent never stopped; correct [ha] fence_command"
            )
            logger.error("fence command lied: host=%s proof=%r; the failure watch is disarmed", host, failure["proof"])
            await self._note(failure["id"], "lied", sentence=reason, disarm_for=reason)
        else:
            sentence = "; ".join(filter(None, (failure["sentence"], f"{host} answered again")))
            await self._note(failure["id"], "returned", sentence=sentence, has_run=failure["state"] == "fencing")

    # -- records ------------------------------------------------------------------------------------------------

    async def _is_dead(self, cell: str, host: str) -> bool:
        async def body(tx: Tx) -> bool:
            state = await judge_host(tx, host, self.engine.settings.default.service_down_time)
            return state is not None and state.status == "down"

        return await self.engine.world.db.cell(cell).read(body)

    def _begins_until(self) -> float:
        return self.engine.world.clock.monotonic() + TAKEN_FOR

    async def _take(self, failure: Row, allowed: Callable[[Tx], Awaitable[bool]] | None = None) -> bool:
        """`allowed`: whether that may begin now, checked in the same transaction."""

        async def body(tx: Tx) -> bool:
            if allowed is not None and not await allowed(tx):
                return False
            return await take_failure(tx, failure, self.engine.worker, self._seconds)

        return await self.engine.write(self.engine.world.db.control, body)

    async def _note(self, failure: str, state: str, *, disarm_for: str = "", **columns: Any) -> None:
        async def body(tx: Tx) -> None:
            if await note_failure(tx, failure, self.engine.worker, state, **columns) and disarm_for:
                await disarm(tx, None, disarm_for, "")

        await self.engine.write(self.engine.world.db.control, body)
