#!/bin/sh
# Makes the users and folders of {{ name }}'s services, moves this kit there, and starts the units. As root, in this folder, once.
set -eu
if [ -e /var/lib/{{ state }} ]; then
  echo "/var/lib/{{ state }} exists: what is in it is not overwritten" >&2
  exit 1
fi
units=precad-{{ name }}.service group={{ user }} mode=0700
add_user() {
  id "$1" >/dev/null 2>&1 || useradd --system --user-group --no-create-home --home-dir / --shell /usr/sbin/nologin "$1"
}
# A part of Flower: its user, and a folder with the files that it alone needs, which nobody else reads.
add_part() {
  part=$1 user=precad-$1 folder=/var/lib/{{ state }}-$1
  shift
  add_user "$user"
  install -d -m 0700 -o "$user" -g "$user" "$folder"
  cp -R "$@" "$folder"
  chown -R "$user:$user" "$folder"
  chmod -R go= "$folder"
  units="$units precad-{{ name }}-$part.service"
}
add_user {{ user }}
{% if role == "A" %}
add_user precad-superexec
group=precad-superexec mode=0710  # the app's user passes through to the socket, and reads nothing
if [ -e gateway.key ]; then
  mkdir -p nodes
  add_part superlink superlink.pem superlink.key superexec.secret
  add_part superexec superlink.pem superexec.secret
  add_part gateway superlink.pem gateway.pem gateway.key gateway.toml nodes
  rm superlink.key gateway.key superexec.secret
fi
{% elif role == "client" %}
if [ -e {{ name }}.node.key ]; then
  units=precad-{{ name }}-keeper.service
  add_part supernode {{ name }}.node.key gateway.pem superexec.secret
  add_part superexec superexec.secret
  group=precad-superexec mode=0710  # the app's user passes through to the socket, and reads nothing
  rm {{ name }}.node.key superexec.secret
fi
{% endif %}
for unit in $units; do
  install -m 0644 "$unit" /etc/systemd/system/
done
install -d -m 0700 /var/lib/{{ state }}
mv -- * /var/lib/{{ state }}/
chown -R {{ user }}:$group /var/lib/{{ state }}
chmod -R go= /var/lib/{{ state }}
chmod $mode /var/lib/{{ state }}
systemctl daemon-reload
systemctl enable --now $units
