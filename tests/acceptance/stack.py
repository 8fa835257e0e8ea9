"""Starts and stops what the checks run against: vLLM replicas, and Weir before them."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
VLLM_DIR = pathlib.Path(os.environ.get("VLLM_DIR", pathlib.Path.home() / ".cache/vllm-cpu"))


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fetch(url, timeout=10):
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return answer.read().decode()


def metric(text, name, **labels):
    """The sum of all series of `name` whose labels include `labels`; None when there is none."""
    total = None
    for line in text.splitlines():
        match = re.match(r"([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)", line)
        if not match or match[1] != name:
            continue
        found = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
        if all(found.get(key) == value for key, value in labels.items()):
            total = (total or 0.0) + float(match[3])
    return total


class Replica:
    """One real vLLM server, leader of its own process group."""

    def __init__(self, *options):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.options = [str(option) for option in options]
        self.starting = None
        self.pid = None

    def start(self):
        self.starting = subprocess.Popen(
            [HERE / "serve.sh", str(self.port), *self.options],
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self):
        out, _ = self.starting.communicate()
        if self.starting.returncode != 0:
            raise RuntimeError(f"vLLM on port {self.port} did not start: {VLLM_DIR}/{self.port}.log")
        self.pid = int(out)

    def running(self):
        return metric(fetch(self.url + "/metrics"), "vllm:num_requests_running")

    def waiting(self):
        return metric(fetch(self.url + "/metrics"), "vllm:num_requests_waiting")

    def kill(self, how=signal.SIGKILL):
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, how)
            self.pid = None


class Weir:
    """The gateway before some replicas."""

    def __init__(self, binary, replicas, limits):
        self.listen, self.admin = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.listen}"
        self.admin_url = f"http://127.0.0.1:{self.admin}"
        self.dir = tempfile.TemporaryDirectory(prefix="weir-acceptance-")
        config = pathlib.Path(self.dir.name) / "weir.toml"
        config.write_text(
            f"""
[server]
listen = "127.0.0.1:{self.listen}"
admin = "127.0.0.1:{self.admin}"

[[pools]]
model = "tiny"
replicas = {json.dumps([replica.url for replica in replicas])}
slo = {{ ttft = "60s", tpot = "1s" }}

[pools.limits]
{limits}
"""
        )
        self.log_path = pathlib.Path(self.dir.name) / "weir.log"
        self.log = self.log_path.open("w")
        self.process = subprocess.Popen(
            [binary, "serve", "--config", str(config)], stdout=self.log, stderr=self.log
        )
        for _ in range(100):
            with contextlib.suppress(OSError):
                status = json.loads(fetch(self.admin_url + "/status"))
                replicas_up = [
                    r for pool in status["pools"] for r in pool["replicas"] if r.get("health") == "up"
                ]
                if len(replicas_up) == len(replicas):
                    return
            time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"Weir did not see its replicas:\n{self.log_path.read_text()[-3000:]}")

    def metrics(self):
        return fetch(self.admin_url + "/metrics")

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
