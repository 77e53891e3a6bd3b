"""What a returning host does to its guests by the verdicts of a conductor, and what it reports of it."""

import logging

import msgspec
import pytest

from kilonova.compute.drivers.simulated.changes import switch_guest
from kilonova.domain.guest import GuestSpec
from kilonova.domain.hardware import HostClaim
from kilonova.domain.messages import Verdict
from tests.support.one_host import HOST, INTERVAL, OneHost, order


@pytest.fixture
def host():
    host = OneHost()
    yield host
    host.close()


def test_what_was_settled_is_reported(host):
    for server, copy in (("stopped", 1), ("set aside", 2), ("destroyed", 3), ("adopted", 4), ("left", 5)):
        host.hardware.plant(HOST, server, copy)
    host.hardware.plant(HOST, "started", 6, power="off")
    host.returned.clear()
    host.verdicts = [
        Verdict("stopped", 1, "stop", ""),
        Verdict("set aside", 2, "set_aside", ""),
        Verdict("destroyed", 3, "destroy", ""),
        Verdict("adopted", 4, "adopt", ""),
        Verdict("left", 5, "quarantine", ""),
        Verdict("started", 6, "adopt", "", run=True),
    ]
    host.register_again = True
    host.loop.run_for(2 * INTERVAL)
    (message,) = host.returned
    assert message.host == HOST and message.session == host.registered[-1].session
    assert message.stopped == [("stopped", 1), ("set aside", 2)]
    assert message.destroyed == [("destroyed", 3)]
    assert message.adopted == [("adopted", 4, True), ("started", 6, True)]
    assert message.failed == []
    power = {one.server: one.power for one in host.hardware.survey()}
    assert power == {"stopped": "off", "set aside": "off", "adopted": "on", "left": "on", "started": "on"}


@pytest.mark.parametrize("action", ["stop", "set_aside", "destroy"])
def test_a_step_under_way_ends_before_its_copy_is_stopped_or_removed(host, action):
    host.hardware.plant(HOST, "s1", 1)
    host.say(order("old", 1, 1, seconds=100.0))
    host.register_again, host.verdicts = True, [Verdict("s1", 1, action, "decided meanwhile")]
    host.loop.run_for(200.0)
    assert host.log == ["old begun", "old aborted"]
    assert host.finished == [], "it has no result"


def spec(server, copy, name):
    return GuestSpec(server=server, copy=copy, name=name, vcpus=1, memory_mb=512, disk_gb=1)


@pytest.mark.parametrize("action", ["adopt", "stop", "quarantine"])
def test_a_guest_is_defined_as_it_shall_be_with_the_hardware_it_holds(host, action):
    """Its volumes and ports may be others than before the host was away; what it holds only this host knows."""
    host.hardware.plant(HOST, "s1", 1)
    host.kill()
    claim = HostClaim(devices=())
    host.hardware.note(HOST, "claim/s1/1", msgspec.to_builtins(claim))
    host.verdicts = [Verdict("s1", 1, action, "", guest=spec("s1", 1, "new"))]
    host.start()
    (guest,) = host.hardware.host(HOST).guests.values()
    assert (guest.spec.name, guest.spec.claim) == ("new", claim)


def test_a_removed_copy_gives_its_hardware_back(host):
    host.kill()
    host.hardware.note(HOST, "claim/s1/1", msgspec.to_builtins(HostClaim()))
    host.verdicts = [Verdict("s1", 1, "destroy", "")]
    host.start()
    host.verdicts = []
    host.restart()
    assert (host.registered[-2].copies != [], host.registered[-1].copies) == (True, [])


def test_a_guest_that_may_not_run_is_not_started(host):
    host.hardware.plant(HOST, "s1", 1, power="off")
    host.verdicts, host.register_again = [Verdict("s1", 1, "adopt", "", run=False)], True
    host.loop.run_for(2 * INTERVAL)
    assert host.returned[-1].adopted == [("s1", 1, False)]
    assert host.hardware.running("s1") == []


def test_a_guest_that_runs_is_not_reported_as_one_that_could_not_be_started(host):
    """Only its new definition could not be written, and can never be: that keeps its host from nothing."""
    host.hardware.plant(HOST, "s1", 1)
    host.hardware.fail(HOST, "ensure_defined", 1000, "refuse")
    host.returned.clear()
    host.verdicts, host.register_again = [Verdict("s1", 1, "adopt", "", True, spec("s1", 1, "new"))], True
    host.loop.run_for(2 * INTERVAL)
    assert [(one.adopted, one.failed) for one in host.returned] == [([("s1", 1, True)], [])]


def test_a_guest_that_failed_and_then_started_may_fail_as_often_again(host):
    """Failures of last week do not count."""
    verdict = [Verdict("s1", 1, "adopt", "", True)]
    for _ in range(2):
        host.hardware.plant(HOST, "s1", 1, power="off")
        host.hardware.fail(HOST, "ensure_power", 2, "error")
        host.returned.clear()
        host.verdicts, host.register_again = verdict, True
        host.loop.run_for(5 * INTERVAL)
        assert [(one.adopted, one.failed) for one in host.returned] == [([("s1", 1, True)], [])]
        switch_guest(host.hardware, HOST, "s1", False)


@pytest.mark.parametrize(("how", "tries"), [("error", 3), ("refuse", 1)])
def test_a_guest_that_never_starts_is_logged_with_its_tries_and_tried_again_later(host, caplog, how, tries):
    host.hardware.plant(HOST, "s1", 1, power="off")
    for _ in range(2):
        host.hardware.fail(HOST, "ensure_power", tries, how)
        host.verdicts, host.register_again = [Verdict("s1", 1, "adopt", "", True)], True
        caplog.clear()
        with caplog.at_level(logging.WARNING, "kilonova.compute.reconcile"):
            host.loop.run_for(5 * INTERVAL)
        (entry,) = [one for one in caplog.records if one.name == "kilonova.compute.reconcile"]
        assert entry.getMessage().startswith(f"guest could not be started: server=s1 copy=1 tries={tries} reason=")
        assert not entry.exc_info, "an error that the driver foresaw needs no traceback"


def test_a_guest_whose_start_breaks_in_an_unforeseen_way_is_logged_with_where(host, caplog, monkeypatch):
    async def broken(*_, **__):
        raise ZeroDivisionError("the driver is wrong")

    host.hardware.plant(HOST, "s1", 1, power="off")
    monkeypatch.setattr(host.agent.driver, "ensure_power", broken)
    host.verdicts, host.register_again = [Verdict("s1", 1, "adopt", "", True)], True
    with caplog.at_level(logging.WARNING, "kilonova.compute.reconcile"):
        host.loop.run_for(5 * INTERVAL)
    assert host.returned[-1].failed == [("s1", 1, "ZeroDivisionError: the driver is wrong")]
    assert host.returned[-1].adopted == [("s1", 1, False)]
    (entry,) = [one for one in caplog.records if one.name == "kilonova.compute.reconcile"]
    assert entry.exc_info
