"""A whole cloud in one process and in virtual time: API, conductors and one agent per host, each a simulated process
with its own stores on the same files, one hub, one hardware. A killed role runs not one more line."""

from __future__ import annotations

import asyncio
import contextvars
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.agent import Agent
from kilonova.compute.drivers.simulated.driver import SimulatedDriver, SimulatedFence, SimulatedMemory
from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.compute.drivers.simulated.volumes import BusVolumes
from kilonova.conductor.service import Conductor
from kilonova.domain.cause import Cause
from kilonova.domain.errors import KilonovaError
from kilonova.engine.core import Engine
from kilonova.engine.secrets import Seal
from kilonova.ha.watch import Watch
from kilonova.notifications.sender import Sender
from kilonova.operations import REGISTRY
from kilonova.scheduler.service import Scheduler
from kilonova.services.image.servers import ServerImages
from kilonova.services.network.service import Networks
from kilonova.services.volume.files import NoBytes
from kilonova.services.volume.service import Volumes
from kilonova.sim.invariants.closed_hosts import watch
from kilonova.sim.lab.database_files import CLOUD_ID, DATABASES, back_up, lay_databases, restore
from kilonova.sim.lab.faulty_store import FaultyStore
from kilonova.sim.lab.network import Laid, lay
from kilonova.sim.lab.outages import Outages
from kilonova.sim.lab.process import SeededIds, SimulatedProcess
from kilonova.sim.lab.shape import CloudShape
from kilonova.sim.lab.stock import BACKEND, Stock, lay_groups, lay_rare_volumes, lay_volumes
from kilonova.sim.lab.uploads import BusUploads, serve_uploads
from kilonova.sim.loop.event_loop import SimClock, SimLoop, give_way
from kilonova.sim.loop.process import Process
from kilonova.store.badges import DirectoryBadge, read_directory_badge, write_directory_badge
from kilonova.store.cell_store import CellStore
from kilonova.store.marks import Marks, keep_marks
from kilonova.store.open_stores import OpenStores
from kilonova.store.roll import Roll
from kilonova.store.sqlite import SqliteStore
from kilonova.world import Clock, World

T = TypeVar("T")
DATABASE_CLOCK = "databases"  # the owner of that clock, in `set_clock`
HOUR = 3600.0
MACHINE = "machine1"
SEAL_KEY = b"c2ltdWxhdGVkLXNlYWwta2V5LTMyLWJ5dGVzLWxvbmc="


