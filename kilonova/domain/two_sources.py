"""A setting that both a flavor (`hw:cpu_policy`) and an image (`hw_cpu_policy`) may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kilonova.domain.errors import Refused

MOST_SHOWN = 80  # characters of an invalid value that are shown in the error


def bad(key: str, value: str, right: str) -> Refused:
    excerpt = value if len(value) <= MOST_SHOWN else f"{value[:MOST_SHOWN]}…"
    return Refused("bad_hardware_request", f"{key}={excerpt}: {right}")


class TwoSources:
    def __init__(self, flavor: Mapping[str, str], image: Mapping[str, str]) -> None:
        self.flavor = flavor
        self.image = image

    def both(self, name: str) -> tuple[str, str]:
        return str(self.flavor.get(f"hw:{name}") or ""), str(self.image.get(f"hw_{name}") or "")

    def choices(self, name: str, allowed: Sequence[str]) -> tuple[str, str]:
        flavor, image = self.both(name)
        for key, value in ((f"hw:{name}", flavor), (f"hw_{name}", image)):
            if value and value not in allowed:
                raise bad(key, value, f"it must be one of {', '.join(allowed)}")
        return flavor, image

    def number(self, key: str, text: str, *, most: int = 2**31 - 1) -> int:
        """Return the number, 0 for an empty text."""
        if not text:
            return 0
        if not (text.isascii() and text.isdigit()) or not 0 < int(text[:12]) <= most:
            raise bad(key, text, f"it must be a whole number from 1 to {most}")
        return int(text)

    def numbers(self, name: str) -> tuple[int, int]:
        flavor, image = self.both(name)
        return self.number(f"hw:{name}", flavor), self.number(f"hw_{name}", image)

    def numbered(self, name: str) -> dict[int, str]:
        """`hw:NAME.0`, `hw:NAME.1`, … by their number; only one of the two may say them."""
        flavor, image = _numbered(self.flavor, f"hw:{name}."), _numbered(self.image, f"hw_{name}.")
        if flavor and image:
            number, value = next(iter(image.items()))
            raise bad(f"hw_{name}.{number}", value, f"the flavor sets hw:{name}.N; only one of them may set it")
        return flavor or image


def _numbered(values: Mapping[str, str], prefix: str) -> dict[int, str]:
    by_suffix = {key.removeprefix(prefix): str(value) for key, value in values.items() if key.startswith(prefix)}
    return {int(number): value for number, value in sorted(by_suffix.items()) if number.isascii() and number.isdigit()}
