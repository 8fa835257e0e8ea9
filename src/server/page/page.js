"use strict";
// Draws what /status/stream sends each second. Every text from outside goes in by textContent:
// names of models, tenants and replicas are whatever somebody configured or sent.

const $ = (id) => document.getElementById(id);
const HISTORY = 120;
let paused = false;
let latest = null;
const history = new Map();

// ---- small pieces

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function put(element, text, className) {
  if (element.textContent !== text) element.textContent = text;
  if (className !== undefined && element.className !== className) element.className = className;
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

function number(value, digits = 0) {
  if (!known(value)) return "–";
  return value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

function short(value) {
  if (!known(value)) return "–";
  if (value >= 1e6) return number(value / 1e6, 1) + " M";
  if (value >= 1e4) return number(value / 1e3, 0) + " k";
  return number(value, value < 10 && value % 1 ? 1 : 0);
}

const rate = (value) => (known(value) ? number(value, value < 10 ? 1 : 0) : "–");
const percent = (value, digits = 0) => (known(value) ? number(value * 100, digits) + " %" : "–");

function span(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 0.0995) return number(seconds * 1000, seconds < 0.01 ? 1 : 0) + " ms";
  if (seconds < 0.9995) return number(seconds * 1000) + " ms";
  if (seconds < 120) return number(seconds, seconds < 10 ? 2 : 0) + " s";
  if (seconds < 7200) return number(seconds / 60) + " min";
  if (seconds < 172800) return number(seconds / 3600, 1) + " h";
  return number(seconds / 86400) + " days";
}

function measured(value, unit) {
  if (!known(value)) return null;
  if (unit === "seconds") return span(value);
  return number(value, value % 1 ? 2 : 0) + (unit ? " " + unit.replaceAll("_", " ") : "");
}

const sum = (list, value) => list.reduce((total, one) => total + (value(one) || 0), 0);

function state(word, className) {
  return { text: word, pill: "pill " + className };
}

// ---- tables whose rows and cells stay, so that focus and selection do

function table(caption, columns, options = {}) {
  const scroll = make("div", "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", caption);
  const element = make("table", options.cards ? "cards" : "");
  element.append(make("caption", "", caption));
  const head = make("thead");
  const names = make("tr");
  for (const column of columns) {
    const cell = make("th", column.left ? "left" : "", column.name);
    cell.scope = "col";
    names.append(cell);
  }
  head.append(names);
  const body = make("tbody");
  element.append(head, body);
  const empty = make("p", "empty", options.empty || "none");
  scroll.append(element);
  const holder = make("div");
  holder.append(scroll, empty);
  return {
    element: holder,
    draw(rows) {
      scroll.hidden = rows.length === 0;
      empty.hidden = rows.length > 0;
      while (body.rows.length > rows.length) body.deleteRow(-1);
      rows.forEach((row, at) => drawRow(body.rows[at] || newRow(body, columns), columns, row));
    },
  };
}

function newRow(body, columns) {
  const row = body.insertRow();
  columns.forEach((column, at) => {
    const cell = document.createElement(at === 0 ? "th" : "td");
    if (at === 0) cell.scope = "row";
    if (column.left) cell.className = "left";
    cell.dataset.name = column.name;
    row.append(cell);
  });
  return row;
}

function drawRow(row, columns, values) {
  columns.forEach((column, at) => {
    const cell = row.cells[at];
    const value = column.value(values);
    if (value !== null && typeof value === "object") drawRich(cell, value);
    else {
      put(cell, value === null ? "–" : String(value));
      if (at === 0) cell.title = cell.textContent;
    }
    cell.classList.toggle("none", value === null || value === "–");
  });
}

function drawRich(cell, value) {
  let inside = cell.firstElementChild;
  const kind = value.pill ? "SPAN" : "DIV";
  if (!inside || inside.tagName !== kind || cell.childNodes.length !== 1) {
    inside = value.pill ? make("span") : meter();
    cell.replaceChildren(inside);
  }
  if (value.pill) put(inside, value.text, value.pill);
  else drawMeter(inside, value);
}

function meter() {
  const element = make("div", "meter");
  const bar = make("i");
  bar.setAttribute("aria-hidden", "true");
  bar.append(make("b"));
  element.append(make("span"), bar);
  return element;
}

function drawMeter(element, { text, share }) {
  put(element.firstChild, text);
  const width = known(share) ? Math.max(0, Math.min(1, share)) : 0;
  element.lastChild.firstChild.style.width = width * 100 + "%";
  element.classList.toggle("full", width >= 0.98);
}

function tile(name) {
  const element = make("div", "card tile");
  const value = make("p", "value", "–");
  const note = make("p", "note");
  element.append(make("h3", "", name), value, note);
  return { element, draw(text, why, className) { put(value, text, "value " + (className || "")); put(note, why || ""); } };
}

// ---- rates over time

function chart() {
  const NS = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", "0 0 120 40");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  for (const y of [1, 20, 39]) {
    const line = document.createElementNS(NS, "line");
    line.setAttribute("class", "grid");
    for (const [key, value] of [["x1", 0], ["x2", 120], ["y1", y], ["y2", y]]) line.setAttribute(key, value);
    svg.append(line);
  }
  const kinds = ["offered", "admitted", "shed"];
  const key = make("div", "key");
  const paths = {};
  for (const kind of kinds) {
    const path = document.createElementNS(NS, "path");
    path.setAttribute("class", "k-" + kind);
    svg.append(path);
    paths[kind] = path;
    const sample = document.createElementNS(NS, "svg");
    sample.setAttribute("viewBox", "0 0 16 6");
    sample.setAttribute("aria-hidden", "true");
    const stroke = document.createElementNS(NS, "path");
    stroke.setAttribute("class", "k-" + kind);
    stroke.setAttribute("d", "M0 3H16");
    sample.append(stroke);
    const item = make("span");
    item.append(sample, kind);
    key.append(item);
  }
  const top = make("span");
  key.append(top);
  const element = make("div");
  element.append(svg, key);
  return {
    element,
    draw(points) {
      const highest = Math.max(1, ...points.map((point) => point.offered));
      for (const kind of kinds) {
        const steps = points.map((point, at) => {
          const x = 120 - (points.length - 1 - at);
          return (at ? "L" : "M") + x + " " + (39 - (38 * Math.min(point[kind], highest)) / highest).toFixed(2);
        });
        paths[kind].setAttribute("d", steps.join(""));
      }
      const last = points[points.length - 1];
      put(top, "top line " + rate(highest) + "/s, last 2 minutes");
      if (last) {
        svg.setAttribute("aria-label", `Requests a second, now: ${rate(last.offered)} offered, ` +
          `${rate(last.admitted)} admitted, ${rate(last.shed)} shed`);
      }
    },
  };
}

