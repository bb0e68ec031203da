// Plots over time. They share one time axis: zooming or moving one moves all, and each then asks the server for the part in
// view, which comes in full detail. The period stands in the address, so a link shows what one sees.
"use strict";

const board = document.querySelector("[data-plots]");
const plots = [];
let whole = [0, 1];
let view = whole;
let pending = 0;
let segment = null;
let explanation = null; // What became of it.
const WIDEST_S = 3; // From a loss to the retransmission that is shown with it.

const digits = () => Math.max(1, Math.ceil(3 - Math.log10(view[1] - view[0])));

function zoom(factor, around = (view[0] + view[1]) / 2) {
  look([around - (around - view[0]) * factor, around + (view[1] - around) * factor]);
}

function look(range) {
  // No closer than a microsecond, the resolution of captures.
  const width = Math.max(Math.min(range[1] - range[0], whole[1] - whole[0]), 1e-6);
  const from = Math.max(whole[0], Math.min(range[0], whole[1] - width));
  view = [from, from + width];
  for (const plot of plots) plot.figure?.show(view);
  clearTimeout(pending);
  pending = setTimeout(() => {
    remember();
    plots.forEach(refresh);
    packets.show();
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
  showPeriod();
  document.dispatchEvent(new CustomEvent("viewed", { detail: view }));
}

function showPeriod() {
  const out = document.getElementById("range");
  if (out) out.textContent = `${view[0].toFixed(digits())} to ${view[1].toFixed(digits())} s`;
  for (const link of document.querySelectorAll("[data-export]")) {
    const url = new URL(link.href);
    url.searchParams.set("from", view[0].toFixed(6));
    url.searchParams.set("to", view[1].toFixed(6));
    link.href = url;
  }
}

function get(address, more = {}) {
  const url = new URL(address, location.href);
  for (const [key, value] of Object.entries(more)) url.searchParams.set(key, value);
  return requestJson(url);
}

// What a click or a key asks for; a failure is told beside the controls. One after the other: each goes on from where the
// one before has led, and no late answer undoes a newer choice.
let attempts = Promise.resolve();
function attempt(action) {
  attempts = attempts.then(action).catch((error) => (document.getElementById("range").textContent = error.message));
}

function ask(plot) {
  return plot.first ? get(plot.first) : get(plot.holder.dataset.plot, { from: view[0], to: view[1] });
}

// The page's head has the browser ask for the uppermost plot before any script runs; used if it is of the same period.
function prefetched(address) {
  if (!address) return null;
  const given = new URL(address, location.href).searchParams;
  const near = (key, wanted) => Math.abs(Number(given.get(key)) - wanted) < 1e-6;
  return near("from", view[0]) && near("to", view[1]) ? address : null;
}

async function refresh(plot) {
  // What failed, or was empty in its first period, may have something to show in this one.
  if (!plot.figure) return plot.holder.dataset.drawn === "true" ? draw(plot) : undefined;
  const asked = view;
  let answer;
  try {
    answer = await ask(plot);
  } catch (error) {
    // The plot still shows another period; the next zoom asks again.
    if (asked === view) trouble(plot, `This period cannot be shown: ${error.message}`);
    return;
  }
  trouble(plot, "");
  if (asked !== view || !plot.figure) return;
  plot.figure.update(answer);
  plot.figure.show(view);
  plot.holder.dataset.shown = view.join(" ");
}

function trouble(plot, words) {
  if (!words && !plot.message) return;
  if (!plot.message) {
    plot.message = document.createElement("p");
    plot.message.className = "bad";
    plot.message.setAttribute("role", "status");
    plot.board.after(plot.message);
  }
  plot.message.textContent = words;
}

async function draw(plot) {
  plot.holder.dataset.drawn = "asked";
  const asked = view;
  const answering = ask(plot);
  plot.first = null;
  try {
    const answer = await answering;
    plot.board.classList.remove("failed", "note");
    plot.board.replaceChildren();
    if (!answer.series.some((one) => one.x.length)) {
      plot.board.classList.add("note");
      plot.board.textContent = answer.empty || "No packets in this period.";
    } else {
      plot.figure = Figures.draw(plot.board, answer, {
        view, sync: "run", height: plot.height, bare: plot.isBare, onView: look, whole: () => whole,
        onDraw: (u) => plot.inspects && ring(u),
        onReady: (u) => {
          if (plot.inspects) clicks(u);
          seat(plot);
        },
      });
      plot.holder.dataset.shown = view.join(" ");
    }
  } catch (error) {
    plot.board.classList.add("failed");
    plot.board.textContent = `This plot cannot be shown: ${error.message}`;
  }
  plot.holder.dataset.drawn = "true";
  grip(plot);
  performance.mark(`drawn ${plot.holder.dataset.kind}`);
  if (asked !== view) await refresh(plot);
}

// A bar below a plot of the timeline changes its height, by the pointer or the arrow keys; the browser keeps it by kind.
const LOWEST = 80;
const HIGHEST = 900;
const NAME_GAP = 16; // Between the names of a legend, px.

function grip(plot) {
  if (!plot.holder.closest(".timeline") || plot.holder.querySelector(".grip")) return;
  const bar = document.createElement("div");
  bar.className = "grip";
  bar.tabIndex = 0;
  bar.title = "Drag to change the height; double-click for the usual one";
  for (const [name, value] of [["role", "separator"], ["aria-orientation", "horizontal"], ["aria-label", `Height of ${plot.holder.querySelector("figcaption").firstChild.textContent.trim()}`], ["aria-valuemin", LOWEST], ["aria-valuemax", HIGHEST], ["aria-valuenow", Math.round(plot.height)]]) bar.setAttribute(name, value);
  bar.addEventListener("pointerdown", (event) => {
    bar.setPointerCapture(event.pointerId);
    const [top, high] = [event.clientY, plot.height];
    bar.onpointermove = (moved) => resize(plot, high + moved.clientY - top);
    bar.onpointerup = bar.onpointercancel = () => (bar.onpointermove = null);
  });
  bar.addEventListener("dblclick", () => resize(plot, null));
  bar.addEventListener("keydown", (event) => {
    const by = { ArrowUp: -20, ArrowDown: 20 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    resize(plot, plot.height + by);
  });
  plot.holder.append(bar);
}

function resize(plot, height) {
  const { style, dataset } = plot.holder;
  if (height === null) style.removeProperty("--height");
  else style.setProperty("--height", `${Math.max(Math.min(height, HIGHEST), LOWEST)}px`);
  try {
    if (height === null) localStorage.removeItem(`height ${dataset.kind}`);
    else localStorage.setItem(`height ${dataset.kind}`, style.getPropertyValue("--height"));
  } catch {
    // Without storage the height lasts as long as the page.
  }
  fit(plot);
}

// A plot takes the height that its place has.
function fit(plot) {
  plot.height = size(plot.holder).height;
  plot.holder.querySelector(".grip")?.setAttribute("aria-valuenow", Math.round(plot.height));
  if (!plot.figure) return;
  plot.figure.options.height = plot.height;
  seat(plot);
}

// The names of a low plot of the timeline stand beside its title. Where they have no room they stand below, and the plot is
// lower by as much.
function seat(plot) {
  const { holder, board: place, figure } = plot;
  holder.classList.remove("aside");
  if (innerWidth > 900 && holder.matches(".timeline .short")) {
    const title = document.createRange();
    title.selectNode(holder.querySelector("figcaption").firstChild);
    const room = holder.querySelector(".exports").getBoundingClientRect().left - title.getBoundingClientRect().right - 40;
    const names = [...place.querySelectorAll(".u-series")].filter((row) => !row.hidden);
    const isAside = names.reduce((sum, row) => sum + row.offsetWidth + NAME_GAP, 0) < room;
    holder.classList.toggle("aside", isAside);
    figure.options.height = plot.height - (isAside ? 0 : place.querySelector(".u-legend").offsetHeight);
  }
  plot.chart.setSize({ width: place.clientWidth, height: figure.options.height });
}

addEventListener("resize", () => plots.forEach(fit));

function keptHeight(holder) {
  try {
    const kept = holder.closest(".timeline") && localStorage.getItem(`height ${holder.dataset.kind}`);
    if (kept) holder.style.setProperty("--height", kept);
  } catch {
    // As without one.
  }
}

// On a screen with room, plots are as low as style.css says, and the last one alone has the times. On paper all have them.
function size(holder) {
  const height = parseFloat(getComputedStyle(holder.querySelector(".board")).minHeight);
  const isLast = holder === [...document.querySelectorAll(".timeline > .plot")].at(-1);
  const isOnPaper = document.documentElement.dataset.paper !== undefined;
  const isBare = Boolean(holder.closest(".timeline")) && innerWidth > 900 && !isLast && !isOnPaper;
  return { height, isBare };
}

function clicks(u) {
  let down = null;
  u.over.addEventListener("mousedown", (event) => (down = [event.clientX, event.clientY]), true);
  u.over.addEventListener("click", (event) => {
    if (!down || Math.hypot(event.clientX - down[0], event.clientY - down[1]) > 4) return;
    const box = u.over.getBoundingClientRect();
    const [at, height] = [u.posToVal(event.clientX - box.left, "x"), u.posToVal(event.clientY - box.top, "y")];
    attempt(() => nearest(u, at, height));
  });
}

// Single segments ----------------------------------------------------------------------------------------------------

const heightOf = (one) => (one.direction === "data" ? one.end : one.ack ?? 0) / 1e3;
const segments = (from, to, tail, filter) => get(board.dataset.segments, { flow: board.dataset.flow, side: board.dataset.side, from, to, ...(tail ? { tail: 1 } : {}), ...(filter ? { filter } : {}) });

async function nearest(u, at, height) {
  const perPixel = (view[1] - view[0]) / u.over.clientWidth;
  // From the cursor outwards on both sides: an answer has a limit, and what is nearest must be within it.
  const [before, after] = await Promise.all([segments(at - 15 * perPixel, at, true), segments(at, at + 15 * perPixel)]);
  const found = [...before.segments, ...after.segments];
  const far = (one) => Math.hypot(u.valToPos(one.time_s, "x") - u.valToPos(at, "x"), u.valToPos(heightOf(one), "y") - u.valToPos(height, "y"));
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

function choose(one, widens = false) {
  segment = one;
  const panel = document.getElementById("segment");
  const rows = [
    ["Time", `${one.time_s.toFixed(6)} s`],
    ["Kind", one.classes.join(", ") || "–"],
    ["Flags", one.flags.join(" ") || "–"],
    ["Bytes", one.payload ? `${one.seq} to ${one.end} (${one.payload} of data, ${one.ip_bytes} with headers)` : `none (${one.ip_bytes} with headers)`],
    ["Acknowledges", one.ack ?? "–"],
    ...(one.sack.length ? [["SACK blocks", one.sack.map(([left, right]) => `${left} to ${right}`).join(", ")]] : []),
    ["Window", `${one.window} bytes`],
    ["Round trip", one.rtt_ms == null ? "no sample" : `${one.rtt_ms} ms`],
    ["In order up to", one.in_order],
  ];
  const list = document.createElement("dl");
  list.className = "pairs";
  for (const [name, value] of rows) {
    const [pair, term, text] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
    term.textContent = name;
    text.textContent = value;
    pair.append(term, text);
    list.append(pair);
  }
  const head = document.createElement("h3");
  head.textContent = one.direction === "data" ? "Data segment" : "Segment from the receiver";
  const buttons = document.createElement("span");
  for (const [word, direction] of [["Previous", -1], ["Next", 1]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = word;
    button.addEventListener("click", () => attempt(() => step(direction)));
    buttons.append(button, " ");
  }
  const told = document.createElement("p");
  told.className = "fate";
  const line = document.createElement("div");
  line.className = "headline";
  line.append(head, buttons);
  panel.replaceChildren(line, told, list);
  panel.hidden = false;
  explanation = null;
  packets.mark();
  follow(one, told, widens);
  keep(one);
  if (one.time_s < view[0] || one.time_s > view[1]) {
    const half = (view[1] - view[0]) / 2;
    look([one.time_s - half, one.time_s + half]);
  }
  for (const plot of plots) if (plot.inspects) plot.chart?.redraw(false, false);
}

// The list of the packets in view, beside the time-sequence plot: a row chooses a segment, and the chosen one has its row.
const packets = {
  panel: document.getElementById("packets"),
  rows: [],
  asked: 0,
  async show() {
    if (!this.panel?.open) return;
    const mine = ++this.asked;
    const out = document.getElementById("packets-shown");
    const filter = this.panel.querySelector("input").value.trim();
    const [from, to] = view;
    try {
      const { total, segments: found } = await segments(from, to, false, filter);
      if (mine !== this.asked) return;
      out.textContent = total > found.length ? `the first ${found.length} of ${total} in view` : `${total} in view`;
      this.rows = found;
    } catch (error) {
      if (mine !== this.asked) return;
      out.textContent = error.message;
      this.rows = [];
    }
    this.fill();
  },
  fill() {
    const lines = this.rows.map((one) => {
      const line = document.createElement("tr");
      const cells = [0, 1, 2].map(() => document.createElement("td"));
      const time = Object.assign(document.createElement("button"), { type: "button", className: "plain", textContent: one.time_s.toFixed(6) });
      cells[0].className = "number";
      cells[0].append(time);
      cells[1].textContent = one.direction === "data" ? (one.payload ? `${one.seq} to ${one.end}` : "no data") : `ack ${one.ack ?? "–"}`;
      cells[2].textContent = [...one.flags.filter((flag) => flag !== "ACK" && flag !== "PSH"), ...one.classes.filter((word) => !["data", "new", "pure ack"].includes(word))].join(", ");
      line.append(...cells);
      line.addEventListener("click", () => attempt(() => choose(one)));
      return line;
    });
    this.panel.querySelector("tbody").replaceChildren(...lines);
    this.mark();
  },
  mark() {
    if (!this.panel?.open) return;
    const at = segment ? this.rows.findIndex((one) => same(one, segment)) : -1;
    this.panel.querySelectorAll("tbody tr").forEach((line, index) => {
      line.classList.toggle("near", index === at);
      if (index !== at) return line.removeAttribute("aria-current");
      line.setAttribute("aria-current", "true");
      // The list scrolls, not the page.
      const list = this.panel.querySelector(".scroll");
      const [top, bottom] = [line.offsetTop - list.querySelector("thead").offsetHeight, line.offsetTop + line.offsetHeight];
      if (top < list.scrollTop) list.scrollTop = top;
      else if (bottom > list.scrollTop + list.clientHeight) list.scrollTop = bottom - list.clientHeight;
    });
  },
};

// What became of a data segment that the sender sent: lost where and why, retransmitted when and why.
async function follow(one, told, widens) {
  if (one.direction !== "data" || !one.payload || board.dataset.side !== "sender") return;
  told.textContent = "Following it through the captures…";
  const seen = view;
  let found;
  try {
    found = await get(board.dataset.fate, { flow: board.dataset.flow, seq: one.seq, payload: one.payload, at: one.time_s });
  } catch (error) {
    if (one === segment) told.textContent = error.message;
    return;
  }
  if (one !== segment) return;
  explanation = found;
  told.textContent = found.sentence;
  // With its retransmission, if that is near and nobody has zoomed meanwhile.
  if (widens && view === seen && found.again_s > view[1] && found.again_s < one.time_s + WIDEST_S) look([view[0], found.again_s + 0.1]);
  for (const plot of plots) if (plot.inspects) plot.chart?.redraw(false, false);
}

// The chosen segment stands in the address.
function keep(one) {
  const url = new URL(location.href);
  url.searchParams.set("segment", `${one.time_s.toFixed(9)} ${one.end} ${one.direction}`);
  history.replaceState(history.state, "", url);
}

async function chosenByAddress(text) {
  const [t, end, direction] = (text ?? "").split(" ");
  if (!direction || !board.dataset.segments) return;
  const found = (await segments(Number(t) - 2e-6, Number(t) + 2e-6)).segments;
  const one = found.find((each) => each.end === Number(end) && each.direction === direction);
  if (one) choose(one);
}

// A line from the transmission over its loss to the next transmission.
function path(u) {
  if (!explanation) return;
  const [x, y] = [(t) => u.valToPos(t, "x", true), u.valToPos(heightOf(segment), "y", true)];
  const end = explanation.again_s ?? explanation.arrived_s ?? explanation.lost?.t_s ?? explanation.sent_s;
  const ratio = devicePixelRatio;
  u.ctx.strokeStyle = Figures.color(explanation.lost ? "mark" : "s2");
  u.ctx.lineWidth = 1.5 * ratio;
  u.ctx.setLineDash([5 * ratio, 4 * ratio]);
  u.ctx.beginPath();
  u.ctx.moveTo(x(explanation.sent_s), y);
  u.ctx.lineTo(x(end), y);
  u.ctx.stroke();
  u.ctx.setLineDash([]);
  if (!explanation.lost) return;
  const [at, r] = [x(explanation.lost.t_s), 6 * ratio];
  u.ctx.beginPath();
  for (const way of [-1, 1]) {
    u.ctx.moveTo(at - r, y - way * r);
    u.ctx.lineTo(at + r, y + way * r);
  }
  u.ctx.stroke();
}

function ring(u) {
  if (!segment || segment.time_s < view[0] || segment.time_s > view[1]) return;
  const [x, y] = [u.valToPos(segment.time_s, "x", true), u.valToPos(heightOf(segment), "y", true)];
  u.ctx.save();
  u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  u.ctx.clip();
  path(u);
  u.ctx.strokeStyle = Figures.color("ink");
  u.ctx.lineWidth = 2 * devicePixelRatio;
  u.ctx.beginPath();
  u.ctx.arc(x, y, 7 * devicePixelRatio, 0, 2 * Math.PI);
  u.ctx.stroke();
  u.ctx.restore();
}

// What one can go to: names of series of the first plot.
const SOUGHT = {
  retransmission: (name) => name.endsWith("retransmission"),
  loss: (name) => name === "never arrived",
  timeout: (name) => name === "timeout retransmission",
};

// To the next retransmission, loss or timeout, or the one before, close enough to tell it from its neighbours; after the
// last, the first. Several segments may leave in one instant: their last bytes tell them apart.
async function seek(what, direction) {
  if (what === "idle") return seekIdle(direction);
  const answer = await get(plots[0].holder.dataset.plot, { from: whole[0], to: whole[1] });
  const marks = answer.series.filter((one) => SOUGHT[what](one.name)).flatMap((one) => one.x.map((t, index) => [t, Math.round(one.y[index] * 1e3)]));
  if (!marks.length) return (document.getElementById("range").textContent = `no ${what} in this run`);
  marks.sort((a, b) => direction * (a[0] - b[0] || a[1] - b[1]));
  const inView = segment && segment.time_s >= view[0] && segment.time_s <= view[1];
  const here = inView ? [segment.time_s, segment.end] : [direction > 0 ? view[0] : view[1], direction > 0 ? -1 : Infinity];
  // Series have rounded times, segments exact ones.
  const beyond = ([t, end]) => direction * (t - here[0]) > 2e-6 || (Math.abs(t - here[0]) <= 2e-6 && direction * (end - here[1]) > 0);
  const [t, end] = marks.find(beyond) ?? marks[0];
  const found = (await segments(t - 2e-6, t + 2e-6)).segments.find((one) => one.direction === "data" && one.end === end);
  if (found) zoomTo(found, what === "loss");
}

// To the next pause of the sender, or the one before; after the last, the first.
async function seekIdle(direction) {
  const { longer_than_s: least, periods } = await get(board.dataset.idle, { flow: board.dataset.flow });
  const middle = (view[0] + view[1]) / 2;
  const whole_ = view[0] === whole[0] && view[1] === whole[1];
  const here = whole_ ? (direction > 0 ? -Infinity : Infinity) : middle;
  const ordered = direction > 0 ? periods : [...periods].reverse();
  const next = ordered.find(([from, to]) => direction * ((from + to) / 2 - here) > 1e-3) ?? ordered[0];
  if (next) {
    const room = 0.15 * (next[1] - next[0]);
    look([next[0] - room, next[1] + room]);
  }
  clearTimeout(pending);
  remember();
  plots.forEach(refresh);
  document.getElementById("range").textContent += next ? `: no data sent for ${(next[1] - next[0]).toFixed(3)} s` : `: no pause of the sender is longer than ${least} s`;
}

function zoomTo(one, widens = false) {
  look([one.time_s - 0.25, one.time_s + 0.25]);
  choose(one, widens);
}

// Setting up ---------------------------------------------------------------------------------------------------------

if (board) {
  whole = [0, Number(board.dataset.duration)];
  const given = new URLSearchParams(location.search);
  const [from, to] = [parseFloat(given.get("from")), parseFloat(given.get("to"))];
  view = Number.isFinite(from) && Number.isFinite(to) && to > from && from < whole[1] && to > 0 ? [Math.max(from, 0), Math.min(to, whole[1])] : whole;
  showPeriod();
  for (const holder of board.querySelectorAll(".plot")) {
    keptHeight(holder);
    const inspects = Boolean(board.dataset.segments) && holder.dataset.kind === (board.dataset.side === "sender" ? "sequence" : "received");
    const first = prefetched(holder.dataset.first);
    plots.push({ holder, first, board: holder.querySelector(".board"), inspects, ...size(holder), figure: null, get chart() { return this.figure?.plot ?? null; } });
  }
  // Before its figures do so: they are drawn again with these sizes.
  document.addEventListener("themed", () => {
    for (const plot of plots) {
      Object.assign(plot, size(plot.holder));
      if (plot.figure) Object.assign(plot.figure.options, { height: plot.height, bare: plot.isBare });
    }
  });
  // The uppermost at once, then those on screen, one after the other; the rest when they come near.
  let before = draw(plots[0]);
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        near.unobserve(entry.target);
        before = before.then(() => draw(plots.find((plot) => plot.holder === entry.target)));
      }
    }
  }, { rootMargin: "300px" });
  plots.slice(1).forEach((plot) => near.observe(plot.holder));
  const move = (share) => look([view[0] + share * (view[1] - view[0]), view[1] + share * (view[1] - view[0])]);
  const ways = { in: () => zoom(0.5), out: () => zoom(2), all: () => look(whole), back: () => move(-0.25), on: () => move(0.25) };
  for (const button of board.querySelectorAll("[data-zoom]")) button.addEventListener("click", ways[button.dataset.zoom]);
  for (const button of board.querySelectorAll("[data-seek]")) button.addEventListener("click", () => attempt(() => seek(button.dataset.seek, Number(button.dataset.way))));
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const keys = {
      l: () => attempt(() => seek("loss", 1)), L: () => attempt(() => seek("loss", -1)),
      t: () => attempt(() => seek("timeout", 1)), T: () => attempt(() => seek("timeout", -1)),
      i: () => attempt(() => seek("idle", 1)), I: () => attempt(() => seek("idle", -1)),
      "+": ways.in, "=": ways.in, "-": ways.out, "0": ways.all,
      ArrowLeft: () => (event.shiftKey ? attempt(() => step(-1)) : ways.back()),
      ArrowRight: () => (event.shiftKey ? attempt(() => step(1)) : ways.on()),
    };
    // Only where there are segments, letters seek.
    if (!keys[event.key] || (/^[a-z]$/i.test(event.key) && !board.dataset.segments)) return;
    event.preventDefault();
    keys[event.key]();
  });
  if (packets.panel) {
    let typing = 0;
    packets.panel.addEventListener("toggle", () => packets.show());
    packets.panel.querySelector("input").addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => packets.show(), 200);
    });
    // Beside the plot there is room for it from the start.
    before = before.then(() => (packets.panel.open ||= innerWidth > 1100));
  }
  document.getElementById("print")?.addEventListener("click", async () => {
    await before;
    for (const plot of plots) if (!plot.holder.dataset.drawn && !plot.holder.closest("details:not([open])")) await draw(plot);
    print();
  });
  attempt(() => chosenByAddress(given.get("segment")));
}
