"""What travels to a host with an order: only what its step needs, and of secrets only what the guest shall find."""

import asyncio
import base64

import msgspec
import pytest

from kilonova.bus.serving import MAX_BODY
from kilonova.compute.agent import Agent
from kilonova.compute.reconcile import Tries, carry_out
from kilonova.conductor.handlers import within_a_message
from kilonova.domain.details import Details
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from kilonova.domain.guest_contents import GuestContents, GuestFile, GuestSecrets, PublicKey
from kilonova.domain.hardware import HostClaim
from kilonova.domain.messages import StepOrder, Verdict
from kilonova.domain.server import Flavor, flavor_document, to_json
from kilonova.engine.secrets import Seal
from kilonova.operations.facts import MoveFacts, ResizeFacts

SECRET = base64.b64encode(b"nobody reads this").decode()


@pytest.fixture
def orders(monkeypatch):
    found, perform = [], Agent._perform

    async def watched(agent, order):
        found.append(order)
        return await perform(agent, order)

    monkeypatch.setattr(Agent, "_perform", watched)
    return found


def make_full(cloud):
    """A server with a port, user data, a file and a password."""
    seal = cloud.roles["api"].engine.seal
    details = Details(
        hostname="web",
        key_name="laptop",
        public_key=PublicKey("laptop", "ssh-ed25519 AAAA"),
        user_data=seal.close_text(SECRET),
        personality=seal.close_text(to_json([("/etc/motd", SECRET)])),
    )
    networks = [{"network_id": cloud.laid.network}]
    return cloud.make("a", details=details, networks=networks, secrets={"admin_pass": "hunter2"})[0]


def work_through(cloud, server, *kinds):
    for kind in kinds:
        cloud.submit(kind, server, **({"image": "other", "details": {}} if kind == "rebuild" else {}))
        cloud.loop.run_for(60.0)


def test_only_steps_that_define_a_guest_are_told_of_it(cloud, orders):
    cloud = cloud(hosts=2, addresses=3)
    server = make_full(cloud)
    work_through(cloud, server, "stop", "start", "rebuild", "hard_reboot", "migrate", "revert_resize", "delete")
    told = {order.name for order in orders if order.guest is not None}
    assert told == {
        *("build_and_run_instance", "make_copy", "reboot_instance", "prep_resize", "resize_instance"),
        *("finish_resize", "finish_revert_resize"),
    }
    assert {"stop_instance", "start_instance", "remove_old_copy"} <= {order.name for order in orders} - told
    assert all(order.guest.ports[0].addresses[0].address == "10.0.0.10" for order in orders if order.guest is not None)
    assert all(order.guest.contents.public_keys[0].text == "ssh-ed25519 AAAA" for order in orders if order.guest)


def test_only_steps_that_make_a_copy_get_its_secrets(cloud, orders):
    cloud = cloud(hosts=2, addresses=3)
    server = make_full(cloud)
    work_through(cloud, server, "rebuild", "migrate", "confirm_resize", "delete")
    secrets = {order.name: order.guest_secrets for order in orders if order.guest_secrets is not None}
    files = [GuestFile("/etc/motd", SECRET)]
    assert secrets == {
        "build_and_run_instance": GuestSecrets(user_data=SECRET, files=files, admin_password="hunter2"),
        "make_copy": GuestSecrets(user_data=SECRET, files=files),
        "prep_resize": GuestSecrets(user_data=SECRET, files=files),
    }
    assert SECRET not in repr(orders) and "hunter2" not in repr(orders)
    records = cloud.records()
    journals = str([records.table(name) for name in ("operations", "steps", "servers", "request_specs")])
    assert SECRET not in journals and "hunter2" not in journals


def test_sealed_texts_do_not_go_to_hosts(cloud, orders):
    """A rebuild keeps what the server had before, to put it back; that is nothing for its host."""
    cloud = cloud(hosts=1, addresses=3)
    server = make_full(cloud)
    before, sealed = (
        msgspec.json.decode(cloud.server(server)["details"])["user_data"],
        cloud.roles["api"].engine.seal.close_text(SECRET),
    )
    cloud.submit("rebuild", server, image="other", details={"user_data": sealed})
    cloud.loop.run_for(60.0)
    told = str([order.facts for order in orders])
    assert before not in told and sealed not in told
    assert [order.guest_secrets.user_data for order in orders if order.name == "make_copy"] == [SECRET]


