"""The settings of an operator: a TOML file and `--set section.option=value`, with Nova's names where Nova has them.

Anything unknown or of the wrong kind is refused with one sentence that names it and says what is allowed: a misspelt
option that is silently ignored shows up at the worst moment.
"""

from kilonova.settings.hosts import ComputeOptions, NetworkOptions, PciOptions
from kilonova.settings.loading import FILE_NAME, load, load_for_fleet, need_bus
from kilonova.settings.sections import (
    SECTIONS,
    AuditOptions,
    ConductorOptions,
    Default,
    FilterOptions,
    HaOptions,
    HttpOptions,
    MetricsOptions,
    NotificationOptions,
    QuotaOptions,
    RetentionOptions,
    SchedulerOptions,
    Settings,
)
from kilonova.settings.services import ConsoleOptions, VolumeOptions

DEFAULTS = Settings()

__all__ = [
    "DEFAULTS",
    "FILE_NAME",
    "SECTIONS",
    "AuditOptions",
    "ComputeOptions",
    "ConductorOptions",
    "ConsoleOptions",
    "Default",
    "FilterOptions",
    "HaOptions",
    "HttpOptions",
    "MetricsOptions",
    "NetworkOptions",
    "NotificationOptions",
    "PciOptions",
    "QuotaOptions",
    "RetentionOptions",
    "SchedulerOptions",
    "Settings",
    "VolumeOptions",
    "load",
    "load_for_fleet",
    "need_bus",
]
