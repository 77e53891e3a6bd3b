"""Copies' claims on their hosts' hardware, by the records: every copy that needs a claim has one, and no two claims
overlap. The host itself decides and reports its claims whenever it registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kilonova.domain.hardware import HostClaim, HostHardware, conflicts
from kilonova.domain.owned import flavors_left
from kilonova.domain.server import flavor_from
from kilonova.store.host_hardware import claim_from
from kilonova.world import Row

NEXT = "restart the agent there so that it reports its claims again"


def differences(
    hosts: Iterable[Row], copies: Iterable[Row], servers: Mapping[str, Row], moves: Iterable[Row], busy: set[str]
) -> set[str]:
    """Return the differences of one cell. Servers with a live operation are skipped."""
    sentences: set[str] = set()
    flavors = flavors_left(moves)
    held: dict[str, list[tuple[str, HostClaim]]] = {}
    for row in copies:
        server, claim = servers.get(row["server_id"]), claim_from(row["claim"])
        if claim is not None:
            held.setdefault(row["host"], []).append((row["server_id"], claim))
        elif server is not None and row["server_id"] not in busy and row["state"] != "leaving":
            flavor = flavors.get((row["server_id"], row["host"], row["copy"]), server["flavor"])
            if _asks(flavor):
                copy = f"copy {row['copy']} of {row['server_id']} on {row['host']}"
                sentences.add(f"{copy} needs host hardware, but has no recorded host claim; {NEXT}")
    for host in hosts:
        hardware = msgspec.json.decode(host["document"], type=HostHardware)
        twice = conflicts(hardware, sorted(held.get(host["host"], []), key=lambda pair: pair[0]))
        sentences |= {f"{host['host']}: {what} by the records; {NEXT}" for what in twice}
    return sentences


def _asks(flavor: str) -> bool:
    requested = flavor_from(flavor).hardware
    return requested is not None and requested.needs_claim
