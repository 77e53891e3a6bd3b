"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Data = Annotated[Path, Parameter(help="Data directory.")]
Config = Annotated[
    Path | None, Parameter(help="Configuration file (TOML). Without it: DATA/kilonova.toml, if it exists.")
]
Overrides = Annotated[
    list[str] | None,
    Parameter(name="--set", negative=(), help="Set one option, as section.option=value; repeatable."),
]
Url = Annotated[
    str, Parameter(env_var="KILONOVA_URL", help="Address of the cloud. Without it: the one in clouds.yaml.")
]
Clouds = Annotated[
    Path | None, Parameter(env_var="OS_CLIENT_CONFIG_FILE", help="File with the login. Without it: DATA/clouds.yaml.")
]
OsCloud = Annotated[str, Parameter(env_var="OS_CLOUD", help="Name of the cloud in that file.")]
OperationId = Annotated[str, Parameter(help="Id of the operation.")]
HostName = Annotated[str, Parameter(help="Name or id of the host.")]
AsJson = Annotated[bool, Parameter(name="--json", negative=(), help="Print raw JSON.")]

DEFAULT_DATA = Path("./var")
DEFAULT_LISTEN = "127.0.0.1:8774"
DEFAULT_CLOUD = "kilonova"


@Parameter(name="*")  # its fields are options of the command itself
@dataclass(frozen=True)
class Login:
    """The address of a command's cloud, and the login."""

    url: Url = ""
    data: Data = DEFAULT_DATA
    clouds: Clouds = None
    os_cloud: OsCloud = DEFAULT_CLOUD


DEFAULT_LOGIN = Login()
