"""The dialect of Network: no microversions, faults with a type for programs and a sentence for people."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import answer
from kilonova.api.routes import Version
from kilonova.api.service_app import Dialect

TYPES: dict[str, tuple[int, str]] = {
    "address_has_floating_ip": (409, "PortInUse"),
    "address_in_use": (409, "IpAddressInUse"),
    "bad_request": (400, "BadRequest"),
    "default_group_exists": (409, "SecurityGroupDefaultAlreadyExists"),
    "default_group_stays": (409, "SecurityGroupCannotRemoveDefault"),
    "external_in_use": (409, "ExternalNetworkInUse"),
    "external_network_unreachable": (404, "ExternalGatewayForFloatingIPNotFound"),
    "floating_ip_not_found": (404, "FloatingIPNotFound"),
    "floating_ip_port_in_use": (409, "FloatingIPPortAlreadyAssociated"),
    "gateway_in_pools": (409, "GatewayConflictWithAllocationPools"),
    "gateway_in_use": (409, "GatewayIpInUse"),
    "gateway_in_use_by_floating_ip": (409, "RouterExternalGatewayInUseByFloatingIp"),
    "interface_in_use_by_floating_ip": (409, "RouterInterfaceInUseByFloatingIP"),
    "interface_in_use_by_route": (409, "RouterInterfaceInUseByRoute"),
    "invalid_input": (400, "InvalidInput"),
    "invalid_ip_for_network": (400, "InvalidIpForNetwork"),
    "invalid_ip_for_subnet": (400, "InvalidIpForSubnet"),
    "invalid_pool": (400, "InvalidAllocationPool"),
    "invalid_quota": (400, "InvalidQuotaValue"),
    "invalid_route": (400, "InvalidRoutes"),
    "invalid_rule": (400, "SecurityGroupInvalidRule"),
    "mac_in_use": (409, "MacAddressInUse"),
    "mtu_conflict": (409, "NetworkMTUSubnetConflict"),
    "network_in_use": (409, "NetworkInUse"),
    "network_not_found": (404, "NetworkNotFound"),
    "no_more_addresses": (409, "IpAddressGenerationFailure"),
    "no_more_macs": (503, "MacAddressGenerationFailure"),
    "over_quota": (409, "OverQuota"),
    "pool_out_of_subnet": (400, "OutOfBoundsAllocationPool"),
    "pools_overlap": (409, "OverlappingAllocationPools"),
    "port_bound": (409, "PortBound"),
    "port_in_use": (409, "PortInUse"),
    "port_not_found": (404, "PortNotFound"),
    "no_network_available": (503, "NoNetworkAvailable"),
    "port_security_conflict": (409, "PortSecurityPortHasSecurityGroup"),
    "router_in_use": (409, "RouterInUse"),
    "router_interface_not_found": (404, "RouterInterfaceNotFound"),
    "router_not_found": (404, "RouterNotFound"),
    "rule_exists": (409, "SecurityGroupRuleExists"),
    "security_group_in_use": (409, "SecurityGroupInUse"),
    "security_group_not_found": (404, "SecurityGroupNotFound"),
    "security_group_rule_not_found": (404, "SecurityGroupRuleNotFound"),
    "segment_in_use": (409, "VlanIdInUse"),
    "service_port_in_use": (409, "ServicePortInUse"),
    "shared_in_use": (409, "InvalidSharedSetting"),
    "subnet_in_use": (409, "SubnetInUse"),
    "subnet_not_found": (404, "SubnetNotFound"),
    "subnet_overlaps": (400, "InvalidInput"),
}
CODES = {
    400: "HTTPBadRequest",
    401: "HTTPUnauthorized",
    403: "PolicyNotAuthorized",
    404: "HTTPNotFound",
    405: "HTTPMethodNotAllowed",
    409: "HTTPConflict",
    413: "HTTPRequestEntityTooLarge",
    415: "HTTPUnsupportedMediaType",
    503: "HTTPServiceUnavailable",
}


class NetworkDialect(Dialect):
    prefix = "/network"
    status = {code: status for code, (status, _) in TYPES.items()}

    def fault(self, status: int, message: str, code: str, version: Version) -> Response:
        """`code` is one of the domain's, or already a type of Neutron's."""
        kind = TYPES[code][1] if code in TYPES else code if code[:1].isupper() else ""
        kind = kind or CODES.get(status, "HTTPInternalServerError")
        return answer({"NeutronError": {"type": kind, "message": message, "detail": ""}}, status)
