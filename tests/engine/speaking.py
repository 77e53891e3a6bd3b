"""A test that speaks as a host's agent does."""

import msgspec

from kilonova.bus.memory import MemoryBus
from kilonova.domain.guest import HostInventory
from kilonova.domain.messages import Beat, Finish, Finished, Orders, Register, Registered, Returned

INVENTORY = HostInventory({"VCPU": (8, 0, 1.0), "MEMORY_MB": (16384, 0, 1.0), "DISK_GB": (100, 0, 1.0)})


class Speaker:
    """Takes the place of a host's agent: the same name and key, a session of its own."""

    def __init__(self, cloud, host, session="spoken"):
        self.cloud, self.host, self.session, self.epoch = cloud, host, session, 0
        cloud.kill(host)
        self.bus = MemoryBus(cloud.hub, host)
        self.key = cloud.hardware.recall(host)["key"]

    def ask(self, word, message, kind):
        async def call(engine):
            return await self.bus.call(f"conductor.{word}", msgspec.json.encode(message))

        return msgspec.json.decode(self.cloud.do(call), type=kind)

    def message(self, *copies, **other):
        said = {"host": self.host, "session": self.session, "key": self.key, "copies": list(copies)}
        return Register(**{**said, "inventory": INVENTORY, **other})

    def register(self, *copies, **other):
        answer = self.ask("register", self.message(*copies, **other), Registered)
        self.epoch = answer.epoch
        return answer

    def returned(self, **done):
        message = Returned(host=self.host, session=self.session, epoch=self.epoch, **done)
        return self.ask("returned", message, bool)

    def beat(self, has=(), **other):
        message = Beat(host=self.host, session=self.session, epoch=self.epoch, has=list(has), pull=True, **other)
        return self.ask("beat", message, Orders)

    def finish(self, order, **other):
        return self.report(order, **other).accepted

    def report(self, order, **other):
        said = {
            "host": self.host,
            "session": self.session,
            "epoch": self.epoch,
            "journal": order.journal,
            "operation": order.operation,
            "ordinal": order.ordinal,
            "result": {"disk": "created"},
        }
        return self.ask("finish", Finish(**{**said, **other}), Finished)

    def join(self, *copies, **done):
        self.register(*copies)
        assert self.returned(**done)
        return self
