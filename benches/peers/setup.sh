#!/usr/bin/env bash
# Installs the peers that Weir is measured beside: nginx and HAProxy, from Debian.
set -euo pipefail
if command -v nginx >/dev/null && command -v haproxy >/dev/null; then
  exit 0
fi
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends nginx haproxy
