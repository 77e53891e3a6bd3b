"""Three real hosts on this machine: a fleet whose agents run libvirt's guests on bridged networks.

    world ── public network ── host2 (network node)
                                 │
      API, conductor, NATS ── switch ── host1, host3

Each is a machine of tests/guests/machines.py. A host has its own libvirtd and agent, and directories that stay when it
is switched off. host1 and host2 share the storage of their guests' disks, host3 has its own: the path is the same.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from kilonova.compute.drivers.libvirt.domain import copy_of
from kilonova.services.volume.nbd import PROGRAM as NBD
from tests.fleet.fleet import HOSTS, Fleet
from tests.guests.daemon import CONFIGURED, SYSTEM
from tests.guests.machines import SWITCH, Machine
from tests.support.program import Connect, Role, until
from tests.support.servers import Guard, Nats, Postgres, need

CONTROL_ADDRESS, WORLD_ADDRESS = "10.99.0.254", "172.24.4.1"
NODE = "host2"
EXTERNAL = "kn-external"  # as the option is set without a word
SHARED = ("host1", "host2")
INSTANCES = "instances"
EXPORT = "--export-name="
# The cgroups of this machine are hidden behind the /sys of the host. libvirt would note on each file who owned it, and
# forget that after a restart of the machine, which it tells by the kernel's clock: ours goes on.
HERE = "cgroup_controllers = []\nremember_owner = 0\n"


class LabNats(Nats):
    """On the machine that runs the API."""

    def __init__(self, machine: Machine, address: str) -> None:
        super().__init__()
        self._machine, self._address = machine, address

    @property
    def url(self) -> str:
        return f"nats://{self._address}:{self.port}"

    def _command(self) -> list[str]:
        return [*self._machine.network, str(self.program), "--addr", self._address, "--port", str(self.port)]

    def _answers(self, pid: int) -> bool:
        return "Server is ready" in self.log()


class Host(Machine):
    def __init__(self, name: str, number: int, folder: Path, storage: Path) -> None:
        self.folder, self.tunnel_address = folder, f"10.99.0.{number}"
        self._disks = storage / name
        kept = {place: folder / place for place in SYSTEM if place != "run"}
        for path in (folder, *kept.values(), storage):
            path.mkdir(exist_ok=True)
        folder.chmod(0o711)  # QEMU is another user
        kept["data"].chmod(0o755)
        (kept["config"] / "qemu.conf").write_text(CONFIGURED + HERE)
        (folder / "no-kvm").touch(mode=0)
        mounts = [(path, SYSTEM[place]) for place, path in kept.items()]
        mounts.append((storage, str(folder.parent / INSTANCES)))
        if Path("/dev/kvm").exists():  # libvirtd would ask it, which takes 50 s where KVM does not work
            mounts.append((folder / "no-kvm", "/dev/kvm"))
        super().__init__(name, f"{self.tunnel_address}/24", mounts=mounts)
        self._daemon: subprocess.Popen[bytes] | None = None

    def switch_off(self) -> None:
        super().switch_off()
        self._await_daemon()

    def start_libvirtd(self) -> None:
        with open(self.folder / "libvirtd.log", "ab") as log:
            command = [*self.enter, "libvirtd"]
            self._daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: self.virsh("version"), 60, lambda: (self.folder / "libvirtd.log").read_text())

    @contextlib.contextmanager
    def without_libvirtd(self) -> Iterator[None]:
        """It is killed, and started again whatever happens meanwhile."""
        self.run("pkill", "-KILL", "-x", "libvirtd")
        self._await_daemon()
        try:
            yield
        finally:
            self.start_libvirtd()

    @property
    def has_libvirtd(self) -> bool:
        return self._daemon is not None and self._daemon.poll() is None

    def _await_daemon(self) -> None:
        if self._daemon is not None:
            self._daemon.wait(60)
            self._daemon = None

    def virsh(self, *words: str) -> list[str]:
        return self.run("virsh", "-q", "-c", "qemu:///system", *words, check=False).split()

    def guests(self) -> dict[str, int]:
        """The processes of the guests that run here, by server, as the kernel knows it."""
        found = {}
        for pid in self.processes():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                names = [word.split(",")[0].removeprefix("guest=") for word in words if word.startswith("guest=")]
                found |= {key[0]: pid for name in names if (key := copy_of(name)) is not None}
        return found

    def relays(self) -> set[str]:
        """The volumes that a process here has open, or tries to open."""
        found = set()
        for pid in self.processes():
            with contextlib.suppress(OSError):
                program, *words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                if program == NBD:
                    found |= {word.removeprefix(EXPORT) for word in words if word.startswith(EXPORT)}
        return found

    def disks(self, server: str = "*") -> list[Path]:
        """The directories of its copies."""
        return sorted(self._disks.glob(f"{server}/*"))


class Hosts(Fleet):
    """The fleet. A host is started, killed and started again as a whole; its agent alone, as any role."""

    address = CONTROL_ADDRESS
    controllers = ("api", "conductor1")
    down_seconds = 6
    resizes_on_same_host = True

    def __init__(self, postgres: Postgres, nats: LabNats, control: Machine) -> None:
        self.control, self.within = control, control.enter
        self.broken = ""  # why it is of no use any more
        super().__init__(postgres, nats)
        self.directory.chmod(0o711)  # on the way to the disks
        self.guard = Guard(self.directory, signal.SIGKILL)
        (self.directory / INSTANCES).mkdir(mode=0o711)
        self.hosts = {name: self._host(name, number) for number, name in enumerate(HOSTS, 1)}
        self.world = Machine("world", f"{WORLD_ADDRESS}/24")

    def _host(self, name: str, number: int) -> Host:
        storage = "shared" if name in SHARED else f"of-{name}"
        return Host(name, number, self.directory / f"machine-{name}", self.directory / storage)

    def _connect(self) -> Connect:
        return self.control.connect

    def start_all(self) -> None:
        for name in HOSTS:
            self._switch_on(name)
        super().start_all()

    def _agent(self, host: str, *common: object, wait: bool) -> Role:
        options = {
            "DEFAULT.instances_path": self.directory / INSTANCES,
            "DEFAULT.shutdown_timeout": 15,
            "DEFAULT.my_ip": self.hosts[host].tunnel_address,
            "network.driver": "bridged",
            "network.local_ip": self.hosts[host].tunnel_address,
            "network.node": "true" if host == NODE else "false",
        }
        words = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
        enter = self.hosts[host].enter
        return Role("agent", "--host", host, "--driver", "libvirt", *common, *words, wait=wait, within=enter)

    def _switch_on(self, name: str) -> None:
        host = self.hosts[name]
        host.switch_on()
        host.cable(self.control)
        if name == NODE:
            host.run("ip", "link", "add", EXTERNAL, "type", "bridge")
            host.run("ip", "link", "set", EXTERNAL, "up")
            self.world.switch_off()
            self.world.switch_on()
            self.world.cable(host, EXTERNAL)
        host.start_libvirtd()

    def kill_host(self, name: str) -> None:
        """Its agent, libvirtd and guests at once."""
        self.hosts[name].switch_off()
        self.kill9(name)

    def return_host(self, name: str, *, agent: bool = True) -> None:
        self._switch_on(name)
        if agent:
            self.start(name)

    @contextlib.contextmanager
    def only(self, *hosts: str) -> Iterator[None]:
        """New servers and moves go to these."""
        others = [name for name in HOSTS if name not in hosts]
        for name in others:
            self._set_status(name, "disable")
        try:
            yield
        finally:
            for name in others:
                self._set_status(name, "enable")

    @contextlib.contextmanager
    def without_agents(self) -> Iterator[None]:
        """All are killed, and started again whatever happens meanwhile."""
        for name in HOSTS:
            self.kill9(name)
        try:
            yield
        finally:
            self._start_agents(HOSTS)

    def _start_agents(self, names: Sequence[str]) -> None:
        for name in names:
            self.start(name, wait=False)
        for name in names:
            self.roles[name].wait_until_it_works()
            self.await_state(name, "up")

    def check(self) -> None:
        """Fail with the cause where nobody would ever do what a test waits for."""
        for name, role in self.roles.items():
            assert role.process.poll() is None, f"{name} has ended:\n{role.log()[-3000:]}"

    def mend(self) -> None:
        """After a test that failed in the middle: every host runs, with its agent, and takes servers."""
        for name, role in list(self.roles.items()):
            if role.process.poll() is not None:
                self.kill9(name)
        for name in self.controllers:
            if name not in self.roles:
                self.start(name)
        for name, host in self.hosts.items():
            if not host.is_on:
                self._switch_on(name)
            elif not host.has_libvirtd:
                host.start_libvirtd()
            host.run("ip", "link", "set", "eth0", "up")
        self._start_agents([name for name in HOSTS if name not in self.roles])
        for name in HOSTS:
            self.await_state(name, "up")
            self._set_status(name, "enable")

    def _set_status(self, host: str, word: str) -> None:
        done = self.http.ask("PUT", f"/compute/v2.1/os-services/{word}", {"host": host, "binary": "nova-compute"})
        assert done.status == 200, done.body

    def state(self, host: str) -> str:
        return str(self.http.get(f"/hosts/{host}")["host"]["state"])

    def debts(self, host: str) -> int:
        return int(self.http.get(f"/hosts/{host}")["host"]["debts"])

    def where(self, server: str) -> list[str]:
        """The hosts where its guest runs."""
        return [name for name, host in self.hosts.items() if host.is_on and server in host.guests()]

    def served(self, volume: str) -> list[str]:
        """The hosts that the volume is served to."""
        exports = [json.loads(path.read_bytes()) for path in self.directory.glob("api/exports/*/export.json")]
        return [one["host"] for one in exports if one["volume"] == volume]

    def opened(self, volume: str) -> list[str]:
        """The hosts where a guest's relay has it open, or tries to."""
        return [name for name, host in self.hosts.items() if host.is_on and volume in host.relays()]

    def close(self) -> None:
        with contextlib.ExitStack() as ending:  # each of them, also when one fails
            ending.callback(self.guard.close)
            for machine in (self.world, *self.hosts.values()):
                ending.callback(machine.switch_off)
            ending.callback(super().close)


@contextlib.contextmanager
def three_hosts(postgres: Postgres) -> Iterator[Hosts]:
    for name in ("libvirt", "libvirt-python", "network"):
        need(name)
    control = Machine("control", f"{CONTROL_ADDRESS}/24")
    control.switch_on()
    try:
        # Without one of its own it has that of one of its ports, and another one when that host is switched off.
        control.run("ip", "link", "add", SWITCH, "address", "02:00:0a:63:00:fe", "type", "bridge")
        control.run("ip", "address", "add", control.address, "dev", SWITCH)
        control.run("ip", "link", "set", SWITCH, "up")
        with LabNats(control, CONTROL_ADDRESS) as nats:
            lab = Hosts(postgres, nats, control)
            try:
                lab.start_all()
                yield lab
            finally:
                lab.close()
    finally:
        control.switch_off()
