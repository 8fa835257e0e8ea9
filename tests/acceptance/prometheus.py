#!/usr/bin/env python3
"""A real Prometheus scrapes a live Weir under overload for about two minutes.

usage: prometheus.py [WEIR_BINARY]

Shows that the exposition passes `promtool check metrics`; that the rules load and evaluate without
a fault; that every query of the dashboard returns data; and that alerts fire for planted conditions
and clear when these are gone. Only how long an alert must last (`for`) is shortened; the rest is
the file that ships. Needs Debian's package prometheus.
"""

import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

from stack import fetch, free_port, say

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/weir.rules.yaml"
DASHBOARD = ROOT / "deploy/grafana/weir.json"
# What Grafana would put in.
VARIABLES = {"$pool": ".*", "$class": ".*", "$replica": ".*", "$__rate_interval": "15s"}

faults = []
started = []


def check(holds, text):
    say(("ok: " if holds else "FAULT: ") + text)
    if not holds:
        faults.append(text)


def start(folder, name, *command):
    log = (folder / f"{name}.log").open("w")
    process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
    started.append(process)
    return process


def until(seconds, what, holds):
    """Waits until `holds()`; what it returned, or None when it never held."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            seen = holds()
        except OSError:
            seen = None
        if seen:
            return seen
        time.sleep(0.5)
    say(f"gave up after {seconds} s: {what}")
    return None


class Site:
    """Two replicas, Weir and Prometheus."""

    def __init__(self, weir, folder):
        self.weir, self.folder = weir, folder
        self.ports = [free_port(), free_port()]
        self.listen, self.admin, self.prometheus = free_port(), free_port(), free_port()
        self.replicas = [self.replica(port) for port in self.ports]
        self.config = folder / "weir.toml"
        self.limits = folder / "limits.toml"
        self.configure(version="0.1.0")
        self.gateway = start(folder, "weir", weir, "serve", "--config", self.config)

    def replica(self, port):
        return start(self.folder, f"replica-{port}", self.weir, "replica", "--port", port, "--max-num-seqs", "16")

    def configure(self, version, text=""):
        self.limits.write_text(
            f'[limits]\nin_flight = 8\nqueue_wait = "400ms"\n[provenance]\nvllm = "{version}"\n'
        )
        replicas = [f"http://127.0.0.1:{port}" for port in self.ports]
        self.config.write_text(
            f'[server]\nlisten = "127.0.0.1:{self.listen}"\nadmin = "127.0.0.1:{self.admin}"\n'
            f'[[pools]]\nmodel = "tiny"\nreplicas = {json.dumps(replicas)}\n'
            f'slo = {{ ttft = "1s", tpot = "50ms" }}\nlimits_file = "limits.toml"\n{text}'
        )

    def watch(self):
        rules = re.sub(r"for: \d+[mh]", "for: 3s", RULES.read_text())
        (self.folder / "rules.yaml").write_text(rules)
        engines = json.dumps([f"127.0.0.1:{port}" for port in self.ports])
        (self.folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            "rule_files: [rules.yaml]\n"
            "scrape_configs:\n"
            f"- {{job_name: weir, honor_labels: true, static_configs: [{{targets: ['127.0.0.1:{self.admin}']}}]}}\n"
            f"- {{job_name: vllm, static_configs: [{{targets: {engines}}}]}}\n"
        )
        start(
            self.folder,
            "prometheus",
            "prometheus",
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.prometheus}",
        )

    def load(self):
        """Over five times what two engines of 8 sequences carry: more than 72 % must miss."""
        start(
            self.folder, "load", self.weir, "load", "--url", f"http://127.0.0.1:{self.listen}",
            "--rate", "160", "--duration", "150s", "--input", "400", "--shared-prefix", "200",
            "--output", "60", "--spread", "0.5",
        )

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        return json.loads(fetch(url))["data"]

    def firing(self):
        return {one["labels"]["alertname"] for one in self.ask("alerts")["alerts"] if one["state"] == "firing"}


def exposition(site):
    text = fetch(f"http://127.0.0.1:{site.admin}/metrics")
    lint = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    check(lint.returncode == 0, f"promtool check metrics: {lint.stderr.strip() or 'nothing to say'}")


def rules(site):
    groups = site.ask("rules")["groups"]
    found = [rule for group in groups for rule in group["rules"]]
    sick = [f"{rule['name']}: {rule.get('lastError')}" for rule in found if rule["health"] != "ok"]
    check(len(found) > 40 and not sick, f"{len(found)} rules evaluate: {sick or 'no fault'}")


def dashboard(site):
    """Every query of every panel and variable, as Grafana would send it."""
    board = json.loads(DASHBOARD.read_text())
    queries = [
        (f"{panel['title']}: {target['legendFormat']}", target["expr"])
        for panel in board["panels"]
        for target in panel.get("targets", [])
    ]
    empty = []
    for title, expr in queries:
        for variable, value in VARIABLES.items():
            expr = expr.replace(variable, value)
        if not site.ask("query", query=expr)["result"]:
            empty.append(f"{title}: {expr}")
    check(not empty, f"{len(queries)} queries of the dashboard return data" + "".join(f"\n  none: {one}" for one in empty))
    for variable in board["templating"]["list"][1:]:
        metric, label = re.match(r"label_values\((.+), (\w+)\)", variable["definition"]).groups()
        query = f'group by ({label}) ({metric.replace("$pool", ".*")})'
        check(bool(site.ask("query", query=query)["result"]), f"variable {variable['name']} has values")


def alert(site, name, seconds=60):
    check(bool(until(seconds, name, lambda: name in site.firing())), f"{name} fires")


def clear(site, name, seconds=60):
    check(bool(until(seconds, f"{name} clears", lambda: name not in site.firing())), f"{name} clears")


def planted(site):
    alert(site, "WeirShedding")
    alert(site, "WeirSloBurnFast")
    alert(site, "WeirLimitsOutdated")
    quiet = {"WeirConfigRejected", "WeirReplicaDown", "WeirNoReplicas", "WeirReplicaReadingStale", "WeirReplicaMetricMissing", "WeirDown"}
    wrong = quiet & site.firing()
    check(not wrong, f"nothing fires that was not planted: {sorted(wrong) or 'right'}")

    say("mending the limits' provenance: as the replicas' version")
    version = json.loads(fetch(f"http://127.0.0.1:{site.ports[0]}/version"))["version"]
    site.configure(version)
    clear(site, "WeirLimitsOutdated")

    say("planting a faulty configuration")
    site.configure(version, text="typo = 1\n")
    alert(site, "WeirConfigRejected")
    site.configure(version)
    clear(site, "WeirConfigRejected")

    say("killing a replica")
    site.replicas[0].kill()
    site.replicas[0].wait()
    alert(site, "WeirReplicaDown")
    site.replicas[0] = site.replica(site.ports[0])
    clear(site, "WeirReplicaDown")

    say("stopping Weir")
    site.gateway.send_signal(signal.SIGTERM)
    alert(site, "WeirDown", 120)


def main():
    weir = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/debug/weir").resolve()
    for tool in ["prometheus", "promtool"]:
        if not shutil.which(tool):
            sys.exit(f"there is no {tool}: apt-get install prometheus")
    with tempfile.TemporaryDirectory(prefix="weir-prometheus-") as folder:
        try:
            site = Site(weir, pathlib.Path(folder))
            up = until(30, "Weir", lambda: '"health":"up"' in fetch(f"http://127.0.0.1:{site.admin}/status"))
            check(bool(up), "Weir serves")
            site.watch()
            site.load()
            say("a minute of overload")
            time.sleep(60)
            exposition(site)
            rules(site)
            dashboard(site)
            planted(site)
            if faults:
                keep = pathlib.Path(tempfile.mkdtemp(prefix="weir-prometheus-logs-"))
                for log in pathlib.Path(folder).glob("*.log"):
                    shutil.copy(log, keep)
                say(f"logs: {keep}")
        finally:
            for process in started:
                process.kill()
                process.wait()
    say(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