/// What a pool did since the event before, a second; smoothed over five events, since answers end in bursts.
function remember(pool, at) {
  const total = (key) => sum(pool.classes, (one) => one.total[key]);
  const now = { at, offered: total("offered"), shed: total("shed"), refused: total("refused_count") };
  const past = history.get(pool.model) || { readings: [], points: [] };
  history.set(pool.model, past);
  const readings = past.readings;
  if (readings.length && (readings[readings.length - 1].at >= at || readings[readings.length - 1].offered > now.offered)) readings.length = 0;
  readings.push(now);
  if (readings.length > 6) readings.shift();
  const first = readings[0];
  const seconds = now.at - first.at;
  if (seconds > 0) {
    past.points.push({
      offered: (now.offered - first.offered) / seconds,
      shed: (now.shed - first.shed) / seconds,
      admitted: (now.offered - first.offered - (now.refused - first.refused)) / seconds,
    });
    if (past.points.length > HISTORY) past.points.shift();
  }
  return past.points;
}

// ---- one pool

function latencyRows(pool) {
  const rows = [];
  for (const one of pool.classes) {
    for (const [word, name] of [["ttft", "TTFT"], ["tpot", "TPOT"], ["itl", "ITL"]]) {
      rows.push({ name, cls: one.class, seen: one[word], target: one.slo[word + "_seconds"] });
    }
  }
  return rows.filter((row) => row.seen || known(row.target));
}

function against(row) {
  if (!row.seen || !known(row.target)) return null;
  // Every single gap is held to the ITL target, so there its tail counts.
  const share = (row.name === "ITL" ? row.seen.p99_seconds : row.seen.p95_seconds) / row.target;
  // Where an alert would look at it, and where the limits stop growing.
  const near = row.name === "TTFT" ? 0.6 : 0.86;
  return state(percent(share), share > 1 ? "bad" : share > near ? "warn" : "good");
}

