/* A minute of latency and of the workers' CPU, as two small plots with one time axis.

   Guarantee: lines differ by colour, by dash and by a word at their end; nothing is told by colour alone. */

const SECONDS = 60, WIDTH = 330, LEFT = 36, RIGHT = 62, PLOT = 92, TOP = 22, GAP = 38;
const NAMESPACE = "http://www.w3.org/2000/svg";

export class Chart {
  constructor(figure) {
    this.samples = [];
    this.marks = [];
    this.svg = make("svg", { viewBox: `0 0 ${WIDTH} ${2 * (TOP + PLOT) + GAP}`, role: "img" });
    figure.append(this.svg);
    this.draw(Date.now() / 1000);
  }

  add(at, sample) {
    this.samples.push({ at, ...sample });
    this.samples = this.samples.filter((old) => old.at > at - SECONDS - 2);
    this.draw(at);
  }

  mark(at, text) {
    this.marks = this.marks.filter((old) => old.at > at - SECONDS);
    this.marks.push({ at, text });
  }

  draw(now) {
    const latency = [
      { name: "p50", points: this.points((sample) => sample.latency.p50_ms) },
      { name: "p99", points: this.points((sample) => sample.latency.p99_ms) },
    ];
    const ranks = [...new Set(this.samples.flatMap((sample) => sample.workers.map((worker) => worker.rank)))];
    const cpu = ranks.map((rank) => ({
      name: `worker ${rank}`,
      points: this.points((sample) => sample.workers.find((worker) => worker.rank === rank)?.cpu_percent),
    }));
    this.svg.replaceChildren(
      ...this.plot(now, 0, "Latency, ms", latency, 1),
      ...this.plot(now, TOP + PLOT + GAP / 2 + 4, "CPU, % of one core", cpu, 100),
      text(LEFT, 2 * (TOP + PLOT) + GAP - 1, `${SECONDS} s ago`),
      text(WIDTH - RIGHT, 2 * (TOP + PLOT) + GAP - 1, "now", "end"),
    );
    const last = this.samples.at(-1);
    this.svg.setAttribute("aria-label", last
      ? `Latency p50 ${last.latency.p50_ms ?? "unknown"} ms, p99 ${last.latency.p99_ms ?? "unknown"} ms; CPU `
        + last.workers.map((worker) => `worker ${worker.rank} ${worker.cpu_percent} %`).join(", ")
      : "No sample yet");
  }

  points(valueOf) {
    return this.samples.map((sample) => ({ at: sample.at, value: valueOf(sample) ?? null }));
  }

  plot(now, y, title, lines, least) {
    const top = y + TOP, bottom = top + PLOT;
    const highest = nice(Math.max(least, ...lines.flatMap((line) => line.points.map((point) => point.value ?? 0))));
    const x = (at) => LEFT + (1 - (now - at) / SECONDS) * (WIDTH - LEFT - RIGHT);
    const height = (value) => bottom - (value / highest) * PLOT;
    const parts = [text(0, y + 11, title, "start", "title")];
    for (const share of [0, 0.5, 1]) {
      const at = height(share * highest);
      parts.push(make("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at, class: "grid" }));
      parts.push(text(LEFT - 6, at + 4, String(share * highest), "end"));
    }
    for (const { at, text: label } of this.marks.filter((mark) => mark.at > now - SECONDS)) {
      parts.push(make("line", { x1: x(at), x2: x(at), y1: top, y2: bottom, class: "mark" }));
      const near = x(at) > LEFT + 60;
      parts.push(text(x(at) + (near ? -4 : 4), top + 10, label, near ? "end" : "start", "mark-label"));
    }
    const ends = [];
    lines.forEach((line, index) => {
      const style = `line line-${(index % 4) + 1}`;
      for (const run of runs(line.points.filter((point) => point.at >= now - SECONDS))) {
        const path = run.map((point) => `${x(point.at).toFixed(1)},${height(point.value).toFixed(1)}`).join(" ");
        parts.push(make("polyline", { points: run.length > 1 ? path : `${path} ${path}`, class: style }));
      }
      const end = line.points.at(-1);
      if (end !== undefined) ends.push({ name: line.name, style, at: end.value === null ? bottom : height(end.value) });
    });
    return [...parts, ...labels(ends, top, bottom)];
  }
}

/* A word beside the end of each line, moved apart where lines meet. */
function labels(ends, top, bottom) {
  ends.sort((one, other) => one.at - other.at);
  let above = top - 16;
  for (const end of ends) above = end.at = Math.max(end.at, above + 15);
  let below = bottom + 8;
  for (const end of [...ends].reverse()) below = end.at = Math.min(end.at, below - 15);
  return ends.flatMap((end) => [
    make("line", { x1: WIDTH - RIGHT + 3, x2: WIDTH - RIGHT + 13, y1: end.at, y2: end.at, class: end.style }),
    text(WIDTH - RIGHT + 16, end.at + 4, end.name.replace("worker ", "w")),
  ]);
}

/* Stretches without gaps. */
function runs(points) {
  const found = [[]];
  for (const point of points) {
    if (point.value === null) found.push([]);
    else found.at(-1).push(point);
  }
  return found.filter((run) => run.length);
}

/* The next of 1, 2, 4, 10, 20, 40...: halves of these are short numbers. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].map((step) => step * power).find((step) => step >= value);
}

function make(kind, attributes) {
  const element = document.createElementNS(NAMESPACE, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function text(x, y, content, anchor = "start", style = "") {
  const element = make("text", { x, y, "text-anchor": anchor, class: style });
  element.textContent = content;
  return element;
}
