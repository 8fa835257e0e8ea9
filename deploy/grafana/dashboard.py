"""Writes Weir's Grafana dashboard to weir.json beside this file; deploy/check.py sees that it stands.

A dashboard of sixty queries is a program; as JSON nobody can review it. Quantiles come from the
recording rules, or from buckets that are added up first. Every query is run against a Prometheus
that scrapes a live Weir by tests/acceptance/prometheus.py.
"""

import json
import pathlib

OUT = pathlib.Path(__file__).resolve().with_name("weir.json")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
POOL = 'pool=~"$pool"'
CLASS = 'pool=~"$pool",class=~"$class"'
REPLICA = 'pool=~"$pool",replica=~"$replica"'
WIDTH = 24


def targets(queries):
    return [
        {"refId": chr(ord("A") + i), "expr": expr, "legendFormat": legend, "datasource": SOURCE}
        for i, (legend, expr) in enumerate(queries)
    ]


def series(title, what, unit, *queries, stack=False, width=8, low=0, high=None):
    """A panel of lines over time. `what` says how to read it."""
    custom = {"lineWidth": 2, "fillOpacity": 30 if stack else 5, "showPoints": "never"}
    if stack:
        custom["stacking"] = {"mode": "normal"}
    defaults = {"unit": unit, "custom": custom, "min": low}
    if high is not None:
        defaults["max"] = high
    return {
        "type": "timeseries",
        "title": title,
        "description": what,
        "datasource": SOURCE,
        "targets": targets(queries),
        "fieldConfig": {"defaults": defaults, "overrides": targets_dashed()},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "width": width,
    }


def targets_dashed():
    """What is a target or a limit is a dashed line."""
    return [
        {
            "matcher": {"id": "byRegexp", "options": ".*(target|limit).*"},
            "properties": [
                {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
                {"id": "custom.fillOpacity", "value": 0},
                {"id": "custom.stacking", "value": {"mode": "none"}},
            ],
        }
    ]


def stat(title, what, unit, expr, steps, width=4):
    """One number; `steps` are (from, colour)."""
    thresholds = [{"value": value, "color": color} for value, color in steps]
    return {
        "type": "stat",
        "title": title,
        "description": what,
        "datasource": SOURCE,
        "targets": targets([("", expr)]),
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "thresholds": {"mode": "absolute", "steps": thresholds},
                "noValue": "–",
            },
            "overrides": [],
        },
        "options": {"colorMode": "value", "graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"]}},
        "width": width,
        "height": 4,
    }


def row(title, *panels, repeat=None):
    return {"title": title, "panels": panels, "repeat": repeat}


def quantiles(metric):
    """p50, p95 and p99 of a class, from the recording rules."""
    return [
        (f"{{{{class}}}} {name}", f"weir:{metric}:{name}_rate5m{{{CLASS}}}")
        for name in ("p50", "p95", "p99")
    ]


def target(word):
    expr = f'max by (class) (weir_slo_target_seconds{{{CLASS},target="{word}"}})'
    return (f"{{{{class}}}} target", expr)


def rate(metric, by, labels, window="$__rate_interval"):
    return f"sum by ({by}) (rate({metric}{{{labels}}}[{window}]))"


def share(part, whole, by, labels):
    return f"{rate(part, by, labels)} / ({rate(whole, by, labels)} > 0)"


