"""Judge a rule: oslo.policy on our table of defaults and an operator's policy.yaml, with the decisions cached.

With the defaults alone a decision depends on the rule, the roles, the scope and whether the caller owns the target. A
policy.yaml may name single users or projects, so then those belong to the key as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.policy.file import parsed, read_rules, refused
from kilonova.policy.rules import DEFAULTS, SCOPE_FREE

MOST_CACHED = 50_000


class Policy:
    def __init__(self, defaults: Mapping[str, str] = DEFAULTS, file: Path | None = None) -> None:
        """Raise `Refused` for a file that cannot be used."""
        self._defaults = defaults
        self._file = file
        self._enforcer: Any = None
        self._cache: dict[tuple[Any, ...], bool] = {}
        if file is not None:
            self._enforcer = _enforcer({**defaults, **read_rules(file, defaults)}, file)

    def allows(self, rule: str, caller: Caller, *, project_id: str | None = None, user_id: str | None = None) -> bool:
        """Judge a rule. The target is the caller's own unless a project or user is named."""
        own_project = project_id is None or project_id == caller.project_id
        own_user = user_id is None or user_id == caller.user_id
        key: tuple[Any, ...] = (rule, caller.roles, caller.project is None, caller.system, own_project, own_user)
        if self._file is not None:
            key = (*key, caller.user_id, caller.project_id, project_id, user_id)
        target = {
            "project_id": caller.project_id if project_id is None else project_id,
            "user_id": caller.user_id if user_id is None else user_id,
        }
        return self._known(key, rule, caller, target)

    def require(self, rule: str, caller: Caller, *, project_id: str | None = None, user_id: str | None = None) -> None:
        if not self.allows(rule, caller, project_id=project_id, user_id=user_id):
            raise Refused(403, f"Policy doesn't allow {rule} to be performed.")

    def allows_on(self, rule: str, caller: Caller, target: Mapping[str, str]) -> bool:
        """Judge a target with just these attributes. A check on a missing attribute never matches."""
        key = (
            rule,
            caller.roles,
            caller.user_id,
            caller.project,
            caller.domain,
            caller.system,
            *sorted(target.items()),
        )
        return self._known(key, rule, caller, target)

    def _known(self, key: tuple[Any, ...], rule: str, caller: Caller, target: Mapping[str, str]) -> bool:
        decision = self._cache.get(key)
        if decision is None:
            if rule not in self._defaults:
                raise KeyError(f"there is no policy rule {rule}")
            if len(self._cache) >= MOST_CACHED:
                self._cache.clear()
            decision = self._cache[key] = self._judge(rule, caller, target)
        return decision

    def _judge(self, rule: str, caller: Caller, target: Mapping[str, str]) -> bool:
        if caller.project is None and rule not in SCOPE_FREE:
            return False  # only identity and our own rules are also for tokens without a project
        credentials = {
            "user_id": caller.user_id,
            "project_id": caller.project_id,
            "roles": list(caller.roles),
            "is_admin": caller.is_admin,
            "system_scope": "all" if caller.system else None,
            "domain_id": caller.domain.id if caller.domain is not None else None,
            "token": {
                "domain": {"id": caller.domain.id} if caller.domain is not None else {},
                "project": {"domain": {"id": caller.project.domain_id}} if caller.project is not None else {},
            },
        }
        return bool(self._loaded().enforce(rule, dict(target), credentials))

    def _loaded(self) -> Any:
        """Load oslo.policy, which costs 0.3 s and 20 MB, on first use."""
        if self._enforcer is None:
            self._enforcer = _default_enforcer() if self._defaults is DEFAULTS else _enforcer(self._defaults, None)
        return self._enforcer


@cache  # it changes nothing in itself: all services of a process may share it
def _default_enforcer() -> Any:
    return _enforcer(DEFAULTS, None)


def _enforcer(checks: Mapping[str, str], file: Path | None) -> Any:
    import logging

    from oslo_config import cfg
    from oslo_policy import policy as oslo

    logging.getLogger("oslo_policy").setLevel(logging.CRITICAL)  # our own sentence replaces its messages
    conf = cfg.ConfigOpts()
    conf([], project="kilonova", default_config_files=[], default_config_dirs=[])
    # Without its own reading of files: it would look for changes at each decision, and ours are kept.
    enforcer = oslo.Enforcer(conf, rules=parsed(file, checks), use_conf=False)
    enforcer.suppress_deprecation_warnings = enforcer.suppress_default_change_warnings = True
    try:
        enforcer.check_rules(raise_on_violation=True)
    except oslo.InvalidDefinitionError as error:
        raise refused(file, "some of its rules refer to each other in a circle") from error
    return enforcer
