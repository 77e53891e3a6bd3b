"""The Keystone rule for each request, by its target and its method; the checks are in policy/identity.py."""

from __future__ import annotations

from dataclasses import dataclass

from kilonova.api.call import Call
from kilonova.domain.errors import Refused
from kilonova.policy.identity import with_aliases
from kilonova.records.kinds import Record


@dataclass(frozen=True)
class PolicyTarget:
    """The target of a request. None: irrelevant or unknown; an unknown owner matches no caller."""

    domain_id: str | None = None  # the domain it is, or is in
    project_id: str | None = None
    user_id: str | None = None  # the owner
    actor_domain_id: str | None = None  # the domain of the user or group that gets a role, or of who joins a group
    role: str | None = None  # the name of that role; None for one that belongs to a domain

    def attributes(self) -> dict[str, str]:
        """Return the attributes under the names that the rules use."""
        named = {
            "target.domain_id": self.domain_id,
            "target.project.id": self.project_id,
            "target.user.id": self.user_id,
            "target.actor.domain_id": self.actor_domain_id,
            "target.role.name": self.role,
        }
        return {name: value for name, value in named.items() if value is not None}


NOTHING = PolicyTarget()
_WRITES = {"POST": "create", "PATCH": "update", "PUT": "create", "DELETE": "delete"}
_GRANTS = {"PUT": "create", "DELETE": "revoke"}
_MEMBERS = {"PUT": "add_user_to_group", "DELETE": "remove_user_from_group"}
_NOUNS = {"policies": "policy", "credentials": "credential", "domains": "domain", "projects": "project"}
_NOUNS |= {"users": "user", "groups": "group", "roles": "role"}


def name_of(rule: str, method: str, path: str) -> str:
    """Keystone's name of one of the rules that handlers ask."""
    is_one = path.endswith("}")
    if rule in ("manage_grants", "list_grants"):
        verb = _GRANTS.get(method, "check")
        return f"{verb}_grant" if method in _GRANTS or is_one else "list_grants"
    if rule in ("manage_system_grants", "list_system_grants"):
        actor = "user" if "/users/" in path else "group"
        verb = _GRANTS.get(method, "check" if is_one else "list")
        return f"{verb}_system_grant{'s' if verb == 'list' else ''}_for_{actor}"
    if rule in ("manage_members", "get_members"):
        return _MEMBERS.get(method, "check_user_in_group" if is_one else "list_users_in_group")
    if rule == "get_implied_roles":
        name = "get_implied_role" if is_one else "list_implied_roles"
        return "list_role_inference_rules" if "inferences" in path else name
    if rule == "manage_roles" and "/implies/" in path:
        return f"{_WRITES[method]}_implied_role"
    if rule in ("list_catalog", "list_regions"):
        list_key = path.split("/")[1]
        return f"get_{list_key.removesuffix('s')}" if is_one else f"list_{list_key}"
    if rule == "manage_catalog":
        return f"{_WRITES[method]}_{path.split('/')[1].removesuffix('s')}"
    if rule in ("get_credential", "get_policy") and not is_one:
        return f"list_{path.split('/')[1]}"
    if rule.startswith("manage_"):
        verb = "update" if "/tags" in path else _WRITES[method]
        return f"{verb}_{_NOUNS[rule.removeprefix('manage_')]}"
    return rule


def may(call: Call, rule: str, target: PolicyTarget = NOTHING) -> bool:
    name = f"identity:{name_of(rule, call.route.method, call.route.path)}"
    return call.service.policy.allows_on(name, call.caller, with_aliases(target.attributes()))


def require(call: Call, rule: str, target: PolicyTarget = NOTHING) -> None:
    if not may(call, rule, target):
        name = name_of(rule, call.route.method, call.route.path)
        raise Refused(403, f"You are not allowed to do this (identity:{name}).")


def own_domain(call: Call) -> str | None:
    """The domain that a domain's token is confined to in lists."""
    return call.caller.domain.id if call.caller.domain is not None else None


def only_own(call: Call, records: list[Record]) -> list[Record]:
    """Keep the records that a domain's token may see: those of its own domain. An administrator may mix two domains."""
    own = own_domain(call)
    return [record for record in records if own in (None, record["domain_id"])]
