// Draws a figure (analysis/figures/model.py) with uPlot. A figure keeps its own view: zooming fits the other axis to what
// is in view, and whatever lies outside is clipped.
"use strict";

const Figures = (() => {
  const { aligned, color, intervals, labels, paint, sample, search, size, span } = FigureSeries;
  const number = (value, digits = 6) => String(+value.toPrecision(digits));
  const FONT = "12px system-ui, sans-serif";

  // Views ---------------------------------------------------------------------------------------------------------

  // The limits of an axis that fit what is in view; the same rule as in analysis/figures/printed.py.
  function fitted(figure, key, hidden, view = null) {
    const axis = figure[key];
    if (axis.range) return axis.range;
    let [low, high] = [Infinity, -Infinity];
    const hold = (value) => {
      if (value == null || (axis.log && value <= 0)) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    for (const one of figure.series) {
      if (!one.fits || hidden.has(one.name)) continue;
      const [from, end] = view ? span(one, ...view) : [0, one.x.length];
      for (let index = from; index < end; index++) {
        if (key === "x") for (const side of [-0.5, 0.5]) hold(one.x[index] + side * one.width);
        else for (const values of [one.y, one.low, one.high]) if (values) hold(values[index]);
      }
      if (key === "y" && one.kind === "bars" && !axis.log) hold(0);
    }
    if (!(high >= low)) return axis.log ? [0.1, 1] : [0, 1];
    if (low === 0 && high === 0) return [0, 1];
    if (axis.log) return [low / 1.15, high * 1.15];
    if (key === "x" && axis.ticks && figure.series.some((one) => one.kind === "bars")) {
      const [middle, half] = [(low + high) / 2, Math.max((high - low) / 2 + 0.1, 1.5)];
      return [middle - half, middle + half];
    }
    const room = (high - low || Math.abs(high) || 1) * 0.05;
    return [axis.zero && low <= 0.4 * high ? Math.min(low, 0) : low - room, high + room];
  }

  // Axes ----------------------------------------------------------------------------------------------------------

  function axisOptions(figure, key, chart) {
    const axis = figure[key];
    const look = { stroke: color("soft"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 }, font: FONT, labelFont: FONT, label: axis.label, labelSize: 20 };
    const named = axis.ticks && key === "y" ? { splits: () => axis.ticks.map(([place]) => place), values: (_, places) => places.map((place) => axis.ticks.find(([at]) => at === place)?.[1] ?? "") } : {};
    // Plots over one time axis begin at the same place.
    if (chart.options.sync && key === "y") {
      const isLow = height(chart) < 110 && !axis.ticks && !axis.log;
      return { ...look, ...named, ...(isLow ? { splits: (_, __, min, max) => ends(min, max) } : {}), size: 66, label: height(chart) < 190 ? axis.unit || axis.label : axis.label };
    }
    if (chart.options.bare && key === "x") return { ...look, label: undefined, labelSize: 0, size: 6, values: (_, places) => places.map(() => "") };
    if (key === "y") return { ...look, ...named, label: (u) => shortened(axis, u.bbox.height / (devicePixelRatio || 1)), size: (_, values) => Math.max(48, 20 + 7 * Math.max(0, ...(values ?? []).map((text) => String(text).length))), labelSize: 20 };
    if (!axis.ticks) return { ...look, size: 34 };
    const labelOf = new Map(axis.ticks.map(([place], index) => [place, index]));
    const names = () => written(chart);
    return {
      ...look,
      grid: hasPlaces(figure) ? { show: false } : look.grid,
      rotate: () => (names().isUpright ? 90 : 0),
      size: () => names().size,
      splits: () => axis.ticks.map(([place]) => place),
      values: (_, places) => places.map((place) => names().lines[labelOf.get(place)]?.join("\n") ?? ""),
      filter: (u, places) => thinned(u, places, names().apart),
    };
  }

  // Names of an axis ----------------------------------------------------------------------------------------------

  // Height of a line of names; the room of a name that is broken into lines, the longest that stands upright, and the
  // height of names that a plot gives up before the figure grows, in px.
  const [LINE, NARROWEST, LONGEST, GIVEN] = [14, 56, 400, 76];
  const pen = document.createElement("canvas").getContext("2d");
  const widthOf = (text) => {
    pen.font = FONT;
    return pen.measureText(text).width;
  };
  // Bars and cells have a place each, whatever their values are.
  const hasPlaces = (figure) => Boolean(figure.x.range) || figure.series.some((one) => one.width > 0);

  // The label of an axis whose unit is kept where its name is too long.
  function shortened(axis, room) {
    const unit = axis.unit && axis.label.endsWith(`(${axis.unit})`) ? ` (${axis.unit})` : "";
    return widthOf(axis.label) <= room ? axis.label : cut(axis.label.slice(0, axis.label.length - unit.length), room - widthOf(unit)) + unit;
  }

  // The longest beginning of a text that is as wide as the room.
  function beginning(text, room) {
    let end = text.length;
    while (end > 1 && widthOf(text.slice(0, end)) > room) end--;
    return text.slice(0, end);
  }

  const cut = (text, room) => (widthOf(text) <= room ? text : `${beginning(text, room - widthOf("…")).trimEnd()}…`);

  // A name in lines that have room: broken after blanks and signs, and inside a word that is wider by itself.
  function broken(name, room) {
    const lines = [""];
    for (let part of name.split(/(?<=[\s=,;:_-])/)) {
      if (widthOf((lines.at(-1) + part).trimEnd()) <= room) {
        lines[lines.length - 1] += part;
        continue;
      }
      while (widthOf(part.trimEnd()) > room) {
        lines.push(beginning(part, room));
        part = part.slice(lines.at(-1).length);
      }
      lines.push(part);
    }
    return lines.map((line) => line.trimEnd()).filter(Boolean);
  }

  // How the names below a chart are written: each in one line or several where there is room, else upright.
  function written(chart) {
    const { x, y } = chart.figure;
    const besides = 20 + 7 * Math.max(4, ...(y.ticks ?? []).map(([, label]) => label.length));
    const across = chart.board.clientWidth - besides - 46;
    if (chart.names?.across === across && chart.names.ticks === x.ticks) return chart.names;
    const labels = x.ticks.map(([, label]) => label);
    const longest = Math.max(...labels.map(widthOf));
    // Few bars do not fill the width (fitted).
    const room = across / Math.max(labels.length, 3) - 6;
    const isFlat = !hasPlaces(chart.figure) || longest <= room;
    const isUpright = !isFlat && room < NARROWEST;
    const lines = labels.map((label) => (isFlat ? [label] : isUpright ? [cut(label, LONGEST)] : broken(label, room)));
    const high = isUpright ? Math.min(longest, LONGEST) : LINE * Math.max(...lines.map((one) => one.length));
    const apart = hasPlaces(chart.figure) ? 12 : Math.max(44, longest + 8);
    chart.names = { across, ticks: x.ticks, lines, isUpright, size: 20 + high, apart };
    return chart.names;
  }

  // The first and last tick of a plot that has room for no more: with the widest round step of which two lie inside.
  function ends(min, max) {
    for (let power = Math.ceil(Math.log10(max - min)); power > -15; power--) {
      for (const digit of [5, 2, 1]) {
        const step = digit * 10 ** power;
        const [first, last] = [Math.ceil(min / step - 1e-9), Math.floor(max / step + 1e-9)];
        if (last > first) return [first, last].map((count) => +(count * step).toPrecision(12));
      }
    }
    return [min];
  }

  // Ticks that would touch the one before them lose their label.
  function thinned(u, places, room) {
    let last = -Infinity;
    return places.map((place) => {
      const left = u.valToPos(place, "x");
      if (left - last < room) return null;
      last = left;
      return place;
    });
  }

  // A chart -------------------------------------------------------------------------------------------------------

  // Options: height; bare, whether the x axis has no labels; sync, the name of a group of linked cursors; onView(range), called
  // instead of zooming here; readout, whether the nearest point is read aloud; wheel, whether the wheel alone zooms; keys, what
  // hears the keyboard in place of the board; onDraw(u), onReady(u).
  function draw(board, figure, options = {}) {
    const chart = { board, figure, hidden: new Set(), view: { x: null, y: null }, plot: null, options };
    chart.whole = () => ({ x: fitted(figureOf(chart), "x", new Set()), y: null });
    chart.look = (x, y = null) => look(chart, x, y);
    chart.zoom = (factor, around) => zoom(chart, factor, around);
    chart.update = (next) => update(chart, next);
    chart.rebuild = () => build(chart);
    chart.show = (range) => {
      chart.view = { x: range, y: null };
      show(chart);
    };
    chart.view.x = options.view ?? chart.whole().x;
    build(chart);
    const watcher = new ResizeObserver(() => chart.plot && chart.plot.setSize({ width: Math.max(board.clientWidth, 60), height: height(chart) }));
    watcher.observe(board);
    document.addEventListener("themed", chart.rebuild);
    // A figure that shows its own view listens to keys while it has the focus, and its page (standalone) always.
    const listener = options.onView ? null : keys(chart);
    if (listener) (options.keys ?? board).addEventListener("keydown", listener);
    chart.remove = () => {
      watcher.disconnect();
      board.removeEventListener("keydown", listener);
      document.removeEventListener("themed", chart.rebuild);
      chart.plot.destroy();
      board.replaceChildren();
    };
    return chart;
  }

  const figureOf = (chart) => chart.figure;
  // figure.css reserves as much, so that nothing moves when a figure is drawn; long names make it higher.
  const height = (chart) => (chart.options.height ?? (innerWidth > 600 ? 380 : 270)) + (chart.figure.x.ticks ? Math.max(written(chart).size - GIVEN, 0) : 0);

  function build(chart) {
    const { board, figure } = chart;
    chart.plot?.destroy();
    board.replaceChildren();
    const series = figure.series.map((one) => ({
      label: one.name || figure.y.label,
      show: !chart.hidden.has(one.name),
      stroke: color(one.colour),
      // A hollow marker is filled with the paper, a bar with its colour.
      fill: one.hollow ? color("raised") : color(one.colour),
      width: one.kind === "points" ? 1.4 : one.kind === "bars" && !one.hollow ? 0 : one.size || 1.5,
      dash: one.dash.length ? one.dash : undefined,
      points: { show: false },
      paths: (u) => paint(u, one),
      value: (_, y) => (y == null ? "" : number(y, 7)),
    }));
    const x = figure.x;
    const ofX = (value) => (value == null ? "" : `${x.ticks ? nearestTick(x, value) : number(value, 9)} ${x.ticks ? "" : x.unit}`.trim());
    const uplot = {
      width: Math.max(board.clientWidth, 60),
      height: height(chart),
      ...(chart.options.sync && innerWidth > 900 ? { padding: [6, null, 0, null] } : {}),
      scales: {
        x: { time: false, distr: x.log ? 3 : 1, range: () => chart.view.x },
        y: { distr: figure.y.log ? 3 : 1, range: () => chart.view.y ?? fitted(chart.figure, "y", chart.hidden, chart.view.x) },
      },
      axes: [axisOptions(figure, "x", chart), axisOptions(figure, "y", chart)],
      series: [{ label: x.unit === "s" ? "time" : x.label || "point", value: (_, value) => ofX(value) }, ...series],
      cursor: {
        y: !chart.options.sync,
        ...(chart.options.sync ? { sync: { key: chart.options.sync, setSeries: false, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } } } : {}),
        drag: { x: true, y: !chart.options.onView, uni: 24, setScale: false },
        points: { show: false },
      },
      // Values are shown beside the pointer: in the legend they would move its names.
      legend: { live: false, markers: { show: false } },
      hooks: {
        setSelect: [(u) => select(chart, u)],
        drawSeries: [(u, index) => index && u.series[index].show && clipped(u, () => {
          intervals(u, chart.figure.series[index - 1]);
          labels(u, chart.figure.series[index - 1], chart.figure);
        })],
        draw: [(u) => clipped(u, () => verticals(u, chart.figure.verticals)), (u) => chart.options.onDraw?.(u)],
        ready: [(u) => gestures(chart, u), (u) => chart.options.onReady?.(u)],
        setCursor: [(u) => tell(chart, u)],
        setSeries: [(u, index, changed) => hide(chart, u, index, changed)],
      },
    };
    chart.plot = new uPlot(uplot, aligned(figure), board);
    legend(chart);
    chart.readout = document.createElement("div");
    chart.readout.className = "readout";
    chart.readout.hidden = true;
    if (chart.options.readout) chart.readout.setAttribute("aria-live", "polite");
    chart.plot.over.append(chart.readout);
    board.setAttribute("role", "figure");
    board.setAttribute("aria-label", figure.description);
    board.tabIndex = 0;
    note(chart);
  }

  // New points of the same figure: another part of a run.
  function update(chart, next) {
    const shape = (figure) => JSON.stringify([figure.x.label, figure.y.label, figure.series.map((one) => one.name)]);
    const same = shape(next) === shape(chart.figure);
    chart.figure = next;
    if (!same) return build(chart);
    // Series draw the points they were made with: these are now the new ones.
    chart.plot.series.slice(1).forEach((one, index) => (one.paths = (u) => paint(u, next.series[index])));
    chart.plot.setData(aligned(next), false);
    show(chart);
  }

  function show(chart) {
    const [min, max] = chart.view.x;
    chart.plot.batch(() => {
      chart.plot.setScale("x", { min, max });
      const [low, high] = chart.view.y ?? fitted(chart.figure, "y", chart.hidden, chart.view.x);
      chart.plot.setScale("y", { min: low, max: high });
    });
    note(chart);
  }

  const note = (chart) => (chart.board.dataset.view = JSON.stringify({ x: chart.view.x, y: chart.view.y ?? fitted(chart.figure, "y", chart.hidden, chart.view.x) }));

  function look(chart, x, y) {
    const whole = chart.whole().x;
    const log = chart.figure.x.log;
    if (log) x = x.map((end) => Math.max(end, whole[0] / 10));
    const wide = Math.max(Math.min(x[1] - x[0], whole[1] - whole[0]), (whole[1] - whole[0]) * 1e-9);
    const from = Math.max(whole[0], Math.min(x[0], whole[1] - wide));
    chart.view = { x: [from, from + wide], y };
    show(chart);
  }

  function zoom(chart, factor, around = (chart.view.x[0] + chart.view.x[1]) / 2) {
    chart.look(chart.view.x.map((end) => around + (end - around) * factor));
  }

  function clipped(u, paintIt) {
    const { left, top, width, height: high } = u.bbox;
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(left, top, width, high);
    u.ctx.clip();
    paintIt();
    u.ctx.restore();
  }

  function verticals(u, all) {
    for (const [place] of all) {
      const left = u.valToPos(place, "x", true);
      u.ctx.strokeStyle = color("soft");
      u.ctx.setLineDash([3, 4]);
      u.ctx.beginPath();
      u.ctx.moveTo(left, u.bbox.top);
      u.ctx.lineTo(left, u.bbox.top + u.bbox.height);
      u.ctx.stroke();
    }
  }

  // Names in the legend are buttons: a click, Enter or the space bar hides or shows a series.
  function legend(chart) {
    chart.board.querySelectorAll(".u-legend .u-series").forEach((row, index) => {
      const head = row.querySelector("th");
      // Its sample has the colour; in the lighter ones, a name could not be read.
      head.querySelector(".u-label").style.color = "";
      head.prepend(sample(chart.figure.series[index]));
      head.setAttribute("role", "button");
      head.tabIndex = 0;
      head.setAttribute("aria-pressed", String(!chart.hidden.has(chart.figure.series[index].name)));
      head.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        head.click();
      });
    });
    // Further series of a name follow the first.
    if (chart.figure.series.every((one) => !one.name)) chart.board.querySelector(".u-legend").hidden = true;
    const seen = new Set();
    chart.board.querySelectorAll(".u-legend .u-series").forEach((row, index) => {
      const { name } = chart.figure.series[index];
      row.hidden = !name || seen.has(name);
      seen.add(name);
      // A name of many series, such as single runs, stands after those that it is about.
      row.style.order = chart.figure.series.filter((one) => one.name === name).length > 1 ? 1 : 0;
    });
  }

  function hide(chart, u, index, changed) {
    if (changed.show === undefined || !index) return;
    const { name } = chart.figure.series[index - 1];
    if (changed.show) chart.hidden.delete(name);
    else chart.hidden.add(name);
    const row = chart.board.querySelectorAll(".u-legend .u-series")[index - 1];
    row?.querySelector("th").setAttribute("aria-pressed", String(changed.show));
    chart.figure.series.forEach((one, other) => {
      if (one.name === name && u.series[other + 1].show !== changed.show) u.setSeries(other + 1, { show: changed.show });
    });
  }

  // Looking -------------------------------------------------------------------------------------------------------

  function select(chart, u) {
    const { left, width, top, height: high } = u.select;
    if (width < 3) return;
    const x = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (chart.options.onView) return chart.options.onView(x);
    // A flat drag chooses a range of x; a high one both.
    const y = high > 24 && high < u.over.clientHeight ? [u.posToVal(top + high, "y"), u.posToVal(top, "y")] : null;
    if (chart.options.onBrush) return chart.options.onBrush(x, y);
    chart.look(x, y);
  }

  function gestures(chart, u) {
    const to = (x, y = null) => (chart.options.onView ? chart.options.onView(x) : chart.look(x, y));
    let pressed = null;
    u.over.addEventListener("mousedown", (event) => (pressed = [event.clientX, event.clientY]), true);
    u.over.addEventListener("click", (event) => {
      if (!chart.options.onRun || !pressed || Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) > 4) return;
      const box = u.over.getBoundingClientRect();
      const [one, index] = nearest(chart, u, event.clientX - box.left, event.clientY - box.top) ?? [];
      if (one?.run) chart.options.onRun(one.run[index]);
    });
    u.over.addEventListener("dblclick", () => to(chart.options.whole?.() ?? chart.whole().x));
    u.over.addEventListener("mousedown", (event) => {
      if (!event.shiftKey) return;
      event.stopImmediatePropagation();
      const start = chart.view.x;
      const perPixel = (start[1] - start[0]) / u.over.clientWidth;
      const move = (moved) => to(start.map((end) => end + (event.clientX - moved.clientX) * perPixel));
      const up = () => {
        document.removeEventListener("mousemove", move);
        document.removeEventListener("mouseup", up);
      };
      document.addEventListener("mousemove", move);
      document.addEventListener("mouseup", up);
    }, true);
    u.over.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !chart.options.wheel) return;
      event.preventDefault();
      const around = u.posToVal(event.clientX - u.over.getBoundingClientRect().left, "x");
      const factor = event.deltaY < 0 ? 0.8 : 1.25;
      to(chart.view.x.map((end) => around + (end - around) * factor));
    }, { passive: false });
  }

  const nearestTick = (axis, value) => axis.ticks.reduce((a, b) => (Math.abs(b[0] - value) < Math.abs(a[0] - value) ? b : a))[1];

  // The point nearest to a place on the chart: its series and index; null if none is near.
  function nearest(chart, u, left, top) {
    let [best, least] = [null, 30 ** 2];
    for (const one of chart.figure.series) {
      if (chart.hidden.has(one.name)) continue;
      const [from, end] = span(one, ...chart.view.x);
      for (let index = from; index < end; index++) {
        if (one.y[index] == null) continue;
        const half = one.width ? (u.valToPos(one.x[index] + one.width / 2, "x") - u.valToPos(one.x[index] - one.width / 2, "x")) / 2 : 0;
        const across = Math.max(Math.abs(u.valToPos(one.x[index], "x") - left) - half, 0);
        const around = one.kind === "cells" ? size(u, one)[1] / 2 : 0;
        const high = u.valToPos(one.y[index], "y") - around;
        const low = one.kind === "segments" ? u.valToPos(one.low[index], "y") : one.kind === "bars" ? u.valToPos(0, "y") : high + 2 * around;
        const up = top < high ? high - top : top > low ? top - low : 0;
        const far = across * across + up * up;
        if (far < least) [best, least] = [[one, index], far];
      }
    }
    return best;
  }

  // Beside the pointer: the point nearest to it in words, or on a common time axis every series' value at that time.
  function tell(chart, u) {
    const { left, top } = u.cursor;
    const isOutside = left == null || left < 0;
    if (chart.options.sync) {
      const values = isOutside ? [] : valuesAt(chart, u, left);
      place(chart, u, values.map((value) => value.join(" ")), left, top);
      return;
    }
    const best = isOutside ? null : nearest(chart, u, left, top);
    place(chart, u, best ? words(chart.figure, ...best).split(" · ") : [], left, top);
    chart.options.onNear?.(best);
    u.over.style.cursor = best?.[0].run && chart.options.onRun ? "pointer" : "";
  }

  // The box beside the pointer, inside the plot; in plots that follow another one's pointer it stands at the top.
  function place(chart, u, lines, left, top) {
    const box = chart.readout;
    box.hidden = !lines.length;
    if (box.hidden) return;
    box.replaceChildren(...lines.map((text) => Object.assign(document.createElement("span"), { textContent: text })));
    const [wide, high] = [u.over.clientWidth, u.over.clientHeight];
    const x = left > wide / 2 ? left - box.offsetWidth - 14 : left + 14;
    const y = u.over.matches(":hover") ? top + 14 : 2;
    box.style.transform = `translate(${Math.max(Math.min(x, wide - box.offsetWidth), 0)}px, ${Math.max(Math.min(y, high - box.offsetHeight), 0)}px)`;
  }

  // The time, and the values of the series there: of steps what holds, of lines what lies between two points, of marks what is
  // within 6 pixels.
  function valuesAt(chart, u, left) {
    const t = u.posToVal(left, "x");
    const reach = 6 * (chart.view.x[1] - chart.view.x[0]) / u.over.clientWidth;
    const values = chart.figure.series.filter((one) => one.x.length && !chart.hidden.has(one.name)).map((one) => [one.name, valueAt(one, t, reach)]);
    const unit = chart.figure.y.unit;
    return [[`${number(t, 7)} ${chart.figure.x.unit}`], ...values.filter(([, value]) => value != null).map(([name, value]) => [name ? `${name}:` : "", `${value} ${unit}`.trim()])];
  }

  function valueAt(one, t, reach) {
    const after = search(one.x, t);
    if (one.kind === "steps" || one.kind === "line") {
      const at = one.x[after] === t ? after : after - 1;
      if (at < 0 || one.y[at] == null) return null;
      if (one.kind === "steps" || one.x[at] === t) return number(one.y[at], 5);
      if (one.y[after] == null) return null;
      return number(one.y[at] + (one.y[after] - one.y[at]) * (t - one.x[at]) / (one.x[after] - one.x[at]), 5);
    }
    const near = [after - 1, after].filter((index) => one.x[index] !== undefined && Math.abs(one.x[index] - t) <= reach);
    if (!near.length) return null;
    const at = near.reduce((a, b) => (Math.abs(one.x[b] - t) < Math.abs(one.x[a] - t) ? b : a));
    return one.kind === "segments" ? `${number(one.low[at])} to ${number(one.y[at])}` : number(one.y[at], 5);
  }

  // An error interval: its half-width, or its ends where it is not symmetric.
  function spread(low, mean, high) {
    const symmetric = Math.abs(high + low - 2 * mean) <= 1e-6 * (high - low);
    return symmetric ? ` ± ${number((high - low) / 2, 3)}` : ` [${number(low, 3)}, ${number(high, 3)}]`;
  }

  function words(figure, one, index) {
    const place = figure.x.ticks ? nearestTick(figure.x, one.x[index]) : number(one.x[index], 9);
    if (one.text) return [[figure.x.label, place].filter(Boolean).join(": "), figure.y.ticks ? `${figure.y.label}: ${nearestTick(figure.y, one.y[index])}` : "", one.text[index]].filter(Boolean).join(" · ");
    const half = one.high?.[index] != null && one.kind !== "segments" ? spread(one.low[index], one.y[index], one.high[index]) : "";
    const value = one.kind === "segments" ? `${number(one.low[index], 9)} to ${number(one.y[index], 9)}` : number(one.y[index], one.n ? 4 : 9);
    const runs = one.n?.[index] ? `, ${one.n[index]} run${one.n[index] === 1 ? "" : "s"}` : "";
    return [one.name, [figure.x.label, place].filter(Boolean).join(": "), `${figure.y.label}: ${value}${half}${runs}`].filter(Boolean).join(" · ");
  }

  // Figures of a page that carry their data; a live page swaps them for new ones.
  const drawn = new Map();
  function embedded(root = document) {
    for (const [holder, { chart }] of drawn) {
      if (holder.isConnected) continue;
      chart.remove();
      drawn.delete(holder);
    }
    for (const holder of root.querySelectorAll("[data-figure]")) {
      const text = holder.querySelector("script[type='application/json']")?.textContent;
      const before = drawn.get(holder);
      if (!text || before?.text === text) continue;
      const figure = JSON.parse(text);
      const board = holder.querySelector(".board");
      before?.chart.remove();
      // A point that is a run opens its page.
      const onRun = holder.dataset.runs && ((id) => location.assign(holder.dataset.runs.replace("RUN", id)));
      drawn.set(holder, { text, chart: draw(board, figure, { readout: true, onRun }) });
      holder.dataset.drawn = "true";
    }
  }

  function keys(chart) {
    const move = (share) => { const [low, high] = chart.view.x; chart.look([low + share * (high - low), high + share * (high - low)]); };
    const actions = { "+": () => chart.zoom(0.5), "=": () => chart.zoom(0.5), "-": () => chart.zoom(2), 0: () => chart.look(chart.whole().x), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25) };
    return (event) => {
      const action = actions[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("[role=button]")) return;
      event.preventDefault();
      action();
    };
  }

  // The self-contained page (analysis/figures/page.py).
  function standalone() {
    const board = document.querySelector("[data-figure]");
    board.className = "board";
    const figure = JSON.parse(document.getElementById("data").textContent);
    const chart = draw(board, figure, { readout: true, wheel: true, keys: document, height: Math.min(Math.round(innerHeight * 0.66), 560) });
    for (const text of figure.notes) {
      const line = document.createElement("p");
      line.className = "note";
      line.textContent = text;
      board.after(line);
    }
    Figures.chart = chart;
  }

  return { draw, embedded, standalone, color };
})();

document.addEventListener("DOMContentLoaded", () => Figures.embedded());
