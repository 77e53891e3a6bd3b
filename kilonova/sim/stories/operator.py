"""The requests of an operator in a story: about an operation that waits, about remains, about volumes."""

from __future__ import annotations

from typing import Any

from kilonova.audit.run import audit as audited
from kilonova.domain.caller import Caller, IdentityRef
from kilonova.engine.abandon import abandon, resume
from kilonova.engine.accept import Accepted
from kilonova.engine.core import Engine
from kilonova.engine.findings import settle
from kilonova.hosts.forget import forget_host
from kilonova.hosts.states import find_host
from kilonova.operations.whole_hosts.declare_gone import declare_gone
from kilonova.schema.tables.volume import attachments
from kilonova.services.volume.changing import Said
from kilonova.sim.lab.network import PROJECT
from kilonova.sim.stories.requests import PendingResponse, Requests
from kilonova.store import rows
from kilonova.store.findings import all_findings, journal_of
from kilonova.world import Tx

ADMIN = Caller(user=IdentityRef("admin", "admin"), project=IdentityRef(PROJECT, PROJECT), roles=("admin",))


class OperatorRequests(Requests):
    """Public methods are verbs."""

    def abandon(self, server: str, reason: str = "it will never work") -> PendingResponse:
        """Abandon the step that the server's live operation waits for."""
        database, operation_id = self._live(server)

        async def ask(engine: Engine) -> None:
            journal = engine.world.db.control if database == "control" else engine.world.db.cell(database)
            await abandon(engine, journal, operation_id, self.cloud.cause(), reason)

        return self._ask(ask)

    def try_now(self, server: str) -> PendingResponse:
        """Try the step now that the server's live operation waits for."""
        database, operation_id = self._live(server)

        async def ask(engine: Engine) -> None:
            journal = engine.world.db.control if database == "control" else engine.world.db.cell(database)
            await resume(engine, journal, operation_id, self.cloud.cause())

        return self._ask(ask)

    def settle(self, server: str, reason: str = "seen to") -> PendingResponse:
        """Settle all findings of this server."""
        server_id = self.player.names.server_id(server)

        async def ask(engine: Engine) -> None:
            db = engine.world.db
            for row in await all_findings(db, settled=False):
                journal = await journal_of(db, row["id"])
                if journal is not None and row["server_id"] == server_id:
                    await settle(journal, row["id"], self.cloud.cause(), reason, engine.world.clock.now())

        return self._ask(ask)

    def forget(self, host: str) -> PendingResponse:
        """Remove a host, as `DELETE /os-services/ID`."""

        async def ask(engine: Engine) -> None:
            journal, row = await find_host(engine, host)
            await forget_host(engine, journal.name, host, row["provider_id"])

        return self._ask(ask)

    def gone(self, host: str, reason: str = "it burnt down") -> PendingResponse:
        """Declare the host gone."""
        cause = self.cloud.cause()

        async def ask(engine: Engine) -> Accepted:
            journal, _ = await find_host(engine, host)
            return await declare_gone(engine, journal, host, reason, cause)

        return self._ask(ask, self._joined(f"host_gone {host}"))

    def repair(self, *finds: str) -> PendingResponse:
        """Run an audit that repairs, and expect these sentences."""

        def judge(result: Any, error: Exception | None) -> str | None:
            repaired = [one for one in (result.findings if result else []) if one.outcome == "repaired"]
            sentences = [self.player.names.with_names(finding.sentence) for finding in repaired]
            if error is not None or sentences != list(finds):
                return f"the audit repaired {error or sentences}, expected {list(finds)}"
            self.player.log_line("api", "the audit repairs " + ("; ".join(sentences) or "nothing"))
            return None

        return self._ask(lambda engine: audited(engine.world.db, engine.world.clock, mend=True), judge)

    def volume_status(self, **states: str) -> list[PendingResponse]:
        """Set a volume's status, as an administrator (os-reset_status): `volume1: error`."""
        return [self._reset(volume, status) for volume, status in states.items()]

    def _reset(self, volume: str, status: str) -> PendingResponse:
        volume_id = self._volume(volume)

        async def ask(engine: Engine) -> None:
            volumes = self.cloud.roles["api"].volumes
            assert volumes is not None
            await volumes.changes.reset(ADMIN, volume_id, Said(status=status))

        return self._ask(ask)

    def force_detach(self, volume: str) -> PendingResponse:
        """Detach a volume as an administrator, through the Volume API; compute is not notified."""
        volume_id = self._volume(volume)

        async def ask(engine: Engine) -> None:
            volumes = self.cloud.roles["api"].volumes
            assert volumes is not None
            await volumes.attachments.detach(ADMIN, volume_id, None, force=True)

        return self._ask(ask)

    def connect_elsewhere(self, **machines: str) -> list[PendingResponse]:
        """`volume1: rescue`: written past compute, the volume is connected to that machine too; to "" no more."""
        return [self._connect(volume, machine) for volume, machine in machines.items()]

    def _connect(self, volume: str, machine: str) -> PendingResponse:
        volume_id = self._volume(volume)
        other = f"elsewhere-{volume}"

        async def body(tx: Tx) -> None:
            row = await rows.fetch(tx, attachments, volume_id=volume_id)
            if machine and row is not None:
                copied = {name: row[name] for name in row.keys()}  # noqa: SIM118 - not a dict
                await rows.put(
                    tx, attachments, **{**copied, "id": other, "host": machine, "server_id": None, "turn": 0}
                )
            else:
                await rows.remove(tx, attachments, id=other)

        return self._ask(lambda engine: engine.world.db.control.write(body))
