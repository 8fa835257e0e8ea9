"""The acceptance checks. Run through vllm.sh; each check says what it saw.

Every check gets the stack and returns one line of what it measured, or raises AssertionError.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
import traceback

import httpx
import openai

from stack import VLLM_DIR, Replica, Weir, metric, say

MESSAGES = [{"role": "user", "content": "Why does water fall over a weir?"}]
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


class Stack:
    def __init__(self, binary):
        self.binary = binary
        self.replicas = []

    def weir(self, limits, replicas=2):
        return Weir(self.binary, self.replicas[:replicas], limits)

    def start(self):
        """Two replicas that run four sequences each; starts again those that a check killed."""
        alive = [replica for replica in self.replicas if replica.pid is not None]
        fresh = [Replica("--max-num-seqs", 4) for _ in range(2 - len(alive))]
        if fresh:
            say(f"starting {len(fresh)} vLLM replica(s); a minute or two")
        for replica in fresh:
            replica.start()
        for replica in fresh:
            replica.wait()
        self.replicas = alive + fresh

    def stop(self):
        for replica in self.replicas:
            replica.kill()
        self.replicas = []


def client(weir, retries=0):
    return openai.OpenAI(base_url=weir.url + "/v1", api_key="sk-any", max_retries=retries)


def async_client(weir, retries=0):
    limits = httpx.Limits(max_connections=None)
    return openai.AsyncOpenAI(
        base_url=weir.url + "/v1",
        api_key="sk-any",
        max_retries=retries,
        http_client=httpx.AsyncClient(limits=limits, timeout=120),
    )


def exact(tokens):
    return {"max_tokens": tokens, "extra_body": {"ignore_eos": True}}


def until(condition, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


@check
def streaming(stack):
    """A stream arrives piece by piece, with usage only where it was asked for."""
    with stack.weir("in_flight = 4") as weir:
        sdk = client(weir)
        chunks = list(
            sdk.chat.completions.create(model="tiny", messages=MESSAGES, stream=True, **exact(24))
        )
        assert all(chunk.choices for chunk in chunks), "a usage frame that was not asked for"
        assert chunks[-1].choices[0].finish_reason == "length", chunks[-1]
        asked = list(
            sdk.chat.completions.create(
                model="tiny",
                messages=MESSAGES,
                stream=True,
                stream_options={"include_usage": True},
                **exact(24),
            )
        )
        assert asked[-1].usage.completion_tokens == 24, asked[-1]
        times = []
        for _ in sdk.completions.create(model="tiny", prompt="a", stream=True, **exact(64)):
            times.append(time.monotonic())
        spread = times[-1] - times[0]
        assert len(times) > 32 and spread > 0.05, "the stream came in one piece"
        tokens = metric(weir.metrics(), "weir_output_tokens_total")
        assert tokens == 24 + 24 + 64, f"weir counted {tokens} output tokens"
        return f"{len(chunks)} chunks; 64 tokens over {spread:.2f} s; token counts exact"


@check
def unary(stack):
    """Whole answers, the model list, token counting, embeddings' refusal, and unknown paths."""
    with stack.weir("in_flight = 4") as weir:
        sdk = client(weir)
        answer = sdk.chat.completions.create(model="tiny", messages=MESSAGES, **exact(16))
        assert answer.usage.completion_tokens == 16
        response = sdk.responses.create(model="tiny", input="hello", max_output_tokens=8)
        assert response.usage.output_tokens <= 8
        models = [model.id for model in sdk.models.list()]
        assert models == ["tiny"], models
        message = httpx.post(
            weir.url + "/v1/messages",
            json={"model": "tiny", "max_tokens": 8, "messages": MESSAGES},
            timeout=60,
        )
        assert message.status_code == 200 and message.json()["type"] == "message", message.text
        for path in ("/invocations", "/metrics", "/v1/load_lora_adapter", "/load", "/docs"):
            for method in ("GET", "POST"):
                refused = httpx.request(method, weir.url + path)
                assert refused.status_code == 404, f"{method} {path}: {refused.status_code}"
                assert refused.headers["x-weir-reason"] == "unknown_path"
        try:
            sdk.chat.completions.create(model="nope", messages=MESSAGES)
            raise AssertionError("an unknown model was served")
        except openai.NotFoundError as error:
            assert error.body["reason"] == "unknown_model", error.body
        return "chat, responses, messages, models; 5 engine routes refused"


