"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from kilonova.cli.times import read_duration

if TYPE_CHECKING:
    from kilonova.cli.rest import Cloud

CLOUD = Group("Cloud and output", sort_key=9)

Data = Annotated[Path, Parameter(help="Data directory.")]
Config = Annotated[
    Path | None, Parameter(help="Configuration file (TOML). Without it: DATA/kilonova.toml, if it exists.")
]
Overrides = Annotated[
    list[str] | None,
    Parameter(name="--set", negative=(), help="Set one option, as section.option=value; repeatable."),
]
Listen = Annotated[str, Parameter(help="Address and port of the HTTP API.")]
PublicUrl = Annotated[
    str, Parameter(help="URL of the API for clients, used in the catalog. Without it: made from --listen.")
]
Driver = Literal["simulated", "libvirt"]
Url = Annotated[
    str,
    Parameter(group=CLOUD, env_var="KILONOVA_URL", help="Address of the cloud. Without it: the one in clouds.yaml."),
]
CloudData = Annotated[Path, Parameter(group=CLOUD, help="Data directory of the cloud, which has its clouds.yaml.")]
Clouds = Annotated[
    Path | None,
    Parameter(group=CLOUD, env_var="OS_CLIENT_CONFIG_FILE", help="File with the login. Without it: DATA/clouds.yaml."),
]
OsCloud = Annotated[str, Parameter(group=CLOUD, env_var="OS_CLOUD", help="Name of the cloud in that file.")]
Form = Literal["table", "json", "yaml", "csv"]
Format = Annotated[
    Form,
    Parameter(
        name=("--format", "-f"), group=CLOUD, help="table for people; json, yaml or csv for programs.", negative=()
    ),
]
Seconds = Annotated[float, Parameter(converter=read_duration)]
Timeout = Annotated[Seconds, Parameter(help="How long to wait, as 90, 90s, 5m or 2h.", show_default="1h")]
OperationId = Annotated[str, Parameter(help="Id of the operation.")]
HostName = Annotated[str, Parameter(help="Name or id of the host.")]
ServerName = Annotated[str, Parameter(help="Name or id of the server.")]
Reason = Annotated[str, Parameter(help="Why; it is recorded with your name.")]
Unfenced = Annotated[bool, Parameter(help="Go on though only silence proves that the host is dead.", negative=())]

DEFAULT_DATA = Path("./var")
DEFAULT_LISTEN = "127.0.0.1:8774"
SIMULATED: Driver = "simulated"
LIBVIRT: Driver = "libvirt"
DEFAULT_CLOUD = "kilonova"
DEFAULT_WAIT = 3600.0


@Parameter(name="*")  # its fields are options of the command itself
@dataclass(frozen=True)
class CloudOptions:
    """The address of a command's cloud, the login, and the form of its output."""

    url: Url = ""
    data: CloudData = DEFAULT_DATA
    clouds: Clouds = None
    os_cloud: OsCloud = DEFAULT_CLOUD
    form: Format = "table"

    def cloud(self) -> Cloud:
        from kilonova.cli.rest import Cloud

        return Cloud(self.url, self.data, self.clouds, self.os_cloud)


@Parameter(name="*")
@dataclass(frozen=True)
class Waiting:
    """The options of a command that may follow an operation."""

    wait: Annotated[
        bool, Parameter(negative=(), help="Follow it until it ends. Exit code 4: it failed; 5: it still runs.")
    ] = False
    timeout: Timeout = DEFAULT_WAIT


@Parameter(name="*")
@dataclass(frozen=True)
class Following(Waiting):
    """The options of a command that submits an operation."""

    dry_run: Annotated[
        bool, Parameter(negative=(), help="Show what would happen; nothing is stored. Exit code 4: it would fail.")
    ] = False


DEFAULT_LOGIN = CloudOptions()
DEFAULT_FOLLOWING = Following()
DEFAULT_WAITING = Waiting()
