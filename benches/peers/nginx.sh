#!/usr/bin/env bash
# nginx with a hand-tuned cap, in the foreground: nginx.sh PORT CAP HOST:PORT...
#
# CAP is the number of requests in progress at each replica; what is beyond the sum is refused
# with 503 at once (limit_conn over one zone, least_conn within it). 0 is no cap.
# One worker, nothing buffered, connections kept: what a careful user would set.
set -euo pipefail
port=$1 cap=$2
shift 2
dir=${PEER_DIR:-$(mktemp -d)}
mkdir -p "$dir"
ulimit -n "$(ulimit -Hn)"
files=$(ulimit -n)
[ "$files" != unlimited ] && [ "$files" -le 65536 ] || files=65536
zone='' limit=''
if [ "$cap" -gt 0 ]; then
  zone='limit_conn_zone $server_name zone=gateway:1m;'
  limit="limit_conn gateway $((cap * $#));"
fi
cat > "$dir/nginx.conf" <<CONF
daemon off;
worker_processes 1;
worker_rlimit_nofile $files;
pid $dir/nginx.pid;
error_log $dir/error.log crit;
events { worker_connections $((files / 2)); }
http {
  access_log off;
  client_body_temp_path $dir/body;
  proxy_temp_path $dir/proxy;
  fastcgi_temp_path $dir/fastcgi;
  uwsgi_temp_path $dir/uwsgi;
  scgi_temp_path $dir/scgi;
  client_max_body_size 64m;
  client_body_buffer_size 1m;
  keepalive_requests 1000000;
  $zone
  upstream replicas {
    least_conn;
$(printf '    server %s max_fails=0;\n' "$@")
    keepalive 1024;
    keepalive_requests 1000000;
    keepalive_timeout 4s;
  }
  server {
    listen 127.0.0.1:$port backlog=8192;
    server_name gateway;
    location / {
      $limit
      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
      proxy_next_upstream off;
    }
  }
}
CONF
exec nginx -c "$dir/nginx.conf" -e "$dir/error.log"
