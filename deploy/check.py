"""Checks everything under deploy/ without a cluster, and writes what is made from something else.

    check.py [--write] [--weir PATH] [--tools DIR]

Made from something else (`--write` makes it again; without, it must stand as it would be made):
the chart's copies of rules and dashboard, and the manifests in kubernetes/ that are the chart
rendered with its default values.

Needs the Python packages PyYAML and kubernetes-validate, and helm, kubectl, docker-compose and
node: `deploy/tools.sh DIR` brings them (but node). What is missing is skipped, and said: each
such line begins with "skipped:".
"""

import argparse
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

import yaml

DEPLOY = pathlib.Path(__file__).resolve().parent
CHART = DEPLOY / "helm/weir"
KUBE = DEPLOY / "kubernetes"
KUBERNETES = "1.35"
# What a chart may be installed with, each alone and all together.
SWITCHES = [
    "scaling.enabled=true",
    "monitoring.serviceMonitor=true,monitoring.prometheusRule=true,monitoring.dashboard=true",
    "rbac.endpointSlices=true",
    "autoscaling.enabled=false",
    "networkPolicy.enabled=false",
    "secret.existing=,secret.data.admin-token=x,secret.data.vllm-api-key=y",
    "image.digest=sha256:" + 64 * "0",
]
# Custom resources, and the npm package that knows their schema.
CUSTOM = {
    "ServiceMonitor": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1",
    "PrometheusRule": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1",
    "ScaledObject": "@kubernetes-models/keda/keda.sh/v1alpha1",
}

faults = []


def fault(text):
    faults.append(text)
    print(f"FAULT: {text}", flush=True)


def ok(text):
    print(f"ok: {text}", flush=True)


