"""The address translations of a router, for nft in its namespace. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kilonova.compute.network.names import router_leg_inside
from kilonova.domain.host_network import HostRouter

FROM_OUTSIDE = 1  # mark of packets that came in by the gateway


def translations(router: HostRouter) -> str:
    """Return the rules: floating addresses both ways; all other outgoing traffic gets the gateway's address."""
    if router.gateway is None:
        return _table([], [])
    out = router_leg_inside(router.gateway.port_id)
    own = [one.split("/")[0] for one in router.gateway.addresses if ":" not in one]
    before = [f'iifname "{out}" meta mark set {FROM_OUTSIDE}']
    before += [f"ip daddr {one.address} dnat to {one.fixed}" for one in router.floating]
    after = [f'oifname "{out}" ip saddr {one.fixed} snat to {one.address}' for one in router.floating]
    # Replies to a guest that connects to a floating address of its own router must return through this router.
    back = f"meta mark != {FROM_OUTSIDE} ct status dnat"
    after += [f"{back} ip saddr {one.fixed} snat to {one.address}" for one in router.floating]
    if own:
        after.append(f"{back} snat to {own[0]}")
        if router.snat:
            after.append(f'oifname "{out}" ip saddr != {own[0]} snat to {own[0]}')
    return _table(before, after)


def _table(before: Sequence[str], after: Sequence[str]) -> str:
    chains = ""
    for hook, lines in (("prerouting priority dstnat", before), ("postrouting priority srcnat", after)):
        body = "".join(f"    {line}\n" for line in [f"type nat hook {hook}; policy accept;", *lines])
        chains += f"  chain {hook.split()[0]} {{\n{body}  }}\n"
    return f"add table ip kilonova\ndelete table ip kilonova\ntable ip kilonova {{\n{chains}}}\n"
