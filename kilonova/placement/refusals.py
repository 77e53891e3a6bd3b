"""The refusals of writes to the ledger, with the numbers."""

from __future__ import annotations

from kilonova.domain.errors import Conflict, Refused


class ClaimRefused(Refused):
    """A change would take more than is available; the whole transaction is rolled back."""


class OverCapacity(ClaimRefused):
    def __init__(self, provider: str, resource_class: str, wanted: int, used: int, capacity: int) -> None:
        super().__init__(
            "over_capacity",
            over_capacity(provider, resource_class, wanted, used, capacity),
            provider=provider,
            resource_class=resource_class,
            wanted=wanted,
            used=used,
            capacity=capacity,
        )


class WrongUnit(ClaimRefused):
    def __init__(self, provider: str, resource_class: str, wanted: int, sentence: str) -> None:
        super().__init__(
            "wrong_unit",
            f"provider {provider}: {resource_class} {sentence}",
            provider=provider,
            resource_class=resource_class,
            wanted=wanted,
        )


class NotAccepting(ClaimRefused):
    def __init__(self, provider: str) -> None:
        super().__init__("not_accepting", f"provider {provider} accepts no new claims", provider=provider)


class NoSuchProvider(ClaimRefused):
    def __init__(self, provider: str) -> None:
        super().__init__("no_such_provider", f"there is no provider {provider}", provider=provider)


class LostRace(Conflict):
    """Another transaction created the same consumer first; nothing was written, a retry sees it."""


def over_capacity(provider: str, resource_class: str, wanted: int, used: int, capacity: int) -> str:
    free = max(capacity - used, 0)
    return f"provider {provider}: needs {wanted} {resource_class}, {free} free of {capacity}"


def unit_fault(wanted: int, min_unit: int, max_unit: int, step_size: int) -> str | None:
    """Return the error in the amount itself, or None."""
    if wanted < min_unit:
        return f"{wanted} is less than the smallest amount given out, {min_unit}"
    if wanted > max_unit:
        return f"{wanted} is more than one consumer may hold, {max_unit}"
    if wanted % step_size:
        return f"{wanted} is not a multiple of {step_size}"
    return None
