// Draws the figures that are in the page (analysis/plots/page.py) and lets one zoom, move and read them.
"use strict";

const panels = JSON.parse(document.getElementById("data").textContent).map(show);
const ROOM = { left: 74, right: 14, top: 8, bottom: 44 };
panels.forEach((panel) => panel.draw());

function make(tag, parent, text = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  parent.append(made);
  return made;
}

function show(figure) {
  const section = make("section", document.querySelector("main"));
  if (figure.title) make("h1", section, figure.title);
  const canvas = make("canvas", section);
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", [figure.title, figure.y.label, "over", figure.x.label].join(" "));
  const told = make("p", section);
  told.className = "told";
  told.setAttribute("aria-live", "polite");
  const legend = make("div", section);
  legend.className = "legend";
  const panel = { figure, canvas, told, whole: { x: inner(figure.x), y: inner(figure.y) }, hidden: new Set(), box: null };
  panel.view = { x: [...panel.whole.x], y: [...panel.whole.y] };
  panel.draw = () => draw(panel);
  for (const name of new Set(figure.series.map((one) => one.name).filter(Boolean))) {
    const own = figure.series.filter((one) => one.name === name);
    const button = make("button", legend);
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    make("i", button).style.background = own[0].colour;
    button.append(name);
    const thinned = own.find((one) => one.x.length < one.total);
    if (thinned) button.title = `${thinned.x.length} of ${thinned.total} points: the extremes of each slice of time`;
    button.addEventListener("click", () => {
      const off = panel.hidden.delete(name) ? false : Boolean(panel.hidden.add(name));
      button.setAttribute("aria-pressed", String(!off));
      panel.draw();
    });
  }
  for (const note of figure.notes) make("p", section, note).className = "told";
  const fewer = figure.series.filter((one) => one.x.length < one.total);
  if (fewer.length) {
    make("p", section, "Long series are thinned to the extremes of slices of time: draw a shorter part to see all of it.").className = "told";
  }
  listen(panel);
  new ResizeObserver(() => panel.draw()).observe(canvas);
  return panel;
}

// A view is kept as it is drawn: logarithms on a logarithmic axis.
function inner(axis) {
  return axis.limits.map((end) => (axis.log ? Math.log10(end) : end));
}

function at(axis, value) {
  return axis.log ? Math.log10(value) : value;
}

function places(panel) {
  const { width, height } = panel.canvas.getBoundingClientRect();
  const [wide, high] = [Math.max(width - ROOM.left - ROOM.right, 10), Math.max(height - ROOM.top - ROOM.bottom, 10)];
  const { view, figure } = panel;
  const perX = wide / (view.x[1] - view.x[0]);
  const perY = high / (view.y[1] - view.y[0]);
  return {
    width, height, wide, high, perX, perY,
    x: (value) => ROOM.left + (at(figure.x, value) - view.x[0]) * perX,
    y: (value) => ROOM.top + high - (at(figure.y, value) - view.y[0]) * perY,
    valueX: (left) => view.x[0] + (left - ROOM.left) / perX,
    valueY: (top) => view.y[0] + (ROOM.top + high - top) / perY,
  };
}

// Drawing ------------------------------------------------------------------------------------------------------------

function draw(panel) {
  const { canvas, figure, view } = panel;
  const to = places(panel);
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(to.width * scale);
  canvas.height = Math.round(to.height * scale);
  const ink = canvas.getContext("2d");
  ink.scale(scale, scale);
  ink.font = "12px system-ui, sans-serif";
  ticks(panel, ink, to);
  ink.save();
  ink.beginPath();
  ink.rect(ROOM.left, ROOM.top, to.wide, to.high);
  ink.clip();
  for (const one of figure.series) if (!panel.hidden.has(one.name)) paint(one, ink, to, view, figure);
  if (panel.near) ring(panel.near, ink, to);
  ink.restore();
  if (panel.box) {
    ink.fillStyle = "#0072b226";
    ink.fillRect(panel.box[0], panel.box[1], panel.box[2] - panel.box[0], panel.box[3] - panel.box[1]);
  }
  canvas.dataset.view = JSON.stringify(view);
}

