"""What of a host's CPUs guests may have, as the operator says it."""

from __future__ import annotations

import pytest

from kilonova.compute.offer import Offer, cpu_classes
from kilonova.domain.errors import Refused
from kilonova.domain.hardware import HostHardware
from kilonova.settings import load
from tests.unit.domain.machines import cell

CPUS = range(4)


def offer(dedicated: str = "", shared: str = "") -> Offer:
    return Offer.of(load(None, None, [f"compute.cpu_dedicated_set={dedicated}", f"compute.cpu_shared_set={shared}"]))


@pytest.mark.parametrize(
    ("dedicated", "shared", "are_dedicated", "are_shared"),
    [
        ("", "", (), (0, 1, 2, 3)),
        ("2-3", "", (2, 3), ()),
        ("", "0,1", (), (0, 1)),
        ("2-3", "0", (2, 3), (0,)),
    ],
    ids=["neither", "dedicated ones alone", "shared ones alone", "both"],
)
def test_what_guests_may_have(
    dedicated: str, shared: str, are_dedicated: tuple[int, ...], are_shared: tuple[int, ...]
) -> None:
    given = offer(dedicated, shared)
    assert (given.dedicated_of(CPUS), given.shared_of(CPUS)) == (are_dedicated, are_shared)
    given.check("host1", CPUS)


@pytest.mark.parametrize(
    ("dedicated", "shared", "text"),
    [
        ("3-5", "", r"\[compute\] cpu_dedicated_set names CPU 4-5; host1 has the CPUs 0-3"),
        ("", "0,9", r"\[compute\] cpu_shared_set names CPU 9; host1 has the CPUs 0-3"),
    ],
)
def test_a_cpu_that_the_host_has_not_is_a_wrong_configuration(dedicated: str, shared: str, text: str) -> None:
    with pytest.raises(Refused, match=text) as why:
        offer(dedicated, shared).check("host1", CPUS)
    assert why.value.code == "bad_configuration"


def test_a_host_announces_only_the_kinds_of_cpu_that_it_has() -> None:
    shared, dedicated = cell(0, 2, dedicated=False), cell(1, 3)
    assert cpu_classes(HostHardware((shared, dedicated))) == {"VCPU": (2, 0, 1.0), "PCPU": (3, 0, 1.0)}
    assert cpu_classes(HostHardware((shared, shared))) == {"VCPU": (4, 0, 1.0)}
    assert cpu_classes(HostHardware((dedicated,))) == {"PCPU": (3, 0, 1.0)}
    assert cpu_classes(HostHardware()) == {}
