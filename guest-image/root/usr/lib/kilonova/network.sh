# Interfaces: static addresses where network_data.json gives them, else DHCP. IPv6 comes by router advertisements.

start_network() {
  ip link set lo up
  awk -f $lib/json.awk $run/config/latest/network_data.json 2>/dev/null | awk -f $lib/network.awk >$run/network
  awk '$1 == "dns" { print "nameserver " $2 }' $run/network >$run/dns.static
  for interface in $(interfaces); do
    start_interface "$interface"
  done
  write_resolv_conf
}

interfaces() {
  for path in /sys/class/net/*/device; do
    path=${path%/device}
    [ -e "$path" ] && echo "${path##*/}"
  done
}

start_interface() {
  mac=$(cat "/sys/class/net/$1/address")
  mtu=$(fact link)
  [ "${mtu:-0}" -gt 0 ] && ip link set "$1" mtu "$mtu"
  ip link set "$1" up
  if [ -n "$(fact address)" ]; then
    fact address | while read -r address; do ip addr add "$address" dev "$1"; done
    fact route | while read -r network gateway; do
      ip route add "$network" via "$gateway" dev "$1" || say "$1: no route to $network by $gateway"
    done
    [ -n "$(fact dhcp)" ] || { say "$1: $(fact address | tr '\n' ' ')"; return; }
  elif [ -n "$mtu" ] && ! grep -qi "^dhcp $mac" $run/network; then
    say "$1: up, without IPv4"
    return
  fi
  udhcpc -i "$1" -s $lib/dhcp -t 5 -T 2 -A 10 -b -S -p "$run/udhcpc.$1.pid" -O mtu -O staticroutes \
    -x "hostname:$(hostname)" >/dev/null 2>&1
  say "$1: ${mac}, $(ip -4 addr show dev "$1" | awk '$1 == "inet" { print $2; found = 1 } END { if (!found) print "no DHCP lease yet" }')"
}

fact() { # fact KIND: what network_data.json says about the interface with the address $mac
  awk -v kind="$1" -v mac="$mac" '$1 == kind && $2 == mac { sub(/^[^ ]+ [^ ]+ ?/, ""); print ($0 == "" ? "yes" : $0) }' $run/network
}

stop_interface() {
  [ -f "$run/udhcpc.$1.pid" ] && kill "$(cat "$run/udhcpc.$1.pid")" 2>/dev/null
  rm -f "$run/udhcpc.$1.pid" "$run/dns.$1"
  write_resolv_conf
}

write_resolv_conf() {
  cat $run/dns.* 2>/dev/null | awk '!seen[$0]++' >/run/resolv.conf
}