function ticks(panel, ink, to) {
  const { figure, view } = panel;
  ink.strokeStyle = "#dddddd";
  ink.fillStyle = "#5d6966";
  ink.lineWidth = 1;
  ink.textBaseline = "middle";
  ink.textAlign = "right";
  for (const [value, label] of chosen(figure.y, view.y, to.high / 45)) {
    const y = Math.round(to.y(value)) + 0.5;
    line(ink, ROOM.left, y, ROOM.left + to.wide, y);
    ink.fillText(label, ROOM.left - 6, y);
  }
  ink.textBaseline = "top";
  ink.textAlign = "center";
  let free = -Infinity;
  for (const [value, label] of chosen(figure.x, view.x, to.wide / 90)) {
    const x = Math.round(to.x(value)) + 0.5;
    if (!figure.x.ticks) line(ink, x, ROOM.top, x, ROOM.top + to.high);
    const half = ink.measureText(label).width / 2;
    // What a label has no room for is told when one points at it.
    if (x - half < free) continue;
    ink.fillText(label, x, ROOM.top + to.high + 6);
    free = x + half + 6;
  }
  ink.fillStyle = "#1c2321";
  ink.fillText(figure.x.label, ROOM.left + to.wide / 2, ROOM.top + to.high + 25);
  ink.save();
  ink.translate(12, ROOM.top + to.high / 2);
  ink.rotate(-Math.PI / 2);
  ink.textBaseline = "middle";
  ink.fillText(figure.y.label, 0, 0);
  ink.restore();
  ink.strokeStyle = "#1c2321";
  line(ink, ROOM.left + 0.5, ROOM.top, ROOM.left + 0.5, ROOM.top + to.high);
  line(ink, ROOM.left, ROOM.top + to.high + 0.5, ROOM.left + to.wide, ROOM.top + to.high + 0.5);
}

function line(ink, ...ends) {
  ink.beginPath();
  ink.moveTo(ends[0], ends[1]);
  ink.lineTo(ends[2], ends[3]);
  ink.stroke();
}

// Places and labels of ticks in view: the figure's own where it has some, else round numbers.
function chosen(axis, [low, high], most) {
  const inside = (value) => at(axis, value) >= low - 1e-9 * (high - low) && at(axis, value) <= high + 1e-9 * (high - low);
  if (axis.ticks) return axis.ticks.filter(([value]) => inside(value));
  if (axis.log && high - low > 1) {
    const found = [];
    for (let power = Math.floor(low); power <= Math.ceil(high); power++) for (const first of high - low > 3 ? [1] : [1, 2, 5]) found.push(first * 10 ** power);
    return found.filter(inside).map((value) => [value, String(+value.toPrecision(3))]);
  }
  const [from, to] = axis.log ? [10 ** low, 10 ** high] : [low, high];
  const rough = (to - from) / Math.max(most, 2);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((first) => first * power).find((one) => one >= rough) ?? rough;
  const digits = Math.min(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), 12);
  const found = [];
  for (let number = Math.ceil(from / step); number * step <= to && found.length < 100; number++) found.push(number * step);
  return found.filter((value) => !axis.log || value > 0).map((value) => [value, value.toFixed(digits)]);
}

// From the last point before the view to the first after it.
function inView(one, [low, high], axis) {
  if (one.sorted === undefined) one.sorted = one.x.every((x, i) => !i || x >= one.x[i - 1]);
  if (!one.sorted) return [0, one.x.length];
  return [Math.max(search(one.x, low, axis) - 1, 0), Math.min(search(one.x, high, axis) + 1, one.x.length)];
}

