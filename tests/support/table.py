"""All routes of all services, as the application itself has them: what is tested for each is tested for a new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kilonova.api.compute.dialect import MIN, LegacyDialect
from kilonova.api.routes import EVER, PUBLIC, Route, Version
from kilonova.api.service_app import ServiceApp

OLDEST: dict[str, Version] = {"compute": MIN, "placement": (1, 0), "volume": (3, 0)}
READS = ("GET", "HEAD")
LOOKS = ("os-show_image_metadata",)  # actions that only show something
NEVER_DONE = (
    # Understood, and refused to everybody with 409: only a volume service that migrates volumes could mean it.
    "/servers/{server}/os-volume_attachments/{volume} until 2.84",
    "/servers/{server}/action evacuate",  # only where the host is dead
    "/servers/{server}/migrations/{migration}",  # only live ones
    "/servers/{server}/migrations/{migration}/action force_complete",
    # Consoles that no simulated guest has, or that Nova has removed.
    *(f"/servers/{{server}}/action os-get{kind}Console until 2.5" for kind in ("VNC", "SPICE", "RDP")),
    "GET /compute/v2/os-console-auth-tokens/{token}",  # 2.1 had it for RDP only
    "/kilonova/v1/image-bytes/{image}",  # only by the host that has the token of its step
)


@dataclass(frozen=True)
class Entry:
    prefix: str
    route: Route
    newest: Version  # that answers there

    @property
    def name(self) -> str:
        """Unique in the table."""
        route = self.route
        action = f" {route.action}" if route.action else ""
        until = f" until {route.until[0]}.{route.until[1]}" if route.until else ""
        return f"{route.method} {self.prefix}{route.path}{action}{until}"

    @property
    def oldest(self) -> Version:
        return max(self.route.since, OLDEST.get(self.service, EVER))

    @property
    def service(self) -> str:
        return self.prefix.split("/")[1]

    @property
    def is_public(self) -> bool:
        return self.route.rule == PUBLIC

    @property
    def is_ever_done(self) -> bool:
        return not self.name.endswith(NEVER_DONE)

    @property
    def is_read(self) -> bool:
        return self.route.method in READS or self.route.action in LOOKS

    @property
    def parameters(self) -> list[str]:
        """The path up to and with each of its parameters."""
        segments = self.route.path.split("/")
        return ["/".join(segments[: n + 1]) for n, segment in enumerate(segments) if segment.startswith("{")]


def table(apps: Mapping[str, ServiceApp]) -> Iterator[Entry]:
    for prefix, app in apps.items():
        newest = MIN if isinstance(app.dialect, LegacyDialect) else app.dialect.newest
        for route in app.router.routes:
            last = newest if route.until is None else min(newest, route.until)
            if newest == EVER or route.since <= newest:
                yield Entry(prefix, route, last)
