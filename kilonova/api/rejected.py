"""A request that HTTP itself or a service's protocol turns away; the domain's own refusals are `Refused`."""

from __future__ import annotations


class Rejected(Exception):
    """`code` is the service's machine-readable word where it has one (Neutron's type, Placement's code)."""

    def __init__(self, status: int, message: str, code: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = headers or {}
