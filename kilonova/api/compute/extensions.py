"""/extensions: a list from the days before microversions. Old clients look for names in it, so a name stands there only
when what it means is offered."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.face import Face
from kilonova.api.rejected import Rejected
from kilonova.api.routes import Route

RULE = "os_compute_api:extensions"
NAMES = """
    NMN=Multinic OS-DCF=DiskConfig OS-EXT-AZ=ExtendedAvailabilityZone OS-EXT-IMG-SIZE=ImageSize
    OS-EXT-IPS=ExtendedIps OS-EXT-IPS-MAC=ExtendedIpsMac OS-EXT-SRV-ATTR=ExtendedServerAttributes
    OS-EXT-STS=ExtendedStatus OS-FLV-DISABLED=FlavorDisabled OS-FLV-EXT-DATA=FlavorExtraData
    OS-SCH-HNT=SchedulerHints OS-SRV-USG=ServerUsage os-access-ips=AccessIPs os-admin-actions=AdminActions
    os-admin-password=AdminPassword os-agents=Agents os-aggregates=Aggregates
    os-assisted-volume-snapshots=AssistedVolumeSnapshots os-attach-interfaces=AttachInterfaces
    os-availability-zone=AvailabilityZone os-baremetal-ext-status=BareMetalExtStatus
    os-baremetal-nodes=BareMetalNodes os-block-device-mapping=BlockDeviceMapping
    os-block-device-mapping-v2-boot=BlockDeviceMappingV2Boot os-cell-capacities=CellCapacities os-cells=Cells
    os-certificates=Certificates os-cloudpipe=Cloudpipe os-cloudpipe-update=CloudpipeUpdate
    os-config-drive=ConfigDrive os-console-auth-tokens=ConsoleAuthTokens os-console-output=ConsoleOutput
    os-consoles=Consoles os-create-backup=CreateBackup os-create-server-ext=Createserverext
    os-deferred-delete=DeferredDelete os-evacuate=Evacuate os-extended-evacuate-find-host=ExtendedEvacuateFindHost
    os-extended-floating-ips=ExtendedFloatingIps os-extended-hypervisors=ExtendedHypervisors
    os-extended-networks=ExtendedNetworks os-extended-quotas=ExtendedQuotas
    os-extended-rescue-with-image=ExtendedRescueWithImage os-extended-services=ExtendedServices
    os-extended-services-delete=ExtendedServicesDelete os-extended-status=ExtendedStatus
    os-extended-volumes=ExtendedVolumes os-fixed-ips=FixedIPs os-flavor-access=FlavorAccess
    os-flavor-extra-specs=FlavorExtraSpecs os-flavor-manage=FlavorManage os-flavor-rxtx=FlavorRxtx
    os-flavor-swap=FlavorSwap os-floating-ip-dns=FloatingIpDns os-floating-ip-pools=FloatingIpPools
    os-floating-ips=FloatingIps os-floating-ips-bulk=FloatingIpsBulk os-fping=Fping
    os-hide-server-addresses=HideServerAddresses os-hosts=Hosts os-hypervisor-status=HypervisorStatus
    os-hypervisors=Hypervisors os-instance-actions=InstanceActions
    os-instance_usage_audit_log=OSInstanceUsageAuditLog os-keypairs=Keypairs os-lock-server=LockServer
    os-migrate-server=MigrateServer os-migrations=Migrations os-multiple-create=MultipleCreate os-networks=Networks
    os-networks-associate=NetworkAssociationSupport os-pause-server=PauseServer os-personality=Personality
    os-preserve-ephemeral-rebuild=PreserveEphemeralOnRebuild os-quota-class-sets=QuotaClasses os-quota-sets=Quotas
    os-rescue=Rescue os-security-group-default-rules=SecurityGroupDefaultRules os-security-groups=SecurityGroups
    os-server-diagnostics=ServerDiagnostics os-server-external-events=ServerExternalEvents
    os-server-group-quotas=ServerGroupQuotas os-server-groups=ServerGroups
    os-server-list-multi-status=ServerListMultiStatus os-server-password=ServerPassword
    os-server-sort-keys=ServerSortKeys os-server-start-stop=ServerStartStop os-services=Services os-shelve=Shelve
    os-simple-tenant-usage=SimpleTenantUsage os-suspend-server=SuspendServer os-tenant-networks=OSTenantNetworks
    os-used-limits=UsedLimits os-used-limits-for-admin=UsedLimitsForAdmin os-user-data=UserData
    os-user-quotas=UserQuotas os-virtual-interfaces=VirtualInterfaces
    os-volume-attachment-update=VolumeAttachmentUpdate os-volumes=Volumes
