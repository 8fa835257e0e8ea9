#!/usr/bin/env python3
"""The status page in a real browser: headless Chromium, driven over its own protocol.

usage: page.py [WEIR_BINARY] [--shots FOLDER]

A gateway whose model has markup for a name serves a little load while the browser looks: that the
page is drawn and goes on changing, pauses, runs no script but its own, fits a phone, has a name for
everything that can be focused, and says so when the gateway goes away. Needs Debian's package
chromium. With --shots, what it looked like stays in FOLDER.
"""

import argparse
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from stack import fetch, free_port, say

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTILE = "<img src=x onerror=globalThis.pwned=1>"
faults = []


def check(holds, text):
    say(("ok: " if holds else "FAULT: ") + text)
    if not holds:
        faults.append(text)


class Browser:
    """Chromium behind its DevTools protocol on two pipes (no port, no library)."""

    def __init__(self, folder):
        commands, self.out = os.pipe()
        self.into, answers = os.pipe()
        fds = {3: commands, 4: answers}

        def arrange():
            for wanted, fd in fds.items():
                os.dup2(fd, wanted + 100)
            for wanted in fds:
                os.dup2(wanted + 100, wanted)

        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={folder}/profile", "about:blank"],
            preexec_fn=arrange, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self.rest, self.number, self.events = b"", 0, []
        self.session = None
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log"]:
            self.ask(f"{domain}.enable")

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def read(self):
        while b"\0" not in self.rest:
            chunk = os.read(self.into, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser is gone")
            self.rest += chunk
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def value(self, script):
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, what, script, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.value(script):
                return True
            time.sleep(0.2)
        check(False, f"in {seconds} s: {what}")
        return False

    def screen(self, width, height, scheme):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def shot(self, path):
        taken = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def key(self, key):
        for kind in ["keyDown", "keyUp"]:
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Tab": 9, " ": 32}[key], text=" " if key == " " else "")

    def complaints(self):
        """Uncaught exceptions and whatever the console calls an error, policy violations included."""
        said = []
        for event in self.events:
            if event.get("method") == "Runtime.exceptionThrown":
                said.append(event["params"]["exceptionDetails"]["text"])
            if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                said.append(event["params"]["entry"]["text"])
        return said

    def close(self):
        self.process.kill()
        self.process.wait()


class Site:
    """Two replicas, Weir, and more load than they carry."""

    def __init__(self, weir, folder):
        self.listen, self.admin = free_port(), free_port()
        ports = [free_port(), free_port()]
        self.processes = []
        for port in ports:
            self.start(folder, f"replica-{port}", weir, "replica", "--port", port, "--model", HOSTILE, "--max-num-seqs", "16")
        config = folder / "weir.toml"
        self.config = (
            f'[server]\nlisten = "127.0.0.1:{self.listen}"\nadmin = "127.0.0.1:{self.admin}"\n'
            f'[[pools]]\nmodel = {json.dumps(HOSTILE)}\n'
            f'replicas = {json.dumps([f"http://127.0.0.1:{port}" for port in ports])}\n'
            'slo = { ttft = "1s", tpot = "50ms" }\n[pools.limits]\nqueue_wait = "400ms"\nin_flight = '
        )
        config.write_text(self.config + "8\n")
        self.path = config
        self.gateway = self.start(folder, "weir", weir, "serve", "--config", config)
        self.start(
            folder, "load", weir, "load", "--url", f"http://127.0.0.1:{self.listen}", "--model", HOSTILE,
            "--rate", "30", "--duration", "120s", "--input", "300", "--output", "60", "--spread", "0.5",
        )

    def start(self, folder, name, *command):
        log = (folder / f"{name}.log").open("w")
        process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def drawn(browser, site):
    browser.ask("Page.navigate", url=f"http://127.0.0.1:{site.admin}/")
    browser.until("a pool is drawn", "document.querySelectorAll('#pools section').length === 1")
    browser.until("streams have ended", "/\\d ms/.test(document.querySelector('#pools').textContent)")
    browser.until("something was shed", "document.querySelector('#pools').textContent.includes('queue_wait')")
    check(browser.value("document.querySelector('h2').textContent") == HOSTILE, "a hostile name is shown as it is")
    check(browser.value("globalThis.pwned === undefined && !document.querySelector('#pools img')"), "and is no markup")
    uptime = browser.value("document.querySelector('#process').textContent")
    browser.until("it goes on changing", f"document.querySelector('#process').textContent !== {json.dumps(uptime)}")


def reload_shows(browser, site):
    site.path.write_text(site.config + "9\n")
    browser.until("a reload's difference is shown", "document.querySelector('#config').textContent.includes('8 -> 9')")
    site.path.write_text(site.config + "nonsense\n")
    browser.until("a refusal is shown", "document.querySelector('#config').textContent.includes('was refused')")
    site.path.write_text(site.config + "8\n")


def keyboard(browser):
    """Everything that can be reached by Tab has a name, and space presses the button."""
    browser.value("document.activeElement.blur(), window.getSelection().removeAllRanges()")
    reached = []
    for _ in range(30):
        browser.key("Tab")
        reached.append(browser.value(
            "((e) => e === document.body ? null : `${e.tagName} ${e.getAttribute('aria-label') || e.textContent.slice(0, 40)}`)(document.activeElement)"
        ))
    names = [one for one in reached if one]
    check(any(one.startswith("A Skip") for one in names), "the first stop skips to the pools")
    check(any("Pause" in one for one in names), f"the pause button is reached: {names[:4]}")
    check(any("Replicas" in one for one in names), "tables that scroll are reached")
    check(all(one.split(" ", 1)[1].strip() for one in names), "whatever is reached has a name")
    browser.value("document.querySelector('#pause').focus()")
    browser.key(" ")
    check(browser.value("document.querySelector('#pause').getAttribute('aria-pressed') === 'true'"), "space pauses")
    before = browser.value("document.querySelector('#process').textContent")
    time.sleep(2.5)
    check(browser.value("document.querySelector('#process').textContent") == before, "a paused page stands still")
    browser.key(" ")


def spoken(browser):
    """What a screen reader is told: names of tables, images and buttons; headings in order."""
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    shown = [node for node in nodes if not node.get("ignored")]
    role = lambda node: node.get("role", {}).get("value")
    name = lambda node: node.get("name", {}).get("value", "")
    for kind in ["table", "button", "image", "region"]:
        found = [node for node in shown if role(node) == kind]
        check(found and all(name(node) for node in found), f"each of {len(found)} of role {kind} has a name")
    levels = browser.value("[...document.querySelectorAll('h1,h2,h3')].map((h) => +h.tagName[1])")
    check(levels[0] == 1 and all(b - a <= 1 for a, b in zip(levels, levels[1:])), "no level of headings is skipped")
    check(browser.value("document.documentElement.lang") == "en", "the language is named")


CONTRAST = """
(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const color = numbers(getComputedStyle(e).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !e.checkVisibility() || e.closest('noscript, script, style')) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${e.tagName}.${e.className} ${ratio.toFixed(2)} ${e.textContent.slice(0, 20)}`);
  }
  return [...new Set(poor)];
})()
"""


def looks(browser, shots):
    for name, width, height, scheme in [
        ("light", 1280, 900, "light"), ("dark", 1280, 900, "dark"),
        ("phone", 390, 844, "light"), ("phone-dark", 360, 740, "dark"),
    ]:
        browser.screen(width, height, scheme)
        time.sleep(1.5)
        wide = browser.value("document.documentElement.scrollWidth")
        check(wide <= width, f"{name}: nothing sticks out sideways ({wide} of {width})")
        poor = browser.value(CONTRAST)
        check(not poor, f"{name}: every text stands out from what is behind it {poor or ''}")
        if shots:
            browser.shot(shots / f"{name}.png")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weir", nargs="?", default=ROOT / "target/debug/weir", type=pathlib.Path)
    parser.add_argument("--shots", type=pathlib.Path)
    args = parser.parse_args()
    if not shutil.which("chromium"):
        sys.exit("there is no chromium: apt-get install chromium")
    if args.shots:
        args.shots.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weir-page-", ignore_cleanup_errors=True) as folder:
        folder = pathlib.Path(folder)
        site = Site(args.weir.resolve(), folder)
        browser = None
        try:
            for _ in range(300):
                try:
                    size = len(fetch(f"http://127.0.0.1:{site.admin}/"))
                    break
                except OSError:
                    time.sleep(0.1)
            check(size < 100_000, f"the page is {size} bytes")
            browser = Browser(folder)
            browser.screen(1280, 900, "light")
            drawn(browser, site)
            reload_shows(browser, site)
            spoken(browser)
            keyboard(browser)
            looks(browser, args.shots)
            check(not browser.complaints(), f"the browser has nothing to complain of {browser.complaints() or ''}")
            site.gateway.kill()
            browser.until("it says that the gateway is gone", "document.querySelector('#phase').textContent === 'unreachable'")
        finally:
            if browser:
                browser.close()
            site.stop()
    say(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
