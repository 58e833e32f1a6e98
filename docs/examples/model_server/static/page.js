/* The page: what is dropped becomes rows, and what the server tells becomes figures, workers and a chart. */

import { Chart } from "./chart.js";
import { send } from "./jobs.js";

const find = (id) => document.getElementById(id);

function duration(ms) {
  if (ms === null) return "–";
  if (ms >= 1000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

/* ---- files */

const rows = new Map();

function begin(files) {
  if (!files.length) return;
  for (const file of files) {
    const row = makeRow(file);
    rows.set(file, row);
    find("rows").prepend(row.element);
    row.tell({ kind: "waiting" });
  }
  find("table").hidden = find("clear").hidden = false;
  summarise();
  send(files, (file, event) => {
    rows.get(file)?.tell(event);
    summarise();
  });
}

function makeRow(file) {
  const element = document.createElement("tr");
  element.dataset.testid = "row";
  const cell = (name, style = "") => {
    const made = document.createElement("td");
    made.className = style;
    if (name) made.dataset.testid = name;
    element.append(made);
    return made;
  };
  const name = cell("name");
  name.textContent = file.name;
  name.title = `${file.name}, ${file.size.toLocaleString("en")} bytes`;
  const what = cell("", "what"), score = cell("score"), latency = cell("latency"), state = cell("state");
  const label = put(what, "span", "", "type"), description = put(what, "small", "");
  label.dataset.testid = "label";
  const say = (kind, text) => {
    element.dataset.state = kind;
    state.replaceChildren();
    put(state, "span", text, "state");
  };
  const tell = (event) => {
    switch (event.kind) {
      case "waiting": return say("waiting", "waiting");
      case "asked": return say("asked", "looking");
      case "refused":
        return say("refused", event.retry_in ? `refused, again in ${event.retry_in} s` : "refused, server is full");
      case "failed": {
        say("failed", event.status === 504 ? "took too long" : `failed: ${event.error}`);
        const again = put(state, "button", "Try again");
        again.type = "button";
        again.setAttribute("aria-label", `Try ${file.name} again`);
        again.addEventListener("click", () => send([file], (_, next) => { tell(next); summarise(); }));
        return undefined;
      }
    }
    label.textContent = event.label;
    description.textContent = event.description;
    what.title = `${event.mime}, ${event.group}`;
    score.replaceChildren();
    const shown = put(score, "div", "", "score");
    const gauge = put(shown, "span", "", "gauge");
    put(gauge, "span", "").style.width = `${100 * event.score}%`;
    put(shown, "span", `${(Math.floor(event.score * 1000) / 10).toFixed(1)} %`);
    latency.textContent = duration(event.latency_ms);
    latency.title = `worker ${event.worker}, in a batch of ${event.batch}`;
    return say("done", "done");
  };
  return { element, tell };
}

function put(parent, kind, text, style = "") {
  const element = document.createElement(kind);
  element.textContent = text;
  element.className = style;
  parent.append(element);
  return element;
}

function summarise() {
  const states = [...rows.values()].map((row) => row.element.dataset.state);
  const count = (...kinds) => states.filter((state) => kinds.includes(state)).length;
  const parts = [`${count("done")} of ${states.length} file${states.length === 1 ? "" : "s"} done`];
  for (const [kind, word] of [["refused", "put off"], ["failed", "failed"]]) {
    if (count(kind)) parts.push(`${count(kind)} ${word}`);
  }
  find("summary").textContent = states.length ? `${parts.join(", ")}.` : "No file yet.";
}

find("clear").addEventListener("click", () => {
  rows.clear();
  find("rows").replaceChildren();
  find("table").hidden = find("clear").hidden = true;
  summarise();
  find("files").focus();
});
find("files").addEventListener("change", (event) => {
  begin([...event.target.files]);
  event.target.value = "";
});

/* The whole window takes files: one that misses the zone must not replace the page. */
let inside = 0;
const over = (change) => {
  inside = Math.max(0, inside + change);
  find("drop").classList.toggle("over", inside > 0);
};
addEventListener("dragenter", () => over(1));
addEventListener("dragleave", () => over(-1));
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  over(-inside);
  begin([...event.dataTransfer.files]);
});

/* ---- live */

const chart = new Chart(find("chart"));
let before = new Map();

const live = new EventSource("/live");
live.addEventListener("message", (event) => show(JSON.parse(event.data)));
live.addEventListener("error", () => {
  health("bad", "server not reachable");
  find("live").classList.add("stale");
});

function show(sample) {
  const now = Date.now() / 1000;
  find("live").classList.remove("stale");
  find("rate").textContent = sample.requests_per_second.toFixed(sample.requests_per_second < 10 ? 1 : 0);
  find("p50").textContent = duration(sample.latency.p50_ms);
  find("p99").textContent = duration(sample.latency.p99_ms);
  find("pending").textContent = sample.pending;
  const up = sample.workers.filter((worker) => worker.state === "up").length;
  if (up === sample.workers.length) health("good", `${up} worker${up === 1 ? "" : "s"} up`);
  else health(up ? "warn" : "bad", `${up} of ${sample.workers.length} workers up`);
  for (const worker of sample.workers) compare(before.get(worker.rank), worker, now);
  before = new Map(sample.workers.map((worker) => [worker.rank, worker]));
  find("workers").replaceChildren(...sample.workers.map(workerItem));
  chart.add(now, sample);
}

function health(state, text) {
  const pill = find("health");
  pill.dataset.state = state;
  if (pill.textContent !== text) pill.textContent = text;
}

function compare(old, worker, now) {
  if (old === undefined) return;
  if (old.state === "up" && (worker.state !== "up" || worker.pid !== old.pid)) {
    note(`worker ${worker.rank} (pid ${old.pid}) died`);
    chart.mark(now, `w${worker.rank} died`);
  }
  if (worker.state === "up" && (worker.pid !== old.pid || old.state !== "up")) note(`worker ${worker.rank} is up again, as pid ${worker.pid}`);
}

function note(text) {
  const item = document.createElement("li");
  item.textContent = `${new Date().toLocaleTimeString("en-GB")}  ${text}`;
  find("events").prepend(item);
  while (find("events").children.length > 6) find("events").lastChild.remove();
}

function workerItem(worker) {
  const item = document.createElement("li");
  item.dataset.testid = "worker";
  item.dataset.rank = worker.rank;
  item.dataset.pid = worker.pid;
  item.dataset.state = worker.state;
  put(item, "strong", `w${worker.rank}`);
  put(item, "span", worker.pid ? `pid ${worker.pid}` : "no process", "pid");
  const state = worker.state === "up" ? `up, ${Math.round(worker.cpu_percent)} % CPU` : worker.state;
  put(item, "span", state, worker.state === "up" ? "up" : "down");
  return item;
}
