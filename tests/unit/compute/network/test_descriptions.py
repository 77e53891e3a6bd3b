"""What a host's metadata service asks the conductor, and for how long it remembers the answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from kilonova.compute.config_drive import PLAIN
from kilonova.compute.network import follower
from kilonova.compute.network.follower import CONTENTS_SECONDS, GuestDescriptions
from kilonova.compute.network.layout import Plugged
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from kilonova.domain.guest_contents import GuestContents, GuestSecrets
from kilonova.domain.host_network import ContentsAnswer, ContentsQuestion
from tests.unit.compute.network.test_bridged import ONE


class Conductor:
    """Knows the guests of servers whose name begins with s."""

    def __init__(self):
        self.questions, self.secrets, self.timeouts = [], GuestSecrets(user_data="aGVsbG8="), []

    async def call(self, subject, body, *, timeout):
        assert subject == "conductor.contents"
        question = msgspec.json.decode(body, type=ContentsQuestion)
        self.questions.append(question.server)
        self.timeouts.append(timeout)
        assert (question.host, question.session, question.epoch) == ("host1", "s", 7)
        if not question.server.startswith("s"):
            return msgspec.json.encode(ContentsAnswer())
        contents = GuestContents(hostname=f"call-{len(self.questions)}")
        guest = GuestSpec(
            server=question.server, copy=1, name="web", vcpus=1, memory_mb=64, disk_gb=1, contents=contents
        )
        return msgspec.json.encode(ContentsAnswer(guest=guest, secrets=self.secrets))


class Host:
    def __init__(self):
        self.conductor, self.seconds = Conductor(), 100.0
        self.agent = SimpleNamespace(host="host1", session="s", epoch=7)
        clock = SimpleNamespace(monotonic=lambda: self.seconds)
        self.descriptions = GuestDescriptions(self.agent, self.conductor, clock, PLAIN)

    async def name(self, server="s1"):
        files = await self.descriptions.describe(Plugged(server, 1, ONE))
        return (
            None
            if files is None
            else msgspec.json.decode(files["openstack/latest/meta_data.json"])["hostname"].partition(".")[0]
        )


def test_an_answer_is_kept_for_a_minute_and_for_its_server():
    async def story():
        host = Host()
        told = [await host.name(server) for server in ("s1", "s1", "s2", "s1")]
        assert told == ["call-1", "call-1", "call-2", "call-1"]
        host.seconds += CONTENTS_SECONDS - 1
        assert await host.name() == "call-1"
        host.seconds += 1
        assert await host.name() == "call-3"
        assert host.conductor.timeouts == [5.0] * 3

    asyncio.run(story())


def test_a_server_that_was_defined_again_is_asked_for_again():
    async def story():
        host = Host()
        for server in ("s1", "s2"):
            await host.name(server)
        for server in ("s1", "never asked"):
            host.descriptions.forget(server)
        assert (await host.name("s1"), await host.name("s2")) == ("call-3", "call-2")

    asyncio.run(story())


def test_that_nobody_runs_here_is_remembered_too():
    async def story():
        host = Host()
        assert [await host.name("gone") for _ in range(2)] == [None, None]
        assert host.conductor.questions == ["gone"]

    asyncio.run(story())


def test_user_data_is_told_where_there_is_some():
    async def story():
        host = Host()
        files = await host.descriptions.describe(Plugged("s1", 1, ONE))
        assert files is not None and files["latest/user-data"] == b"hello"
        host.conductor.secrets = None
        files = await host.descriptions.describe(Plugged("s2", 1, ONE))
        assert files is not None and "latest/user-data" not in files

    asyncio.run(story())


def test_so_many_are_remembered_and_no_more(monkeypatch):
    monkeypatch.setattr(follower, "MOST_CONTENTS", 2)

    async def story():
        host = Host()
        told = [await host.name(server) for server in ("s1", "s2", "s3", "s3", "s1", "s2")]
        assert told == ["call-1", "call-2", "call-3", "call-4", "call-1", "call-2"]
        host.seconds += CONTENTS_SECONDS
        assert [await host.name("s3") for _ in range(2)] == ["call-5"] * 2

    asyncio.run(story())


def test_a_host_that_is_not_registered_says_so():
    async def story():
        host = Host()
        host.agent.epoch = 0
        with pytest.raises(Failed, match="host1 is not registered yet") as why:
            await host.name()
        assert why.value.code == "not_registered" and host.conductor.questions == []

    asyncio.run(story())
