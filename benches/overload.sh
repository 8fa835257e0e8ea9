#!/usr/bin/env bash
# Weir beside nginx and HAProxy with hand-tuned caps, under open-loop overload, in one run.
#
#   benches/overload.sh          about ten minutes; DURATION=60 for figures to keep
#
# Four simulated replicas. First the capacity is found: a closed loop at several in-flight
# counts, through nginx without a cap; the best of them is the knee in flight, and its rate the
# knee that the loads below are multiples of. Then each peer's cap is tuned at 1.5 x that rate
# by trying several. Then every load is run through every proxy in turn, with the same requests.
#
#   DURATION  seconds measured a run (20)     WARM_UP  seconds before that (4)
#   LOADS     multiples of the knee           IN_FLIGHT  counts a replica to search ("48 64 96 112 128")
#   KNEE      "RATE IN_FLIGHT" where it is known already: no search
#   CAPS      multiples of the knee in flight to tune the peers with ("0.85 1 1.15")
#   INPUT, OUTPUT, SPREAD  tokens and their relative half width (1000, 100, 0.2)
#   TTFT, TPOT  the SLO (1s, 60ms)            RETRIES  of the clients (0)
#   SPEED     of the engines (1): lower it where the machine is short of CPU
#   PROXIES   which to run ("nginx haproxy weir")
#   RESULTS   folder for the JSON of every run
#   WEIR      a binary to use instead of building one
#
# The machine must have CPU to spare: the column cpu% is of the whole machine, and rows of runs
# over 90 % or with a late generator say nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

duration=${DURATION:-20} warm_up=${WARM_UP:-4}
read -ra loads <<< "${LOADS:-0.5 0.8 1.0 1.5 2 3}"
read -ra in_flights <<< "${IN_FLIGHT:-48 64 96 112 128}"
read -ra caps <<< "${CAPS:-0.85 1 1.15}"
read -ra proxies <<< "${PROXIES:-nginx haproxy weir}"
input=${INPUT:-1000} output=${OUTPUT:-100} spread=${SPREAD:-0.2}
ttft=${TTFT:-1s} tpot=${TPOT:-60ms} retries=${RETRIES:-0} speed=${SPEED:-1}
results=${RESULTS:-$(mktemp -d)}
ports=(18101 18102 18103 18104) front=18180 admin=18190
work=$(mktemp -d)
mkdir -p "$results"
ulimit -n "$(ulimit -Hn)"

weir=${WEIR:-}
if [ -z "$weir" ]; then
  cargo build --release --quiet
  weir=${CARGO_TARGET_DIR:-target}/release/weir
fi
benches/peers/setup.sh

started=()
finish() {
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

backends=()
for port in "${ports[@]}"; do backends+=("127.0.0.1:$port"); done

accepts() { # PORT
  for _ in $(seq 100); do
    if (exec 3<> "/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
    sleep 0.1
  done
  echo "nothing accepts on port $1; see $work" >&2
  exit 1
}

proxy_pid=
start_proxy() { # NAME CAP
  case $1 in
    weir)
      printf '%s\n' '[server]' "listen = \"127.0.0.1:$front\"" "admin = \"127.0.0.1:$admin\"" \
        '[[pools]]' 'model = "tiny"' \
        "replicas = [$(printf '"http://%s",' "${backends[@]}" | sed 's/,$//')]" \
        "slo = { ttft = \"$ttft\", tpot = \"$tpot\" }" \
        '[pools.limits]' "in_flight = $2" "queue_wait = \"${QUEUE_WAIT:-400ms}\"" \
        > "$work/weir.toml"
      "$weir" serve --config "$work/weir.toml" > "$work/weir.log" 2>&1 &
      ;;
    *) PEER_DIR=$work/$1 "benches/peers/$1.sh" "$front" "$2" "${backends[@]}" \
      > "$work/$1.log" 2>&1 & ;;
  esac
  proxy_pid=$!
  started+=("$proxy_pid")
  accepts "$front"
}

stop_proxy() {
  kill -INT "$proxy_pid" 2>/dev/null || true
  sleep 0.2
  kill -TERM "$proxy_pid" 2>/dev/null || true
  wait "$proxy_pid" 2>/dev/null || true
}

cpu() { awk '/^cpu /{print $2+$3+$4+$6+$7+$8+$9, $2+$3+$4+$5+$6+$7+$8+$9}' /proc/stat; }

