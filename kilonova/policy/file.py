"""An operator's policy.yaml: rule names with their checks. Every error is refused at the start: oslo.policy would
silently forbid by a check that it cannot parse, and silently allow by an empty one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kilonova.domain.errors import Refused

_REFERENCES = re.compile(r"(?<![\w.:])rule:([^\s()]+)")


def read_rules(file: Path, defaults: Mapping[str, str]) -> dict[str, str]:
    """Raise `Refused` with one sentence. A name is one of the `defaults`, or of a rule that another one refers to."""
    import yaml

    try:
        rules = yaml.safe_load(file.read_text())
    except OSError as error:
        raise refused(file, error.strerror or "it cannot be read") from error
    except UnicodeDecodeError as error:
        raise refused(file, "it is not UTF-8 text") from error
    except yaml.YAMLError as error:
        raise refused(file, f"it is not valid YAML: {_where(error)}") from error
    if rules is None:
        return {}
    if not isinstance(rules, dict):
        raise refused(file, "it must be a list of rules, each as name: check")
    for name, check in rules.items():
        if not isinstance(name, str) or not isinstance(check, str):
            raise refused(file, f"the check of {name} must be a quoted string")
        if "http:" in check or "https:" in check:
            raise refused(file, f"the check of {name} is an HTTP check, which is not supported")
    _check_names(file, rules, defaults)
    return rules


def _check_names(file: Path, rules: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """Refuse unknown rule names: a misspelt one would silently have no effect."""
    used = {other for check in rules.values() for other in _REFERENCES.findall(check)}
    for name in rules:
        if name not in defaults and name not in used:
            close = get_close_matches(name, list(defaults), n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise refused(file, f"there is no rule {name}, and no other rule refers to it{meant}")


def parsed(file: Path | None, checks: Mapping[str, str]) -> Any:
    """Return all rules as oslo.policy parses them."""
    from oslo_policy import policy as oslo

    rules = oslo.Rules.from_dict(dict(checks))
    for name, check in checks.items():
        if str(rules[name]) == "!" and check.strip() != "!":
            raise refused(file, f"the check of {name} cannot be parsed: {check}")
        for other in _REFERENCES.findall(check):
            if other not in checks:
                raise refused(file, f"the check of {name} refers to a rule {other} that does not exist")
    return rules


def refused(file: Path | None, why: str) -> Refused:
    return Refused("bad_configuration", f"the policy {file} cannot be used: {why}")


def _where(error: Any) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or "it cannot be read"
    return f"{problem} in line {mark.line + 1}" if mark is not None else str(problem)