function replicaState(replica) {
  if (replica.ejected) return state("ejected", "bad");
  if (replica.draining) return state("draining", "warn");
  if (replica.health === "down") return state("down", "bad");
  if (replica.health !== "up") return state("not probed", "warn");
  const reading = replica.reading;
  if (reading && reading.asleep) return state("asleep", "warn");
  if (!reading || reading.age_seconds > 10) return state("stale", "warn");
  return state("up", "good");
}

function prefixHits(replica) {
  const reading = replica.reading;
  return reading && reading.prefix_queried_tokens > 0 ? percent(reading.prefix_hit_tokens / reading.prefix_queried_tokens) : null;
}

function poolView(model) {
  const section = make("section");
  const title = make("h2", "", model);
  const id = "pool-" + history.size + "-" + document.querySelectorAll("#pools > section").length;
  title.id = id;
  section.setAttribute("aria-labelledby", id);
  const warning = make("p", "bad");
  const names = ["Offered", "Admitted", "Shed", "Goodput", "In flight", "Waiting"];
  const tiles = names.map(tile);
  const row = make("div", "tiles");
  row.append(...tiles.map((one) => one.element));

  const rates = chart();
  const latency = table("Latency of completed streams, last minute", [
    { name: "Measure", value: (r) => r.name },
    { name: "Class", left: true, value: (r) => r.cls },
    { name: "p50", value: (r) => (r.seen ? span(r.seen.p50_seconds) : null) },
    { name: "p95", value: (r) => (r.seen ? span(r.seen.p95_seconds) : null) },
    { name: "p99", value: (r) => (r.seen ? span(r.seen.p99_seconds) : null) },
    { name: "Target", value: (r) => (known(r.target) ? span(r.target) : null) },
    { name: "Of target", value: against },
  ], { empty: "no stream has ended yet" });
  const reasons = table("Refused in the last minute", [
    { name: "Reason", value: (r) => r.reason },
    { name: "Requests", value: (r) => number(r.count) },
    { name: "A second", value: (r) => rate(r.rate) },
    { name: "Of offered", value: (r) => percent(r.share, 1) },
  ], { empty: "nothing was refused in the last minute" });
  const queue = table("Waiting in the queue", [
    { name: "Class", value: (r) => r.class },
    { name: "Tenant", left: true, value: (r) => r.tenant },
    { name: "Requests", value: (r) => number(r.waiting) },
    { name: "Tokens", value: (r) => short(r.tokens) },
    { name: "Oldest", value: (r) => span(r.oldest_wait_seconds) },
  ], { empty: "nobody waits" });
  const replicas = table("Replicas", [
    { name: "Replica", value: (r) => r.name },
    { name: "State", left: true, value: replicaState },
    { name: "In flight", value: (r) => ({ text: number(r.in_flight) + " / " + number(r.limit, r.limit % 1 ? 1 : 0) + (r.limit_assumed ? "?" : ""), share: r.in_flight / r.limit }) },
    { name: "Running", value: (r) => (r.reading ? number(r.reading.running) : null) },
    { name: "Waiting", value: (r) => (r.reading ? number(r.reading.waiting) : null) },
    { name: "Others'", value: (r) => (known(r.foreign) ? number(r.foreign) : null) },
    { name: "KV cache", value: (r) => (r.reading ? percent(r.reading.kv_usage) : null) },
    { name: "Prefix hits", value: prefixHits },
    { name: "Preempted", value: (r) => (r.reading ? number(r.reading.preemptions) : null) },
    { name: "Read", value: (r) => (r.reading ? span(r.reading.age_seconds) + " ago" : null) },
    { name: "vLLM", left: true, value: (r) => r.version || null },
    { name: "Group", left: true, value: (r) => r.group || null },
  ], { cards: true });
  const sheds = table("The last that were shed", [
    { name: "Reason", value: (r) => r.reason },
    { name: "When", value: (r) => span(r.age_seconds) + " ago" },
    { name: "Class", left: true, value: (r) => (r.class === undefined ? null : r.class) },
    { name: "Tenant", left: true, value: (r) => (r.tenant === undefined ? null : r.tenant) },
    { name: "Stood at", value: (r) => measured(r.reading, r.unit) },
    { name: "Limit", value: (r) => measured(r.limit, r.unit) },
    { name: "Told to wait", value: (r) => (known(r.retry_after_seconds) ? span(r.retry_after_seconds) : null) },
  ], { empty: "nobody was" });
  const provenance = make("dl");

  const card = (name, ...children) => {
    const element = make("div", "card");
    if (name) element.append(make("h3", "", name));
    element.append(...children);
    return element;
  };
  sheds.element.classList.add("tall");
  const stack = make("div", "stack");
  const two = make("div", "two");
  two.append(card("Requests a second", rates.element), card("Refused", reasons.element));
  const lower = make("div", "two");
  lower.append(card("Queue", queue.element), card("Limits", provenance));
  stack.append(row, two, card("Latency against targets", latency.element), card("Replicas", replicas.element), lower, card("Last sheds", sheds.element));
  section.append(title, warning, stack);

  return {
    section,
    draw(pool, page) {
      const points = remember(pool, page.uptime_seconds);
      const now = points[points.length - 1];
      const [offered, admitted, shed, goodput, inFlight, waiting] = tiles;
      const minute = (key) => sum(pool.classes, (one) => one.ends[key]);
      const per = Math.max(1, ...pool.classes.map((one) => one.window_seconds));
      offered.draw(now ? rate(now.offered) : "–", "requests a second");
      admitted.draw(now ? rate(now.admitted) : "–", number(pool.completions_per_second, 1) + " completed a second");
      const share = minute("shed") / minute("offered");
      shed.draw(now ? rate(now.shed) : "–", known(share) ? percent(share, 1) + " of the last minute" : "requests a second", share > 0.05 ? "bad" : share > 0 ? "warn" : "");
      const good = minute("good") / minute("offered");
      goodput.draw(percent(good, 1), "of offered met every target", !known(good) ? "" : good < 0.9 ? "bad" : good < 0.95 ? "warn" : "good");
      inFlight.draw(number(pool.in_flight), "of " + number(pool.limit, pool.limit % 1 ? 1 : 0) + " that may be" + (known(pool.wanted_replicas) ? "; load of " + number(pool.wanted_replicas, 1) + " replicas" : ""));
      const bound = pool.queue.limit_wait_seconds;
      waiting.draw(number(pool.queue.waiting), (pool.queue.waiting ? "oldest " + span(pool.queue.oldest_wait_seconds) + ", " : "") + "at most " + span(bound), known(bound) && pool.queue.oldest_wait_seconds > 0.8 * bound ? "warn" : "");
      rates.draw(points);
      latency.draw(latencyRows(pool));
      const counts = new Map();
      for (const one of pool.classes) {
        for (const [reason, count] of Object.entries(one.ends.refused)) counts.set(reason, (counts.get(reason) || 0) + count);
      }
      const offeredCount = minute("offered");
      reasons.draw([...counts].sort((a, b) => b[1] - a[1]).map(([reason, count]) => ({ reason, count, rate: count / per, share: count / offeredCount })));
      queue.draw(pool.queue.parts || []);
      replicas.draw(pool.replicas);
      sheds.draw(pool.sheds);
      const why = pool.outdated || [];
      put(warning, why.length ? "The limits were measured on something else: " + why.join("; ") : "");
      warning.hidden = why.length === 0;
      facts(provenance, limitFacts(page.config.limits_from[pool.model], pool));
    },
  };
}

