#!/usr/bin/env bash
# Where fixed caps lose: Weir beside nginx and HAProxy, whose caps were tuned once on the base mix.
#
#   benches/hard.sh              all situations, about half an hour; DURATION=20 for a look
#
# Four simulated replicas of 64 sequences. The peers' caps are tuned on the base mix at 1.2 x; then
# every situation is run through every proxy in turn, with the same requests. A cell is the share
# of what was *offered* that met its class's SLO; "reach" is the figure to come near to. Loads and
# KV sizes of the rows "prefixes" and "long" are first guesses, not yet set against a measured knee.
# One seed is one draw: gaps under 4 points mean nothing.
#
#   ROWS      situations, in their order below ("base-1.2 base-2 rag-heavy slower one-slow bursts
#             retries tenants prefixes long refuses hangs")
#   PROXIES   which to run ("nginx haproxy weir")
#   SEEDS     draws of each ("1")             DURATION, WARM_UP  seconds a run (60, 5)
#   CAPACITY  requests/s of the base mix (185)   CAPS  peers' caps a replica to try ("24 32 40 48 56")
#   NGINX_CAP, HAPROXY_CAP  caps that are known already: not tuned
#   IN_FLIGHT  Weir's limit a replica (48)    QUEUE_WAIT (400ms)
#   WEIR_EXTRA  a file with more of Weir's configuration, put behind the bench's own
#   RESULTS   folder for the JSON of every run
#   WEIR      a binary to use instead of building one
#
# The machine must have CPU to spare; VOID behind a row says that the generator had not.
set -euo pipefail
cd "$(dirname "$0")/.."

read -ra rows <<< "${ROWS:-base-1.2 base-2 rag-heavy slower one-slow bursts retries tenants prefixes long refuses hangs}"
read -ra proxies <<< "${PROXIES:-nginx haproxy weir}"
read -ra seeds <<< "${SEEDS:-1}"
read -ra caps <<< "${CAPS:-24 32 40 48 56}"
duration=${DURATION:-60} warm_up=${WARM_UP:-5} capacity=${CAPACITY:-185}
in_flight=${IN_FLIGHT:-48} queue_wait=${QUEUE_WAIT:-400ms}
results=${RESULTS:-$(mktemp -d)}
ports=(18101 18102 18103 18104) front=18180 admin=18190
workloads=benches/workloads
work=$(mktemp -d)
mkdir -p "$results"
ulimit -n "$(ulimit -Hn)"

weir=${WEIR:-}
if [ -z "$weir" ]; then
  cargo build --release --quiet
  weir=${CARGO_TARGET_DIR:-target}/release/weir
fi
for proxy in "${proxies[@]}"; do
  [ "$proxy" = weir ] || { benches/peers/setup.sh; break; }
done

