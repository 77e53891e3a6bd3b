"""Settings in which no two durations are equal, so that a test notices an option that is used for another one."""

from __future__ import annotations

from itertools import count

import msgspec

from kilonova.settings import Settings


def distinct_settings() -> Settings:
    """The defaults; of several options with one duration the first keeps it, each other one is some per cent longer."""
    taken = set[float]()
    changed: dict[str, msgspec.Struct] = {}
    defaults = Settings()
    for section in msgspec.structs.fields(Settings):
        options = getattr(defaults, section.name)
        values: dict[str, float] = {}
        for option in msgspec.structs.fields(type(options)):
            value = getattr(options, option.name)
            if isinstance(value, float) and value > 1.0:  # 0 and 1 are switches and ratios
                values[option.name] = next(one for step in count() if (one := value * (1 + step / 50)) not in taken)
                taken.add(values[option.name])
        changed[section.name] = msgspec.structs.replace(options, **values)
    return msgspec.structs.replace(defaults, **changed)
