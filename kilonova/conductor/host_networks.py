"""Hosts' questions about networks: the document of a host, and the contents of a guest's metadata service. A host gets
its own ports, and the contents of servers that it has permission to run."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, select

from kilonova.domain.errors import Halted, Superseded
from kilonova.domain.host_network import (
    ContentsAnswer,
    ContentsQuestion,
    NetworkAnswer,
    NetworkQuestion,
    pack,
    version_of,
)
from kilonova.domain.server import Server
from kilonova.engine.connections import with_ports
from kilonova.engine.context import guest_spec
from kilonova.engine.core import Engine
from kilonova.engine.server_secrets import server_secrets
from kilonova.hosts.registration import cell_of
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

_STANDING = Sql(select(*cell.hosts.c["session", "epoch"]).where(cell.hosts.c.name == bindparam("host")))


@dataclass
class HostNetworks:
    engine: Engine

    async def on_network(self, question: NetworkQuestion) -> NetworkAnswer:
        network = self.engine.world.network
        if network is None or await self._journal(question) is None:
            return NetworkAnswer()
        document = await network.host_document(
            question.host, tunnel_address=question.tunnel_address, is_node=question.is_node
        )
        packed = pack(document)
        version = version_of(packed)
        return NetworkAnswer(version=version, document=b"" if version == question.have else packed)

    async def on_contents(self, question: ContentsQuestion) -> ContentsAnswer:
        journal = await self._journal(question)
        if journal is None:
            return ContentsAnswer()

        async def body(tx: Tx) -> Row | None:
            return await rows.fetch(tx, cell.servers, id=question.server)

        row = await journal.read(body, few=True)
        if row is None or row["deleted"] or row["runner_host"] != question.host:
            return ContentsAnswer()
        server = Server.from_row(row)
        guest = await with_ports(self.engine.world, guest_spec(server, row["runner_copy"]), filters=False)
        return ContentsAnswer(guest=guest, secrets=server_secrets(self.engine.seal, server))

    async def _journal(self, question: NetworkQuestion | ContentsQuestion) -> Store | None:
        """Return the host's cell if the sender is the agent that registered last under this name."""
        if self.engine.world.db.halted:
            raise Halted(self.engine.world.db.halted)
        try:
            journal = await cell_of(self.engine, question.host)
        except Superseded:
            return None

        async def body(tx: Tx) -> Row | None:
            return await tx.one(_STANDING, host=question.host)

        row = await journal.read(body, few=True)
        is_same = row is not None and (row["session"], row["epoch"]) == (question.session, question.epoch)
        return journal if is_same else None