"""
# What shows that it is there: an action, or a word of some address; where nothing is said, the name itself.
SHOWN_BY = {
    "NMN": "addFixedIp",
    "os-admin-actions": "os-resetState",
    "os-admin-password": "changePassword",
    "os-attach-interfaces": "os-interface",
    "os-baremetal-ext-status": "os-baremetal-nodes",
    "os-block-device-mapping": "os-volume_attachments",
    "os-block-device-mapping-v2-boot": "os-volume_attachments",
    "os-cell-capacities": "os-cells",
    "os-cloudpipe-update": "os-cloudpipe",
    "os-console-output": "os-getConsoleOutput",
    "os-consoles": "os-getVNCConsole",
    "os-create-backup": "createBackup",
    "os-deferred-delete": "restore",
    "os-evacuate": "evacuate",
    "os-extended-evacuate-find-host": "evacuate",
    "os-extended-floating-ips": "os-floating-ips",
    "os-extended-networks": "os-networks",
    "os-extended-rescue-with-image": "rescue",
    "os-extended-volumes": "os-volume_attachments",
    "os-flavor-access": "addTenantAccess",
    "os-flavor-extra-specs": "os-extra_specs",
    "os-floating-ip-dns": "os-floating-ips",
    "os-lock-server": "lock",
    "os-migrate-server": "migrate",
    "os-networks-associate": "os-networks",
    "os-pause-server": "pause",
    "os-rescue": "rescue",
    "os-server-diagnostics": "diagnostics",
    "os-server-group-quotas": "os-server-groups",
    "os-server-start-stop": "os-start",
    "os-shelve": "shelve",
    "os-suspend-server": "suspend",
    "os-volume-attachment-update": "os-volume_attachments",
    "os-volumes": "os-volume_attachments",
}
# Attributes and parameters of what every cloud has.
OF_SERVERS = """
    OS-DCF OS-EXT-AZ OS-EXT-IPS OS-EXT-IPS-MAC OS-EXT-SRV-ATTR OS-EXT-STS OS-SCH-HNT OS-SRV-USG os-access-ips
    os-config-drive os-extended-status os-multiple-create os-personality os-server-list-multi-status
    os-server-sort-keys os-user-data
"""
OF_FLAVORS = "OS-FLV-DISABLED OS-FLV-EXT-DATA os-flavor-manage os-flavor-rxtx os-flavor-swap"
SHOWN_BY |= dict.fromkeys(OF_SERVERS.split(), "servers")
SHOWN_BY |= dict.fromkeys(OF_FLAVORS.split(), "flavors")
SHOWN_BY |= dict.fromkeys(["os-extended-quotas", "os-user-quotas"], "os-quota-sets")
SHOWN_BY |= dict.fromkeys(["os-used-limits", "os-used-limits-for-admin"], "limits")
SHOWN_BY |= dict.fromkeys(["os-extended-services", "os-extended-services-delete"], "os-services")
SHOWN_BY |= dict.fromkeys(["os-extended-hypervisors", "os-hypervisor-status"], "os-hypervisors")
SAME = {
    "links": [],
    "namespace": "http://docs.openstack.org/compute/ext/fake_xml",
    "updated": "2014-12-03T00:00:00Z",
}
EXTENSIONS: dict[str, dict[str, object]] = {
    alias: {"alias": alias, "name": name, "description": f"{name} of the compute API.", **SAME}
    for alias, name in (pair.split("=") for pair in NAMES.split())
}


def offered(routes: Iterable[Route]) -> dict[str, dict[str, object]]:
    """By name: those whose actions or addresses are in the table."""
    words = {word for route in routes for word in (route.action, *route.path.split("/"))}
    return {alias: told for alias, told in EXTENSIONS.items() if SHOWN_BY.get(alias, alias) in words}


def _offered(call: Call) -> dict[str, dict[str, object]]:
    face = call.service.faces["compute"]
    assert isinstance(face, Face)
    return offered(face.router.routes)


async def list_(call: Call) -> Response:
    return answer({"extensions": list(_offered(call).values())})


async def show(call: Call) -> Response:
    found = _offered(call).get(call.path["alias"])
    if found is None:
        raise Rejected(404, "The resource could not be found.")
    return answer({"extension": found})


ROUTES = [
    Route(method="GET", path="/extensions", handler=list_, rule=RULE),
    Route(method="GET", path="/extensions/{alias}", handler=show, rule=RULE),
]
