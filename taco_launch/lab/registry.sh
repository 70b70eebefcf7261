#!/bin/sh
# Makes the registry host's certificate authority, certificate and password where they are missing, starts Debian's
# docker-registry with them, and prints the password and the authority's certificate. Arguments: lab, address, port.
set -eu
lab=$1 address=$2 port=$3
umask 077
mkdir -p /etc/docker/registry/lab
cd /etc/docker/registry/lab
changed=

if ! [ -s server.crt ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=taco-launch lab $lab" \
    -keyout ca.key -out ca.crt 2>/dev/null
  printf 'subjectAltName=DNS:registry,IP:%s\nextendedKeyUsage=serverAuth\n' "$address" >extensions
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=registry -keyout server.key -out request \
    2>/dev/null
  openssl x509 -req -in request -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile extensions -out new.crt \
    2>/dev/null
  mv new.crt server.crt
  changed=yes
fi
if ! [ -s htpasswd ]; then
  openssl rand -hex 16 >password
  htpasswd -i -B -c new.htpasswd lab <password 2>/dev/null
  mv new.htpasswd htpasswd
  changed=yes
fi
if ! [ -s auth.json ]; then # what skopeo logs in with
  printf '{"auths": {"registry:%s": {"auth": "%s"}}}\n' "$port" "$(printf 'lab:%s' "$(cat password)" | base64 -w 0)" \
    >new.json
  mv new.json auth.json
fi
if [ "$(stat -c %U /var/lib/docker-registry)" != docker-registry ]; then
  chown -R docker-registry: /var/lib/docker-registry # written by a registry whose user had another number
fi
if [ -n "$changed" ] || ! systemctl -q is-active docker-registry; then
  cat >/etc/docker/registry/config.yml <<CONFIG
version: 0.1
storage:
  delete: {enabled: true}
  filesystem: {rootdirectory: /var/lib/docker-registry}
http:
  addr: :$port
  tls: {certificate: /etc/docker/registry/lab/server.crt, key: /etc/docker/registry/lab/server.key}
auth:
  htpasswd: {realm: lab, path: /etc/docker/registry/lab/htpasswd}
CONFIG
  chown -R docker-registry: /etc/docker/registry
  chmod 755 /etc/docker /etc/docker/registry
  chmod 644 /etc/docker/registry/config.yml
  systemctl -q enable docker-registry 2>/dev/null
  systemctl restart docker-registry
fi
cat password ca.crt
