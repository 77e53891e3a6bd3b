# What the cloud says about this guest: from a config drive (label config-2), else from the metadata service.
service=http://169.254.169.254/openstack

find_drive() { # leaves what it holds in $run/config, and its device in $run/drive
  drive=$(findfs LABEL=config-2 2>/dev/null || findfs LABEL=CONFIG-2 2>/dev/null) || return 1
  mkdir -p $run/mount
  modprobe -qa isofs vfat nls_cp437 nls_ascii nls_utf8
  mount -t iso9660 -o ro "$drive" $run/mount 2>/dev/null || mount -t vfat -o ro "$drive" $run/mount || return 1
  echo "$drive" >$run/drive
  cp -r $run/mount/openstack $run/config
  umount $run/mount
  say "config drive on $drive"
}

ask_service() { # a few tries: a host may answer a little later than the guest asks
  mkdir -p $run/config/latest
  for _ in 1 2 3 4 5; do
    if ask latest/meta_data.json; then
      ask latest/user_data
      say "metadata service answers"
      return
    fi
    ip route get 169.254.169.254 >/dev/null 2>&1 || break
    sleep 2
  done
  say "no config drive, and no metadata service at 169.254.169.254"
  return 1
}

ask() { # ask PATH: into the same path below $run/config. Debian's busybox crashes at wget's own -T.
  mkdir -p "$run/config/${1%/*}"
  timeout 5 wget -q -O "$run/config/$1.new" "$service/$1" 2>/dev/null && mv "$run/config/$1.new" "$run/config/$1"
}

read_config() {
  [ -s $run/config/latest/meta_data.json ] || return 1
  awk -f $lib/json.awk $run/config/latest/meta_data.json >$json && return
  say "meta_data.json is not JSON; ignored"
  : >$json
}

new_instance() { # another id than at the last boot: this disk was copied, and everything is done as at a first boot
  id=$(value /uuid)
  [ -n "$id" ] && [ "$id" != "$(cat $state/instance-id 2>/dev/null)" ] || return
  rm -rf $state/done $state/dropbear
  echo "$id" >$state/instance-id
  say "instance $id"
}

changed() { # changed NAME: whether the text on stdin differs from the one that NAME was last done with
  mkdir -p $state/done
  sum=$(sha256sum)
  [ "$sum" != "$(cat "$state/done/$1" 2>/dev/null)" ] && echo "$sum" >"$state/done/$1.new"
}

done_with() { mv "$state/done/$1.new" "$state/done/$1"; }

set_hostname() {
  name=$(value /hostname)
  name=${name%%.*}
  [ -n "$name" ] && echo "$name" >/etc/hostname
  hostname -F /etc/hostname
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n::1 localhost\n' "$(hostname)" >/etc/hosts
}

write_files() { # the files of the request: each has a path, and a content beside meta_data.json
  grep -q '^/files/' $json || return
  { grep '^/files/' $json; cat $run/config/content/* 2>/dev/null; } | changed files || return
  number=0
  while path=$(value "/files/$number/path") && [ -n "$path" ]; do
    content=$(value "/files/$number/content_path")
    content=content/${content##*/}
    [ -f "$run/config/$content" ] || ask "$content"
    mkdir -p "$(dirname "$path")"
    if cp "$run/config/$content" "$path"; then say "file $path written"; else say "file $path not written"; fi
    number=$((number + 1))
  done
  done_with files
}

run_user_data() { # once for each instance and text; ssh answers already. The boot goes on after half a minute.
  script=$state/user-data
  [ -s $run/config/latest/user_data ] || return
  changed user-data <$run/config/latest/user_data || return
  case $(od -An -tx1 -N2 $run/config/latest/user_data) in
  " 1f 8b") gunzip -c <$run/config/latest/user_data >$script ;;
  *) cp $run/config/latest/user_data $script ;;
  esac
  chmod 700 $script
  done_with user-data
  [ "$(head -c 2 $script)" = '#!' ] || { say "user data is not a script (it does not begin with #!); ignored"; return; }
  say "user data starts"
  (
    cd /
    $script >/dev/console 2>&1 </dev/null
    say "user data ended with $?"
    : >$run/user-data-ended
  ) &
  for _ in $(seq 300); do
    [ -e $run/user-data-ended ] && return
    usleep 100000
  done
  say "user data still runs"
}
