#!/usr/bin/env bash
# Weir before two real vLLM replicas, called by real clients. Installs what it needs outside the
# repository, prints a table at the end, and exits 1 when a check fails.
#
# usage: tests/acceptance/vllm.sh [CHECK...]     all checks when none is named; --list names them
#
# Takes about ten minutes, most of it waiting for replicas to start (a minute or two each).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export VLLM_DIR=${VLLM_DIR:-$HOME/.cache/vllm-cpu}
"$here/setup.sh"
cargo build --release --quiet --manifest-path "$root/Cargo.toml"
target=${CARGO_TARGET_DIR:-$root/target}
exec "$VLLM_DIR/env/bin/python" "$here/checks.py" --weir "$target/release/weir" "$@"
