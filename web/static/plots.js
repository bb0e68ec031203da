// Plots over time. They share one time axis: zooming or moving one moves all, and each then asks the server for the part in
// view, which comes in full detail. The period stands in the address, so a link shows what one sees.
"use strict";

const board = document.querySelector("[data-plots]");
const plots = [];
let whole = [0, 1];
let view = whole;
let pending = 0;
let segment = null;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const isDots = (one) => one.style === "dots" || one.style === "marks";
const digits = () => Math.max(1, Math.ceil(3 - Math.log10(view[1] - view[0])));

// Upright lines, each from one edge to the other at one instant.
function bars(u, index, from, to) {
  const stroke = new Path2D();
  const [x, y] = [u.data[0], u.data[index]];
  let low = -1;
  for (let at = from; at <= to; at++) {
    if (y[at] == null) continue;
    if (low < 0 || x[at] - x[low] > 1e-6) {
      low = at;
      continue;
    }
    const left = u.valToPos(x[low], "x", true);
    stroke.moveTo(left, u.valToPos(y[low], "y", true));
    stroke.lineTo(left, u.valToPos(y[at], "y", true));
    low = -1;
  }
  return { stroke, fill: null, clip: null, band: null, gaps: null, flags: 0 };
}

function seriesOf(one) {
  const stroke = color(one.ink);
  const dots = isDots(one);
  return {
    label: one.name,
    // The window may reach far beyond what is in flight, and then runs out of the picture.
    auto: one.name !== "window",
    stroke,
    width: dots ? 0 : 1.5,
    dash: one.dash,
    spanGaps: !dots,
    paths: dots ? () => null : one.style === "bars" ? bars : one.style === "steps" ? uPlot.paths.stepped({ align: 1 }) : undefined,
    points: { show: dots, size: one.style === "marks" ? 7 : 3.4, fill: stroke, stroke, width: 0 },
    value: (_, y) => (y == null ? "" : +y.toPrecision(7)),
  };
}

// Thinning keeps extremes, so many points share an instant; uPlot wants each x once. A tiny step keeps them apart.
function aligned(series) {
  if (!series.length) return [[]];
  return uPlot.join(series.map((one) => {
    const x = [];
    let last = -Infinity;
    for (const t of one.x) {
      last = t > last ? t : last + 1e-8;
      x.push(last);
    }
    return [x, one.y];
  }));
}

function options(plot, series, axisTitle) {
  const axis = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 }, font: "12px system-ui" };
  const fit = (_, low, high) => {
    if (low == null) return [0, 1];
    const pad = (high - low || Math.abs(high) || 1) * 0.05;
    // From zero on, unless one has zoomed to where zero is far away.
    return [low > 0.4 * high ? low - pad : Math.min(low, 0), high + pad];
  };
  return {
    width: plot.board.clientWidth,
    height: plot.figure.classList.contains("short") ? 190 : 320,
    scales: { x: { time: false, range: () => view }, y: { range: fit } },
    axes: [{ ...axis, size: 34 }, { ...axis, label: axisTitle, labelSize: 22, size: 66, labelFont: "12px system-ui" }],
    series: [{ label: "time", value: (_, x) => (x == null ? "" : `${x.toFixed(digits())} s`) }, ...series.map(seriesOf)],
    cursor: { sync: { key: "run", setSeries: false, scales: ["x", null] }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    // A series of points has a line of width 0, and would have an invisible marker.
    legend: { markers: { width: 0, fill: (u, index) => (index ? u.series[index].stroke() : null) } },
    hooks: {
      setSelect: [(u) => {
        if (u.select.width < 3) return;
        look([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      }],
      draw: [(u) => plot.inspects && ring(u)],
      ready: [(u) => moving(u, plot)],
    },
  };
}

function moving(u, plot) {
  let down = null;
  u.over.addEventListener("dblclick", () => look(whole));
  u.over.addEventListener("mousedown", (event) => {
    down = [event.clientX, event.clientY];
    if (!event.shiftKey) return;
    event.stopImmediatePropagation();
    const start = view;
    const perPixel = (start[1] - start[0]) / u.over.clientWidth;
    const move = (moved) => look([start[0] + (event.clientX - moved.clientX) * perPixel, start[1] + (event.clientX - moved.clientX) * perPixel]);
    const up = () => {
      document.removeEventListener("mousemove", move);
      document.removeEventListener("mouseup", up);
    };
    document.addEventListener("mousemove", move);
    document.addEventListener("mouseup", up);
  }, true);
  u.over.addEventListener("click", (event) => {
    if (!plot.inspects || !down || Math.hypot(event.clientX - down[0], event.clientY - down[1]) > 4) return;
    const box = u.over.getBoundingClientRect();
    nearest(u, event.clientX - box.left, event.clientY - box.top);
  });
  u.over.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.7 : 1 / 0.7, u.posToVal(event.clientX - u.over.getBoundingClientRect().left, "x"));
  }, { passive: false });
}

