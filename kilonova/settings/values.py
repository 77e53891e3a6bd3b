"""The types of option values, and the sentence that describes each."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(gt=0, description="seconds, more than 0")]
Pause = Annotated[float, Meta(ge=0, description="seconds, 0 or more")]
Days = Annotated[float, Meta(ge=0, description="days, 0 or more")]
Count = Annotated[int, Meta(ge=1, description="a whole number, 1 or more")]
Amount = Annotated[int, Meta(ge=0, description="a whole number, 0 or more")]
Limit = Annotated[int, Meta(ge=-1, description="a whole number, 0 or more, or -1 for no limit")]
Flag = Annotated[bool, Meta(description="true or false")]
Text = Annotated[str, Meta(description="a text")]
TextList = Annotated[tuple[str, ...], Meta(description="a list of strings (comma-separated with --set)")]
Factor = Annotated[float, Meta(description="a number; below 0 turns the order around")]
Percent = Annotated[float, Meta(ge=0, le=100, description="a number, 0 to 100")]
Ratio = Annotated[float, Meta(ge=0, description="a number, 0 or more; 0: what placement has")]
VirtType = Annotated[str, Meta(pattern="^(kvm|qemu|)$", description='"kvm", "qemu", or "" for the faster one')]
Address = Annotated[str, Meta(description="an address in quotes")]
PortNumber = Annotated[int, Meta(ge=1, le=65535, description="a port, 1 to 65535")]
Url = Annotated[str, Meta(pattern=r"^(https?://[^\s/?#]+[^\s#]*)?$", description="a URL: http://… or https://…")]
SocketUrl = Annotated[str, Meta(pattern=r"^(wss?://[^\s/?#]+[^\s#]*)?$", description="a URL: ws://… or wss://…")]
Level = Annotated[str, Meta(pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="DEBUG, INFO, WARNING or ERROR")]
Microversion = Annotated[str, Meta(pattern=r"^2\.([1-9]|[1-9]\d|10[0-5])$", description='"2.1" to "2.105"; in quotes')]
Strategy = Annotated[str, Meta(pattern="^(depth|breadth)-first$", description='"depth-first" or "breadth-first"')]
NetworkDriver = Annotated[str, Meta(pattern="^(auto|bridged|user)$", description='"auto", "bridged" or "user"')]
Transport = Annotated[str, Meta(pattern="^(bus|webhook|)$", description='"bus", "webhook", or "" for none')]
PortRange = Annotated[str, Meta(pattern="^[0-9]{1,5}(-[0-9]{1,5})?$", description="a port, or two with - between them")]
LinkName = Annotated[str, Meta(pattern="^[a-z][a-z0-9-]{0,14}$", description="a link's name, 15 characters at most")]
Addresses = Annotated[dict[str, str], Meta(description="addresses by name, as in [database.cells]")]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the configuration file."""