function search(x, wanted, axis) {
  let [low, high] = [0, x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at(axis, x[middle]) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

function paint(one, ink, to, view, figure) {
  const [from, end] = inView(one, view.x, figure.x);
  const [x, y] = [(i) => to.x(one.x[i]), (i) => to.y(one.y[i])];
  ink.strokeStyle = ink.fillStyle = one.colour;
  ink.lineWidth = Math.max(one.width, 0.8);
  ink.setLineDash(one.dash ?? []);
  ink.beginPath();
  if (one.kind === "dots") {
    const half = Math.max(one.width / 2 + 0.6, 1.2);
    for (let i = from; i < end; i++) ink.rect(x(i) - half, y(i) - half, 2 * half, 2 * half);
    ink.fill();
  } else if (one.kind === "bars") {
    for (let i = from; i < end; i++) {
      ink.moveTo(x(i), to.y(one.low[i]));
      // So that what is less than a pixel high is seen.
      ink.lineTo(x(i), Math.min(y(i), to.y(one.low[i]) - 1));
    }
    ink.stroke();
  } else if (one.kind === "boxes") {
    for (let i = 0; i < one.x.length; i++) {
      const [left, right] = [to.x(one.x[i] - one.half[i]), to.x(one.x[i] + one.half[i])];
      ink.rect(left, y(i), right - left, to.y(one.low[i]) - y(i));
    }
    ink.fill();
  } else if (one.kind === "vertical") {
    for (const value of one.x) {
      ink.moveTo(to.x(value), ROOM.top);
      ink.lineTo(to.x(value), ROOM.top + to.high);
    }
    ink.stroke();
  } else {
    for (let i = from; i < end; i++) {
      if (i > from && one.kind === "after") ink.lineTo(x(i), y(i - 1));
      if (i > from && one.kind === "before") ink.lineTo(x(i - 1), y(i));
      if (i > from) ink.lineTo(x(i), y(i));
      else ink.moveTo(x(i), y(i));
    }
    ink.stroke();
    if (one.marks) {
      ink.beginPath();
      for (let i = from; i < end; i++) {
        ink.moveTo(x(i) + one.marks / 2, y(i));
        ink.arc(x(i), y(i), one.marks / 2 + 0.5, 0, 2 * Math.PI);
      }
      ink.fill();
    }
  }
  ink.setLineDash([]);
}

function ring({ one, index }, ink, to) {
  ink.strokeStyle = "#1c2321";
  ink.lineWidth = 1.5;
  ink.beginPath();
  ink.arc(to.x(one.x[index]), to.y(one.y[index]), 6, 0, 2 * Math.PI);
  ink.stroke();
}

// Looking ------------------------------------------------------------------------------------------------------------

// A part of the x axis, and of y what is asked for or what is seen there.
function look(panel, x, y = null) {
  const { whole } = panel;
  const wide = Math.max(Math.min(x[1] - x[0], whole.x[1] - whole.x[0]), (whole.x[1] - whole.x[0]) * 1e-9);
  const from = Math.max(whole.x[0], Math.min(x[0], whole.x[1] - wide));
  const all = wide >= whole.x[1] - whole.x[0];
  panel.view = { x: [from, from + wide], y: y ?? (all ? [...whole.y] : fitted(panel, [from, from + wide])) };
  panel.near = null;
  panel.draw();
}

function fitted(panel, x) {
  const { figure, whole } = panel;
  let [low, high] = [Infinity, -Infinity];
  for (const one of figure.series) {
    // What lies far beyond the rest (a window) runs out of the picture.
    if (panel.hidden.has(one.name) || one.beyond || one.kind === "vertical") continue;
    const [from, end] = inView(one, x, figure.x);
    for (let i = from; i < end; i++) {
      for (const value of one.low ? [one.low[i], one.y[i]] : [one.y[i]]) {
        const there = at(figure.y, value);
        if (there < low) low = there;
        if (there > high) high = there;
      }
    }
  }
  if (!(high >= low)) return [...whole.y];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  // From zero on where the whole begins there, unless zero is far away.
  return [whole.y[0] === 0 && low < 0.6 * high ? 0 : low - room, high + room];
}

function zoom(panel, factor, around = (panel.view.x[0] + panel.view.x[1]) / 2) {
  look(panel, panel.view.x.map((end) => around + (end - around) * factor));
}

function nearest(panel, left, top) {
  const to = places(panel);
  let [best, least] = [null, 30 ** 2];
  for (const one of panel.figure.series) {
    if (panel.hidden.has(one.name) || one.kind === "vertical") continue;
    const [from, end] = inView(one, panel.view.x, panel.figure.x);
    for (let index = from; index < end; index++) {
      const across = to.x(one.x[index]) - left;
      const beside = one.half ? Math.max(Math.abs(across) - one.half[index] * to.perX, 0) : across;
      if (beside * beside >= least) continue;
      const [high, low] = [to.y(one.y[index]), one.low ? to.y(one.low[index]) : to.y(one.y[index])];
      const up = top < high ? high - top : top > low ? top - low : 0;
      const far = beside * beside + up * up;
      if (far < least) [best, least] = [{ one, index }, far];
    }
  }
  return best;
}

function tell(panel, near) {
  const { figure } = panel;
  if (!near) return (panel.told.textContent = "");
  const { one, index } = near;
  const number = (value) => String(+value.toPrecision(9));
  const tick = figure.x.ticks?.reduce((a, b) => (Math.abs(b[0] - one.x[index]) < Math.abs(a[0] - one.x[index]) ? b : a), figure.x.ticks[0]);
  const place = tick ? tick[1] : number(one.x[index]);
  const value = one.low && one.kind === "bars" ? `${number(one.low[index])} to ${number(one.y[index])}` : number(one.y[index]);
  panel.told.textContent = [one.name, [figure.x.label, place].filter(Boolean).join(": "), `${figure.y.label}: ${value}`].filter(Boolean).join(" · ");
}

function listen(panel) {
  const { canvas } = panel;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  let start = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    start = { place: place(event), view: panel.view, moves: event.shiftKey };
  });
  canvas.addEventListener("pointermove", (event) => {
    const [left, top] = place(event);
    if (!start) {
      panel.near = nearest(panel, left, top);
      tell(panel, panel.near);
      return panel.draw();
    }
    const to = places(panel);
    if (start.moves) {
      const [x, y] = [(start.place[0] - left) / to.perX, (top - start.place[1]) / to.perY];
      const upright = panel.whole.y.every((end, i) => end === start.view.y[i]) ? start.view.y : start.view.y.map((end) => end + y);
      return look(panel, start.view.x.map((end) => end + x), upright);
    }
    // A flat box is a period; a high one is both.
    const flat = Math.abs(top - start.place[1]) < 20;
    panel.box = [start.place[0], flat ? ROOM.top : start.place[1], left, flat ? ROOM.top + to.high : top];
    panel.draw();
  });
  const end = (event) => {
    if (!start) return;
    const [from, box, to] = [start, panel.box, places(panel)];
    [start, panel.box] = [null, null];
    if (from.moves || !box || event.type === "pointercancel" || Math.abs(box[2] - box[0]) < 4) return panel.draw();
    const x = [to.valueX(Math.min(box[0], box[2])), to.valueX(Math.max(box[0], box[2]))];
    const flat = Math.abs(box[3] - box[1]) >= to.high;
    look(panel, x, flat ? null : [to.valueY(Math.max(box[1], box[3])), to.valueY(Math.min(box[1], box[3]))]);
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => {
    panel.near = null;
    if (!start) panel.draw();
  });
  canvas.addEventListener("dblclick", () => look(panel, panel.whole.x));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(panel, event.deltaY < 0 ? 0.8 : 1.25, places(panel).valueX(place(event)[0]));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [low, high] = panel.view.x;
    const step = (high - low) / 4;
    const keys = {
      "+": () => zoom(panel, 0.5), "=": () => zoom(panel, 0.5), "-": () => zoom(panel, 2), 0: () => look(panel, panel.whole.x),
      ArrowLeft: () => look(panel, [low - step, high - step]), ArrowRight: () => look(panel, [low + step, high + step]),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}
