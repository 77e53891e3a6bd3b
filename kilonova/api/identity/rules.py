"""Who may do what in identity: Keystone's defaults in essence, in one table. A rule holds if one of its checks does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kilonova.api.call import Call
from kilonova.api.rejected import Rejected
from kilonova.domain.caller import Caller
from kilonova.services.identity.records import Record
from kilonova.services.identity.roles import MANAGER, MEMBER, READER, SERVICE


@dataclass(frozen=True)
class Target:
    """What is asked for; None where it does not matter or is not known, and then nobody's own."""

    domain_id: str | None = None  # the domain it is, or is in
    project_id: str | None = None
    user_id: str | None = None  # whose it is
    actor_domain_id: str | None = None  # the domain of the user or group that gets a role, or of who joins a group
    role: str | None = None  # the name of that role; None for one that belongs to a domain


Check = Callable[[Caller, Target], bool]
NOTHING = Target()
MANAGED = (MANAGER, MEMBER, READER)  # the roles that the manager of a domain may give


def anyone(caller: Caller, target: Target) -> bool:
    return True


def admin(caller: Caller, target: Target) -> bool:
    return caller.is_admin


def service(caller: Caller, target: Target) -> bool:
    return SERVICE in caller.roles


def system_reader(caller: Caller, target: Target) -> bool:
    return caller.system and READER in caller.roles


def owner(caller: Caller, target: Target) -> bool:
    return target.user_id == caller.user_id


def domain_reader(caller: Caller, target: Target) -> bool:
    return caller.domain is not None and READER in caller.roles and target.domain_id == caller.domain.id


def domain_manager(caller: Caller, target: Target) -> bool:
    return caller.domain is not None and MANAGER in caller.roles and target.domain_id == caller.domain.id


def of_domain(caller: Caller, target: Target) -> bool:
    homes = [place for place in (caller.domain, caller.project) if place is not None]
    return any(target.domain_id == (place.id if place is caller.domain else place.domain_id) for place in homes)


def of_project(caller: Caller, target: Target) -> bool:
    return caller.project is not None and target.project_id == caller.project.id


def manager_of_role(caller: Caller, target: Target) -> bool:
    return caller.domain is not None and MANAGER in caller.roles and target.role in MANAGED


def reader_of_both(caller: Caller, target: Target) -> bool:
    return domain_reader(caller, target) and target.actor_domain_id == target.domain_id


def manager_of_both(caller: Caller, target: Target) -> bool:
    return domain_manager(caller, target) and target.actor_domain_id == target.domain_id


def grants_manager(caller: Caller, target: Target) -> bool:
    return manager_of_both(caller, target) and target.role in MANAGED


_READ = (admin, system_reader, domain_reader)
_MANAGE = (admin, domain_manager)

RULES: dict[str, tuple[Check, ...]] = {
    "validate_token": (admin, system_reader, service, owner),
    "revoke_token": (admin, owner),
    "get_domain": (admin, system_reader, of_domain),
    "list_domains": _READ,
    "manage_domains": (admin,),
    "get_project": (*_READ, of_project),
    "list_projects": _READ,
    "list_user_projects": (*_READ, owner),
    "manage_projects": _MANAGE,
    "get_user": (*_READ, owner),
    "list_users": _READ,
    "manage_users": _MANAGE,
    "get_group": _READ,
    "list_groups": _READ,
    "list_groups_for_user": (*_READ, owner),
    "manage_groups": _MANAGE,
    "get_members": (admin, system_reader, reader_of_both),
    "manage_members": (admin, manager_of_both),
    "get_role": (admin, system_reader, manager_of_role),
    "list_roles": (admin, system_reader, domain_manager),
    "manage_roles": (admin,),
    "get_implied_roles": (admin, system_reader),
    "list_grants": (admin, system_reader, reader_of_both),
    "manage_grants": (admin, grants_manager),
    "list_system_grants": (admin, system_reader),
    "manage_system_grants": (admin,),
    "list_role_assignments": _READ,
    "list_catalog": (admin, system_reader),
    "list_regions": (anyone,),
    "manage_catalog": (admin,),
    "get_credential": (admin, system_reader, owner),
    "manage_credentials": (admin, owner),
    "get_policy": (admin, system_reader),
    "manage_policies": (admin,),
}


def may(call: Call, rule: str, target: Target = NOTHING) -> bool:
    return any(check(call.caller, target) for check in RULES[rule])


def require(call: Call, rule: str, target: Target = NOTHING) -> None:
    if not may(call, rule, target):
        raise Rejected(403, f"You are not allowed to do this (identity:{rule}).")


def own_domain(call: Call) -> str | None:
    """The domain that a domain's token is confined to in lists."""
    return call.caller.domain.id if call.caller.domain is not None else None


def only_own(call: Call, records: list[Record]) -> list[Record]:
    """An administrator may bring users and groups of two domains together; a domain's token shows only its own."""
    own = own_domain(call)
    return [record for record in records if own in (None, record["domain_id"])]
