"""The settings of simulated clouds."""

from __future__ import annotations

import msgspec

from kilonova.settings import AuditOptions, QuotaOptions, RetentionOptions, Settings
from kilonova.settings.values import Section

UNLIMITED = QuotaOptions(
    instances=-1,
    cores=-1,
    ram=-1,
    metadata_items=-1,
    injected_files=-1,
    injected_file_content_bytes=-1,
    injected_file_path_length=-1,
    key_pairs=-1,
    server_groups=-1,
    server_group_members=-1,
)
# Production's, except that no quota refuses thousands of servers, and audits and purges begin only on request.
SIMULATED = Settings(audit=AuditOptions(interval=0.0), retention=RetentionOptions(days=0.0), quota=UNLIMITED)


def simulated(**sections: Section) -> Settings:
    """Return the settings of simulated clouds with these sections replaced."""
    return msgspec.structs.replace(SIMULATED, **sections)
