"""The settings of an operator: a TOML file and `--set section.option=value`, with Nova's names where Nova has them.

Anything unknown or of the wrong kind is refused with one sentence that names it and says what is allowed: a misspelt
option that is silently ignored shows up at the worst moment.
"""

from kilonova.settings.hosts import ComputeOptions, NetworkOptions, PciOptions
from kilonova.settings.loading import FILE_NAME, load, load_for_fleet, need_bus
from kilonova.settings.sections import SECTIONS, FilterOptions, HttpOptions, MetricsOptions, SchedulerOptions, Settings
from kilonova.settings.services import ConsoleOptions

DEFAULTS = Settings()

__all__ = [
    "DEFAULTS",
    "FILE_NAME",
    "SECTIONS",
    "ComputeOptions",
    "ConsoleOptions",
    "FilterOptions",
    "HttpOptions",
    "MetricsOptions",
    "NetworkOptions",
    "PciOptions",
    "SchedulerOptions",
    "Settings",
    "load",
    "load_for_fleet",
    "need_bus",
]
