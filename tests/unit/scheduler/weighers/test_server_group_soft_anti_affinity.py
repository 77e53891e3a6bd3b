"""ServerGroupSoftAntiAffinityWeigher."""

from __future__ import annotations

from kilonova.placement.groups import GroupRule
from kilonova.scheduler.surroundings import Surroundings
from kilonova.scheduler.weighers.server_group_soft_anti_affinity import ServerGroupSoftAntiAffinityWeigher
from tests.unit.scheduler.worlds import asked, big, weights

HOSTS = {name: big() for name in ("a", "b", "c")}
AROUND = Surroundings({"p-a": frozenset({"s1", "s2"}), "p-b": frozenset({"s3", "me"})})


def test_where_the_others_are() -> None:
    request = asked(group=GroupRule("g", "soft-anti-affinity"), server="me")
    assert weights(ServerGroupSoftAntiAffinityWeigher, HOSTS, request, around=AROUND) == [0.0, 0.5, 1.0]
    assert weights(ServerGroupSoftAntiAffinityWeigher, HOSTS, asked(), around=AROUND) == [0.0, 0.0, 0.0]
    other = asked(group=GroupRule("g", "anti-affinity"))
    assert weights(ServerGroupSoftAntiAffinityWeigher, HOSTS, other, around=AROUND) == [0.0, 0.0, 0.0]
