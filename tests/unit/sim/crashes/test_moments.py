"""A moment is a point before which something was done that a crash does not take back."""

from kilonova.services.volume.files import NoBytes
from kilonova.sim.crashes.moments import Moments
from kilonova.sim.loop.process import Process


def watching(*, everyone: bool = False) -> Moments:
    moments = Moments(everyone=everyone)
    moments.files, moments.hosts = NoBytes(), frozenset({"host1"})
    return moments


def test_points_between_which_nothing_was_done_are_one_moment() -> None:
    moments, conductor = watching(), Process("conductor1")
    strikes = moments.at(2)
    assert [strikes(conductor) for _ in range(3)] == [False, False, False]
    moments.before_commit("control")
    assert [strikes(conductor) for _ in range(3)] == [True, False, False]
    assert moments.count == 2


def test_what_a_crash_does_not_take_back_makes_a_moment() -> None:
    moments, conductor, host = watching(), Process("conductor1"), Process("host1")
    strikes = moments.at(0)
    assert moments.files is not None

    def count() -> int:
        strikes(conductor)
        return moments.count

    assert count() == 1
    moments.before_commit("control")
    assert count() == 2
    moments.after_commit("control")
    assert count() == 3
    assert moments.fates("conductor1", "host1", "host.host1.step") == (0.0,)
    assert count() == 4
    moments.files.sizes["volume-1"] = 1
    assert count() == 5
    moments.files.sizes["volume-1"] = 2
    assert count() == 6
    strikes(host)
    assert moments.count == 7, "whatever a host does counts, for itself"
    assert count() == 8, "and for the others"


def test_each_process_has_its_own_moments_unless_all_die() -> None:
    first, second = Process("conductor1"), Process("conductor2")
    for everyone, expected in ((False, 4), (True, 2)):
        moments = watching(everyone=everyone)
        strikes = moments.at(0)
        for process in (first, second, first):
            strikes(process)
        moments.after_commit("cell1")
        for process in (second, first, second):
            strikes(process)
        assert moments.count == expected
