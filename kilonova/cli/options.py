"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Data = Annotated[Path, Parameter(help="Directory of everything that is kept.")]
Config = Annotated[Path | None, Parameter(help="Configuration in TOML; else DATA/kilonova.toml if there is one.")]
Overrides = Annotated[
    list[str] | None,
    Parameter(name="--set", negative=(), help="One option: section.option=value. May be repeated."),
]
Url = Annotated[str, Parameter(env_var="KILONOVA_URL", help="Where the cloud listens; else as clouds.yaml says.")]
Clouds = Annotated[
    Path | None, Parameter(env_var="OS_CLIENT_CONFIG_FILE", help="File that says how to log in; else DATA/clouds.yaml.")
]
OsCloud = Annotated[str, Parameter(env_var="OS_CLOUD", help="Which of the clouds in that file.")]
AsJson = Annotated[bool, Parameter(name="--json", negative=(), help="Print the answer as it came.")]

DEFAULT_DATA = Path("./var")
DEFAULT_LISTEN = "127.0.0.1:8774"
DEFAULT_CLOUD = "kilonova"


@Parameter(name="*")  # its fields are options of the command itself
@dataclass(frozen=True)
class Login:
    """How a command finds its cloud and who asks."""

    url: Url = ""
    data: Data = DEFAULT_DATA
    clouds: Clouds = None
    os_cloud: OsCloud = DEFAULT_CLOUD


DEFAULT_LOGIN = Login()
