// How uPlot draws the series of a figure (analysis/figures/model.py): lines, steps, points, segments, bars and error bars.
"use strict";

const FigureSeries = (() => {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  const MARKS = {
    circle: (p, x, y, r) => { p.moveTo(x + r, y); p.arc(x, y, r, 0, 2 * Math.PI); },
    square: (p, x, y, r) => p.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r),
    diamond: (p, x, y, r) => corners(p, [[x, y - 1.3 * r], [x + 1.3 * r, y], [x, y + 1.3 * r], [x - 1.3 * r, y]]),
    triangle: (p, x, y, r) => corners(p, [[x, y - 1.2 * r], [x + 1.2 * r, y + r], [x - 1.2 * r, y + r]]),
    down: (p, x, y, r) => corners(p, [[x, y + 1.2 * r], [x + 1.2 * r, y - r], [x - 1.2 * r, y - r]]),
    cross: (p, x, y, r) => { p.moveTo(x - r, y - r); p.lineTo(x + r, y + r); p.moveTo(x - r, y + r); p.lineTo(x + r, y - r); },
    tick: (p, x, y, r) => { p.moveTo(x, y - 1.2 * r); p.lineTo(x, y + 1.2 * r); },
    dash: (p, x, y, r) => { p.moveTo(x - r, y); p.lineTo(x + r, y); },
  };
  const OPEN = new Set(["cross", "tick", "dash"]);
  // Text on the colours of a scale from here on is light (analysis/figures/model.py, DARK_FROM).
  const DARK_FROM = 4;

  function corners(path, points) {
    points.forEach(([x, y], index) => (index ? path.lineTo(x, y) : path.moveTo(x, y)));
    path.closePath();
  }

  // From the last point before the view to the first after it; unsorted points are all in view.
  function span(one, low, high) {
    if (one.sorted === undefined) one.sorted = one.x.every((x, index) => !index || x >= one.x[index - 1]);
    if (!one.sorted || one.width) return [0, one.x.length];
    return [Math.max(search(one.x, low) - 1, 0), Math.min(search(one.x, high) + 1, one.x.length)];
  }

  function search(x, wanted) {
    let [low, high] = [0, x.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // uPlot clips what a series draws to the plotting area; the series itself draws its points, intervals and bars.
  function paint(u, one) {
    const stroke = new Path2D();
    const fill = new Path2D();
    const { min, max } = u.scales.x;
    const [from, end] = span(one, min, max);
    const [x, y] = [(value) => u.valToPos(value, "x", true), (value) => u.valToPos(value, "y", true)];
    const ratio = devicePixelRatio || 1;
    const drawable = (index) => one.y[index] != null && (u.scales.y.distr !== 3 || one.y[index] > 0);
    if (one.kind === "line" || one.kind === "steps") {
      let before = -1;
      for (let index = from; index < end; index++) {
        if (!drawable(index)) {
          // A place without a mean, such as one with two groups of runs, interrupts the line.
          if (one.kind === "line") before = -1;
          continue;
        }
        if (before < 0) stroke.moveTo(x(one.x[index]), y(one.y[index]));
        else {
          if (one.kind === "steps") stroke.lineTo(x(one.x[index]), y(one.y[before]));
          stroke.lineTo(x(one.x[index]), y(one.y[index]));
        }
        before = index;
      }
    }
    for (let index = from; index < end; index++) {
      if (!drawable(index)) continue;
      const [left, top] = [x(one.x[index]), y(one.y[index])];
      if (one.kind === "segments") {
        const at = Math.round(left);
        stroke.moveTo(at, y(one.low[index]));
        // At least two pixels high, or a short segment would vanish.
        stroke.lineTo(at, Math.min(top, y(one.low[index]) - 2 * ratio));
      } else if (one.kind === "bars") {
        const half = (x(one.x[index] + one.width / 2) - x(one.x[index] - one.width / 2)) / 2;
        const zero = y(Math.max(u.scales.y.min, u.scales.y.distr === 3 ? 1e-300 : 0));
        fill.rect(left - half, Math.min(top, zero), 2 * half, Math.abs(zero - top));
        if (one.hollow) hatch(stroke, left - half, Math.min(top, zero), 2 * half, Math.abs(zero - top), 6 * ratio);
      } else if (one.kind === "cells") {
        const [wide, high] = size(u, one, true);
        fill.rect(left - wide / 2, top - high / 2, wide, high);
        if (one.hollow) hatch(stroke, left - wide / 2, top - high / 2, wide, high, 8 * ratio);
      }
      if (one.marker && one.kind !== "segments") {
        for (const path of OPEN.has(one.marker) ? [stroke] : one.hollow ? [fill, stroke] : [fill]) {
          MARKS[one.marker](path, left, top, ratio * radius(one));
        }
      }
    }
    return { stroke, fill, clip: null, band: null, gaps: null, flags: 3 };
  }

  // The outline of a bar or cell, and lines across it, which no colour of the scale has.
  function hatch(path, left, top, wide, high, step) {
    path.rect(left, top, wide, high);
    for (let at = step; at < wide + high; at += step) {
      path.moveTo(left + Math.max(at - high, 0), top + Math.min(at, high));
      path.lineTo(left + Math.min(at, wide), top + Math.max(at - wide, 0));
    }
  }

  // Width and height of a series' cells in pixels.
  const size = (u, one, canvas = false) => ["x", "y"].map((key) => Math.abs(u.valToPos(one.width, key, canvas) - u.valToPos(0, key, canvas)));

  // The labels of cells, if all have room, those of the figures beside this one included.
  function labels(u, one, figure) {
    if (one.kind !== "cells") return;
    const ratio = devicePixelRatio || 1;
    const [wide, high] = size(u, one, true);
    const ink = color(!one.hollow && one.colour[0] === "h" && Number(one.colour[1]) >= DARK_FROM ? "raised" : "ink");
    u.ctx.textAlign = "center";
    u.ctx.textBaseline = "middle";
    const ofKind = figure.series.filter((other) => other.kind === "cells" && other.hollow === one.hollow);
    const alike = [...ofKind.flatMap((other) => other.label), figure.longest_label];
    // Smaller where there is less room.
    const font = [12, 10, 8.5].find((each) => {
      u.ctx.font = `${each * ratio}px system-ui, sans-serif`;
      return high >= (each + 2) * ratio && wide >= Math.max(...alike.map((text) => u.ctx.measureText(text).width)) + 4 * ratio;
    });
    if (!font) return;
    one.label.forEach((text, index) => {
      if (one.hollow) {
        const room = u.ctx.measureText(text).width + 6 * ratio;
        u.ctx.fillStyle = color("raised");
        u.ctx.fillRect(u.valToPos(one.x[index], "x", true) - room / 2, u.valToPos(one.y[index], "y", true) - font * ratio * 0.7, room, font * ratio * 1.4);
      }
      u.ctx.fillStyle = ink;
      u.ctx.fillText(text, u.valToPos(one.x[index], "x", true), u.valToPos(one.y[index], "y", true));
    });
  }

  const radius = (one) => (one.size && one.kind === "points" ? one.size / 2 : one.kind === "points" && one.x.length > 200 ? 1.7 : 3);

  function intervals(u, one) {
    if (!one.high || one.kind === "segments") return;
    const ratio = devicePixelRatio || 1;
    u.ctx.beginPath();
    const heads = new Path2D();
    const [bottom, ceiling] = [u.bbox.top + u.bbox.height, u.bbox.top];
    for (let index = 0; index < one.x.length; index++) {
      if (one.high[index] == null) continue;
      const [left, low, high] = [u.valToPos(one.x[index], "x", true), u.valToPos(one.low[index], "y", true), u.valToPos(one.high[index], "y", true)];
      u.ctx.moveTo(left, low);
      u.ctx.lineTo(left, high);
      // An arrow head says that an interval goes on beyond the edge.
      if (high < ceiling - 1) MARKS.triangle(heads, left, ceiling + 5 * ratio, 4 * ratio);
      if (low > bottom + 1) MARKS.down(heads, left, bottom - 5 * ratio, 4 * ratio);
      for (const top of [low, high]) {
        u.ctx.moveTo(left - 4 * ratio, top);
        u.ctx.lineTo(left + 4 * ratio, top);
      }
    }
    u.ctx.strokeStyle = u.ctx.fillStyle = color(one.kind === "bars" ? "ink" : one.colour);
    u.ctx.lineWidth = 1.2 * ratio;
    u.ctx.stroke();
    u.ctx.fill(heads);
  }

  // uPlot wants one ascending x for all series. Equal times are kept apart by a step that nobody sees.
  function aligned(figure) {
    if (!figure.series.length) return [[]];
    return uPlot.join(figure.series.map((one) => {
      const order = span(one, -Infinity, Infinity) && one.sorted ? null : [...one.x.keys()].sort((a, b) => one.x[a] - one.x[b]);
      const [xs, ys] = order ? [order.map((index) => one.x[index]), order.map((index) => one.y[index])] : [one.x, one.y];
      let last = -Infinity;
      const x = xs.map((value) => (last = value > last ? value : last + Math.max(Math.abs(last), 1) * 1e-12));
      return [x, ys];
    }));
  }

  // What a series draws, once, for the legend: a picture 20 by 12 pixels wide.
  function sample(one) {
    const ratio = devicePixelRatio || 1;
    const canvas = document.createElement("canvas");
    canvas.className = "u-sample";
    canvas.setAttribute("aria-hidden", "true");
    [canvas.width, canvas.height] = [20 * ratio, 12 * ratio];
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.strokeStyle = color(one.colour);
    c.fillStyle = color(one.hollow ? "raised" : one.colour);
    c.lineWidth = one.kind === "segments" ? 2.5 : Math.min(one.kind === "points" ? 1.4 : one.size || 1.5, 3);
    c.beginPath();
    if (one.kind === "line" || one.kind === "steps") {
      c.setLineDash(one.dash);
      c.moveTo(0, 6);
      c.lineTo(20, 6);
    } else if (one.kind === "segments") {
      c.moveTo(10, 1);
      c.lineTo(10, 11);
    }
    c.stroke();
    c.setLineDash([]);
    c.beginPath();
    const isArea = one.kind === "bars" || one.kind === "cells";
    if (isArea) c.rect(5, 1, 10, 10);
    else if (one.marker && one.kind !== "segments") MARKS[one.marker](c, 10, 6, 4);
    if (!OPEN.has(one.marker)) c.fill();
    if (isArea && one.hollow) hatch(c, 5, 1, 10, 10, 4);
    if (one.hollow || OPEN.has(one.marker)) c.stroke();
    return canvas;
  }

  return { aligned, color, intervals, labels, paint, sample, search, size, span };
})();