@check
def cancel(stack):
    """A client that leaves in mid-stream frees the engine."""
    with stack.weir("in_flight = 4") as weir:
        stream = client(weir).chat.completions.create(
            model="tiny", messages=MESSAGES, stream=True, **exact(3000)
        )
        for _, _ in zip(range(5), stream):
            pass
        running = sum(replica.running() for replica in stack.replicas)
        assert running == 1, f"{running} running before the cancel"
        stream.close()
        began = time.monotonic()
        until(lambda: sum(r.running() for r in stack.replicas) == 0, 5, "the engine is idle")
        took = time.monotonic() - began
        until(
            lambda: metric(weir.metrics(), "weir_requests_total", outcome="cancelled") == 1,
            2,
            "the outcome is cancelled",
        )
        return f"num_requests_running 1 -> 0 within {took:.2f} s of the close"


@check
def overload(stack):
    """Sixty at once on eight slots: only 200 and 503 with Retry-After."""

    async def burst(weir, retries):
        sdk = async_client(weir, retries)

        async def one():
            try:
                await sdk.chat.completions.create(model="tiny", messages=MESSAGES, **exact(32))
                return "200"
            except openai.APIStatusError as error:
                answer = error.response
                wait = answer.headers.get("retry-after")
                assert wait is not None and 1 <= int(wait) <= 55, dict(answer.headers)
                return f"{answer.status_code} {answer.headers['x-weir-reason']}"

        results = await asyncio.gather(*(one() for _ in range(60)))
        await sdk.close()
        return {kind: results.count(kind) for kind in sorted(set(results))}

    with stack.weir('in_flight = 4\nqueue_wait = "400ms"') as weir:
        asyncio.run(burst(weir, 2))
        plain = asyncio.run(burst(weir, 0))
        kinds = {kind.split()[0] for kind in plain}
        assert kinds == {"200", "503"}, plain
        retried = asyncio.run(burst(weir, 2))
        assert retried.get("200", 0) >= 57, retried
        return f"no retries {plain}; the SDK's two retries {retried}"


@check
def killed_in_queue(stack):
    """A replica dies while requests wait in its queue, after their 200: no client notices."""

    async def run(weir):
        sdk = async_client(weir)

        async def holder():
            stream = await sdk.chat.completions.create(
                model="tiny", messages=MESSAGES, stream=True, **exact(400)
            )
            try:
                async for _ in stream:
                    pass
            except openai.APIError:
                return "broken"
            return "whole"

        async def waiter():
            stream = await sdk.chat.completions.create(
                model="tiny", messages=MESSAGES, stream=True, **exact(8)
            )
            return len([chunk async for chunk in stream])

        holders = [asyncio.create_task(holder()) for _ in range(8)]
        for _ in range(100):
            await asyncio.sleep(0.1)
            if sum(replica.running() for replica in stack.replicas) == 8:
                break
        waiters = [asyncio.create_task(waiter()) for _ in range(12)]
        victim = stack.replicas[0]
        for _ in range(100):
            await asyncio.sleep(0.05)
            if victim.waiting() >= 3:
                break
        waiting = victim.waiting()
        assert waiting >= 3, f"only {waiting} wait in the engine"
        victim.kill()
        counts = await asyncio.gather(*waiters)
        ends = await asyncio.gather(*holders)
        await sdk.close()
        assert all(count >= 2 for count in counts), counts
        assert ends.count("broken") <= 4, ends
        return (
            f"{waiting:.0f} waited in the killed engine; 12 of 12 answered; "
            f"{ends.count('broken')} streams in its middle got an error frame"
        )

    with stack.weir('in_flight = 16\nqueue_wait = "2s"') as weir:
        return asyncio.run(run(weir))


