"""/extensions: a list from the days before microversions. Old clients look for names in it; it never changes."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.routes import ANY_TOKEN, Route

NAMES = """
    OS-SCH-HNT=SchedulerHints os-admin-actions=AdminActions os-availability-zone=AvailabilityZones
    os-extended-services=ExtendedServices os-extended-snapshot-attributes=ExtendedSnapshotAttributes os-hosts=Hosts
    os-quota-class-sets=QuotaClasses os-quota-sets=Quotas os-services=Services os-snapshot-actions=SnapshotActions
    os-types-extra-specs=TypesExtraSpecs os-types-manage=TypesManage os-used-limits=UsedLimits
    os-vol-host-attr=VolumeHostAttribute os-vol-image-meta=VolumeImageMetadata
    os-vol-mig-status-attr=VolumeMigStatusAttribute os-vol-tenant-attr=VolumeTenantAttribute
    os-volume-actions=VolumeActions os-volume-encryption-metadata=VolumeEncryptionMetadata
    os-volume-type-access=VolumeTypeAccess scheduler-stats=Scheduler_stats
"""
EXTENSIONS = [
    {
        "alias": alias,
        "name": name,
        "description": f"{name} of the volume API.",
        "links": [],
        "updated": "2014-12-03T00:00:00+00:00",
    }
    for alias, name in (pair.split("=") for pair in NAMES.split())
]


async def list_(call: Call) -> Response:
    return answer({"extensions": EXTENSIONS})


ROUTES = [Route(method="GET", path="/extensions", handler=list_, rule=ANY_TOKEN)]
