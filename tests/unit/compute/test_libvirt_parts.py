"""The libvirt driver without libvirt: inventory, traits, definitions, console files, bases of images."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
import tempfile
import time
import types
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from kilonova.compute.drivers.libvirt import accelerator, console, images
from kilonova.compute.drivers.libvirt.devices import free_target
from kilonova.compute.drivers.libvirt.domain import domain_xml, spec_in
from kilonova.compute.drivers.libvirt.images import Bases, FolderImages
from kilonova.domain.errors import Failed, Refused
from kilonova.domain.guest import GuestSpec, GuestVolume
from kilonova.domain.guest_contents import GuestContents
from kilonova.domain.image_bytes import ImageContent, ImageOrder
from kilonova.domain.traits import BY_KVM, BY_TCG
from kilonova.roles.real_host import let_qemu_pass
from kilonova.settings import load

SPEC = GuestSpec(server="s", copy=1, name="two\nlines", vcpus=1, memory_mb=64, disk_gb=1, image="i")


@pytest.fixture
def capabilities(monkeypatch):
    """The module, also where libvirt-python is not installed: what is asked here needs none of it."""
    if "libvirt" not in sys.modules:
        fake = types.ModuleType("libvirt")
        fake.virConnect = object
        monkeypatch.setitem(sys.modules, "libvirt", fake)
        monkeypatch.delitem(sys.modules, "kilonova.compute.drivers.libvirt.capabilities", raising=False)
    from kilonova.compute.drivers.libvirt import capabilities

    return capabilities


TOPOLOGY = """<capabilities><host><cpu><model>Skylake</model><vendor>Intel</vendor></cpu><topology><cells num='1'>
<cell id='0'><memory unit='KiB'>1048576</memory><pages unit='KiB' size='4'>262144</pages><cpus num='2'>
<cpu id='0' socket_id='0' siblings='0'/><cpu id='1' socket_id='0' siblings='1'/></cpus></cell></cells></topology></host>
</capabilities>"""


# Two threads in the first cell, one in the second: processors of one machine may differ.
THREADED = TOPOLOGY.replace("siblings='0'", "siblings='0,1'").replace("siblings='1'", "siblings='0,1'")
THREADED = THREADED.replace(
    "</cell></cells>",
    "</cell><cell id='1'><memory unit='KiB'>1048576</memory><pages unit='KiB' size='4'>262144</pages><cpus num='1'>"
    "<cpu id='2' socket_id='1' siblings='2'/></cpus></cell></cells>",
)


def described(capabilities, features=(), topology=TOPOLOGY):
    return capabilities.Described(topology, [], list(features), 7002000)


def inventory(capabilities, tmp_path, *options, accelerator="qemu", features=(), consoles=(), topology=TOPOLOGY):
    from kilonova.compute.offer import Offer

    settings = load(None, None, options)
    told, shares = described(capabilities, features, topology), capabilities.Shares.of(settings)
    return capabilities.inventory_of("host1", told, accelerator, Offer.of(settings), shares, tmp_path, consoles)


@pytest.mark.parametrize(("topology", "has_threads"), [(TOPOLOGY, False), (THREADED, True)])
def test_a_host_with_a_threaded_cell_says_so(capabilities, tmp_path, topology, has_threads):
    traits = inventory(capabilities, tmp_path, topology=topology).traits
    assert ("HW_CPU_HYPERTHREADING" in traits) is has_threads


def test_a_host_offers_what_it_has(capabilities, tmp_path):
    """Memory as the kernel counts it, not as libvirt does; Nova's ratios, which are only a beginning."""
    kernel = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    disk = shutil.disk_usage(tmp_path).total // 1024**3
    found = inventory(capabilities, tmp_path)
    assert found.classes == {"VCPU": (2, 0, 4.0), "MEMORY_MB": (kernel, 512, 1.0), "DISK_GB": (disk, 0, 1.0)}
    assert found.initial == ["VCPU", "MEMORY_MB", "DISK_GB"]
    assert found.hypervisor.kind == "QEMU" and found.hypervisor.cpu["vendor"] == "Intel"


def test_what_the_operator_says_counts(capabilities, tmp_path):
    said = (
        "cpu_allocation_ratio=2",
        "reserved_host_cpus=1",
        "reserved_host_memory_mb=100",
        "reserved_host_disk_mb=1025",
    )
    found = inventory(capabilities, tmp_path, *(f"DEFAULT.{one}" for one in said))
    assert found.classes["VCPU"] == (2, 1, 2.0)
    assert found.classes["MEMORY_MB"][1:] == (100, 1.0)
    assert found.classes["DISK_GB"][1:] == (2, 1.0), "placement counts whole GB"
    assert found.initial == ["MEMORY_MB", "DISK_GB"]
    with pytest.raises(Refused, match="names CPU 7; host1 has the CPUs 0-1"):
        inventory(capabilities, tmp_path, "compute.cpu_shared_set=0-1,7")


