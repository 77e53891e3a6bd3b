"""clouds.yaml and openrc in the data directory: the data that a client needs to find the cloud and to log in.

Both are written again at every start, so that a changed port or address is right; our own commands read the first.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kilonova.domain.errors import StoreError
from kilonova.store.data_directory import write_secret

CLOUDS_NAME = "clouds.yaml"
OPENRC_NAME = "openrc"
REGION = "RegionOne"
DOMAIN = "Default"
ADMIN_CLOUD = "kilonova"
CLOUDS = {ADMIN_CLOUD: "admin", "kilonova-demo": "demo"}  # by cloud: the name of its user, and of the user's project
HEAD = "# Written by kilonova at every start; a password that you change here is kept as long as it is right."


@dataclass(frozen=True)
class Account:
    auth_url: str
    username: str
    password: str
    project_name: str
    user_domain_name: str = DOMAIN
    project_domain_name: str = DOMAIN
    ca_file: str = ""  # with which the client checks the server's certificate; empty: the system's authorities

    @property
    def auth(self) -> dict[str, str]:
        return {name: value for name, value in vars(self).items() if name != "ca_file"}


def write_clouds(directory: Path, public_url: str, passwords: Mapping[str, str], ca_file: str = "") -> bool:
    """`passwords` by user. False, and nothing written, when none is known."""
    lines = [HEAD, "clouds:"]
    for cloud, user in CLOUDS.items():
        if user in passwords:
            lines += [f"  {cloud}:", "    auth:"]
            account = Account(f"{public_url}/identity", user, passwords[user], user)
            lines += [f"      {name}: {json.dumps(value)}" for name, value in account.auth.items()]
            lines += [f"    cacert: {json.dumps(ca_file)}"] if ca_file else []
            lines += [f"    region_name: {REGION}", "    identity_api_version: 3"]
    if len(lines) == 2:
        return False
    write_secret(directory / CLOUDS_NAME, "\n".join(lines))
    user = next(user for user in CLOUDS.values() if user in passwords)
    account = Account(f"{public_url}/identity", user, passwords[user], user, ca_file=ca_file)
    write_secret(directory / OPENRC_NAME, _openrc(account))
    return True


def welcome(directory: Path, passwords: Mapping[str, str]) -> str:
    """Return the message that says what to type next."""
    file = directory / CLOUDS_NAME
    if CLOUDS[ADMIN_CLOUD] not in passwords:
        return f"kilonova: the password of {CLOUDS[ADMIN_CLOUD]} is not known here, so {file} does not have it"
    settings = f"OS_CLIENT_CONFIG_FILE={shlex.quote(str(file))} OS_CLOUD={ADMIN_CLOUD}"
    type_this = f"export {settings}; {_openstack()} server list"
    return f"kilonova: how to log in is in {file} and {directory / OPENRC_NAME}; type\n  {type_this}"


def _openstack() -> str:
    """Return the client's command as it can be typed here: it is often installed only beside this program."""
    beside = Path(sys.executable).parent / "openstack"
    if not beside.exists():
        return "openstack"
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))


def _openrc(account: Account) -> str:
    given = {f"OS_{name.upper()}": value for name, value in account.auth.items()}
    given |= {"OS_CACERT": account.ca_file} if account.ca_file else {}
    given |= {"OS_REGION_NAME": REGION, "OS_IDENTITY_API_VERSION": "3"}
    return "\n".join([HEAD, *(f"export {name}={shlex.quote(value)}" for name, value in given.items())])


def read_account(file: Path, cloud: str) -> Account:
    """Raise StoreError with the reason if the file has no such account."""
    import yaml

    try:
        document = yaml.safe_load(file.read_text())
    except OSError as error:
        raise StoreError(f"cannot read {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StoreError(f"{file} is not valid YAML") from error
    auth = _auth_of(document, cloud)
    if auth is None:
        raise StoreError(f"{file} has no cloud {cloud} with auth_url, username, password and project_name")
    known = {name: str(auth[name]) for name in Account.__dataclass_fields__ if name in auth}
    return Account(**known | {"ca_file": str(document["clouds"][cloud].get("cacert", ""))})


def _auth_of(node: Any, cloud: str) -> Mapping[str, Any] | None:
    for key in ("clouds", cloud, "auth"):
        node = node.get(key) if isinstance(node, dict) else None
    needed = ("auth_url", "username", "password", "project_name")
    return node if isinstance(node, dict) and all(name in node for name in needed) else None
