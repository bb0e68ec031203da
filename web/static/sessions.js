// Sessions: sliders fill the fields beside them, the table follows the lines, and sessions come and go.
"use strict";

{
  const EVERY_MS = 1000;

  function rate(bps) {
    for (const [size, unit] of [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]]) {
      if (bps >= size) return `${+(bps / size).toPrecision(3)} ${unit}`;
    }
    return `${Math.round(bps)} bit/s`;
  }

  document.addEventListener("input", (event) => {
    const slider = event.target.closest("input[data-sets]");
    if (!slider) return;
    // The rate's slider has a logarithmic scale.
    const words = slider.dataset.unit === "rate" ? rate(10 ** Number(slider.value)) : `${slider.value} ${slider.dataset.unit}`;
    slider.form.elements[slider.dataset.sets].value = words;
    slider.setAttribute("aria-valuetext", words);
  });

  // Time and bytes of each direction at the last look, for its throughput since.
  const before = new Map();

  // Charts of the last LONGEST_S: for each session, the rows of its lines' throughput (kbit/s) and queues (packets).
  const LONGEST_S = 120;
  const history = new Map();
  const charts = new Map();
  const UNITS = { throughput: "kbit/s", queue: "packets" };

  function note(session, line, kind, y) {
    const lines = history.get(session.name) ?? history.set(session.name, { throughput: {}, queue: {} }).get(session.name);
    const points = (lines[kind][line] ??= { x: [], y: [] });
    points.x.push(session.passed_s);
    points.y.push(y);
    while (points.x[0] < session.passed_s - LONGEST_S) {
      points.x.shift();
      points.y.shift();
    }
  }

  function draw(session, section) {
    const lines = history.get(session.name);
    for (const board of lines ? section.querySelectorAll("[data-chart]") : []) {
      const { chart: kind } = board.dataset;
      const series = Object.entries(lines[kind]).map(([name, points], number) => ({ name, kind: "steps", colour: `s${number % 8}`, marker: "", size: 1.6, dash: [], hollow: false, fits: true, width: 0, x: [...points.x], y: [...points.y] }));
      if (!series.some((one) => one.x.length > 1)) continue;
      const axis = { log: false, range: null, zero: true, ticks: null, integers: false };
      const range = [Math.max(session.passed_s - LONGEST_S, 0), Math.max(session.passed_s, 1)];
      const title = kind === "throughput" ? "throughput" : "queue";
      const figure = { title, x: { ...axis, label: "time (s)", unit: "s", range }, y: { ...axis, label: `${title} (${UNITS[kind]})`, unit: UNITS[kind] }, series, notes: [], verticals: [], description: `${title} of ${session.name}` };
      const drawn = charts.get(board);
      if (!drawn) charts.set(board, Figures.draw(board, figure, { height: 200, view: range }));
      else {
        drawn.update(figure);
        drawn.show(range);
      }
    }
    for (const [board, drawn] of charts) {
      if (board.isConnected) continue;
      drawn.remove();
      charts.delete(board);
    }
  }

  function show(session, section) {
    for (const row of section.querySelectorAll("tr[data-link]")) {
      const { link, direction } = row.dataset;
      const now = session.links[link][direction];
      const key = [session.name, link, direction].join(" ");
      const last = before.get(key);
      before.set(key, [session.passed_s, now.transmitted_bytes]);
      const set = (name, text) => (row.querySelector(`[data-now=${name}]`).textContent = text);
      const line = `${link} ${direction}`;
      if (last && session.passed_s > last[0]) {
        const bps = (8 * (now.transmitted_bytes - last[1])) / (session.passed_s - last[0]);
        set("throughput", rate(bps));
        note(session, line, "throughput", bps / 1e3);
        note(session, line, "queue", now.queue_packets);
      }
      set("queue", `${now.queue_packets} packets`);
      const count = (kinds) => kinds.reduce((sum, kind) => sum + (now.events[kind] ?? 0), 0);
      set("dropped", count($("#sessions").dataset.drops.split(" ")));
      set("lost", count(["lost"]));
    }
  }

  const shape = (pairs) => pairs.map(([name, changes]) => `${name} ${changes}`).sort().join();

  async function refresh() {
    const told = $("#sessions-told");
    try {
      const sessions = await requestJson("/api/sessions");
      told.textContent = "";
      const sections = $$("section[data-session]");
      const shown = shape(sections.map((one) => [one.dataset.session, one.dataset.changes]));
      // One has started, ended or been changed elsewhere.
      if (shown !== shape(sessions.map((one) => [one.name, one.changes.length]))) await swap();
      for (const session of sessions) {
        const section = $(`section[data-session="${CSS.escape(session.name)}"]`);
        if (!section) continue;
        show(session, section);
        draw(session, section);
      }
    } catch (error) {
      told.textContent = error.message;
    }
    setTimeout(refresh, EVERY_MS);
  }

  document.addEventListener("DOMContentLoaded", refresh);
}