class SimCloud:
    def __init__(
        self,
        shape: CloudShape,
        *,
        seed: str = "0",
        directory: Path | None = None,
        weather: Any = None,
        faults: Any = None,
        open_databases: Callable[[SimLoop], Mapping[str, Any]] | None = None,
    ) -> None:
        self.shape = shape
        self.seed = seed
        self.loop = SimLoop()
        asyncio.set_event_loop(self.loop)
        self.clock = SimClock(self.loop)
        self.random = random.Random(f"{seed}:cloud")
        self.directory = directory or Path(tempfile.mkdtemp(prefix="kilonova-sim-"))
        self._open_databases = open_databases
        self._temporary = directory is None
        self.faults = faults
        self.outages = Outages()
        self.hub = MemoryHub(weather)
        self.hardware = Hardware(clock_sleep=asyncio.sleep, random=random.Random(f"{seed}:hardware"))
        self.fence = SimulatedFence(self.hardware)
        self.at_door: Callable[[str], None] | None = None  # (database): the running process goes to it, or leaves it
        self.laid = Laid("", [])  # its network
        self.stock = Stock()  # its volumes
        self.files = NoBytes()  # the volumes' content; outlives the processes
        self.roles: dict[str, SimulatedProcess] = {}
        self._lookers: dict[bool, tuple[Process, OpenStores]] = {}  # by whether faults reach them
        self._lives: dict[str, int] = {}
        self._skews: dict[str, float] = {}  # by role, where it was set; it outlives the process
        if open_databases is None:
            lay_databases(self.directory, self.databases)
            watch(self.directory / "placement.db")
        for number in range(1, shape.hosts + 1):
            self.add_host(f"host{number}")

    @property
    def databases(self) -> list[str]:
        return [*DATABASES, *(f"cell{number}" for number in range(2, self.shape.cells + 1))]

    # -- hardware -----------------------------------------------------------------------------------------------

    def add_host(self, host: str) -> None:
        shape = self.shape
        self.hardware.add_host(
            host,
            vcpus=shape.vcpus,
            memory_mb=shape.memory_mb,
            disk_gb=shape.disk_gb,
            shared_storage=shape.shared_storage,
            boot_seconds=shape.boot_seconds,
            copy_seconds=shape.copy_seconds,
            topology=shape.topology,
            traits=shape.traits,
        )
        self.hardware.on_power(host, lambda on: self._power(host, on))
        self.hardware.on_crash(host, lambda: self.crash(host))

    def _power(self, host: str, on: bool) -> None:
        if on:
            self.start(host)
        else:
            self.kill(host)

    def crash(self, role: str, back_after: float = 1.0) -> None:
        """Kill the process now; its supervisor starts it again."""
        self.kill(role)
        # outside of every process: a role that crashes in its own work would take the timer with it
        self.loop.call_later(back_after, self._revive, role, context=contextvars.Context())

    def _revive(self, role: str) -> None:
        if role not in self.roles and (role not in self.hardware.hosts() or self.hardware.is_running(role)):
            self.start(role)

    # -- roles --------------------------------------------------------------------------------------------------

    def start_all(self) -> None:
        """Start the roles that do not run; the network is made before them."""
        if self.shape.addresses and not self.laid.network:
            self.laid = self.alone(self._lay, "the network", faulty=False)
        if self.shape.volumes and not self.stock.volumes:
            self.stock = self.alone(self._lay_volumes, "the volumes", faulty=False)
        if self.shape.groups and not self._lives:
            self.alone(lambda stores: lay_groups(stores.control, self.shape.groups), "the groups", faulty=False)
        hosts = [name for name in self.hardware.hosts() if self.hardware.is_running(name)]
        for name in ["api", *(f"conductor{n}" for n in range(1, self.shape.conductors + 1)), *hosts]:
            self.start(name)

    def _driver(self, host: str, bus: MemoryBus) -> SimulatedDriver:
        return SimulatedDriver(self.hardware, host, offer=self.shape.offer, volumes=BusVolumes(bus))

    def start(self, name: str) -> None:
        if name in self.roles:
            return
        life = self._lives[name] = self._lives.get(name, 0) + 1
        process = Process(name)
        source = random.Random(f"{self.seed}:{name}:{life}")
        is_host = name in self.hardware.hosts()
        stores = None if is_host else self.open_stores()
        clock, ids = SimClock(self.loop, skew=self._skews.get(name, self._skew(name))), SeededIds(source)
        bus = MemoryBus(self.hub, name)
        volumes = None if stores is None else self._volumes(stores, clock, ids, bus)
        world = World(
            clock=clock,
            ids=ids,
            random=source,
            bus=bus,
            stores=stores,
            settings=self.shape.settings,
            machine=MACHINE,
            driver=self._driver(name, bus) if is_host else None,
            memory=SimulatedMemory(self.hardware, name) if is_host else None,
            fence=None if is_host else self.fence,
            network=None if stores is None else Networks(stores.control, clock, ids),
            volume=None if volumes is None else volumes.servers,
            image=None if stores is None else ServerImages(stores.control, clock),
            uploads=BusUploads(bus, clock) if is_host else None,
        )
        role = SimulatedProcess(name, process, world, stores, volumes=volumes)
        if stores is not None:
            process.on_kill(stores.drop)
        self.roles[name] = role
        self.loop.spawn(process, self._live(role))

    def _skew(self, name: str) -> float:
        """Return a clock error of up to an hour, the same for each life of a role: no two machines need agree."""
        return random.Random(f"{self.seed}:{name}:skew").uniform(-HOUR, HOUR) if self.faults is not None else 0.0

    def set_clock(self, name: str, seconds: float) -> None:
        """Set the clock of a role, or of all databases, so much ahead of the simulation's."""
        if name == DATABASE_CLOCK:
            self.clock.skew = seconds
            return
        self._skews[name] = seconds
        role = self.roles.get(name)
        if role is not None:
            cast(SimClock, role.world.clock).skew = seconds

    def open_stores(self, *, faulty: bool = True) -> OpenStores:
        """Return the handles of one process on the databases of this cloud."""
        if self._open_databases is not None:
            opened = dict(self._open_databases(self.loop))
        else:
            opened = {name: self._sqlite(name) for name in self.databases}
        if faulty:
            opened = {name: FaultyStore(store, self.outages, self.faults) for name, store in opened.items()}
        roll = Roll(CLOUD_ID) if self.shape.marks and faulty else Roll()
        stores = OpenStores(opened.pop("control"), opened.pop("placement"), roll=roll)
        for name, store in opened.items():
            stores.add_cell(name, CellStore(name, self.clock, store))
        return stores

    def _sqlite(self, name: str) -> SqliteStore:
        path = self.directory / f"{name}.db"
        checkpoint = partial(self._checkpoint, name)
        return SqliteStore(name, path, threaded=False, clock=self.clock, synchronous="OFF", checkpoint=checkpoint)

    async def _checkpoint(self, name: str) -> None:
        """Let the others run before and after each transaction; a process that begins one may be made to wait here."""
        if self.at_door is not None:
            self.at_door(name)
        await give_way()

    async def _live(self, role: SimulatedProcess) -> None:
        """Run a role. If it cannot start, it ends, and its supervisor starts it again."""
        try:
            await self._run(role)
        except KilonovaError:
            self.loop.call_later(0.0, self.crash, role.name, context=contextvars.Context())

    async def _run(self, role: SimulatedProcess) -> None:
        await role.world.bus.start()
        if role.stores is None:
            interval, storage = role.world.settings.default.report_interval, self.shape.shared_storage
            cell = self._cell(role.name)
            agent = Agent(role.world, role.name, REGISTRY, report_interval=interval, storage=storage, cell=cell)
            role.part = agent
            await agent.start()
            return
        if self.shape.marks:
            await self._keep_marks(role.name, role.stores, role.world.clock)
        if role.volumes is not None:
            await role.volumes.contents.serve(role.world.bus)
        scheduler = Scheduler(role.world.db, role.world.clock, role.world.random, role.world.settings)
        worker = "" if role.name == "api" else f"{role.name}-{self._lives[role.name]}"
        role.engine = Engine(role.world, REGISTRY, worker, Seal(SEAL_KEY), scheduler, self.shape.flush_seconds)
        if worker:
            role.part = Conductor(role.engine)
            await role.part.start()
            await Watch(role.engine).start()
            if self.shape.notified is not None:
                await Sender(role.world, worker, self.shape.notified, most=self.shape.most_notifications).start()
        else:
            await serve_uploads(role.engine, self.directory / "images")
            if role.volumes is not None and self.shape.volumes:
                await role.volumes.worker(self.files, None).start(role.world.bus)
        role.ready.set()

    async def _keep_marks(self, name: str, stores: OpenStores, clock: Clock) -> None:
        """Give each process a directory that remembers marks, as an API and a conductor have."""
        folder = self.directory / "remembers" / name
        if read_directory_badge(folder) is None:
            write_directory_badge(folder, DirectoryBadge(cloud=CLOUD_ID, store=name, name=name))
        stores.marks = Marks(stores, clock, directories=[folder], grace=self.shape.settings.default.service_down_time)
        await keep_marks(stores.marks)

    def _cell(self, host: str) -> str:
        return f"cell{sorted(self.hardware.hosts()).index(host) % self.shape.cells + 1}" if self.shape.cells > 1 else ""

    def lives_of(self, name: str) -> int:
        """Return how often the role was started."""
        return self._lives.get(name, 0)

    def kill(self, name: str) -> None:
        """Kill a role, as by kill -9: not one more line of it runs."""
        role = self.roles.pop(name, None)
        if role is not None:
            self.hub.detach(name)
            self.loop.kill(role.process)

    def terminate(self, name: str) -> None:
        """Terminate a role, as by SIGTERM: a conductor stops in order, then its process ends."""
        role = self.roles[name]
        part = role.part
        if not isinstance(part, Conductor):
            raise ValueError(f"{name} is not a conductor")

        async def end() -> None:
            await part.stop()
            self.loop.call_later(0.0, self.kill, name, context=contextvars.Context())

        self.loop.spawn(role.process, end())

    # -- from outside -------------------------------------------------------------------------------------------

    def ask(self, work: Callable[[Engine], Awaitable[T]]) -> asyncio.Future[T]:
        """Do something in the api's process; the future is the caller's. If the api dies it never ends."""
        role = self.roles["api"]
        answer: asyncio.Future[T] = self.loop.create_future()

        async def run() -> None:
            await role.ready.wait()
            assert role.engine is not None
            try:
                result = await work(role.engine)
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(result)

        self.loop.spawn(role.process, run())
        return answer

    def do(self, work: Callable[[Engine], Awaitable[T]], limit: float = 600.0) -> T:
        answer = self.ask(work)
        self.loop.run_until(answer.done, limit, "an answer of the api")
        return answer.result()

    def alone(self, work: Callable[[OpenStores], Awaitable[T]], what: str, *, faulty: bool = True) -> T:
        """Run the work in a process that takes no part, with its own handles; others go on meanwhile."""
        process, stores = self._looker(faulty)
        answer: asyncio.Future[T] = self.loop.create_future()

        async def run() -> None:
            answer.set_result(await work(stores))

        self.loop.spawn(process, run())
        self.loop.run_until(answer.done, 60.0, what)
        return answer.result()

    def _looker(self, faulty: bool) -> tuple[Process, OpenStores]:
        """Return the process that reads records: one for the whole run, because on PostgreSQL connecting costs more
        than reading."""
        if faulty not in self._lookers:
            process, stores = Process("looker", takes_part=False), self.open_stores(faulty=faulty)
            process.on_kill(stores.drop)
            self._lookers[faulty] = process, stores
        return self._lookers[faulty]

    async def _lay(self, stores: OpenStores) -> Laid:
        networks = Networks(stores.control, self.clock, SeededIds(random.Random(f"{self.seed}:network")))
        return await lay(networks, self.shape.addresses, self.shape.ports)

    def _volumes(self, stores: OpenStores, clock: SimClock, ids: SeededIds, bus: MemoryBus | None = None) -> Volumes:
        return Volumes(stores.control, clock, ids, Seal(SEAL_KEY), bus=bus, backend=BACKEND)

    async def _lay_volumes(self, stores: OpenStores) -> Stock:
        volumes = self._volumes(stores, self.clock, SeededIds(random.Random(f"{self.seed}:volumes")))
        stock = await lay_volumes(volumes, self.files, self.shape.volumes)
        return await lay_rare_volumes(volumes, self.files, stock) if self.shape.rare_volumes else stock

    def back_up(self) -> Path:
        """Back up all databases, as they are at this instant."""
        return back_up(self.directory, self.databases)

    def put_back(self, folder: Path, names: Sequence[str]) -> None:
        """Restore these databases; processes that have databases open are killed. Hosts go on."""
        for name in [name for name, role in self.roles.items() if role.stores is not None]:
            self.kill(name)
        for process, _ in self._lookers.values():
            self.loop.kill(process)
        self._lookers.clear()
        restore(self.directory, folder, names)

    def cause(self, request: str = "") -> Cause:
        request = request or f"req-{self.random.getrandbits(64):x}"
        return Cause(user_id="admin", project_id="demo", through="sim", request_id=request)

    def close(self) -> None:
        for name in list(self.roles):
            self.kill(name)
        for process, _ in self._lookers.values():
            self.loop.kill(process)
        self.loop.close()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