# The row of one run, with the machine's CPU use as a 14th cell and any "VOID" behind it.
load() { # SECONDS NAME ARG...
  local seconds=$1 name=$2 before after row
  shift 2
  before=$(cpu)
  row=$("$weir" load --url "http://127.0.0.1:$front" --model tiny --input "$input" \
    --output "$output" --spread "$spread" --slo-ttft "$ttft" --slo-tpot "$tpot" \
    --retries "$retries" --warm-up "${warm_up}s" --duration "${seconds}s" --grace 15s \
    --json "$results/$name.json" "$@" | tail -1) || true
  after=$(cpu)
  awk -v row="$row" -v a="$before" -v b="$after" 'BEGIN {
    split(a, x); split(b, y); n = split(row, cell)
    for (i = 1; i <= 13; i++) printf "%s ", cell[i]
    printf "%.0f", 100 * (y[1] - x[1]) / (y[2] - x[2])
    for (i = 14; i <= n; i++) printf " %s", cell[i]
    print "" }'
}

times() { awk "BEGIN { printf \"$3\", $1 * $2 }"; }
more() { awk "BEGIN { exit !($1 > $2) }"; }

"$weir" replica --port "${ports[0]}" --count "${#ports[@]}" --model tiny --speed "$speed" \
  > "$work/replica.log" 2>&1 &
started+=("$!")
for port in "${ports[@]}"; do accepts "$port"; done

knee=0 knee_rate=0
if [ -n "${KNEE:-}" ]; then
  read -r knee_rate knee <<< "$KNEE"
else
  echo "knee, by a closed loop without a cap (requests/s that met the SLO):"
  start_proxy nginx 0
  for in_flight in "${in_flights[@]}"; do
    row=$(load "$duration" "closed-$in_flight" --clients $((in_flight * ${#ports[@]})))
    read -r -a cell <<< "$row"
    echo "  $in_flight in flight: ${cell[1]} good/s of ${cell[3]}, ttft p95 ${cell[7]} ms, cpu ${cell[13]} %"
    if more "${cell[1]}" "$knee_rate * 1.01"; then knee=$in_flight knee_rate=${cell[1]}; fi
  done
  stop_proxy
fi
echo "knee: $knee_rate requests/s with $knee in flight a replica"

declare -A cap_of
cap_of[weir]=$(times "$knee" 1.05 "%.0f")
for proxy in "${proxies[@]}"; do
  [ "$proxy" != weir ] || continue
  best=0
  for factor in "${caps[@]}"; do
    cap=$(times "$knee" "$factor" "%.0f")
    start_proxy "$proxy" "$cap"
    row=$(load $((duration / 2)) "tune-$proxy-$cap" --rate "$(times "$knee_rate" 1.5 "%.2f")")
    stop_proxy
    read -r -a cell <<< "$row"
    echo "  $proxy with cap $cap at 1.5 x: ${cell[1]} good/s"
    if more "${cell[1]}" "$best" || [ -z "${cap_of[$proxy]:-}" ]; then
      best=${cell[1]} cap_of[$proxy]=$cap
    fi
  done
done

echo
format='%5s %-8s %4s %9s %8s %7s %9s %9s %9s %11s %6s %8s %5s %s\n'
# shellcheck disable=SC2059
printf "$format" load proxy cap offered/s good/s %ofcaps ttft_p95 ttft_p99 shed_p99 retry_after% errors late_p99 cpu% ''
for factor in "${loads[@]}"; do
  best=0
  for proxy in "${proxies[@]}"; do
    start_proxy "$proxy" "${cap_of[$proxy]}"
    row=$(load "$duration" "$factor-$proxy" --rate "$(times "$knee_rate" "$factor" "%.2f")")
    stop_proxy
    read -r -a cell <<< "$row"
    if [ "$proxy" != weir ] && more "${cell[1]}" "$best"; then best=${cell[1]}; fi
    share=$(awk "BEGIN { if ($best > 0) printf \"%.1f\", 100 * ${cell[1]} / $best; else print \"-\" }")
    # shellcheck disable=SC2059
    printf "$format" "$factor" "$proxy" "${cap_of[$proxy]}" "${cell[0]}" "${cell[1]}" "$share" \
      "${cell[7]}" "${cell[8]}" "${cell[10]}" "${cell[11]}" "${cell[5]}" "${cell[12]}" \
      "${cell[13]}" "${cell[*]:14}"
  done
done
echo "JSON of every run: $results"
