"""What asking costs: one server, a list of a thousand, and the check of a token."""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench import seed
from bench.api_create import one_round
from bench.books import differences
from bench.http import Connection
from bench.measure import Stopwatch, cpu_of
from bench.report import Report, median, rounds
from bench.served import Tenant, served, tenant
from kilonova.roles.serve import embedded
from kilonova.services.identity.login import Login, Which
from kilonova.services.identity.service import Identity
from kilonova.settings import load
from kilonova.store.clouds import ADMIN_CLOUD, CLOUDS_NAME, Account, read_account
from kilonova.store.data_directory import DataDirectory
from tests.support.program import Cloud

SERVERS = 1000
ROUNDS = 3
SHOWS = 2000  # requests per round
LISTS = 20
CHECKS = 5000
TOKENS = 500


async def cost(cloud: Cloud, connection: Connection, requests: Sequence[bytes], count: int) -> float:
    """CPU of the server per request, in ms."""
    for request in requests[:20]:
        answer = await connection.ask(request)
        assert answer.status == 200, (request, answer.status, answer.body)
    before = cpu_of(cloud.process.pid)
    for request in itertools.islice(itertools.cycle(requests), count):
        await connection.ask(request)
    return (cpu_of(cloud.process.pid) - before) / count * 1000


async def reads(cloud: Cloud, report: Report) -> None:
    owner = tenant(cloud)
    async with owner.client.connections(1) as (connection,):
        whole = owner.client.request("GET", f"/compute/v2.1/servers/detail?limit={SERVERS}")
        found = (await connection.ask(whole)).json["servers"]
        report.exactly("servers in the list", len(found), SERVERS)
        one = [owner.client.request("GET", f"/compute/v2.1/servers/{server['id']}") for server in found]
        shows = [await cost(cloud, connection, one, SHOWS) for _ in range(ROUNDS)]
        lists = [await cost(cloud, connection, [whole], LISTS) for _ in range(ROUNDS)]
        names = owner.client.request("GET", f"/compute/v2.1/servers?limit={SERVERS}")
        brief = [await cost(cloud, connection, [names], LISTS) for _ in range(ROUNDS)]
    report.at_most("GET /servers/{id}: CPU", median(shows), "ms", 1.0, rounds(shows))
    report.at_most("GET /servers/detail: CPU", median(lists), "ms", 60.0, rounds(lists, 0))
    report.add("GET /servers: CPU", median(brief), "ms", rounds(brief, 0))


async def prepare(cloud: Cloud) -> Tenant:
    """A first server, as the pattern of the others."""
    owner = tenant(cloud)
    await one_round(cloud, owner, 1)
    return owner


# -- tokens -----------------------------------------------------------------------------------------------------------


async def token_checks(data: Path, report: Report) -> None:
    """In this process, without HTTP: what each request of every service pays for its token."""
    account = read_account(data / CLOUDS_NAME, ADMIN_CLOUD)
    with DataDirectory(data) as directory:
        async with embedded(directory, load(None, None, ["simulated.hosts=0"])) as service:
            tokens = await _tokens(service.identity, account)
            fresh = await _checks(service.identity, tokens)
            kept = [await _checks(service.identity, tokens[:1] * CHECKS) for _ in range(ROUNDS)]
    report.at_most("check of a token: CPU", median(kept), "ms", 0.2, rounds(kept, 4))
    report.at_most("check of a token not seen before: CPU", fresh, "ms", 0.2)


async def _tokens(identity: Identity, account: Account) -> list[str]:
    """The first by password, which is slow on purpose; the others with that one."""
    place = Which(name=account.project_name, domain_id="default")
    user = Which(name=account.username, domain_id="default")
    first = await identity.authenticate(Login(user, account.password, scope="project", target=place))
    again = Login(token=first.token, scope="project", target=place)
    return [first.token, *[(await identity.authenticate(again)).token for _ in range(TOKENS)]]


async def _checks(identity: Identity, tokens: Sequence[str]) -> float:
    watch = Stopwatch.start()
    for token in tokens:
        caller = await identity.check(token)
        assert caller is not None
    return watch.cpu / len(tokens) * 1000


def measure(data: Path) -> Report:
    report = Report("api_read")
    with served(data) as cloud:
        uvloop.run(prepare(cloud))
    seed.fill(data, SERVERS - 1)
    with served(data) as cloud:
        uvloop.run(reads(cloud, report))
    wrong = differences(data)
    report.exactly("differences in the books", len(wrong), 0, note="; ".join(wrong[:3]))
    asyncio.run(token_checks(data, report))
    return report


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
        return measure(Path(scratch) / "var").finish()


if __name__ == "__main__":
    sys.exit(main())
