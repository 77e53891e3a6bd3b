"""The requests that a script sends to the cloud, as its users would. Each gives an answer to wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kilonova.audit.run import audit as audited
from kilonova.domain.details import Details
from kilonova.domain.errors import Failed, Refused
from kilonova.domain.json import Json, JsonObject, as_object
from kilonova.domain.network import WantedPort
from kilonova.domain.volume import WantedVolume
from kilonova.engine.accept import Accepted, Ask
from kilonova.engine.cancel import cancel
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.hosts import states as hosts
from kilonova.operations.create.accept import NewServer, NewServers, create_many
from kilonova.operations.in_cell0.retry import ANY_FAILURE, rebuild_unplaced
from kilonova.operations.quarantine import adopt_quarantined, remove_quarantined
from kilonova.operations.soft_delete import remove
from kilonova.operations.whole_hosts.requests import CHECKS as WHOLE
from kilonova.operations.whole_hosts.requests import Bulk, ask_for_hosts
from kilonova.quota.check import set_limit
from kilonova.services.compute.server_groups import ServerGroups
from kilonova.sim.lab.stock import OWNER, put_group
from kilonova.sim.stories.contents import NO_CONTENTS, StoryContents, contents_of
from kilonova.sim.stories.file import Lined
from kilonova.sim.stories.images import ImageRequests, must_work
from kilonova.sim.stories.images import PendingResponse as PendingResponse
from kilonova.sim.stories.images import either as either
from kilonova.sim.stories.journal import OperationRow
from kilonova.world import Tx

if TYPE_CHECKING:
    from kilonova.sim.stories.player import StoryPlayer

DECLARATIONS = {
    "down": hosts.declare_down,
    "up": hosts.declare_up,
    "disabled": hosts.disable,
    "enabled": hosts.enable,
}


class Requests(ImageRequests):
    """Public methods are verbs."""

    def __init__(self, player: StoryPlayer) -> None:
        self.player = player
        self.cloud = player.cloud

    def create(
        self,
        server: str,
        flavor: str = "small",
        host: str | None = None,
        count: int = 0,
        networks: int = 0,
        port: str = "",
        group: str = "",
        volumes: Sequence[str] = (),
        boots: str = "",
        together: bool = False,
        contents: JsonObject | None = None,
    ) -> list[PendingResponse]:
        """Create servers. With `count`: that many at once, named server1, server2, …, in one request if `together`.

        `networks`: the number of each server's own ports; `port` is an existing one, and so are `volumes`; `group` is
        the server group it joins. `boots`: the volume that it boots from. `contents`: see contents.py.
        """
        if networks and not self.cloud.laid.network:
            raise ValueError("the cluster has no network; it gets one with `addresses:`")
        names = [f"{server}{number}" for number in range(1, count + 1)] if count else [server]
        inside = contents_of(contents)
        wanted = self.cloud.laid.wanted(networks, [self._port(port)] if port else [])
        wanted = [msgspec.structs.replace(one, tag=inside.tags.get("port", "")) for one in wanted]
        given = [self._wanted_volume(one, letter, inside) for one, letter in zip(volumes, "bcdef", strict=False)]
        given += [msgspec.structs.replace(self._wanted_volume(boots, "a", inside), is_root=True)] if boots else []
        new = [self._new(name, flavor, host, wanted, given, group) for name in names]
        return [self._create(new, inside)] if together else [self._create([one], inside) for one in new]

    def _create(self, new: list[NewServer], inside: StoryContents) -> PendingResponse:
        cause = self.cloud.cause()

        async def ask(engine: Engine) -> Any:
            details = inside.details(engine.seal)
            whole = [
                msgspec.structs.replace(
                    one,
                    details=msgspec.convert({**msgspec.to_builtins(one.details), **details}, Details),
                    secrets=inside.secrets,
                )
                for one in new
            ]
            wanted = NewServers(flavor=new[0].flavor, least=len(new), most=len(new), make=lambda count: whole)
            return await create_many(engine, wanted, cause)

        return self._ask(ask)

    def _new(
        self,
        server: str,
        flavor: str,
        host: str | None,
        ports: list[WantedPort],
        volumes: list[WantedVolume],
        group: str,
    ) -> NewServer:
        return NewServer(
            id=self.player.names.server_id(server),
            name=server,
            flavor=self.player.flavors[flavor],
            image="" if any(volume.is_root for volume in volumes) else "cirros",
            host=host,
            networks=ports,
            volumes=volumes,
            group=group or None,
            details=Details(
                scheduler_hints={"group": [group]} if group else {},
                volume_backed=any(volume.is_root for volume in volumes),
            ),
        )

    def group(self, name: str, policy: str = "anti-affinity", most: int | None = None) -> PendingResponse:
        """Create a server group; its name is its id."""
        return self._ask(lambda engine: put_group(engine.world.db.control, name, policy, most))

    def ungroup(self, name: str) -> PendingResponse:
        return self._ask(
            lambda engine: ServerGroups(engine.world.db.control, engine.world.clock, engine.world.ids).delete(name)
        )

    def _port(self, name: str) -> str:
        """`port1` is the first of those that lie there."""
        number = name.removeprefix("port")
        if not number.isdigit() or not 0 < int(number) <= len(self.cloud.laid.ports):
            raise ValueError(f"there is no port {name!r}; the cluster's `ports:` is their number")
        return self.cloud.laid.ports[int(number) - 1]

    def delete(self, server: str) -> PendingResponse:
        return self._submit("delete", server)

    def remove(self, server: str) -> PendingResponse:
        """Delete a server, as `DELETE /servers/ID`: a soft delete, if the cloud is configured so."""
        ask = Ask(kind="delete", server_id=self.player.names.server_id(server), cause=self.cloud.cause())
        return self._ask(lambda engine: remove(engine, ask))

    def restore(self, server: str) -> PendingResponse:
        return self._submit("restore", server)

    def retry(self, server: str, image: str = "", through: str = "") -> PendingResponse:
        """Retry a server in cell0 by rebuilding it there. `through: compute` uses the Compute API, which rebuilds only
        servers that found no host."""
        params: JsonObject = {} if through == "compute" else ANY_FAILURE
        params = {**params, "image": image} if image else params
        cause, server_id = self.cloud.cause(), self.player.names.server_id(server)
        ask = Ask(kind="rebuild", server_id=server_id, cause=cause, params=params)
        return self._ask(lambda engine: rebuild_unplaced(engine, ask))

    def migrate(self, server: str, host: str | None = None) -> PendingResponse:
        return self._submit("migrate", server, host=host)

    def resize(self, server: str, flavor: str) -> PendingResponse:
        return self._submit("resize", server, flavor=msgspec.to_builtins(self.player.flavors[flavor]))

    def confirm(self, server: str) -> PendingResponse:
        return self._submit("confirm_resize", server)

    def revert(self, server: str) -> PendingResponse:
        return self._submit("revert_resize", server)

    def evacuate(
        self,
        server: str,
        host: str | None = None,
        shared: str = "",
        stopped: str = "",
        forced: str = "",
        password: str = "",
    ) -> PendingResponse:
        """Evacuate a server. The API knows the older and newer forms of the request; here the values are given as they
        are."""
        states = {"shared": shared, "stopped": stopped, "forced": forced}
        said = {name: either(text, "true", "false") for name, text in states.items() if text}
        return self._submit("evacuate", server, host=host, contents=StoryContents(password=password), **said)

    def stop(self, server: str) -> PendingResponse:
        return self._submit("stop", server)

    def reboot(self, server: str) -> PendingResponse:
        return self._submit("reboot", server)

    def hard_reboot(self, server: str) -> PendingResponse:
        return self._submit("hard_reboot", server)

    def rebuild(
        self,
        server: str,
        image: str,
        properties: Sequence[str] = (),
        name: str | None = None,
        key: str | None = None,
        metadata: dict[str, str] | None = None,
        preserve: str = "false",
        contents: JsonObject | None = None,
    ) -> PendingResponse:
        """Rebuild a server. `image`: any name, or that of a snapshot. `properties`: of the image, as name=value.
        `preserve`: its ephemeral disks keep their content. The rest are the owner's changes to the server."""
        given = {"key_name": key, "metadata": metadata}
        details = {about: value for about, value in given.items() if value is not None}
        about_image = {about: value for about, _, value in (one.partition("=") for one in properties)}
        requested: dict[str, Json] = {"image": image, "image_properties": about_image, "name": name, "details": details}
        if either(preserve, "true", "false"):
            requested["preserve_ephemeral"] = True
        if image in self.player.snapshots:
            return self._rebuild_from(server, self.player.snapshots[image], requested)
        return self._submit("rebuild", server, contents=contents_of(contents), **requested)

    def rebuild_volume(self, server: str, image: str, reimage: str, properties: Sequence[str] = ()) -> PendingResponse:
        """Rebuild a server that boots from a volume. `reimage`: as from 2.93 on."""
        about_image = {about: value for about, _, value in (one.partition("=") for one in properties)}
        new = either(reimage, "true", "false")
        return self._submit("rebuild_volume", server, image=image, image_properties=about_image, reimage=new)

    def attach(self, server: str, volume: str, delete_on_termination: str = "false") -> PendingResponse:
        """`volume1` is the first of those that lie there."""
        fate = either(delete_on_termination, "true", "false")
        volume_id = self._volume(volume)
        return self._submit(
            "attach_volume", server, id=f"{server}-{volume}", volume_id=volume_id, delete_on_termination=fate
        )

    def detach(self, server: str, volume: str) -> PendingResponse:
        return self._submit("detach_volume", server, volume_id=self._volume(volume))

    def attach_by_hand(self, server: str, volume: str, host: str) -> PendingResponse:
        """Attach a volume to a server through the Volume API, as a person does; compute is not notified."""
        server_id, volume_id = self.player.names.server_id(server), self._volume(volume)

        async def ask(engine: Engine) -> None:
            volumes = self.cloud.roles["api"].volumes
            assert volumes is not None
            by_hand = volumes.attachments
            _, attachment = await by_hand.create(OWNER, volume_id, server_id=server_id, connector={"host": host})
            await by_hand.complete(OWNER, attachment.id)

        return self._ask(ask)

    def _wanted_volume(self, name: str, letter: str, inside: StoryContents) -> WantedVolume:
        """`volume1!` shall go with the server."""
        return WantedVolume(
            volume_id=self._volume(name.rstrip("!")),
            device=f"/dev/vd{letter}",
            delete_on_termination=name.endswith("!"),
            tag=inside.tags.get(name.rstrip("!")),
        )

    def _volume(self, name: str) -> str:
        number = name.removeprefix("volume")
        if not number.isdigit() or not 0 < int(number) <= len(self.cloud.stock.volumes):
            raise ValueError(f"there is no volume {name!r}; the cluster's `volumes:` is their number")
        return self.cloud.stock.volumes[int(number) - 1]

    def evacuate_host(
        self,
        host: str = "",
        hosts: list[str] | None = None,
        on_misfit: str = "skip",
        deadline: float | None = None,
        accept_unfenced: str = "true",
    ) -> PendingResponse:
        bulk = Bulk(on_misfit=on_misfit, deadline=deadline, accept_unfenced=either(accept_unfenced, "true", "false"))
        return self._for_hosts("evacuate_host", hosts or [host], bulk)

    def drain_host(
        self, host: str = "", hosts: list[str] | None = None, on_misfit: str = "refuse", by: str = "migrate"
    ) -> PendingResponse:
        return self._for_hosts("drain_host", hosts or [host], Bulk(on_misfit=on_misfit, by=by))

    def return_host(self, host: str = "", hosts: list[str] | None = None) -> PendingResponse:
        return self._for_hosts("return_host", hosts or [host], Bulk())

    def _for_hosts(self, kind: str, names: list[str], bulk: Bulk) -> PendingResponse:
        """Request an operation about hosts of one cell or several: one operation each."""
        cause = self.cloud.cause()

        async def ask(engine: Engine) -> Accepted:
            return next(iter((await ask_for_hosts(engine, kind, names, cause, None, bulk)).values()))

        return self._ask(ask)

    def cancel_whole(self, cell: str) -> PendingResponse:
        """Cancel the operation about whole hosts that runs in this cell."""
        running = [key for key, row in self.player.watch.operations.items() if row["live"]]
        whole = [key for key in running if self.player.watch.operations[key]["kind"] in WHOLE]
        operation_id = next(id_ for database, id_ in whole if database == cell)
        return self._ask(lambda engine: cancel(engine, engine.world.db.cell(cell), operation_id, "admin"))

    def _submit(
        self, kind: str, server: str, *, contents: StoryContents = NO_CONTENTS, **params: Json
    ) -> PendingResponse:
        given = {key: value for key, value in params.items() if value is not None}
        server_id, cause = self.player.names.server_id(server), self.cloud.cause()

        async def ask(engine: Engine) -> Accepted:
            details = {**as_object(given.get("details")), **contents.details(engine.seal)}
            params = {**given, "details": details} if details else given
            request = Ask(kind=kind, server_id=server_id, cause=cause, params=params, secrets=contents.secrets)
            return await submit(engine, request)

        return self._ask(ask, self._joined(f"{kind} {server}"))

    def _joined(self, what: str) -> Callable[[Any, Exception | None], str | None]:
        def judge(result: Any, error: Exception | None) -> str | None:
            if isinstance(result, Accepted) and result.joined:
                self.player.log_line("api", f"{what}: is under way already, the same operation")
            return must_work(result, error)

        return judge

    def quarantine(self, host: str, guest: str, action: str, copy: int | None = None) -> PendingResponse:
        """Adopt or remove, as an operator, a guest that the records do not explain."""
        server_id, cause = self.player.names.server_id(guest), self.cloud.cause()
        settle = adopt_quarantined if either(action, "adopt", "remove") else remove_quarantined
        return self._ask(lambda engine: settle(engine, host, server_id, copy, cause))

    def cancel(self, server: str) -> PendingResponse:
        """Cancel the live operation of the server."""
        database, operation_id = self._live(server)

        async def ask(engine: Engine) -> None:
            db = engine.world.db
            await cancel(engine, db.control if database == "control" else db.cell(database), operation_id, "admin")

        return self._ask(ask)

    def _live(self, server: str) -> tuple[str, str]:
        """Database and id of the server's live operation."""
        live = [key for key, row in self.player.watch.operations.items() if row["live"] and self._is_of(row, server)]
        if not live:
            raise ValueError(f"{server} has no live operation")
        return live[-1]

    def _is_of(self, row: OperationRow, server: str) -> bool:
        """Return True if the operation is about the server, alone or with others."""
        server_id = self.player.names.server_id(server)
        return bool(row["server_id"] == server_id or server_id in (row["servers"] or ""))

    def declare(self, **states: str) -> list[PendingResponse]:
        """Declare hosts down, up, disabled or enabled, as an administrator."""
        return [self._declare(host, state) for host, state in states.items()]

    def _declare(self, host: str, state: str) -> PendingResponse:
        if state not in DECLARATIONS:
            raise ValueError(f"a host is declared {', '.join(DECLARATIONS)}, not {state!r}")
        return self._ask(lambda engine: DECLARATIONS[state](engine, host))

    def quota(self, **limits: int) -> PendingResponse:
        async def body(tx: Tx) -> None:
            for resource, limit in limits.items():
                await set_limit(tx, "demo", resource, limit)

        return self._ask(lambda engine: engine.world.db.control.write(body))

    def audit(self, *finds: str) -> PendingResponse:
        """Expect these findings of an audit now; none by default."""

        def judge(result: Any, error: Exception | None) -> str | None:
            sentences = [*(one.sentence for one in result.findings), *result.hardware] if result else []
            reported = [self.player.names.with_names(sentence) for sentence in sentences]
            if error is not None or reported != list(finds):
                return f"the audit found {error or reported}, expected {list(finds)}"
            self.player.log_line("api", "the audit finds " + ("; ".join(reported) or "no difference"))
            return None

        return self._ask(lambda engine: audited(engine.world.db, engine.world.clock, mend=False), judge)

    def expect_refused(self, do: Lined, code: str, says: str = "") -> list[PendingResponse]:
        """Expect a refusal with this code and text, and no change."""

        def judge(result: Any, error: Exception | None) -> str | None:
            if not isinstance(error, (Refused, Failed)) or error.code != code or says not in error.message:
                return f"expected to be refused with {code} {says!r}, got {error or 'accepted'}"
            self.player.log_line("api", f"refused: {self.player.names.with_names(error.message)}")
            return None

        answers = self.player.begin(do)
        for answer in answers:
            answer.judge = judge
        return answers

    def parallel(self, *entries: Lined) -> list[PendingResponse]:
        return [answer for entry in entries for answer in self.player.begin(entry)]
