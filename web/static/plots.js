// The plots of a run. They share one time axis: zooming or moving one moves all, and each then asks the server for the
// part in view, which comes in full detail.
"use strict";

const style = getComputedStyle(document.documentElement);
const color = (name) => style.getPropertyValue(`--${name}`).trim();
const LINES = ["data", "extra", "ack", "mark"];
const plots = [];
let whole = [0, 1];
let view = whole;
let pending = 0;

function seriesOf(one, index) {
  const stroke = one.style === "marks" ? color("mark") : one.name === "acknowledged" ? color("ack") : color(LINES[index % LINES.length]);
  const dots = one.style === "dots" || one.style === "marks";
  return {
    label: one.name,
    stroke,
    width: dots ? 0 : 1.5,
    spanGaps: !dots,
    paths: dots ? () => null : one.style === "steps" ? uPlot.paths.stepped({ align: 1 }) : undefined,
    points: { show: dots, size: one.style === "marks" ? 6 : 3, fill: stroke, stroke, width: 0 },
    value: (_, y) => (y == null ? "" : +y.toPrecision(5)),
  };
}

// Thinning keeps extremes, so many points share an instant; uPlot wants each x once. A tiny step keeps them apart.
function aligned(series) {
  return uPlot.join(series.map((one) => {
    const x = [];
    let last = -Infinity;
    for (const t of one.x) {
      last = t > last ? t : last + 1e-7;
      x.push(last);
    }
    return [x, one.y];
  }));
}

function options(figure, answer, board) {
  const axis = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 } };
  return {
    width: board.clientWidth,
    height: figure.classList.contains("short") ? 190 : 310,
    scales: { x: { time: false, range: () => view }, y: { range: (_, low, high) => [Math.min(low ?? 0, 0), (high ?? 1) * 1.04 || 1] } },
    axes: [{ ...axis, label: "time (s)", labelSize: 22, size: 40 }, { ...axis, label: answer.y, labelSize: 22, size: 62 }],
    series: [{ label: "time", value: (_, x) => (x == null ? "" : `${x.toFixed(4)} s`) }, ...answer.series.map(seriesOf)],
    cursor: { sync: { key: "run", setSeries: false, scales: ["x", null] }, drag: { x: true, y: false, setScale: false }, points: { size: 5 } },
    // A series of points has a line of width 0, and would have an invisible marker.
    legend: { markers: { width: 0, fill: (u, index) => (index ? u.series[index].stroke() : null) } },
    hooks: {
      setSelect: [(u) => {
        if (u.select.width < 3) return;
        look([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      }],
      ready: [(u) => moving(u)],
    },
  };
}

function moving(u) {
  u.over.addEventListener("dblclick", () => look(whole));
  u.over.addEventListener("mousedown", (down) => {
    if (!down.shiftKey) return;
    down.stopImmediatePropagation();
    const start = view;
    const perPixel = (start[1] - start[0]) / u.over.clientWidth;
    const move = (event) => {
      const by = (down.clientX - event.clientX) * perPixel;
      look([start[0] + by, start[1] + by]);
    };
    const up = () => {
      document.removeEventListener("mousemove", move);
      document.removeEventListener("mouseup", up);
    };
    document.addEventListener("mousemove", move);
    document.addEventListener("mouseup", up);
  }, true);
}

function look(range) {
  const width = Math.min(range[1] - range[0], whole[1] - whole[0]);
  const from = Math.max(whole[0], Math.min(range[0], whole[1] - width));
  view = [from, from + width];
  for (const plot of plots) plot.chart.redraw(false, true), plot.chart.setScale("x", { min: view[0], max: view[1] });
  clearTimeout(pending);
  pending = setTimeout(() => plots.forEach(refresh), 150);
}

async function ask(figure) {
  const url = new URL(figure.dataset.plot, location.href);
  url.searchParams.set("from", view[0]);
  url.searchParams.set("to", view[1]);
  const response = await fetch(url);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

async function refresh(plot) {
  const asked = view;
  const answer = await ask(plot.figure);
  if (asked === view) plot.chart.setData(aligned(answer.series));
}

async function draw(figure) {
  const board = document.createElement("div");
  board.className = "board";
  figure.append(board);
  try {
    const answer = await ask(figure);
    if (!answer.series.some((one) => one.x.length)) {
      board.className = "note";
      board.textContent = answer.note || "Nothing happened here.";
    } else {
      const chart = new uPlot(options(figure, answer, board), aligned(answer.series), board);
      plots.push({ figure, chart });
      new ResizeObserver(() => chart.setSize({ width: board.clientWidth, height: chart.height })).observe(board);
    }
  } catch (error) {
    board.className = "failed";
    board.textContent = `This plot cannot be shown: ${error.message}`;
  }
  figure.dataset.drawn = "true";
}

const figures = [...document.querySelectorAll("[data-plot]")];
if (figures.length) {
  whole = [0, Number(figures[0].dataset.duration)];
  view = whole;
  // Those on screen first; the rest when they come near.
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        near.unobserve(entry.target);
        draw(entry.target);
      }
    }
  }, { rootMargin: "400px" });
  figures.forEach((figure) => near.observe(figure));
}
