# Who may enter: public keys and the administrator's password, for root and for the user guest.

set_keys() { # what the cloud says now counts: a rebuild with another key shuts the old one out
  [ -s $json ] || return
  awk -F '\t' 'index($1, "/public_keys/") == 1 { print $2 }' $json | unescape | grep . | sort -u >$run/keys
  changed keys <$run/keys || return
  for home in /root /var/guest; do
    mkdir -p $home/.ssh
    cp $run/keys $home/.ssh/authorized_keys
    chmod 700 $home/.ssh
    chmod 600 $home/.ssh/authorized_keys
  done
  chown -R guest:guest /var/guest
  done_with keys
  say "$(wc -l <$run/keys) public keys"
}

set_password() { # once: whoever changes it in the guest keeps the new one
  password=$(value /admin_pass)
  [ -n "$password" ] || return
  last=$(cat $state/done/password 2>/dev/null)
  salt=${last#\$6\$}
  salt=${salt%%\$*}
  hash=$(printf '%s' "$password" | mkpasswd -m sha512 -P 0 ${salt:+-S "$salt"})
  [ "$hash" = "$last" ] && return
  awk -F: -v OFS=: -v hash="$hash" '$1 == "root" || $1 == "guest" { $2 = hash } { print }' /etc/shadow >/etc/shadow.new
  mv /etc/shadow.new /etc/shadow
  mkdir -p $state/done
  echo "$hash" >$state/done/password
  say "password of root and guest set"
}

start_ssh() { # with a key of its own for each instance: a copied disk must not speak with another guest's voice
  mkdir -p $state/dropbear
  key=$state/dropbear/ed25519 # the quickest to make; every client of today knows it
  [ -s $key ] || dropbearkey -t ed25519 -f $key >/dev/null 2>&1
  say "host key $(dropbearkey -y -f $key 2>/dev/null | sed -n 's/^Fingerprint: //p')"
  dropbear -r $key -P $run/dropbear.pid
  for _ in $(seq 50); do
    nc -w 2 127.0.0.1 22 </dev/null 2>/dev/null | head -c 4 | grep -q SSH- && return
    usleep 100000
  done
  say "ssh does not answer"
}
