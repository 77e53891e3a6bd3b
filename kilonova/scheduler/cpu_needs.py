"""Processors of a server that are its own: how many, and what their host must be like."""

from __future__ import annotations

from collections.abc import Mapping

PCPU = "PCPU"
HYPERTHREADING = "HW_CPU_HYPERTHREADING"
Texts = Mapping[str, str]


def _asked(extra: Texts, image: Texts, name: str) -> str:
    """The flavor's word comes first; an image says it with an underscore."""
    return extra.get(f"hw:{name}") or image.get(f"hw_{name}") or ""


def pinned(extra: Texts, image: Texts, vcpus: int) -> tuple[int, int]:
    """How many of the processors are dedicated, and how many shared."""
    policy = _asked(extra, image, "cpu_policy")
    isolated = int(extra.get("hw:emulator_threads_policy") == "isolate")  # the emulator gets one of its own
    if policy == "dedicated":
        return vcpus + isolated, 0
    if policy == "mixed":
        dedicated = len(cpus_in(_mask(extra, image), vcpus))
        return (dedicated + isolated, vcpus - dedicated) if dedicated else (0, vcpus)
    return 0, vcpus


def cpu_traits(extra: Texts, image: Texts) -> tuple[list[str], list[str]]:
    """Required and forbidden ones."""
    if _asked(extra, image, "cpu_policy") not in ("dedicated", "mixed"):
        return [], []
    threads = _asked(extra, image, "cpu_thread_policy")
    return [HYPERTHREADING] * (threads == "require"), [HYPERTHREADING] * (threads == "isolate")


def _mask(extra: Texts, image: Texts) -> str:
    given = extra.get("hw:cpu_dedicated_mask")
    return given or (_asked(extra, image, "cpu_realtime_mask") if extra.get("hw:cpu_realtime") else "")


def cpus_in(mask: str, vcpus: int) -> set[int]:
    """`0-3,^1,6`; one that only takes away begins with all of them. What is no such text means none."""
    taken: set[int] = set()
    left_out: set[int] = set()
    for part in (part.strip() for part in mask.split(",")):
        first, _, last = part.removeprefix("^").partition("-")
        if not (first.isdigit() and (last or first).isdigit()):
            return set()
        cpus = set(range(int(first), min(int(last or first), vcpus) + 1))
        (left_out if part.startswith("^") else taken).update(cpus)
    taken = taken or set(range(vcpus))
    return {cpu for cpu in taken - left_out if cpu < vcpus}
