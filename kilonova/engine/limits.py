"""Numbers an operator may set; names are Nova's where Nova has them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kilonova.domain.failure_watch import WatchRules
from kilonova.quota.resources import Limits as QuotaLimits


@dataclass
class Limits:
    service_down_time: float = 60.0
    report_interval: float = 10.0
    max_attempts: int = 3
    unknown_wait: float = 1800.0  # seconds that a request waits while it is not known whether a host fits
    lease_seconds: float = 6.0
    flush_seconds: float = 1.0  # how often heartbeats are written
    poll_seconds: float = 5.0
    evacuations_per_destination: int = 4
    move_seconds: float = 10.0  # that plans count for a move, besides the bytes of its disks
    move_mb_per_second: float = 100.0
    allow_resize_to_same_host: bool = False
    resume_guests_state_on_host_boot: bool = True
    reclaim_instance_interval: float = 0.0  # seconds that a deleted server can be restored; 0: not at all
    resize_confirm_window: float = 0.0  # seconds after which a move is confirmed by itself; 0: never
    counts_failed_builds: bool = True  # unless consecutive_build_service_disable_threshold is 0
    audit_interval: float = 0.0  # seconds; 0: only when asked
    ledger_days: float = 90.0  # how long it tells of those who hold nothing any more
    retention_days: float = 0.0  # how long ended operations and deleted servers are recorded; 0: for ever
    count_usage_from_placement: bool = False
    list_records_by_skipping_down_cells: bool = True
    notifier: str = ""  # the machine's name in notifications; "": none are written
    watch: WatchRules = field(default_factory=WatchRules)  # [ha]
    quota: QuotaLimits = field(default_factory=dict)  # what everybody gets by default; nothing named, no limit
