"""`kilonova ledger SERVER`: every change of what a server and its migrations hold in placement."""

from __future__ import annotations

from kilonova.cli.names import server_id
from kilonova.cli.options import DEFAULT_LOGIN, CloudOptions, ServerName
from kilonova.cli.output import Columns, Record, print_list
from kilonova.cli.rest import segment


def ledger(server: ServerName, /, *, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Show every change of what a server and its migrations hold in placement."""
    cloud = login.cloud()
    print_list(cloud.get(f"/servers/{segment(server_id(cloud, server))}/ledger")["ledger"], COLUMNS, login.form)


def _holds(line: Record) -> str:
    """Return, by provider, everything that the consumer held from then on."""
    providers: dict[str, list[str]] = {}
    for share in line["holds"]:
        suffix = " (kept for an evacuation)" if share["holder"] and share["holder"] != line["consumer"] else ""
        providers.setdefault(share["provider_name"] + suffix, []).append(f"{share['amount']} {share['resource_class']}")
    return "; ".join(f"{name}: {', '.join(amounts)}" for name, amounts in providers.items()) or "nothing"


COLUMNS: Columns = {
    "time": "at",
    "consumer": "consumer",
    "change": "verb",
    "by": lambda line: line["operation_kind"] or line["who"],
    "operation": "operation",
    "holds": _holds,
}
