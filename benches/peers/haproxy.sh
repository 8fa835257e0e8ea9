#!/usr/bin/env bash
# HAProxy with a hand-tuned cap, in the foreground: haproxy.sh PORT CAP HOST:PORT...
#
# CAP is maxconn at each replica; what is beyond it waits in HAProxy for QUEUE_WAIT_MS
# (default 500) and is then refused with 503. 0 is no cap. One thread, connections reused.
set -euo pipefail
port=$1 cap=$2
shift 2
dir=${PEER_DIR:-$(mktemp -d)}
mkdir -p "$dir"
ulimit -n "$(ulimit -Hn)"
files=$(ulimit -n)
[ "$files" != unlimited ] && [ "$files" -le 65536 ] || files=65536
limit=''
[ "$cap" -eq 0 ] || limit="maxconn $cap"
{
  cat <<CONF
global
  maxconn $((files / 2 - 100))
  nbthread 1
defaults
  mode http
  balance leastconn
  http-reuse always
  option http-no-delay
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  timeout queue ${QUEUE_WAIT_MS:-500}ms
frontend gateway
  bind 127.0.0.1:$port backlog 8192
  default_backend replicas
backend replicas
  option httpchk GET /health
CONF
  number=0
  for replica in "$@"; do
    echo "  server r$number $replica $limit check inter 2s pool-max-conn -1"
    number=$((number + 1))
  done
} > "$dir/haproxy.cfg"
exec haproxy -q -db -f "$dir/haproxy.cfg"
