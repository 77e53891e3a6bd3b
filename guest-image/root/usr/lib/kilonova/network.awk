# From a flattened network_data.json to one line per fact, by the MAC address of the interface:
#   link MAC MTU · dhcp MAC · address MAC IP/LENGTH · route MAC NETWORK/LENGTH GATEWAY · dns IP
# An MTU that is not given is 0.
BEGIN {
  FS = "\t"
  ones["8"] = 1; ones["c"] = 2; ones["e"] = 3; ones["f"] = 4 # leading bits of a hexadecimal digit of a mask
}

{
  count = split($1, path, "/") # path[1] is empty
  field = path[count]
  value[$1] = $2
  if (path[2] == "links" && count == 4 && field == "id") links[++last_link] = path[3]
  if (path[2] == "networks" && count == 4 && field == "link") networks[++last_network] = path[3]
  if (field == "address" && value[parent($1) "/type"] == "dns") dns($2)
  if (field == "type" && $2 == "dns" && value[parent($1) "/address"] != "") dns(value[parent($1) "/address"])
}

END {
  for (n = 1; n <= last_link; n++) {
    at = "/links/" links[n]
    mac[value[at "/id"]] = tolower(value[at "/ethernet_mac_address"])
    print "link", mac[value[at "/id"]], value[at "/mtu"] + 0
  }
  for (n = 1; n <= last_network; n++) network("/networks/" networks[n])
}

function network(at,   owner, kind, address, route) {
  owner = mac[value[at "/link"]]
  kind = value[at "/type"]
  if (owner == "") return
  if (kind == "ipv4_dhcp") print "dhcp", owner
  if (kind != "ipv4" && kind != "ipv6") return # IPv6 by router advertisements: the kernel does it
  address = value[at "/ip_address"]
  if (address !~ /\//) address = address "/" len(value[at "/netmask"])
  print "address", owner, address
  for (route = 0; (at "/routes/" route "/network") in value; route++) routed(owner, at "/routes/" route)
  if (value[at "/gateway"] != "") print "route", owner, (kind == "ipv4" ? "0.0.0.0/0" : "::/0"), value[at "/gateway"]
}

function routed(owner, at,   target) {
  target = value[at "/network"]
  if (target !~ /\//) target = target "/" len(value[at "/netmask"])
  print "route", owner, target, value[at "/gateway"]
}

# The length of a prefix, from a length or a mask (255.255.0.0, ffff:ffff::).
function len(mask,   bits, n, pieces, byte) {
  if (mask !~ /[.:]/) return mask + 0
  if (mask ~ /:/) for (n = 1; n <= length(mask); n++) bits += ones[tolower(substr(mask, n, 1))]
  else for (n = split(mask, pieces, "."); n > 0; n--) for (byte = pieces[n] + 0; byte > 0; byte = byte * 2 % 256) bits++
  return bits + 0
}

function parent(path) { sub(/\/[^\/]*$/, "", path); return path }

function dns(address) { if (!(address in seen)) print "dns", address; seen[address] = 1 }
