"""The networks of one host: links, filters, DHCP, metadata and routers, as the ports that are bound to it need them."""
