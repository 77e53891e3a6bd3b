"""The driver's modules where libvirt-python is not installed, on a module that has its names and does nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from itertools import count
from types import ModuleType
from typing import Any

PACKAGE = "kilonova.compute.drivers.libvirt"
FAKES = ("libvirt", "libvirt_qemu")


class Error(Exception):
    def __init__(self, message: str = "", code: int = 0) -> None:
        super().__init__(message)
        self._code = code

    def get_error_code(self) -> int:
        return self._code

    def get_error_message(self) -> str:
        return str(self)


class FakeLibvirt(ModuleType):
    """Every constant is another number."""

    libvirtError = Error

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._numbers = count(1)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("VIR_"):
            raise AttributeError(name)
        setattr(self, name, next(self._numbers))
        return getattr(self, name)


def _mine(name: str) -> bool:
    return name in FAKES or name == PACKAGE or name.startswith(f"{PACKAGE}.")


@contextlib.contextmanager
def fake_libvirt() -> Iterator[FakeLibvirt]:
    """Modules of the driver that are imported meanwhile use the fake; those of other tests are left as they are."""
    import kilonova.compute.drivers.libvirt as package
    from kilonova.compute import drivers

    before = {name: module for name, module in sys.modules.items() if _mine(name)}
    for name in before:
        del sys.modules[name]
    fakes = {name: FakeLibvirt(name) for name in FAKES}
    sys.modules.update(fakes)
    try:
        yield fakes["libvirt"]
    finally:
        for name in [name for name in sys.modules if _mine(name)]:
            del sys.modules[name]
        sys.modules.update(before)
        drivers.libvirt = package  # type: ignore[attr-defined]