function zoom(factor, around = (view[0] + view[1]) / 2) {
  look([around - (around - view[0]) * factor, around + (view[1] - around) * factor]);
}

function look(range) {
  // No closer than a microsecond: captures tell no more.
  const width = Math.max(Math.min(range[1] - range[0], whole[1] - whole[0]), 1e-6);
  const from = Math.max(whole[0], Math.min(range[0], whole[1] - width));
  view = [from, from + width];
  for (const plot of plots) if (plot.chart) plot.chart.setScale("x", { min: view[0], max: view[1] });
  clearTimeout(pending);
  pending = setTimeout(() => {
    remember();
    plots.forEach(refresh);
  }, 120);
}

function remember() {
  const url = new URL(location.href);
  const all = view[0] === whole[0] && view[1] === whole[1];
  for (const [key, value] of [["from", view[0]], ["to", view[1]]]) {
    if (all) url.searchParams.delete(key);
    else url.searchParams.set(key, value.toFixed(6));
    const field = document.querySelector(`[data-plots] input[name=${key}]`);
    if (field) field.value = all ? "" : value.toFixed(6);
  }
  history.replaceState(history.state, "", url);
  told();
}

function told() {
  const out = document.getElementById("range");
  if (out) out.textContent = `${view[0].toFixed(digits())} to ${view[1].toFixed(digits())} s`;
  for (const link of document.querySelectorAll("[data-export]")) {
    const url = new URL(link.href);
    url.searchParams.set("from", view[0].toFixed(6));
    url.searchParams.set("to", view[1].toFixed(6));
    link.href = url;
  }
}

