"""Networks v2.0: networks, subnets, ports, security groups."""
