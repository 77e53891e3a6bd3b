# Disks. The host names them by their serial: ephemeral0, ephemeral1 …, swap. Every other one is a volume, whose content
# belongs to the user: it is read for its marker, and nothing is written to it.

ext_magic() { [ "$(od -An -tx2 -j1080 -N2 "$1" 2>/dev/null)" = " ef53" ]; }

grow_file_system() { # grow_file_system DEVICE: of a mounted ext4 with blocks of 4 KiB, where its device is larger
  blocks=$(od -An -tu4 -j1028 -N4 "$1")
  sectors=$(cat "/sys/class/block/${1#/dev/}/size")
  [ $((sectors / 8 - blocks)) -lt 256 ] && return
  if /sbin/resize2fs "$1" >/dev/null 2>$run/resize2fs.log; then
    say "file system on $1 grown to $((sectors / 2048)) MiB"
  else
    say "file system on $1 not grown: $(tail -n1 $run/resize2fs.log)"
  fi
}

root_partition() { awk '$2 == "/" && $1 ~ /^\/dev\// { print $1 }' /proc/mounts; }

other_disks() { # without the root disk and CD-ROM drives
  root=$(root_partition)
  for disk in /sys/block/vd* /sys/block/sd*; do
    disk=/dev/${disk##*/}
    [ -b "$disk" ] && [ "${root#"$disk"}" = "$root" ] && [ "$disk" != "$(cat $run/drive 2>/dev/null)" ] && echo "$disk"
  done
}

serial() { cat "/sys/block/${1#/dev/}/serial" 2>/dev/null; }

use_disks() {
  grow_file_system "$(root_partition)"
  for disk in $(other_disks); do
    case $(serial "$disk") in
    ephemeral*) use_ephemeral "$disk" "$(serial "$disk")" ;;
    swap*) use_swap "$disk" ;;
    esac
  done
}

use_ephemeral() { # use_ephemeral DEVICE NAME: formats a blank one, once
  number=${2#ephemeral}
  place=/mnt
  [ "${number:-0}" = 0 ] || place=/mnt$((number + 1))
  mkdir -p "$place"
  if is_blank "$1"; then
    /sbin/mke2fs -q -t ext4 -b 4096 -m 0 -i 65536 -L "$2" "$1" || { say "disk $1: cannot be formatted"; return; }
    say "disk $1: $2 formatted"
  fi
  mount -o noatime "$1" "$place" || { say "disk $1: $2 cannot be mounted"; return; }
  ext_magic "$1" && grow_file_system "$1"
  say "disk $1: $2 at $place"
}

is_blank() { [ "$(head -c 1048576 "$1" | tr -d '\0' | head -c 1 | wc -c)" = 0 ]; }

use_swap() {
  [ "$(dd if="$1" bs=1 skip=4086 count=10 2>/dev/null)" = SWAPSPACE2 ] || mkswap "$1" >/dev/null
  swapon "$1" && say "disk $1: swap"
}

volume_markers() { # what the volumes hold, divided by commas, in the order of their devices
  markers=
  for disk in $(other_disks); do
    case $(serial "$disk") in
    ephemeral* | swap*) ;;
    *) markers="$markers,$(marker_of "$disk")" ;;
    esac
  done
  echo "${markers#,}"
}

marker_of() { # of its file system, of the first of its partitions that has one, else the first line of the device
  for part in /sys/block/"${1#/dev/}"/"${1#/dev/}"*; do
    [ -d "$part" ] && ext_magic "/dev/${part##*/}" && found=$(file_marker "/dev/${part##*/}") && [ -n "$found" ] &&
      echo "$found" && return
  done
  if [ -n "$(mounted_at "$1")" ] || ext_magic "$1"; then
    file_marker "$1"
  elif [ "$(first_line "$1")" = "$(plain "$1")" ]; then # else it is not text
    plain "$1"
  fi
}

mounted_at() { awk -v device="$1" '$1 == device { print $2; exit }' /proc/mounts; }

file_marker() { # file_marker DEVICE: the first line of the file `marker` in its ext4 file system
  where=$(mounted_at "$1")
  if [ -n "$where" ]; then
    plain "$where/marker"
    return
  fi
  mkdir -p $run/volume
  mount -t ext4 -o ro "$1" $run/volume 2>/dev/null || mount -t ext4 -o ro,noload "$1" $run/volume || return
  plain $run/volume/marker
  umount $run/volume
}

first_line() { head -c 256 "$1" 2>/dev/null | tr '\0' '\n' | head -n 1; }

plain() { first_line "$1" | tr -cd ' -~'; } # printable characters only