function limitFacts(from, pool) {
  const limits = [...new Set(pool.replicas.map((r) => number(r.limit, r.limit % 1 ? 1 : 0)))];
  const list = [["A replica may hold", limits.join(" or ") + " requests"]];
  if (from === "assumed") list.push(["From", "assumed from the engine's facts: nobody measured the knee"]);
  else if (from === "configuration") list.push(["From", "the configuration"]);
  else if (from) for (const [key, value] of Object.entries(from)) if (value !== null) list.push([key.replaceAll("_", " "), text(value)]);
  list.push(["Queue, at most", span(pool.queue.limit_wait_seconds)]);
  return list;
}

const text = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

function facts(list, pairs) {
  const wanted = JSON.stringify(pairs);
  if (list.dataset.shown === wanted) return;
  list.dataset.shown = wanted;
  list.replaceChildren(...pairs.flatMap(([name, value]) => [make("dt", "", name), make("dd", "", value)]));
}

// ---- configuration

function drawConfig(config) {
  const shown = JSON.stringify(config);
  const root = $("config");
  if (root.dataset.shown === shown) return;
  root.dataset.shown = shown;
  const open = new Set([...root.querySelectorAll("details[open]")].map((one) => one.dataset.key));
  const card = make("div", "card");
  const list = make("dl");
  const since = new Date(config.since_epoch_seconds * 1000);
  const pairs = [["Generation", String(config.generation)], ["Hash", config.hash], ["Since", since.toLocaleString()]];
  if (config.profile) pairs.push(["Profile", text(config.profile)]);
  facts(list, pairs);
  card.append(list);
  if (config.refused) {
    const refused = make("p", "bad", "The newest file was refused; the one before is in force:");
    const faults = make("ul", "changes");
    faults.append(...config.refused.map((fault) => make("li", "", fault)));
    card.append(refused, faults);
  }
  for (const reload of config.reloads || []) card.append(reloadItem(reload, open));
  root.replaceChildren(card);
}

