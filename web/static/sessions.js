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

  function show(session, section) {
    for (const row of section.querySelectorAll("tr[data-link]")) {
      const { link, direction } = row.dataset;
      const now = session.links[link][direction];
      const key = [session.name, link, direction].join(" ");
      const last = before.get(key);
      before.set(key, [session.passed_s, now.transmitted_bytes]);
      const set = (name, text) => (row.querySelector(`[data-now=${name}]`).textContent = text);
      if (last && session.passed_s > last[0]) set("throughput", rate((8 * (now.transmitted_bytes - last[1])) / (session.passed_s - last[0])));
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
        if (section) show(session, section);
      }
    } catch (error) {
      told.textContent = error.message;
    }
    setTimeout(refresh, EVERY_MS);
  }

  document.addEventListener("DOMContentLoaded", refresh);
}
