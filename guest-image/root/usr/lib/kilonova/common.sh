# Shared by everything that runs in the guest.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
lib=/usr/lib/kilonova
state=/var/lib/kilonova # on the root disk
run=/run/kilonova       # of this boot
json=$run/meta_data     # meta_data.json, flattened by json.awk

say() { echo "kilonova: $*" >/dev/console; }

value() { # value PATH [FILE]: one value of a flattened JSON text; nothing where there is none
  awk -F '\t' -v path="$1" '$1 == path { print $2; exit }' "${2:-$json}" 2>/dev/null | unescape
}

unescape() { # line by line: what json.awk has escaped
  while IFS= read -r line; do
    printf '%b\n' "$line"
  done
}