def test_a_server_goes_on_without_what_cannot_be_read(cloud, orders):
    """The key that it was sealed with is lost."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make("a", details=Details(user_data="of another key", personality="of another key"))
    work_through(cloud, server, "migrate")
    assert cloud.server(server)["vm_state"] == "resized"
    told = [order.guest_secrets for order in orders if order.guest_secrets is not None]
    assert told == [GuestSecrets(), GuestSecrets()]


def test_an_order_that_cannot_be_made_holds_up_nobody_else(cloud, monkeypatch):
    """Its operation's secrets were sealed with a key that is lost."""
    cloud, read = cloud(hosts=1), Seal.read

    def forgetful(seal, text):
        values = read(seal, text)
        if values.get("admin_pass") == "lost":
            raise Failed("secrets_unreadable", "the secrets were sealed with another key", final=True)
        return values

    monkeypatch.setattr(Seal, "read", forgetful)
    one, _ = cloud.make("a", secrets={"admin_pass": "lost"}, wait=5.0)
    other, _ = cloud.make("b", secrets={"admin_pass": "known"}, wait=20.0)
    assert (cloud.server(one)["vm_state"], cloud.server(other)["vm_state"]) == ("building", "active")


def order_of(size):
    long = GuestSecrets(user_data="x" * size)
    parts = {"journal": "cell1", "operation": "o", "kind": "build", "name": "n", "way": "do", "server": "s"}
    return StepOrder(**parts, ordinal=1, turn=1, copy=1, guest_secrets=long)


def test_a_message_takes_so_many_orders():
    few = within_a_message([order_of(100)] * 3)
    assert (len(few.steps), few.more) == (3, False)
    many = within_a_message([order_of(100_000)] * 20)
    assert many.more and 0 < len(many.steps) < 20
    assert len(msgspec.json.encode(many)) < MAX_BODY


def test_more_orders_than_one_message_takes_all_get_there(cloud):
    """They wait while the host's agent is away. It gets them message after message, not one with each heartbeat."""
    cloud = cloud(hosts=1, vcpus=64, memory_mb=65536, disk_gb=1000)
    seal = cloud.roles["api"].engine.seal
    details = Details(user_data=seal.close_text("x" * 80_000))
    cloud.kill("host1")
    servers = [cloud.make(f"s{number}", details=details, wait=0.001)[0] for number in range(20)]
    cloud.start("host1")
    cloud.loop.run_for(8.0)
    assert {cloud.server(server)["vm_state"] for server in servers} == {"active"}


class FakeDriver:
    def __init__(self):
        self.defined = []

    async def ensure_defined(self, guest, secrets=None):
        self.defined.append((guest, secrets))

    async def ensure_power(self, server, copy, *, on):
        pass


class FakeClaims:
    def of(self, server, copy):
        return HostClaim() if (server, copy) == ("s", 1) else None


@pytest.mark.parametrize("word", ["adopt", "stop"])
def test_a_guest_that_is_defined_again_keeps_its_share_of_the_hardware(word):
    guest = GuestSpec(server="s", copy=1, name="s", vcpus=1, memory_mb=1, disk_gb=1, contents=GuestContents())
    driver = FakeDriver()
    verdicts = [Verdict("s", 1, word, "", False, guest)]
    asyncio.run(carry_out(driver, FakeClaims(), verdicts, set(), Tries()))
    ((defined, secrets),) = driver.defined
    assert defined.claim == HostClaim() and secrets is None, "what it was told in secret stays"


def test_each_copy_of_a_resize_is_defined_with_its_own_flavor():
    """The source gets its old flavor back when the resize is undone."""
    old, new = Flavor("old", 1, 1024, 10), Flavor("new", 2, 2048, 20)
    flavors = {"old_flavor": flavor_document(old), "new_flavor": flavor_document(new)}
    facts = ResizeFacts(**flavors, source_copy=3, copy=7)
    assert [facts.flavor_of(copy) for copy in (3, 7, 9)] == [old, new, None]
    assert MoveFacts(source_copy=3, copy=7).flavor_of(3) is None, "it is not a resize"