running=()
finish() {
  for pid in "${running[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

accepts() { # PORT
  for _ in $(seq 100); do
    if (exec 3<> "/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
    sleep 0.1
  done
  echo "nothing accepts on port $1; see $work" >&2
  exit 1
}

free() { # PORT
  for _ in $(seq 100); do
    if ! (exec 3<> "/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
    sleep 0.1
  done
}

stop() { # PID
  kill -TERM "$1" 2>/dev/null || true
  sleep 0.2
  kill -TERM "$1" 2>/dev/null || true # weir and HAProxy: at once, not drained
  wait "$1" 2>/dev/null || true
}

replicas=()
start_replicas() { # SPEED SPEED_OF_FIRST ARG...
  local speed=$1 first=$2 number of
  shift 2
  replicas=()
  for number in 0 1 2 3; do
    of=$speed
    [ "$number" != 0 ] || of=$first
    "$weir" replica --port "${ports[$number]}" --model tiny --max-num-seqs 64 --speed "$of" \
      --single-thread --seed "$number" "$@" > "$work/replica-$number.log" 2>&1 &
    replicas+=("$!")
    running+=("$!")
  done
  for port in "${ports[@]}"; do accepts "$port"; done
}

stop_replicas() {
  for pid in "${replicas[@]}"; do stop "$pid"; done
  for port in "${ports[@]}"; do free "$port"; done
}

backends=()
for port in "${ports[@]}"; do backends+=("127.0.0.1:$port"); done

weir_config() { # ROW
  printf '%s\n' '[server]' "listen = \"127.0.0.1:$front\"" "admin = \"127.0.0.1:$admin\"" \
    '[[pools]]' 'model = "tiny"' \
    "replicas = [$(printf '"http://%s",' "${backends[@]}" | sed 's/,$//')]" \
    'slo = { ttft = "1s", tpot = "50ms" }' \
    '[pools.limits]' "in_flight = $in_flight" "queue_wait = \"$queue_wait\"" \
    '[[classes]]' 'name = "chat"' 'share = 0.6' 'slo = { ttft = "1s", tpot = "50ms" }' \
    'match = { headers = { x-class = "chat" } }' \
    '[[classes]]' 'name = "rag"' 'share = 0.15' 'slo = { ttft = "2.5s", tpot = "50ms" }' \
    'match = { headers = { x-class = "rag" } }' \
    '[[classes]]' 'name = "agent"' 'share = 0.25' 'slo = { ttft = "1.5s", tpot = "50ms" }' \
    'match = { headers = { x-class = "agent" } }'
  if [ "$1" = tenants ]; then
    for tenant in a b; do
      printf '%s\n' '[[tenants]]' "name = \"$tenant\"" \
        "keys = [\"$("$weir" key hash <<< "wr-bench-$tenant" | tail -1)\"]"
    done
  fi
  [ -z "${WEIR_EXTRA:-}" ] || cat "$WEIR_EXTRA"
}

proxy_pid=
start_proxy() { # NAME CAP ROW
  case $1 in
    weir)
      weir_config "$3" > "$work/weir.toml"
      "$weir" serve --config "$work/weir.toml" > "$work/weir.log" 2>&1 &
      ;;
    *) PEER_DIR=$work/$1 "benches/peers/$1.sh" "$front" "$2" "${backends[@]}" \
      > "$work/$1.log" 2>&1 & ;;
  esac
  proxy_pid=$!
  running+=("$proxy_pid")
  accepts "$front"
}

stop_proxy() {
  stop "$proxy_pid"
  free "$front"
}

times() { awk "BEGIN { printf \"$3\", $1 * $2 }"; }
more() { awk "BEGIN { exit !($1 > $2) }"; }

# The generator's row, then "VOID" where it was so.
load() { # NAME WORKLOAD RATE SEED SECONDS
  "$weir" load --url "http://127.0.0.1:$front" --model tiny --workload "$workloads/$2.toml" \
    --rate "$3" --seed "$4" --warm-up "${warm_up}s" --duration "${5}s" --grace 15s \
    --json "$results/$1.json" > "$results/$1.txt" || true
  sed -n 2p "$results/$1.txt"
}

fault() { # JSON: to the first replica, after a third of the measured window
  sleep "$(awk "BEGIN { print $warm_up + $duration / 3 }")"
  curl -sf -X POST "http://127.0.0.1:${ports[0]}/fault" -H 'content-type: application/json' \
    -d "$1" > /dev/null || echo "the fault was not taken" >&2
}

declare -A cap_of=([weir]=$in_flight)
[ -z "${NGINX_CAP:-}" ] || cap_of[nginx]=$NGINX_CAP
[ -z "${HAPROXY_CAP:-}" ] || cap_of[haproxy]=$HAPROXY_CAP
for proxy in "${proxies[@]}"; do
  [ -z "${cap_of[$proxy]:-}" ] || continue
  best=-1
  for cap in "${caps[@]}"; do
    start_replicas 1 1
    start_proxy "$proxy" "$cap" base
    row=$(load "tune-$proxy-$cap" base "$(times "$capacity" 1.2 "%.2f")" 99 $((duration / 2 + 1)))
    stop_proxy
    stop_replicas
    read -r -a cell <<< "$row"
    echo "$proxy with cap $cap on the base mix at 1.2 x: ${cell[2]} %"
    if more "${cell[2]}" "$best"; then best=${cell[2]} cap_of[$proxy]=$cap; fi
  done
done

# ROW -> workload, multiple of the capacity, speed, speed of the first, reach, replica arguments.
describe() {
  local large='--num-gpu-blocks 4096'
  case $1 in
    base-1.2) echo "base 1.2 1 1 82 $large" ;;
    base-2) echo "base 2 1 1 50 $large" ;;
    rag-heavy) echo "rag-heavy 1 1 1 64 $large" ;;
    slower) echo "base 1 0.741 0.741 73 $large" ;;
    one-slow) echo "base 0.7 1 0.25 98 $large" ;;
    bursts) echo "bursts 0.4 1 1 98 $large" ;;
    retries) echo "retries 1.5 1 1 66 $large" ;;
    tenants) echo "tenants 2.3 1 1 99 $large" ;;
    # KV for about a third of the shared heads a replica; 340 requests/s.
    prefixes) echo "prefixes 1.84 1 1 97 --num-gpu-blocks 2600" ;;
    long) echo "long-outputs ${LONG_LOAD:-0.13} 1 1 70 --num-gpu-blocks 1400" ;;
    refuses) echo "base 0.6 1 1 98.5 $large" ;;
    hangs) echo "base 0.6 1 1 97.5 $large" ;;
    *) echo "no situation is called $1" >&2; return 1 ;;
  esac
}

