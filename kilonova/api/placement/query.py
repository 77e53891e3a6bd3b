"""The parsing of queries, by version. The errors keep the sentences that clients and Placement's own tests match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from starlette.datastructures import QueryParams

from kilonova.api.forms import Schema
from kilonova.api.placement import forms
from kilonova.api.reading import is_uuid
from kilonova.api.routes import Version
from kilonova.domain.errors import Refused
from kilonova.placement.candidates.query import CandidateQuery, Group, Names

DUPLICATE_KEY = "placement.query.duplicate_key"
BAD_VALUE = "placement.query.bad_value"
MISSING_VALUE = "placement.query.missing_value"

FORBIDDEN_TRAITS: Version = (1, 22)
SEVERAL_MEMBER_OF: Version = (1, 24)
NESTED: Version = (1, 29)
FORBIDDEN_AGGREGATES: Version = (1, 32)
LONG_SUFFIXES: Version = (1, 33)
SAME_SUBTREE: Version = (1, 36)
ANY_TRAITS: Version = (1, 39)

TOO_MUCH = 2**31  # more than any inventory gives to one consumer
NUMBER, SUFFIX = "[1-9][0-9]*", "[a-zA-Z0-9_-]{1,64}"
WRONG = "Invalid query string parameters:"

TEXT: Schema = {"type": "string"}
UUID_FORM: Schema = {"type": "string", "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"}


def _suffixed(names: Iterable[str], suffix: str, **properties: Schema) -> Schema:
    """Return the schema of a query whose keys may have a suffix, and of its other properties."""
    patterns = {f"^{name}({suffix})?$": {"type": "array", "items": TEXT} for name in names}
    return {**forms.query(properties), "patternProperties": patterns}


_LIMIT: Schema = {"type": "string", "pattern": "^[1-9][0-9]*$"}
_POLICY: Schema = {"type": "string", "enum": ["none", "isolate"]}
_PLAIN = {"resources": TEXT, "limit": _LIMIT}
_WIDE = {"limit": _LIMIT, "group_policy": _POLICY}
_OF_GROUPS = ("resources", "required", "member_of", "in_tree")

CANDIDATES = forms.QueryForms(
    {
        (1, 10): forms.query({"resources": TEXT}, ("resources",)),
        (1, 16): forms.query(_PLAIN, ("resources",)),
        (1, 17): forms.query(_PLAIN | {"required": TEXT}, ("resources",)),
        (1, 21): forms.query(_PLAIN | {"required": TEXT, "member_of": TEXT}, ("resources",)),
        (1, 25): _suffixed(_OF_GROUPS[:3], NUMBER, **_WIDE),
        (1, 31): _suffixed(_OF_GROUPS, NUMBER, **_WIDE),
        (1, 33): _suffixed(_OF_GROUPS, SUFFIX, **_WIDE),
        (1, 35): _suffixed(_OF_GROUPS, SUFFIX, **_WIDE, root_required=TEXT),
        (1, 36): _suffixed(_OF_GROUPS, SUFFIX, **_WIDE, root_required=TEXT, same_subtree=TEXT),
    }
)

_FIRST = {"name": TEXT, "uuid": UUID_FORM}
PROVIDERS = forms.QueryForms(
    {
        (1, 0): forms.query(_FIRST),
        (1, 3): forms.query(_FIRST | {"member_of": TEXT}),
        (1, 4): forms.query(_FIRST | {"member_of": TEXT, "resources": TEXT}),
        (1, 14): forms.query(_FIRST | {"member_of": TEXT, "resources": TEXT, "in_tree": UUID_FORM}),
        (1, 18): forms.query(_FIRST | {"member_of": TEXT, "resources": TEXT, "in_tree": UUID_FORM, "required": TEXT}),
    }
)

_KEY = re.compile(rf"({'|'.join(_OF_GROUPS)})({SUFFIX})?")


def provider_group(query: QueryParams, version: Version) -> Group:
    """Parse the conditions on one provider (GET /resource_providers). Of a repeated key the last value counts."""
    return _group(query, "", version)


def candidates_query(query: QueryParams, version: Version) -> CandidateQuery:
    required, forbidden = _of_roots(query)
    subtrees = tuple(_suffixes(text) for text in query.getlist("same_subtree"))
    suffixes = dict.fromkeys(match[2] or "" for key in query if (match := _KEY.fullmatch(key)))
    groups = tuple(_group(query, suffix, version) for suffix in suffixes)
    if version >= SAME_SUBTREE:
        _check_subtrees(groups, subtrees)
    else:
        _check_orphans(groups)
    _check_conflicts(groups)
    policy = query.getlist("group_policy")[:1]
    if not policy and sum(1 for group in groups if group.suffix) > 1:
        text = 'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
        raise Refused(400, text)
    limit = query.getlist("limit")[:1]
    return CandidateQuery(
        groups=groups,
        isolate=policy == ["isolate"],
        root_required=required,
        root_forbidden=forbidden,
        same_subtrees=subtrees,
        limit=min(int(limit[0][:10]), TOO_MUCH) if limit else None,
        nested=version >= NESTED,
    )


def _group(query: QueryParams, suffix: str, version: Version) -> Group:
    resources: dict[str, int] = {}
    for text in query.getlist(f"resources{suffix}"):
        resources = _resources(text)
    required, forbidden = _traits(query.getlist(f"required{suffix}"), version)
    member_of, outside = _aggregates(query.getlist(f"member_of{suffix}"), suffix, version)
    tree = ""
    for text in query.getlist(f"in_tree{suffix}"):
        tree = _tree(text)
    return Group(
        suffix=suffix,
        resources=resources,
        required=required,
        forbidden=forbidden,
        member_of=member_of,
        outside=outside,
        in_tree=tree,
    )


def _resources(text: str) -> dict[str, int]:
    form = "Badly formed resources parameter. Expected resources query string parameter in form: "
    form += "?resources=VCPU:2,MEMORY_MB:1024. Got: "
    if not text.strip():
        raise Refused(400, f"{form}empty string.")
    resources = {}
    for part in text.split(","):
        name, colon, number = part.partition(":")
        if not colon or ":" in number:
            raise Refused(400, f"{form}{part[:100]}.")
        try:
            amount = int(number)
        except ValueError:
            said = f"Requested resource {name[:100]} expected positive integer amount. Got: {number[:100]}."
            raise Refused(400, said) from None
        if amount < 1:
            raise Refused(400, f"Requested resource {name[:100]} requires amount >= 1. Got: {number[:100]}.")
        resources[name] = min(amount, TOO_MUCH)
    return resources


def _traits(values: Sequence[str], version: Version) -> tuple[tuple[Names, ...], Names]:
    """Return the required and the forbidden traits. Before repetition was allowed, only the last value counted."""
    required: list[Names] = []
    forbidden: set[str] = set()
    for text in values if version >= ANY_TRAITS else values[-1:]:
        if text.startswith("in:"):
            required.append(_any_traits(text, version))
            continue
        for name in _named_traits(text, allow_forbidden=version >= FORBIDDEN_TRAITS):
            if name.startswith("!"):
                forbidden.add(name.lstrip("!"))
            else:
                required.append(frozenset([name]))
    return tuple(required), frozenset(forbidden)


def _any_traits(text: str, version: Version) -> Names:
    form = "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC'"
    if version < ANY_TRAITS:
        raise Refused(400, f"{WRONG} {form} only supported since microversion 1.39. Got: {text[:200]}")
    names = [name.strip() for name in text[3:].split(",")]
    if not all(names):
        said = f"Expected 'required' parameter value of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC. Got: {text[:200]}"
        raise Refused(400, f"{WRONG} {said}")
    if any(name.startswith("!") for name in names):
        raise Refused(400, f"{WRONG} {form} does not support forbidden traits. Got: {text[:200]}")
    return frozenset(names)


def _named_traits(text: str, *, allow_forbidden: bool) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    is_bad = not all(name.lstrip("!") for name in names)
    if is_bad or (not allow_forbidden and any(name.startswith("!") for name in names)):
        form = "HW_CPU_X86_VMX,!CUSTOM_MAGIC" if allow_forbidden else "HW_CPU_X86_VMX,CUSTOM_MAGIC"
        raise Refused(400, f"{WRONG} Expected 'required' parameter value of the form: {form}. Got: {text[:200]}")
    return names


def _aggregates(values: Sequence[str], suffix: str, version: Version) -> tuple[tuple[Names, ...], Names]:
    if len(values) > 1 and version < SEVERAL_MEMBER_OF:
        raise Refused(400, f"Multiple member_of{suffix} parameters are not supported")
    required: list[Names] = []
    outside: set[str] = set()
    for text in values:
        is_forbidden = text.startswith("!")
        names = _uuids(text.removeprefix("!"))
        if not is_forbidden:
            required.append(names)
        elif version >= FORBIDDEN_AGGREGATES:
            outside |= names
        else:
            said = f"Forbidden member_of{suffix} parameters are not supported in the specified microversion"
            raise Refused(400, said)
    return tuple(required), frozenset(outside)


def _uuids(text: str) -> Names:
    if "," in text and not text.startswith("in:"):
        said = "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword using the valid"
        raise Refused(400, f"{said} microversion. Got: {text[:200]}")
    names = text.removeprefix("in:").split(",") if text.startswith("in:") else [text]
    for name in names:
        if not is_uuid(name):
            said = f"Expected 'member_of' parameter to contain valid UUID(s). Got: {name[:100]}"
            raise Refused(400, f"{WRONG} {said}")
    return frozenset(names)


def _tree(text: str) -> str:
    uuid = text.strip()
    if not is_uuid(uuid):
        raise Refused(400, f"{WRONG} Expected 'in_tree' parameter to be a format of uuid. Got: {text[:100]}")
    return uuid


def _of_roots(query: QueryParams) -> tuple[Names, Names]:
    values = query.getlist("root_required")
    if len(values) > 1:
        raise Refused(DUPLICATE_KEY, "Query parameter 'root_required' may be specified only once.", status=400)
    if not values:
        return frozenset(), frozenset()
    if values[0].startswith("in:"):
        raise Refused(400, f"{WRONG} 'root_required' does not support 'in:'. Got: {values[0][:200]}")
    names = _named_traits(values[0], allow_forbidden=True)
    required = frozenset(name for name in names if not name.startswith("!"))
    forbidden = frozenset(name.lstrip("!") for name in names if name.startswith("!"))
    if both := sorted(required & forbidden):
        said = f"Conflicting required and forbidden traits found in root_required: {', '.join(both)[:200]}"
        raise Refused(BAD_VALUE, said, status=400)
    return required, forbidden


def _suffixes(text: str) -> Names:
    names = frozenset(name.strip() for name in text.split(","))
    if "" in names:
        raise Refused(BAD_VALUE, "Empty string (unsuffixed group) can not be specified in `same_subtree`", status=400)
    return names


def _check_subtrees(groups: Sequence[Group], subtrees: Sequence[Names]) -> None:
    suffixes = [group.suffix for group in groups]
    named = frozenset().union(*subtrees)
    without = [group.suffix for group in groups if not group.resources]
    if len(without) == len(groups):
        raise Refused(MISSING_VALUE, "There must be at least one resources or resources[$S] parameter.", status=400)
    if bad := [suffix for suffix in without if suffix not in named]:
        said = "Resourceless suffixed group request should be specified in `same_subtree` query param: bad group(s) - "
        raise Refused(BAD_VALUE, said + f"{bad}.", status=400)
    if bad := sorted(named.difference(suffixes)):
        said = f"Real suffixes should be specified in `same_subtree`: {bad} not found in {suffixes}."
        raise Refused(BAD_VALUE, said, status=400)


def _check_orphans(groups: Sequence[Group]) -> None:
    without = [group for group in groups if not group.resources]
    if traits := [f"required{group.suffix}" for group in without if group.required]:
        said = "All traits parameters must be associated with resources. Found the following orphaned traits keys:"
        raise Refused(400, f"{said} {', '.join(traits)}")
    if aggregates := [f"member_of{group.suffix}" for group in without if group.member_of or group.outside]:
        said = (
            "All member_of parameters must be associated with resources. Found the following orphaned member_of keys:"
        )
        raise Refused(400, f"{said} {', '.join(aggregates)}")
    if without:
        raise Refused(400, "All request groups must specify resources.")
    if not groups:
        raise Refused(400, "At least one request group (`resources` or `resources{$S}`) is required.")


def _check_conflicts(groups: Sequence[Group]) -> None:
    bad = [
        f"required{group.suffix}: ({', '.join(sorted(names))})"
        for group in groups
        for names in group.required
        if names <= group.forbidden
    ]
    if bad:
        said = "Conflicting required and forbidden traits found in the following traits keys:"
        raise Refused(400, f"{said} {', '.join(sorted(bad))[:400]}")