def have(tool, what):
    if shutil.which(tool):
        return True
    print(f"skipped: {what}: there is no {tool}", flush=True)
    return False


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        fault(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def template(*options):
    return run("helm", "template", "weir", CHART, "--namespace", "weir", *options)


def without_helm(text):
    """Rendered manifests without helm's notes of where each came from."""
    return "".join(line for line in text.splitlines(True) if not line.startswith("# Source: "))


def made():
    """Each file that is made from something else, and what it must hold."""
    sys.path.insert(0, str(DEPLOY / "grafana"))
    import dashboard

    yield DEPLOY / "grafana/weir.json", dashboard.text()
    yield CHART / "files/weir.rules.yaml", (DEPLOY / "prometheus/weir.rules.yaml").read_text()
    yield CHART / "files/weir-dashboard.json", (DEPLOY / "grafana/weir.json").read_text()
    if not have("helm", "the chart, and manifests made from it"):
        return
    head = "# Made from the chart by deploy/check.py --write.\n"
    yield KUBE / "base/weir.yaml", head + without_helm(template())
    watched = template("--set", SWITCHES[1], "-s", "templates/monitoring.yaml")
    yield KUBE / "monitoring/monitoring.yaml", head + without_helm(watched)
    scaled = template("--set", SWITCHES[0], "-s", "templates/scaledobject.yaml")
    yield KUBE / "vllm/scaling.yaml", head + without_helm(scaled)


def stands(write):
    for path, text in made():
        if write:
            path.write_text(text)
        if path.exists() and path.read_text() == text:
            ok(f"{path.relative_to(DEPLOY)} is as it would be made")
        else:
            fault(f"{path.relative_to(DEPLOY)} is not what it is made from: check.py --write")


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def manifests():
    """What a cluster would be given: (where from, documents)."""
    if shutil.which("helm"):
        run("helm", "lint", "--strict", CHART)
        for switch in [*SWITCHES, ",".join(SWITCHES)]:
            yield f"chart with {switch}", documents(template("--set", switch))
    if have("kubectl", "kustomize"):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "kubernetes"
            shutil.copytree(KUBE, copy)
            shutil.copy(copy / "trial/secrets.env.example", copy / "trial/secrets.env")
            for kustomization in sorted(KUBE.glob("*/kustomization.yaml")):
                name = kustomization.parent.name
                yield f"kubernetes/{name}", documents(run("kubectl", "kustomize", copy / name))


def against_schema(where, document):
    """Every key is known and every value of its type."""
    import kubernetes_validate

    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        at = ".".join(str(part) for part in error.path)
        fault(f"{where}: {document['kind']} {document['metadata']['name']}: {at}: {error.message}")


def custom_resources(found, tools):
    """Validates what is not of Kubernetes itself, in one run of node."""
    if not have("node", "schemas of custom resources"):
        return
    lines = [
        f'import {{{kind}}} from "{package}/{kind}";' for kind, package in CUSTOM.items()
    ]
    lines.append('import {readFileSync} from "node:fs";')
    lines.append(f"const kinds = {{{', '.join(CUSTOM)}}};")
    lines.append(
        "for (const {where, it} of JSON.parse(readFileSync(0))) {"
        "  try { new kinds[it.kind](it).validate(); }"
        "  catch (error) { console.log(`${where}: ${it.kind}: ${error.message}`); }"
        "}"
    )
    modules = tools / "node_modules"
    if not (modules / "@kubernetes-models").is_dir():
        print("skipped: schemas of custom resources: the npm packages are not installed")
        return
    script = tools / "weir-custom-resources.mjs"
    script.write_text("\n".join(lines))
    wrong = run("node", script, input=json.dumps([{"where": w, "it": d} for w, d in found]))
    for line in wrong.splitlines():
        fault(line)
    ok(f"{len(found)} custom resources against their schemas")


def seconds(span):
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    parts = re.findall(r"(\d+)(ms|s|m|h)", span)
    return sum(int(count) * units[unit] for count, unit in parts)


def promises(where, documents):
    """What no schema knows: that the parts fit together."""
    kinds = {}
    for document in documents:
        kinds.setdefault(document["kind"], []).append(document)
    configs = [c for c in kinds.get("ConfigMap", []) if "weir.toml" in c.get("data", {})]
    for workload in itertools.chain(kinds.get("Deployment", []), kinds.get("StatefulSet", [])):
        name = workload["metadata"]["name"]
        pod = workload["spec"]["template"]["spec"]
        grace = pod["terminationGracePeriodSeconds"]
        for container in pod["containers"]:
            if not re.search(r":\d|:v\d|@sha256:", container["image"]):
                fault(f"{where}: {name}: {container['image']} names no version")
            if container["securityContext"]["capabilities"]["drop"] != ["ALL"]:
                fault(f"{where}: {name}: capabilities are not dropped")
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"]:
                if probe not in container:
                    fault(f"{where}: {name}: has no {probe}")
            for arg in container.get("args", []):
                if arg.startswith("--shutdown-timeout=") and int(arg.split("=")[1]) >= grace:
                    fault(f"{where}: {name}: grace is no longer than --shutdown-timeout")
        if name != "weir":
            continue
        [container], [config] = pod["containers"], configs
        toml = tomllib.loads(config["data"]["weir.toml"])
        drain, longest = toml["drain"], seconds(toml["timeouts"]["total"])
        pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        end = pause + seconds(drain["delay"]) + seconds(drain["deadline"])
        if grace <= end:
            fault(f"{where}: grace of {grace} s ends before the drain does ({end} s)")
        if seconds(drain["deadline"]) < longest:
            fault(f"{where}: drain.deadline is shorter than timeouts.total: streams are cut")
        for hpa in kinds.get("HorizontalPodAutoscaler", []):
            for pool in toml["pools"]:
                if pool["limits"]["gateways"] < hpa["spec"]["maxReplicas"]:
                    fault(f"{where}: limits.gateways is below the HPA's maxReplicas")
        for scaled in kinds.get("ScaledObject", []):
            if len(toml["pools"][0]["replicas"]) < scaled["spec"]["maxReplicaCount"]:
                fault(f"{where}: the ScaledObject may start replicas that no pool lists")
    return configs


def configuration(weir, text, secrets, env=None):
    """`weir check` on a configuration as it would lie in the pod."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ["config", "secrets"]:
            (folder / name).mkdir()
        for name in secrets:
            (folder / "secrets" / name).write_text("a-secret")
        (folder / "config/weir.toml").write_text(text)
        run(weir, "check", folder / "config/weir.toml", env=env)


def kubernetes(weir, tools):
    custom, checked, seen = [], 0, set()
    for where, found in manifests():
        for document in found:
            if document["kind"] in CUSTOM:
                custom.append((where, document))
            elif document["kind"] != "Kustomization":
                against_schema(where, document)
                checked += 1
        for config in promises(where, found):
            seen.add(config["data"]["weir.toml"])
    ok(f"{checked} manifests against the schemas of Kubernetes {KUBERNETES}")
    if custom:
        custom_resources(custom, tools)
    for text in seen:
        configuration(weir, text, ["admin-token", "vllm-api-key"])
    ok(f"{len(seen)} configurations in ConfigMaps by weir check")


def rules():
    """Rules are right, each alert has been seen to fire and to be silent, and has its runbook."""
    file = DEPLOY / "prometheus/weir.rules.yaml"
    test = DEPLOY / "prometheus/weir.rules.test.yaml"
    if have("promtool", "Prometheus rules and their tests"):
        run("promtool", "check", "rules", "--lint=all", "--lint-fatal", file)
        run("promtool", "test", "rules", test)
        ok("Prometheus rules and their tests by promtool")
    groups = yaml.safe_load(file.read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    tests = [one for block in yaml.safe_load(test.read_text())["tests"] for one in block.get("alert_rule_test", [])]
    runbook = (DEPLOY.parent / "docs/OPERATIONS.md").read_text()
    for alert in alerts:
        seen = [bool(one["exp_alerts"]) for one in tests if one["alertname"] == alert]
        if True not in seen or False not in seen:
            fault(f"{alert} is not seen both to fire and to be silent by the tests of the rules")
        if f"### {alert}\n" not in runbook:
            fault(f"{alert} has no entry in docs/OPERATIONS.md")
    for named in re.findall(r"^### (Weir\w+)$", runbook, re.MULTILINE):
        if named not in alerts:
            fault(f"docs/OPERATIONS.md has an entry for {named}, which is no alert")
    ok(f"{len(alerts)} alerts, each tested and each with its runbook")


def names():
    """Every metric of Weir's that rules, dashboard and chart name is one that it has."""
    listed = set(re.findall(r"^\| `(\w+)` \|", (DEPLOY.parent / "docs/METRICS.md").read_text(), re.MULTILINE))
    known = {name + end for name in listed for end in ["", "_bucket", "_sum", "_count"]}
    for path in [DEPLOY / "prometheus/weir.rules.yaml", DEPLOY / "grafana/weir.json", CHART / "templates/scaledobject.yaml"]:
        for name in sorted(set(re.findall(r"\b(?:weir|process)_\w+", path.read_text())) - known):
            fault(f"{path.relative_to(DEPLOY)} names {name}, which docs/METRICS.md does not list")
    ok("rules, dashboard and chart name metrics that there are")


def compose(weir):
    if have("docker-compose", "the compose file"):
        run("docker-compose", "-f", DEPLOY / "compose/compose.yaml", "--profile", "*", "config", "-q")
        ok("compose.yaml by docker-compose config")
    text = (DEPLOY / "compose/weir/weir.toml").read_text()
    configuration(weir, text, [], env={"WEIR_ADMIN_TOKEN": "x"})
    ok("the compose configuration by weir check")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--write", action="store_true", help="make what is made from something else")
    parser.add_argument("--weir", default=DEPLOY.parent / "target/debug/weir", type=pathlib.Path)
    parser.add_argument("--tools", default=pathlib.Path(sys.prefix), type=pathlib.Path)
    args = parser.parse_args()
    os.environ["PATH"] = f"{args.tools / 'bin'}:{os.environ['PATH']}"
    stands(args.write)
    kubernetes(args.weir, args.tools)
    compose(args.weir)
    rules()
    names()
    print(f"{len(faults)} faults", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