# The cell of a run: goodput in % of offered (of tenant a alone in that row).
share() { # ROW NAME
  if [ "$1" = tenants ]; then
    awk '$1 == "a" { print $4 }' "$results/$2.txt"
  else
    awk 'NR == 2 { print $3 }' "$results/$2.txt"
  fi
}

mean() { awk '{ sum += $1; n++ } END { if (n) printf "%.1f", sum / n; else print "-" }'; }

echo
printf '%-10s %6s' situation load
for proxy in "${proxies[@]}"; do printf ' %10s' "$proxy"; done
printf ' %7s %6s\n' reach tries
for row in "${rows[@]}"; do
  described=$(describe "$row")
  read -r workload factor speed first reach arguments <<< "$described"
  read -ra arguments <<< "$arguments"
  printf '%-10s %6s' "$row" "$factor"
  void=
  for proxy in "${proxies[@]}"; do
    for seed in "${seeds[@]}"; do
      name=$row-$proxy-$seed
      start_replicas "$speed" "$first" "${arguments[@]}"
      start_proxy "$proxy" "${cap_of[$proxy]}" "$row"
      faulting=
      case $row in
        refuses) fault '{"fault":"refuse","for_ms":5000}' & faulting=$! ;;
        hangs) fault '{"fault":"hang","for_ms":5000}' & faulting=$! ;;
      esac
      load "$name" "$workload" "$(times "$capacity" "$factor" "%.2f")" "$seed" "$duration" \
        > "$work/row"
      if grep -q VOID "$work/row"; then void="$void $name"; fi
      [ -z "$faulting" ] || wait "$faulting" || true
      stop_proxy
      stop_replicas
      share "$row" "$name" >> "$work/$row-$proxy"
    done
    printf ' %10s' "$(mean < "$work/$row-$proxy")"
  done
  # Attempts a request of the last proxy's last run: the clients' cost of being refused.
  tries=$(awk '$1 == "chat" { print $7 }' "$results/$name.txt")
  printf ' %7s %6s%s\n' "$reach" "${tries:--}" "${void:+  VOID:$void}"
done
echo "JSON of every run: $results"