function reloadItem(reload, open) {
  const item = make("details");
  item.dataset.key = reload.at_epoch_seconds + reload.outcome;
  item.open = open.has(item.dataset.key);
  const count = reload.changes.length;
  const what = reload.outcome === "applied" ? count + (count === 1 ? " change" : " changes") + ", generation " + reload.generation : reload.faults.length + " faults";
  const when = new Date(reload.at_epoch_seconds * 1000).toLocaleString();
  item.append(make("summary", reload.outcome === "refused" ? "bad" : "", `${when}: ${reload.outcome} (${reload.cause}), ${what}`));
  const list = make("ul", "changes");
  list.append(...[...reload.changes, ...reload.faults].map((line) => make("li", "", line)));
  item.append(list);
  return item;
}

// ---- the page

const views = new Map();

function draw(page) {
  $("main").hidden = false;
  const serving = page.phase === "serving";
  put($("phase"), page.phase, "pill " + (serving ? "good" : "warn"));
  put($("process"), `${page.version}, up ${span(page.uptime_seconds)}`);
  const names = page.pools.map((pool) => pool.model);
  for (const [model, view] of views) {
    if (!names.includes(model)) {
      view.section.remove();
      views.delete(model);
    }
  }
  for (const pool of page.pools) {
    if (!views.has(pool.model)) {
      views.set(pool.model, poolView(pool.model));
      $("pools").append(views.get(pool.model).section);
    }
    views.get(pool.model).draw(pool, page);
  }
  drawConfig(page.config);
  document.title = "Weir: " + (serving ? number(sum(page.pools, (pool) => pool.in_flight)) + " in flight" : page.phase);
}

function trouble(message) {
  $("trouble").hidden = !message;
  put($("trouble"), message || "");
}

function arrived(page) {
  latest = performance.now();
  if (!paused) {
    try {
      draw(page);
      trouble("");
    } catch (error) {
      trouble("This page could not draw what Weir sent: " + error.message);
    }
  }
}

// By fetch and not EventSource, which cannot carry a token.
async function follow() {
  const token = sessionStorage.getItem("weir-token");
  const headers = { accept: "text/event-stream" };
  if (token) headers.authorization = "Bearer " + token;
  const answer = await fetch("status/stream", { headers, cache: "no-store" });
  if (answer.status === 401) {
    sessionStorage.removeItem("weir-token");
    $("token").hidden = false;
    trouble(token ? "That token is not the right one." : "");
    put($("phase"), "locked", "pill warn");
    return false;
  }
  if (!answer.ok) throw new Error("answer " + answer.status);
  $("token").hidden = true;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return true;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop();
    for (const event of events) if (event.startsWith("data: ")) arrived(JSON.parse(event.slice(6)));
  }
}

async function forever() {
  for (;;) {
    try {
      if (!(await follow())) return;
    } catch (error) {
      trouble("Weir does not answer (" + error.message + "). Trying again.");
      put($("phase"), "unreachable", "pill bad");
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  put($("pause"), paused ? "Resume" : "Pause");
});

$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("weir-token", $("token-value").value.trim());
  $("token-value").value = "";
  forever();
});

setInterval(() => {
  const age = latest === null ? null : (performance.now() - latest) / 1000;
  put($("age"), age === null ? "" : paused ? "paused" : age < 3 ? "live" : "last news " + span(age) + " ago");
}, 500);

forever();