FLEET = row(
    "Fleet",
    stat(
        "Goodput",
        "Requests that met every target of their class, over all that were offered.",
        "percentunit",
        f"sum(rate(weir_requests_good_total{{{POOL}}}[5m])) / (sum(rate(weir_requests_offered_total{{{POOL}}}[5m])) > 0)",
        [(None, "red"), (0.9, "orange"), (0.95, "green")],
    ),
    stat(
        "Offered",
        "Requests that ended a second, whatever their end.",
        "reqps",
        f"sum(rate(weir_requests_offered_total{{{POOL}}}[5m]))",
        [(None, "blue")],
    ),
    stat(
        "Shed",
        "Share that was answered 503 or 429 with a Retry-After.",
        "percentunit",
        f"(sum(rate(weir_requests_shed_total{{{POOL}}}[5m])) or vector(0)) / (sum(rate(weir_requests_offered_total{{{POOL}}}[5m])) > 0)",
        [(None, "green"), (0.01, "orange"), (0.05, "red")],
    ),
    stat(
        "In flight over limit",
        "How full the replicas are; 1 is the limit, where the queue begins.",
        "percentunit",
        f"sum(weir_in_flight_requests{{{POOL}}}) / (sum(weir_limit_requests{{{POOL}}}) > 0)",
        [(None, "green"), (0.9, "orange"), (1, "red")],
    ),
    stat(
        "Replicas up",
        "That answered the last probe.",
        "none",
        f"sum(max by (pool, replica) (weir_replica_up{{{POOL}}}))",
        [(None, "red"), (1, "green")],
    ),
    stat(
        "Replicas wanted",
        "That the offered load asks for, at one limit each. Clients that retry count once a try.",
        "none",
        f"sum(avg_over_time(weir_scaling_wanted_replicas{{{POOL}}}[1m]))",
        [(None, "blue")],
    ),
    series(
        "Requests by outcome",
        "They add up to what was offered.",
        "reqps",
        ("{{outcome}}", rate("weir_requests_total", "outcome", POOL)),
        stack=True,
    ),
    series(
        "Shed by reason",
        "docs/OPERATIONS.md says what each reason means.",
        "reqps",
        ("{{reason}}", rate("weir_requests_shed_total", "reason", POOL)),
        stack=True,
    ),
    series(
        "Other ends by reason",
        "Failed at a replica, or wrong as they came.",
        "reqps",
        (
            "{{outcome}} {{reason}}",
            f'sum by (outcome, reason) (rate(weir_requests_total{{{POOL},reason!="",reason!~"queue_wait|queue_full|deadline|no_replicas|draining|overloaded|replica_busy|rate_requests|rate_tokens|parallel"}}[$__rate_interval])) or vector(0)',
        ),
        stack=True,
    ),
    series(
        "In flight and limit",
        "What replicas hold of Weir's, and what they may.",
        "none",
        ("{{pool}} in flight", f"sum by (pool) (weir_in_flight_requests{{{POOL}}})"),
        ("{{pool}} limit", f"sum by (pool) (weir_limit_requests{{{POOL}}})"),
    ),
    series(
        "Queue",
        "Requests that wait in Weir.",
        "none",
        ("{{pool}} waiting", f"sum by (pool) (weir_queue_requests{{{POOL}}})"),
    ),
    series(
        "Queue wait against its bound",
        "How long the oldest has waited, and what one that came now would wait.",
        "s",
        ("{{pool}} oldest", f"max by (pool) (weir_queue_oldest_wait_seconds{{{POOL}}})"),
        ("{{pool}} estimated", f"max by (pool) (weir_queue_estimated_wait_seconds{{{POOL}}})"),
        ("{{pool}} limit", f"max by (pool) (weir_queue_wait_limit_seconds{{{POOL}}})"),
    ),
    series(
        "Tokens",
        "As the replicas reported them.",
        "none",
        ("input", f"sum(rate(weir_input_tokens_total{{{POOL}}}[$__rate_interval]))"),
        ("of these cached", f"sum(rate(weir_cached_tokens_total{{{POOL}}}[$__rate_interval]))"),
        ("output", f"sum(rate(weir_output_tokens_total{{{POOL}}}[$__rate_interval]))"),
    ),
    series(
        "Retry-After told",
        "Half of the shed clients were told at most the lower line.",
        "s",
        ("p50", f"histogram_quantile(0.5, sum by (le) (rate(weir_retry_after_seconds_bucket{{{POOL}}}[$__rate_interval])))"),
        ("p95", f"histogram_quantile(0.95, sum by (le) (rate(weir_retry_after_seconds_bucket{{{POOL}}}[$__rate_interval])))"),
    ),
    series(
        "Scaling signals",
        "Wanted replicas, and the queue's wait over its bound: what KEDA goes by.",
        "none",
        ("{{pool}} wanted replicas", f"sum by (pool) (weir_scaling_wanted_replicas{{{POOL}}})"),
        ("{{pool}} queue wait ratio", f"max by (pool) (weir_scaling_queue_wait_ratio{{{POOL}}})"),
    ),
)

CLASSES = row(
    "Classes",
    series(
        "TTFT",
        "Request fully received to the first frame with content; completed streams only.",
        "s",
        *quantiles("time_to_first_token_seconds"),
        target("ttft"),
        width=12,
    ),
    series(
        "TPOT",
        "Mean time per output token after the first, a stream.",
        "s",
        *quantiles("time_per_output_token_seconds"),
        target("tpot"),
        width=12,
    ),
    series(
        "ITL",
        "Gaps between content frames.",
        "s",
        *quantiles("inter_token_latency_seconds"),
        width=12,
    ),
    series(
        "Queue time",
        "In Weir's own queue, all attempts together.",
        "s",
        *quantiles("request_queue_time_seconds"),
        width=12,
    ),
    series(
        "Goodput",
        "Share of what was offered that met every target.",
        "percentunit",
        ("{{class}}", share("weir_requests_good_total", "weir_requests_offered_total", "class", CLASS)),
        high=1,
    ),
    series(
        "Offered",
        "Requests that ended a second.",
        "reqps",
        ("{{class}}", rate("weir_requests_offered_total", "class", CLASS)),
        stack=True,
    ),
    series(
        "Shed",
        "With a Retry-After.",
        "reqps",
        ("{{class}}", rate("weir_requests_shed_total", "class", CLASS)),
        stack=True,
    ),
)

