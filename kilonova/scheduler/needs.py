"""The request of a flavor and an image to placement: resources, traits and their groups. A pure function.

Plain sizes go into the group without a suffix. Extra specs change them: `resources[$S]:CLASS=N` replaces or adds (0
takes away), `trait[$S]:NAME=required|forbidden`, `group_policy=none|isolate`; some `hw:` keys mean both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

from kilonova.domain.server import Flavor
from kilonova.placement.candidates import CandidateQuery, Group
from kilonova.placement.classes import DISK_GB

SUFFIX = "[a-zA-Z0-9_-]{1,64}"
RESOURCES = re.compile(rf"^resources({SUFFIX})?:([A-Z0-9_]+)$")
TRAIT = re.compile(rf"^trait({SUFFIX})?:([A-Z0-9_]+)$")
ADDRESS_SPACES = {"passthrough": "COMPUTE_ADDRESS_SPACE_PASSTHROUGH", "emulate": "COMPUTE_ADDRESS_SPACE_EMULATED"}
REQUIRED, FORBIDDEN = "required", "forbidden"
HYPERTHREADING = "HW_CPU_HYPERTHREADING"
THREADS = {"require": REQUIRED, "isolate": FORBIDDEN}  # the effect of a thread policy on that trait
Amounts = dict[str, int]
V = TypeVar("V", int, str)
Items = tuple[tuple[str, V], ...]


def needs_of(flavor: Flavor, image: Mapping[str, str], *, volume_backed: bool = False) -> CandidateQuery:
    """Return the query for a flavor and an image, cached: servers have few distinct flavors."""
    amounts = flavor.resources() | {DISK_GB: _disk(flavor, volume_backed)}
    threads = flavor.hardware.rules.thread_policy if flavor.hardware is not None else ""
    properties = {key: str(value) for key, value in image.items()}
    return _needs(tuple(amounts.items()), threads, _items(flavor.extra_specs), _items(properties))


def _items(values: Mapping[str, str]) -> Items[str]:
    return tuple(sorted(values.items()))


def _disk(flavor: Flavor, volume_backed: bool) -> int:
    """Swap is given in MB and rounded up; a root disk that is a volume is not the host's."""
    return (0 if volume_backed else flavor.disk_gb) + flavor.ephemeral_gb + -(-flavor.swap_mb // 1024)


@lru_cache(maxsize=1000)
def _needs(amounts: Items[int], threads: str, specs: Items[str], image: Items[str]) -> CandidateQuery:
    extra, properties = dict(specs), dict(image)
    resources: dict[str, Amounts] = {"": {**dict(amounts), **_special(extra, properties)}}
    required: dict[str, set[str]] = {"": _special_traits(extra, properties)}
    forbidden: dict[str, set[str]] = {"": set()}
    if threads in THREADS:
        (required if THREADS[threads] == REQUIRED else forbidden)[""].add(HYPERTHREADING)
    for key, value in specs:
        if match := RESOURCES.match(key):
            resources.setdefault(match[1] or "", {})[match[2]] = int(value) if value.isdigit() else 0
        elif match := TRAIT.match(key):
            wanted = required if value == REQUIRED else forbidden if value == FORBIDDEN else {}
            wanted.setdefault(match[1] or "", set()).add(match[2])
    required[""] |= {key[len("trait:") :] for key, value in image if key.startswith("trait:") and value == REQUIRED}
    suffixes = ["", *sorted((resources.keys() | required.keys() | forbidden.keys()) - {""})]
    groups = (_group(name, resources, required, forbidden) for name in suffixes)
    return CandidateQuery(
        groups=tuple(group for group in groups if group.resources or group.required or group.forbidden),
        isolate=extra.get("group_policy") == "isolate",
    )


def _group(
    suffix: str, resources: Mapping[str, Amounts], required: Mapping[str, set[str]], forbidden: Mapping[str, set[str]]
) -> Group:
    return Group(
        suffix=suffix,
        resources={name: amount for name, amount in resources.get(suffix, {}).items() if amount},
        required=tuple(frozenset([trait]) for trait in sorted(required.get(suffix, ()))),
        forbidden=frozenset(forbidden.get(suffix, ())),
    )


def _special(extra: Mapping[str, str], image: Mapping[str, str]) -> Amounts:
    """Return the resources that `hw:` keys need besides processors, memory and disk."""
    amounts: Amounts = {}
    if _is_true(extra.get("hw:mem_encryption") or image.get("hw_mem_encryption")):
        amounts["MEM_ENCRYPTION_CONTEXT"] = 1
    for label in (extra.get("hw:pmem") or "").split(","):
        if label.strip():
            name = f"CUSTOM_PMEM_NAMESPACE_{re.sub('[^A-Z0-9]', '_', label.strip().upper())}"
            amounts[name] = amounts.get(name, 0) + 1
    return amounts


def _special_traits(extra: Mapping[str, str], image: Mapping[str, str]) -> set[str]:
    traits: set[str] = set()
    if version := extra.get("hw:tpm_version") or image.get("hw_tpm_version"):
        traits.add(f"COMPUTE_SECURITY_TPM_{version.replace('.', '_')}")
    if model := extra.get("hw:tpm_model") or image.get("hw_tpm_model"):
        traits.add(f"COMPUTE_SECURITY_TPM_{model.upper().replace('TPM-', '')}")
    if (extra.get("os:secure_boot") or image.get("os_secure_boot")) == REQUIRED:
        traits.add("COMPUTE_SECURITY_UEFI_SECURE_BOOT")
    if mode := extra.get("hw:maxphysaddr_mode") or image.get("hw_maxphysaddr_mode"):
        traits |= {ADDRESS_SPACES[mode]} if mode in ADDRESS_SPACES else set()
    if _is_true(image.get("hw_firmware_stateless")):
        traits.add("COMPUTE_SECURITY_STATELESS_FIRMWARE")
    return traits


def _is_true(value: str | None) -> bool:
    return (value or "").lower() in ("1", "t", "true", "on", "y", "yes")