@check
def bench_agrees(stack):
    """`vllm bench serve`, unmodified, sees what Weir measures."""
    with stack.weir("in_flight = 8", replicas=1) as weir, tempfile.TemporaryDirectory() as out:
        names = {
            "ttft": "weir_time_to_first_token_seconds",
            "tpot": "weir_time_per_output_token_seconds",
            "itl": "weir_inter_token_latency_seconds",
        }

        def sums():
            text = weir.metrics()
            return {
                short: (metric(text, f"{name}_sum") or 0.0, metric(text, f"{name}_count") or 0.0)
                for short, name in names.items()
            }

        def bench(prompts, tokens):
            command = [
                VLLM_DIR / "env/bin/vllm", "bench", "serve", "--backend", "openai",
                "--base-url", weir.url, "--endpoint", "/v1/completions", "--model", "tiny",
                "--tokenizer", VLLM_DIR / "weir-model", "--dataset-name", "random",
                "--random-input-len", "512", "--random-output-len", tokens,
                "--num-prompts", prompts, "--max-concurrency", "4", "--ignore-eos",
                "--save-result", "--result-dir", out, "--result-filename", "bench.json",
                "--percentile-metrics", "ttft,tpot,itl,e2el",
            ]
            run = subprocess.run([str(c) for c in command], capture_output=True, text=True)
            assert run.returncode == 0, run.stderr[-2000:]
            return json.load(open(f"{out}/bench.json"))

        bench(4, 16)
        before = sums()
        result = bench(32, 64)
        after = sums()
        assert result["completed"] == 32, result
        # The tool sends one probe of its own before the run: that one is in Weir's figures too.
        report = []
        for name in names:
            theirs = result[f"mean_{name}_ms"]
            count = after[name][1] - before[name][1]
            ours = (after[name][0] - before[name][0]) / count * 1000
            report.append(f"{name} {theirs:.1f}/{ours:.1f} ms")
            assert abs(theirs - ours) <= max(0.1 * theirs, 2), f"{name}: theirs {theirs}, ours {ours}"
        assert result["mean_itl_ms"] >= 20, f"the load is too light: {report}"
        return "bench/weir: " + ", ".join(report)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--weir", required=True)
    arguments.add_argument("--list", action="store_true")
    arguments.add_argument("checks", nargs="*")
    options = arguments.parse_args()
    if options.list:
        print("\n".join(f"{name:16} {f.__doc__.splitlines()[0]}" for name, f in CHECKS.items()))
        return 0
    stack = Stack(options.weir)
    rows = []
    try:
        for name in options.checks or CHECKS:
            stack.start()
            say(f"{name}: {CHECKS[name].__doc__.splitlines()[0]}")
            try:
                rows.append((name, "pass", CHECKS[name](stack)))
            except Exception as error:
                traceback.print_exc()
                rows.append((name, "FAIL", re.sub(r"\s+", " ", str(error))[:300]))
            say(f"{rows[-1][1]}: {rows[-1][2]}")
    finally:
        stack.stop()
    version = fetch_version()
    print(f"\nvLLM {version}, openai-python {openai.__version__}")
    for name, verdict, seen in rows:
        print(f"{verdict:5} {name:16} {seen}")
    return 0 if all(verdict == "pass" for _, verdict, _ in rows) else 1


def fetch_version():
    ready = sorted(VLLM_DIR.glob("ready-*"))
    return ready[-1].name.removeprefix("ready-") if ready else "unknown"


if __name__ == "__main__":
    sys.exit(main())
