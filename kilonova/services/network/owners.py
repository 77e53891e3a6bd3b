"""The values of a port's `device_owner`, which name its purpose."""

DHCP = "network:dhcp"
ROUTER_INTERFACE = "network:router_interface"
ROUTER_GATEWAY = "network:router_gateway"
FLOATING_IP = "network:floatingip"

OF_THE_NETWORK = "network:"  # those ports carry all projects' traffic: no security groups by default
OF_ROUTERS = (ROUTER_INTERFACE, ROUTER_GATEWAY, FLOATING_IP)


def of_a_server(zone: str) -> str:
    return f"compute:{zone}"