async function get(address, more) {
  const url = new URL(address, location.href);
  for (const [key, value] of Object.entries(more)) url.searchParams.set(key, value);
  const response = await fetch(url);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// What a figure shows: one source's series, or of each of several the one that stands for it, in that source's colour.
async function ask(plot) {
  const period = { from: view[0], to: view[1] };
  if (!plot.sources) return get(plot.first ?? plot.figure.dataset.plot, plot.first ? {} : period);
  const answers = await Promise.all(plot.sources.map((one) => get(one.url, period)));
  const series = answers.flatMap((answer, number) => {
    const source = plot.sources[number];
    const lines = answer.series.filter((one) => plot.figure.dataset.kind === "sequence" ? one.name === "acknowledged" : one.style !== "marks" && one.name !== "ssthresh");
    return lines.map((one) => ({ ...one, name: lines.length > 1 ? `${source.label}: ${one.name}` : source.label, ink: source.ink }));
  });
  return { y: answers[0].y, series, note: answers[0].note };
}

// The page's head has the browser ask for the uppermost plot before any script runs; taken if it is of the same period.
function atHand(address) {
  if (!address) return null;
  const given = new URL(address, location.href).searchParams;
  const near = (key, wanted) => Math.abs(Number(given.get(key)) - wanted) < 1e-6;
  return near("from", view[0]) && near("to", view[1]) ? address : null;
}

async function refresh(plot) {
  if (!plot.chart) return;
  const asked = view;
  let answer;
  try {
    answer = await ask(plot);
  } catch (error) {
    // What stands there is of another period; the next zoom asks again.
    if (asked === view) trouble(plot, `This period cannot be shown: ${error.message}`);
    return;
  }
  trouble(plot, "");
  if (asked !== view || !plot.chart) return;
  // Marks may come into view that there were none of before.
  const shape = JSON.stringify(answer.series.map((one) => one.name));
  if (shape !== plot.shape) return build(plot, answer);
  plot.chart.setData(aligned(answer.series), false);
  plot.chart.setScale("x", { min: view[0], max: view[1] });
  plot.figure.dataset.shown = view.join(" ");
}

function trouble(plot, words) {
  if (!words && !plot.said) return;
  if (!plot.said) {
    plot.said = document.createElement("p");
    plot.said.className = "bad";
    plot.said.setAttribute("role", "status");
    plot.board.after(plot.said);
  }
  plot.said.textContent = words;
}

function build(plot, answer) {
  plot.chart?.destroy();
  plot.board.replaceChildren();
  plot.shape = JSON.stringify(answer.series.map((one) => one.name));
  plot.answer = answer;
  plot.chart = new uPlot(options(plot, answer.series, answer.y), aligned(answer.series), plot.board);
  plot.figure.dataset.shown = view.join(" ");
}

async function draw(plot) {
  plot.figure.dataset.drawn = "asked";
  try {
    const answer = await ask(plot);
    plot.first = null;
    if (!answer.series.some((one) => one.x.length)) {
      plot.board.classList.add("note");
      plot.board.textContent = answer.note ? `${answer.note[0].toUpperCase()}${answer.note.slice(1)}.` : "Nothing happened here.";
    } else {
      build(plot, answer);
      new ResizeObserver(() => plot.chart.setSize({ width: plot.board.clientWidth, height: plot.chart.height })).observe(plot.board);
    }
  } catch (error) {
    plot.board.classList.add("failed");
    plot.board.textContent = `This plot cannot be shown: ${error.message}`;
  }
  plot.figure.dataset.drawn = "true";
  performance.mark(`drawn ${plot.figure.dataset.kind}`);
}

// Single segments ----------------------------------------------------------------------------------------------------

const heightOf = (one) => (one.direction === "data" ? one.end : one.ack ?? 0) / 1e3;
const segments = (from, to, tail) => get(board.dataset.segments, { flow: board.dataset.flow, side: board.dataset.side, from, to, ...(tail ? { tail: 1 } : {}) });

async function nearest(u, left, top) {
  const perPixel = (view[1] - view[0]) / u.over.clientWidth;
  const at = u.posToVal(left, "x");
  // From the cursor outwards on both sides: an answer has a limit, and what is nearest must be within it.
  const [before, after] = await Promise.all([segments(at - 15 * perPixel, at, true), segments(at, at + 15 * perPixel)]);
  const found = [...before.segments, ...after.segments];
  const far = (one) => Math.hypot(u.valToPos(one.time_s, "x") - left, u.valToPos(heightOf(one), "y") - top);
  const best = found.reduce((a, b) => (a && far(a) <= far(b) ? a : b), null);
  if (best) choose(best);
}

const same = (one, other) => ["time_s", "direction", "seq", "ack", "end"].every((key) => one[key] === other[key]);

async function step(direction) {
  if (!segment) {
    // The first step chooses what is first, or last, in view.
    const { segments: inView } = await segments(view[0], view[1], direction < 0);
    const first = inView.at(direction < 0 ? -1 : 0);
    if (first) choose(first);
    return;
  }
  for (let span = (view[1] - view[0]) / 10; span < 4 * (whole[1] - whole[0]); span *= 4) {
    const found = direction > 0 ? await segments(segment.time_s - 1e-9, segment.time_s + span) : await segments(segment.time_s - span, segment.time_s + 1e-9, true);
    const index = found.segments.findIndex((one) => same(one, segment));
    const next = found.segments[index + direction];
    if (index >= 0 && next) return choose(next);
  }
}

function choose(one) {
  segment = one;
  const panel = document.getElementById("segment");
  const rows = [
    ["Time", `${one.time_s.toFixed(6)} s`],
    ["What", one.classes.join(", ") || "–"],
    ["Flags", one.flags.join(" ") || "–"],
    ["Bytes", one.payload ? `${one.seq} to ${one.end} (${one.payload} of data, ${one.ip_bytes} with headers)` : `none (${one.ip_bytes} with headers)`],
    ["Acknowledges", one.ack ?? "–"],
    ...(one.sack.length ? [["Holds beyond (SACK)", one.sack.map(([left, right]) => `${left} to ${right}`).join(", ")]] : []),
    ["Window", `${one.window} bytes`],
    ["Round trip", one.rtt_ms == null ? "no sample" : `${one.rtt_ms} ms`],
    ["In order up to", one.in_order],
  ];
  const list = document.createElement("dl");
  list.className = "pairs";
  for (const [name, value] of rows) {
    const term = document.createElement("dt");
    const told_ = document.createElement("dd");
    term.textContent = name;
    told_.textContent = value;
    list.append(term, told_);
  }
  const head = document.createElement("h3");
  head.textContent = one.direction === "data" ? "Data segment" : "Segment of the receiver";
  const buttons = document.createElement("p");
  for (const [word, direction] of [["Previous", -1], ["Next", 1]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = word;
    button.addEventListener("click", () => step(direction));
    buttons.append(button, " ");
  }
  panel.replaceChildren(head, list, buttons);
  panel.hidden = false;
  if (one.time_s < view[0] || one.time_s > view[1]) {
    const half = (view[1] - view[0]) / 2;
    look([one.time_s - half, one.time_s + half]);
  }
  for (const plot of plots) if (plot.inspects && plot.chart) plot.chart.redraw(false, false);
}

function ring(u) {
  if (!segment || segment.time_s < view[0] || segment.time_s > view[1]) return;
  const [x, y] = [u.valToPos(segment.time_s, "x", true), u.valToPos(heightOf(segment), "y", true)];
  u.ctx.save();
  u.ctx.strokeStyle = color("ink");
  u.ctx.lineWidth = 2 * devicePixelRatio;
  u.ctx.beginPath();
  u.ctx.arc(x, y, 7 * devicePixelRatio, 0, 2 * Math.PI);
  u.ctx.stroke();
  u.ctx.restore();
}

// To the next segment that was sent again, close enough to tell it from its neighbours; after the last, the first. The
// series has times to a microsecond, segments to a nanosecond: where to go on is told by the segment's own time.
async function nextAgain() {
  const current = segment && segment.time_s >= view[0] && segment.time_s <= view[1] ? segment : null;
  const after = current ? current.time_s : view[0];
  const answer = await get(plots[0].figure.dataset.plot, { from: whole[0], to: whole[1] });
  const times = answer.series.filter((one) => one.name.endsWith("retransmission")).flatMap((one) => one.x).sort((a, b) => a - b);
  for (const t of [...times.filter((one) => one >= after - 2e-6), ...times.slice(0, 1)]) {
    const found = (await segments(t - 2e-6, t + 2e-6)).segments.filter((one) => one.classes.includes("retransmission"));
    // Several may have left in one instant: then those behind the current one are next.
    const index = current ? found.findIndex((one) => same(one, current)) : -1;
    const next = index >= 0 ? found[index + 1] : found.find((one) => one.time_s >= after || t < after - 2e-6);
    if (next) return zoomTo(next);
  }
  if (!times.length) document.getElementById("range").textContent = "nothing was sent again";
}

function zoomTo(one) {
  look([one.time_s - 0.25, one.time_s + 0.25]);
  choose(one);
}

// Setting up ---------------------------------------------------------------------------------------------------------

if (board) {
  whole = [0, Number(board.dataset.duration)];
  const given = new URLSearchParams(location.search);
  const [from, to] = [parseFloat(given.get("from")), parseFloat(given.get("to"))];
  view = Number.isFinite(from) && Number.isFinite(to) && to > from && from < whole[1] && to > 0 ? [Math.max(from, 0), Math.min(to, whole[1])] : whole;
  told();
  for (const figure of board.querySelectorAll(".plot")) {
    const sources = figure.dataset.sources ? JSON.parse(figure.dataset.sources) : null;
    plots.push({ figure, sources, first: atHand(figure.dataset.first), board: figure.querySelector(".board"), inspects: !sources && ["sequence", "received"].includes(figure.dataset.kind) });
  }
  // The uppermost at once, then those on screen, one after the other; the rest when they come near.
  let before = draw(plots[0]);
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        near.unobserve(entry.target);
        before = before.then(() => draw(plots.find((plot) => plot.figure === entry.target)));
      }
    }
  }, { rootMargin: "300px" });
  plots.slice(1).forEach((plot) => near.observe(plot.figure));
  const move = (share) => look([view[0] + share * (view[1] - view[0]), view[1] + share * (view[1] - view[0])]);
  const ways = { in: () => zoom(0.5), out: () => zoom(2), all: () => look(whole), back: () => move(-0.25), on: () => move(0.25) };
  for (const button of board.querySelectorAll("[data-zoom]")) button.addEventListener("click", ways[button.dataset.zoom]);
  board.querySelector("[data-next]")?.addEventListener("click", nextAgain);
  document.addEventListener("themed", () => plots.forEach((plot) => plot.chart && build(plot, plot.answer)));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const keys = {
      "+": ways.in, "=": ways.in, "-": ways.out, "0": ways.all,
      ArrowLeft: () => (event.shiftKey ? step(-1) : ways.back()),
      ArrowRight: () => (event.shiftKey ? step(1) : ways.on()),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}