REPLICAS = row(
    "Replicas",
    series(
        "In flight",
        "Weir's own requests, counted exactly.",
        "none",
        ("{{replica}}", f"sum by (replica) (weir_replica_in_flight_requests{{{REPLICA}}})"),
    ),
    series(
        "Room under the limit",
        "Zero is full.",
        "none",
        (
            "{{replica}}",
            f"sum by (replica) (weir_replica_limit_requests{{{REPLICA}}}) - sum by (replica) (weir_replica_in_flight_requests{{{REPLICA}}})",
        ),
        low=None,
    ),
    series(
        "Waiting in the engine",
        "Should be near zero: the queue belongs in Weir, where it is bounded and fair.",
        "none",
        ("{{replica}}", f"max by (replica) (weir_replica_waiting_requests{{{REPLICA}}})"),
    ),
    series(
        "KV cache in use",
        "Beyond 95 % engines preempt.",
        "percentunit",
        ("{{replica}}", f"max by (replica) (weir_replica_kv_cache_usage_ratio{{{REPLICA}}})"),
        high=1,
    ),
    series(
        "Preemptions",
        "Sequences a second whose KV cache the engine took back.",
        "none",
        ("{{replica}}", f"max by (replica) (rate(weir_replica_preemptions_total{{{REPLICA}}}[$__rate_interval]))"),
    ),
    series(
        "Prefix hits",
        "Share of the prompt tokens that were in the prefix cache.",
        "percentunit",
        (
            "{{replica}}",
            f"max by (replica) (rate(weir_replica_prefix_hit_tokens_total{{{REPLICA}}}[5m])) / (max by (replica) (rate(weir_replica_prefix_queried_tokens_total{{{REPLICA}}}[5m])) > 0)",
        ),
        high=1,
    ),
    series(
        "Foreign load",
        "What others than this gateway put on a replica.",
        "none",
        ("{{replica}}", f"max by (replica) (weir_replica_foreign_requests{{{REPLICA}}})"),
    ),
    series(
        "Prefill backlog",
        "Uncached prompt tokens sent and not yet answered by a first token.",
        "none",
        ("{{replica}}", f"sum by (replica) (weir_replica_prefill_tokens{{{REPLICA}}})"),
    ),
    series(
        "KV tokens held or promised",
        "By Weir's own ledger.",
        "none",
        ("{{replica}}", f"sum by (replica) (weir_replica_kv_tokens{{{REPLICA}}})"),
    ),
    series(
        "Up, ejected, draining",
        "1 is yes.",
        "none",
        ("{{replica}} up", f"max by (replica) (weir_replica_up{{{REPLICA}}})"),
        ("{{replica}} ejected", f"max by (replica) (weir_replica_ejected{{{REPLICA}}})"),
        ("{{replica}} draining", f"max by (replica) (weir_replica_draining{{{REPLICA}}})"),
        high=1,
    ),
    series(
        "Age of readings",
        "Beyond a few seconds the limits stop adapting.",
        "s",
        ("{{replica}}", f"max by (replica) (weir_replica_reading_age_seconds{{{REPLICA}}})"),
    ),
    series(
        "Answers and failed attempts",
        "By class of status; attempts that failed before a byte was relayed.",
        "reqps",
        ("{{replica}} {{status}}", rate("weir_upstream_responses_total", "replica, status", REPLICA)),
        (
            "{{replica}} {{failure}}",
            f"{rate('weir_attempt_failures_total', 'replica, failure', REPLICA)} or vector(0)",
        ),
    ),
)

