"""The bounds of a host's report when it registers.

A host that is broken, or lies, must not affect more than itself: numbers have bounds, names have a form, and a report
outside of them is refused with the reason before anything is written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence, Sized

import msgspec

from kilonova.domain.guest import CopyReport, HostInventory, Hypervisor
from kilonova.domain.hardware import HostHardware
from kilonova.domain.host import host_name_error
from kilonova.domain.messages import Register
from kilonova.placement.names import CUSTOM, NAME, is_standard_class, is_standard_trait, unknown_traits
from kilonova.world import Store, Tx

MOST_COPIES = 10_000
MOST_CLASSES = 64
MOST_TRAITS = 1_024
MOST_CELLS = 256  # NUMA cells
MOST_CPUS = 65_536
MOST_DEVICES = 16_384
MOST_FACTS = 1_024  # entries of each table of the hypervisor
LONGEST_TEXT = 255
LARGEST_AMOUNT = 2**31 - 1  # of a resource class, as in the Placement API
LARGEST_COPY = 2**62
LARGEST_RATIO = 10_000.0
LARGEST_CLAIM = 65_536  # bytes, encoded
POWERS = ("on", "off", "absent")
_SERVER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


async def report_error(message: Register, placement: Store) -> str:
    """Return why this registration is refused; empty if it is not."""
    wrong = next(_errors(message), "")
    if wrong:
        return f"host {message.host[:LONGEST_TEXT]}: {wrong}"
    traits = [name for name in message.inventory.traits if not is_standard_trait(name)]

    async def unknown(tx: Tx) -> list[str]:
        return list(await unknown_traits(tx, traits))

    missing = await placement.read(unknown) if traits else []
    if missing:
        advice = "create it first: openstack trait create NAME"
        return f"host {message.host}: reports the trait {missing[0]}, which does not exist; {advice}"
    return ""


def _errors(message: Register) -> Iterator[str]:
    name = host_name_error(message.host)
    if name:
        yield name
    for field in ("session", "key", "storage", "cell"):
        value = getattr(message, field)
        if len(value) > LONGEST_TEXT or not value.isprintable():
            yield f"its {field} has {len(value)} characters or is not printable; at most {LONGEST_TEXT} are taken"
    yield from _inventory_errors(message.inventory)
    yield from _copy_errors(message.copies)


def _inventory_errors(inventory: HostInventory) -> Iterator[str]:
    yield from _too_many("resource classes", inventory.classes, MOST_CLASSES)
    for name, (total, reserved, ratio) in inventory.classes.items():
        if not (is_standard_class(name) or _is_custom(name)):
            yield f"reports the resource class {name[:80]!r}, which is neither a standard one nor CUSTOM_…"
        if not 0 <= total <= LARGEST_AMOUNT:
            yield f"reports {total} {name}; 0 to {LARGEST_AMOUNT} are taken"
        if not 0 <= reserved <= total:
            yield f"reserves {reserved} of {total} {name}; 0 to the total are taken"
        if not (math.isfinite(ratio) and 0 < ratio <= LARGEST_RATIO):
            yield f"reports the allocation ratio {ratio} of {name}; above 0 and up to {LARGEST_RATIO:.0f} is taken"
    yield from _too_many("traits", inventory.traits, MOST_TRAITS)
    for name in inventory.traits:
        if not (is_standard_trait(name) or _is_custom(name)):
            yield f"reports the trait {name[:80]!r}, which is neither a standard one nor CUSTOM_…"
    yield from _hypervisor_errors(inventory.hypervisor)
    yield from _hardware_errors(inventory.hardware)


def _hypervisor_errors(hypervisor: Hypervisor) -> Iterator[str]:
    for table in ("supported", "cpu", "metrics"):
        yield from _too_many(f"entries of the hypervisor's {table}", getattr(hypervisor, table), MOST_FACTS)
    texts = [hypervisor.kind, *hypervisor.cpu, *hypervisor.cpu.values(), *hypervisor.metrics]
    texts += [text for triple in hypervisor.supported for text in triple]
    if any(len(text) > 16 * LONGEST_TEXT for text in texts):
        yield f"describes its hypervisor with a text of more than {16 * LONGEST_TEXT} characters"
    if not 0 <= hypervisor.version <= LARGEST_AMOUNT:
        yield f"reports the hypervisor version {hypervisor.version}; 0 to {LARGEST_AMOUNT} are taken"
    for name, value in hypervisor.metrics.items():
        if not math.isfinite(value):
            yield f"measured {value} as {name[:80]!r}; a finite number is taken"


def _hardware_errors(hardware: HostHardware) -> Iterator[str]:
    yield from _too_many("NUMA cells", hardware.cells, MOST_CELLS)
    yield from _too_many("PCI devices", hardware.devices, MOST_DEVICES)
    cpus = [cpu for cell in hardware.cells for cpu in (*cell.shared, *cell.dedicated)]
    if len(set(cpus)) != len(cpus):
        yield "reports a CPU twice: each is in one NUMA cell, shared or dedicated"
    if any(not 0 <= cpu < MOST_CPUS for cpu in cpus):
        yield f"reports a CPU number outside of 0 to {MOST_CPUS - 1}"
    if len({cell.id for cell in hardware.cells}) != len(hardware.cells):
        yield "reports a NUMA cell twice"
    if len({device.address for device in hardware.devices}) != len(hardware.devices):
        yield "reports a PCI device twice"
    amounts = [cell.memory_mb for cell in hardware.cells]
    amounts += [number for cell in hardware.cells for page in cell.pages for number in (page.size_kb, page.total)]
    for amount in amounts:
        if not 0 <= amount <= LARGEST_COPY:
            yield f"reports an amount of memory of {amount}; 0 to {LARGEST_COPY} is taken"


def _copy_errors(copies: Sequence[CopyReport]) -> Iterator[str]:
    yield from _too_many("copies of guests", copies, MOST_COPIES)
    if len({(report.server, report.copy) for report in copies}) != len(copies):
        yield "reports a copy of a guest twice"
    for report in copies:
        what = f"copy {report.copy} of {report.server[:80]!r}"
        if not _SERVER_ID.fullmatch(report.server):
            yield f"reports {what}: a server's id is 1 to 64 letters, digits and hyphens"
        if not 0 < report.copy <= LARGEST_COPY:
            yield f"reports {what}: copies are numbered from 1 to {LARGEST_COPY}"
        if report.power not in POWERS:
            yield f"reports {what} with the power {report.power[:80]!r}; known are {', '.join(POWERS)}"
        if report.claim is not None and len(msgspec.json.encode(report.claim)) > LARGEST_CLAIM:
            yield f"reports {what} with a host claim of more than {LARGEST_CLAIM} bytes"


def _too_many(what: str, values: Sized, most: int) -> Iterator[str]:
    if len(values) > most:
        yield f"reports {len(values)} {what}; at most {most} are taken"


def _is_custom(name: str) -> bool:
    return name.startswith(CUSTOM) and len(name) > len(CUSTOM) and NAME.fullmatch(name) is not None
