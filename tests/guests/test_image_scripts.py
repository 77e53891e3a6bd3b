"""How the guest reads what a cloud says: its two awk programs, without a guest."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.guests.conftest import GUEST_IMAGE
from tests.support.servers import ROOT

LIB = ROOT / "guest-image/root/usr/lib/kilonova"
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
# Control characters but those with an escape are left out by design, lone surrogates are no text.
TEXT = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc")) | st.sampled_from('\n\t\r"\\/'))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


pytestmark = pytest.mark.usefixtures("guest_image")  # its build leaves the guest's busybox beside it


def awk(program: str, text: str) -> subprocess.CompletedProcess[str]:
    command = [str(GUEST_IMAGE.with_name("busybox")), "awk", "-f", str(LIB / program)]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False, env={"LC_ALL": "C"})
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def flat(value: Any, path: str = "") -> list[str]:
    """What json.awk prints."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [line for key, inner in items for line in flat(inner, f"{path}/{escaped(str(key))}")]
    return [f"{path}\t{escaped(value) if isinstance(value, str) else json.dumps(value)}"]


def escaped(text: str) -> str:
    return "".join(ESCAPES.get(letter, letter) for letter in text)


@settings(max_examples=150, deadline=None)
@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_json_is_flattened(value: Any, ascii_only: bool, indent: int | None) -> None:
    done = awk("json.awk", json.dumps(value, ensure_ascii=ascii_only, indent=indent))
    assert done.returncode == 0
    assert done.stdout.split("\n")[:-1] == flat(value)


@pytest.mark.parametrize(
    "text", ["", "{", '{"a"}', '{"a": 1} x', '{"a": "b', "[1,]", "[1 2]", '"\\x"', '"\\u12"', "<html>"]
)
def test_other_text_is_refused(text: str) -> None:
    assert awk("json.awk", text).returncode == 1


def facts(network_data: dict[str, Any]) -> list[str]:
    return awk("network.awk", awk("json.awk", json.dumps(network_data)).stdout).stdout.splitlines()


def test_static_addresses_of_both_versions() -> None:
    """As the documented format has them: masks, not lengths, and a default route among the others."""
    links = [{"id": "tap1", "type": "ovs", "ethernet_mac_address": "FA:16:3E:00:00:01", "mtu": 1450, "vif_id": "p"}]
    routes4 = [
        {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.0.1"},
        {"network": "192.168.0.0", "netmask": "255.255.254.0", "gateway": "10.0.0.9"},
    ]
    routes6 = [{"network": "::", "netmask": "::", "gateway": "fd00::1"}]
    four = {"id": "n0", "type": "ipv4", "link": "tap1", "ip_address": "10.0.0.5", "netmask": "255.255.240.0"}
    six = {"id": "n1", "type": "ipv6", "link": "tap1", "ip_address": "fd00::5", "netmask": "ffff:ffff:ffff:fff0::"}
    services = [{"type": "dns", "address": "10.0.0.2"}, {"address": "10.0.0.3", "type": "dns"}]
    networks = [four | {"routes": routes4, "services": services[:1]}, six | {"routes": routes6}]
    mac = "fa:16:3e:00:00:01"
    assert facts({"links": links, "networks": networks, "services": services}) == [
        "dns 10.0.0.2",
        "dns 10.0.0.3",
        f"link {mac} 1450",
        f"address {mac} 10.0.0.5/20",
        f"route {mac} 0.0.0.0/0 10.0.0.1",
        f"route {mac} 192.168.0.0/23 10.0.0.9",
        f"address {mac} fd00::5/60",
        f"route {mac} ::/0 fd00::1",
    ]


def test_dhcp_and_router_advertisements() -> None:
    links = [{"id": "a", "ethernet_mac_address": "02:00:00:00:00:01"}, {"id": "b", "ethernet_mac_address": "02::2"}]
    networks = [{"id": "n0", "type": "ipv4_dhcp", "link": "a"}, {"id": "n1", "type": "ipv6_slaac", "link": "b"}]
    assert facts({"links": links, "networks": networks}) == [
        "link 02:00:00:00:00:01 0",
        "link 02::2 0",
        "dhcp 02:00:00:00:00:01",
    ]


@pytest.mark.parametrize(
    "script", ["init", *(f"root/usr/lib/kilonova/{n}" for n in ("boot", "dhcp", "hotplug", "report"))]
)
def test_scripts_are_shell(script: str) -> None:
    subprocess.run([GUEST_IMAGE.with_name("busybox"), "sh", "-n", ROOT / "guest-image" / script], check=True)