def test_traits_are_standard_ones_but_for_the_accelerator(capabilities, tmp_path):
    import os_traits

    features = ["sse4.1", "pni", "aes", "avx2", "vmx", "nothing-known"]
    for kind, own in (("qemu", BY_TCG), ("kvm", BY_KVM)):
        traits = set(inventory(capabilities, tmp_path, accelerator=kind, features=features).traits)
        assert traits - set(os_traits.get_traits()) == {own}
    wanted = {"SSE41", "SSE3", "AESNI", "AVX2", "VMX", "INTEL_VMX"}
    assert {one for one in traits if one.startswith("HW_CPU_X86_")} == {f"HW_CPU_X86_{one}" for one in wanted}
    every = {*capabilities.CPU_TRAITS.values(), *capabilities.ALSO.values(), *map(str.upper, capabilities.SAME_NAME)}
    assert {f"HW_CPU_X86_{one}" for one in every} <= set(os_traits.get_traits())


@pytest.mark.parametrize(("consoles", "model"), [((), "NONE"), (("serial",), "NONE"), (("vnc", "serial"), "VGA")])
def test_a_host_says_which_screen_its_guests_have(capabilities, tmp_path, consoles, model):
    """An image that asks for another one (hw_video_model) is not placed here."""
    traits = inventory(capabilities, tmp_path, consoles=consoles).traits
    assert [one for one in traits if "GRAPHICS" in one] == [f"COMPUTE_GRAPHICS_MODEL_{model}"]
    assert {"COMPUTE_VOLUME_EXTEND", "COMPUTE_NET_VIF_MODEL_VIRTIO"} <= {*traits}


def test_a_definition_holds_no_secret_and_is_read_back(tmp_path):
    data = {"socket": "/s", "auth_password": "cafebabe"}
    volume = GuestVolume(attachment="a", volume="v", connection={"driver_volume_type": "nbd", "data": data})
    xml = domain_xml(msgspec.structs.replace(SPEC, volumes=[volume]), tmp_path, "qemu", "me")
    assert "cafebabe" not in xml
    kept = spec_in(ElementTree.fromstring(xml))
    assert kept == msgspec.structs.replace(SPEC, volumes=[msgspec.structs.replace(volume, connection={})])


@pytest.mark.parametrize("text", ["\ufffe\uffff", "\x00\x08\x1f\x7f\x85", "<&]]>\"'", "\U0001f600\r\n\t", "\\uffff"])
def test_a_definition_keeps_every_character_of_its_owner(tmp_path, text):
    """Else nobody could define the server again: not its owner, and not an operator who moves or evacuates it."""
    contents = GuestContents(metadata={text: text})
    guest = GuestSpec(server="s", copy=1, name="a", vcpus=1, memory_mb=1, disk_gb=1, image="i", contents=contents)
    xml = domain_xml(guest, tmp_path, "qemu", "owner")
    assert spec_in(ElementTree.fromstring(xml)) == guest


def test_disks_are_named_in_order():
    assert free_target(["vda"], "/dev/vdc") == "vdc"
    assert free_target(["vda", "vdc"], "/dev/vdc") == "vdb"
    assert free_target(["vda"], "/dev/sda") == "vdb"
    with pytest.raises(Failed, match="26 disks"):
        free_target([f"vd{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"])


def test_a_console_is_bounded_and_read_from_its_end(tmp_path):
    console.prepare(tmp_path)
    path = tmp_path / console.CONSOLE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("ab") as guest:  # as QEMU has it open
        guest.write(b"x" * console.MOST_BYTES + b"the end of it\r\n")
        guest.flush()
        console.bound(tmp_path)
        assert path.stat().st_size == 0
        assert console.read(tmp_path).endswith("the end of it\n")
        guest.write(b"and more\n")
    assert console.read(tmp_path).endswith("the end of it\nand more\n")
    assert len(console.read(tmp_path)) <= console.MOST_READ
    kept = [one for one in tmp_path.iterdir()]
    assert sum(one.stat().st_size for one in kept) < 2 * console.MOST_BYTES
    assert {stat.S_IMODE(one.stat().st_mode) for one in kept} == {0o600}