DIFFERENCE = row(
    "Client minus server",
    series(
        "TTFT: clients and engines",
        "What clients waited, and what vLLM says it took. Needs Prometheus to scrape vLLM too.",
        "s",
        (
            "clients p95",
            f"histogram_quantile(0.95, sum by (le) (rate(weir_time_to_first_token_seconds_bucket{{{POOL}}}[5m])))",
        ),
        (
            "engines p95",
            'histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{model_name=~"$pool"}[5m])))',
        ),
        width=12,
    ),
    series(
        "TTFT: mean outside the engine",
        "Client minus server: Weir's queue, the network and the two HTTP servers.",
        "s",
        (
            "outside",
            f"sum(rate(weir_time_to_first_token_seconds_sum{{{POOL}}}[5m])) / (sum(rate(weir_time_to_first_token_seconds_count{{{POOL}}}[5m])) > 0)"
            ' - sum(rate(vllm:time_to_first_token_seconds_sum{model_name=~"$pool"}[5m])) / (sum(rate(vllm:time_to_first_token_seconds_count{model_name=~"$pool"}[5m])) > 0)',
        ),
        (
            "of this in Weir's queue",
            f"sum(rate(weir_request_queue_time_seconds_sum{{{POOL}}}[5m])) / (sum(rate(weir_request_queue_time_seconds_count{{{POOL}}}[5m])) > 0)",
        ),
        width=12,
        low=None,
    ),
)

WEIR = row(
    "Weir itself",
    series("CPU", "Cores.", "none", ("{{instance}}", "rate(process_cpu_seconds_total[$__rate_interval]) and on (instance) weir_build_info")),
    series("Memory", "Resident.", "bytes", ("{{instance}}", "process_resident_memory_bytes and on (instance) weir_build_info")),
    series(
        "Connections and descriptors",
        "Open client connections; a stream takes two descriptors.",
        "none",
        ("{{instance}} {{listener}}", "weir_connections"),
        ("{{instance}} descriptors", "process_open_fds and on (instance) weir_build_info"),
    ),
    series(
        "Configuration",
        "The generation, and 1 where the newest file was taken.",
        "none",
        ("{{instance}} generation", "weir_config_generation"),
        ("{{instance}} last reload taken", "weir_config_last_reload_successful"),
    ),
    series(
        "Limits",
        "1 where they are assumed, or were measured on another vLLM.",
        "none",
        ("{{pool}} assumed", f"max by (pool) (weir_replica_limit_assumed{{{POOL}}})"),
        ("{{pool}} outdated", f"max by (pool) (weir_limits_outdated{{{POOL}}})"),
    ),
    series(
        "Faults of its own",
        "Panics, dropped log lines, failed readings, refused heads.",
        "none",
        ("panics", "sum(rate(weir_task_panics_total[$__rate_interval])) or vector(0)"),
        ("log lines dropped", "sum(rate(weir_log_lines_dropped_total[$__rate_interval]))"),
        ("readings failed", "sum(rate(weir_scrape_failures_total[$__rate_interval])) or vector(0)"),
        ("heads refused", "sum(rate(weir_heads_refused_total[$__rate_interval])) or vector(0)"),
    ),
)


def place(rows):
    """Panels with ids and positions, left to right, top to bottom."""
    placed, y = [], 0
    for one in rows:
        placed.append(
            {"type": "row", "title": one["title"], "collapsed": False, "panels": [],
             "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}}
        )
        y, x, tallest = y + 1, 0, 0
        for panel in one["panels"]:
            width, height = panel.pop("width"), panel.pop("height", 8)
            if x + width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            panel["gridPos"] = {"x": x, "y": y, "w": width, "h": height}
            placed.append(panel)
            x, tallest = x + width, max(tallest, height)
        y += tallest
    return [{"id": number, **panel} for number, panel in enumerate(placed, 1)]


def variable(name, label, query):
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def dashboard():
    return {
        "uid": "weir",
        "title": "Weir",
        "description": "Admission control before vLLM: what is offered, admitted and shed, and what clients see.",
        "tags": ["weir", "vllm"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [
                {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus",
                 "current": {"text": "Prometheus", "value": "prometheus"}},
                variable("pool", "Pool", "label_values(weir_in_flight_requests, pool)"),
                variable("class", "Class", 'label_values(weir_requests_offered_total{pool=~"$pool"}, class)'),
                variable("replica", "Replica", 'label_values(weir_replica_in_flight_requests{pool=~"$pool"}, replica)'),
            ]
        },
        "annotations": {
            "list": [
                {"name": "Configuration taken", "datasource": SOURCE, "enable": True, "iconColor": "blue",
                 "expr": "changes(weir_config_generation[1m]) > 0", "titleFormat": "configuration taken"},
            ]
        },
        "links": [],
        "panels": place([FLEET, CLASSES, REPLICAS, DIFFERENCE, WEIR]),
    }


def text():
    """A panel a line: short enough to keep, and a change shows where it is."""
    board = dashboard()
    panels = ",\n  ".join(json.dumps(panel, ensure_ascii=False) for panel in board.pop("panels"))
    head = json.dumps(board, indent=1, ensure_ascii=False).removesuffix("\n}")
    return f'{head},\n "panels": [\n  {panels}\n ]\n}}\n'


if __name__ == "__main__":
    OUT.write_text(text())
