"""Judge hosts by the request's scheduler hints: servers to be beside or apart from, a network, a query in JSON."""

from __future__ import annotations

import ipaddress
import operator
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from kilonova.placement.snapshot import Bools
from kilonova.scheduler import attributes
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.request import ResourceRequest

DIFFERENT_HOST, SAME_HOST = "different_host", "same_host"
NEAR, CIDR, DEFAULT_CIDR = "build_near_host_ip", "cidr", "/24"
QUERY = "query"
DEEPEST = 20  # a query that is nested deeper matches no host
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _values(request: ResourceRequest, hint: str) -> list[str]:
    """Return the values of a hint: it is given once, several times, or as a text with commas."""
    given = request.hints.get(hint, [])
    return [part.strip() for text in given for part in str(text).split(",") if part.strip()]


class DifferentHostFilter(Filter):
    """Reject hosts of the servers that the hint `different_host` names."""

    name = "DifferentHostFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return ~_hosts_of_named(field, request, DIFFERENT_HOST) if _values(request, DIFFERENT_HOST) else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        there = _named_servers_on(field, request, DIFFERENT_HOST, at)
        return f"server {there[0]} is there" if there else "no server it must be apart from is there"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"drop the hint {DIFFERENT_HOST}"


class SameHostFilter(Filter):
    """Pass hosts of the servers that the hint `same_host` names."""

    name = "SameHostFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        return _hosts_of_named(field, request, SAME_HOST) if _values(request, SAME_HOST) else None

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if not _values(request, SAME_HOST):
            return "it must be beside no server"
        there = _named_servers_on(field, request, SAME_HOST, at)
        return f"server {there[0]} is there" if there else "none of the servers it must be beside is there"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"drop the hint {SAME_HOST}"


def _hosts_of_named(field: Field, request: ResourceRequest, hint: str) -> Bools:
    truths, index = field.none(), field.hosts.index
    hosts = (field.around.hosts.get(server, "") for server in _values(request, hint))
    truths[[index[host] for host in hosts if host in index]] = True
    return truths


def _named_servers_on(field: Field, request: ResourceRequest, hint: str, at: int) -> list[str]:
    host = field.names[at]
    return [server for server in _values(request, hint) if field.around.hosts.get(server) == host]


class SimpleCIDRAffinityFilter(Filter):
    """Pass hosts with an address in the network of the hints `build_near_host_ip` and `cidr`."""

    name = "SimpleCIDRAffinityFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        if not _values(request, NEAR):
            return None
        network = _network(request)
        return np.array([_is_near(view.address, network) for view in field.hosts.views], dtype=np.bool_)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if not _values(request, NEAR):
            return "it must be near no address"
        address, network = field.hosts.views[at].address, _network(request)
        if network is None:
            return f"the hints {NEAR} and {CIDR} make no network: {_values(request, NEAR)[0]}{_prefix(request)}"
        return f"its address {address or '(none)'} is {'' if _is_near(address, network) else 'not '}in {network}"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"drop the hint {NEAR}"


def _prefix(request: ResourceRequest) -> str:
    given = (_values(request, CIDR) or [DEFAULT_CIDR])[0]
    return given if given.startswith("/") else f"/{given}"


def _network(request: ResourceRequest) -> Network | None:
    try:
        return ipaddress.ip_network(_values(request, NEAR)[0] + _prefix(request), strict=False)
    except ValueError:
        return None


def _is_near(address: str, network: Network | None) -> bool:
    try:
        return network is not None and ipaddress.ip_address(address) in network
    except ValueError:
        return False


class JsonFilter(Filter):
    """Pass hosts that match the hint `query`, e.g. `["and", [">=", "$free_ram_mb", 1024], …]`."""

    name = "JsonFilter"

    def passes(self, field: Field, request: ResourceRequest) -> Bools | None:
        query = _query(request)
        return None if query is None else _matching(field, query, DEEPEST)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        query = _query(request)
        if query is None:
            return "no query was given"
        if query == []:
            return f"the hint {QUERY} is not a query in JSON"
        return f"the query is {'true' if _matching(field, query, DEEPEST)[at] else 'not true'} of it"

    def remedy(self, field: Field, request: ResourceRequest, at: int) -> str | None:
        return f"drop the hint {QUERY}"


def _query(request: ResourceRequest) -> list[Any] | None:
    """Return the decoded query. None: the hint is missing; empty: it is invalid and matches no host."""
    given = request.hints.get(QUERY)
    if not given:
        return None
    try:
        return msgspec.json.decode(given[0], type=list[Any]) if isinstance(given[0], str) else list(given[0])
    except (msgspec.MsgspecError, TypeError):
        return []


def _matching(field: Field, query: Any, depth: int) -> Bools:
    if not isinstance(query, list) or not query or depth == 0:
        return field.none()
    verb, *parts = query
    if verb in ("and", "or", "not"):
        answers = [_matching(field, part, depth - 1) for part in parts] or [field.none()]
        if verb == "not":
            return ~answers[0]
        combined: Bools = (np.logical_and if verb == "and" else np.logical_or).reduce(answers)
        return combined
    return _compared(field, verb, parts)


def _compared(field: Field, verb: Any, parts: list[Any]) -> Bools:
    if len(parts) < 2 or (verb not in COMPARED and verb != "in"):
        return field.none()
    first, rest = parts[0], parts[1:]
    if not (isinstance(first, str) and first.startswith("$")):
        return field.all() if _is_true(verb, first, rest) else field.none()
    return attributes.judged(field, first[1:].split("."), lambda value: _is_true(verb, value, rest))


def _is_true(verb: str, value: Any, others: list[Any]) -> bool:
    try:
        return value in others if verb == "in" else all(COMPARED[verb](value, other) for other in others)
    except TypeError:
        return False