@pytest.mark.parametrize("image", ["../secret", "/etc/passwd", "a/b", "", ".", "x" * 65])
def test_an_images_id_is_no_path(tmp_path, image):
    (tmp_path / "secret").write_bytes(bytes(512))
    with pytest.raises(Failed, match="image id"):
        asyncio.run(Bases(tmp_path / "root", FolderImages(tmp_path / "images")).ensure(image, "raw"))


def test_images_are_cached_in_the_format_that_is_known(tmp_path, monkeypatch):
    """A file whose format nobody says is left alone: as a raw base, a qcow2 would be a broken disk for ever."""
    formats = []

    async def copy(*words, **_):
        formats.append(words[words.index("-f") + 1])
        shutil.copyfile(words[-2], words[-1])

    monkeypatch.setattr(images, "run", copy)
    (tmp_path / "a").write_bytes(bytes(1024))

    async def found(image):
        if image != "a":
            raise Refused("no_such_image", f"no image {image}")
        return tmp_path / "a", "raw"

    def order(image, **content):
        about = {"size": 1024, "algorithm": "sha512", "checksum": "", **content}
        return ImageOrder(image=image, content=ImageContent(**about) if content else None)

    for unknown in (order("a"), order("a", disk_format="")):
        asyncio.run(Bases(tmp_path, FolderImages(tmp_path)).cache(unknown))
    assert formats == [] and not (tmp_path / images.BASES).exists()
    known = Bases(tmp_path, images.ServiceImages(found))
    for image in ("missing", "../a", "a", "a"):
        asyncio.run(known.cache(order(image, disk_format="raw")))
    assert formats == ["raw"]


def test_unused_bases_go(tmp_path, monkeypatch):
    async def copy(*words, **_):
        shutil.copyfile(words[-2], words[-1])

    monkeypatch.setattr(images, "run", copy)
    (tmp_path / "images").mkdir()
    for name in ("used", "unused", "new"):
        (tmp_path / "images" / name).write_bytes(bytes(1024))
    bases = Bases(tmp_path, FolderImages(tmp_path / "images"))
    made = {name: asyncio.run(bases.ensure(name, "raw")).path for name in ("used", "unused", "new")}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made.values()} == {0o600}
    os.link(made["used"], tmp_path / "link")
    for name in ("used", "unused"):
        os.utime(made[name], (0, time.time() - images.UNUSED_SECONDS - 1))
    asyncio.run(bases.clean())
    assert {name for name, path in made.items() if path.exists()} == {"used", "new"}
    with pytest.raises(Failed, match="its disk has 1024 bytes, the flavor's 512"):
        asyncio.run(bases.ensure("new", "raw", 512))


@pytest.mark.parametrize(
    ("emulated", "virtual", "chosen"), [(1.0, 0.1, "kvm"), (1.0, None, "qemu")], ids=["faster", "not in time"]
)
def test_kvm_is_taken_where_it_is_faster(monkeypatch, emulated, virtual, chosen, caplog):
    limits = {}

    async def seconds(kind, disk, limit):
        assert disk.stat().st_size == 512
        limits[kind] = limit
        return emulated if kind == "tcg" else virtual

    monkeypatch.setattr(accelerator, "_seconds", seconds)
    monkeypatch.setattr(accelerator, "DEVICE", Path("/dev/null"))
    with caplog.at_level("INFO"):
        assert asyncio.run(accelerator.choose("", "host1")) == chosen
    assert limits["kvm"] == emulated, "it has no more time than TCG took"
    assert ("KVM" if chosen == "kvm" else "TCG") in caplog.text and "host=host1" in caplog.text
    monkeypatch.setattr(accelerator, "DEVICE", Path("/nowhere"))
    assert asyncio.run(accelerator.choose("", "host1")) == "qemu"
    assert asyncio.run(accelerator.choose("kvm", "host1")) == "kvm"


def test_qemu_passes_to_the_disks_or_the_start_is_refused():
    with tempfile.TemporaryDirectory() as folder:  # pytest's own directories are closed to others
        above = Path(folder)
        data = above / "data"
        data.mkdir(mode=0o700)
        with pytest.raises(Refused, match=f"QEMU's user cannot pass {above}, which has the mode 0700"):
            let_qemu_pass(data / "instances", data)
        above.chmod(0o711)
        let_qemu_pass(data / "instances", data)
        assert [stat.S_IMODE(one.stat().st_mode) & 0o077 for one in (data, data / "instances")] == [0o011, 0o011]
