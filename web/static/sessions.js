// Sessions: sliders fill the fields beside them, and the table follows the lines.
"use strict";

for (const slider of document.querySelectorAll("input[data-sets]")) {
  slider.addEventListener("input", () => {
    const value = "log" in slider.dataset ? Math.round(10 ** Number(slider.value)) : slider.value;
    slider.form.elements[slider.dataset.sets].value = `${value} ${slider.dataset.unit}`;
  });
}

const before = new Map();

function rate(bps) {
  for (const [size, unit] of [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]]) {
    if (bps >= size) return `${(bps / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(bps)} bit/s`;
}

async function refresh() {
  const answer = await fetch("/api/sessions");
  if (!answer.ok) return;
  for (const session of await answer.json()) {
    const section = document.querySelector(`section[data-session="${session.name}"]`);
    if (!section) continue;
    for (const row of section.querySelectorAll("tr[data-link]")) {
      const now = session.links[row.dataset.link][row.dataset.direction];
      const key = `${session.name} ${row.dataset.link} ${row.dataset.direction}`;
      const last = before.get(key);
      before.set(key, [session.passed_s, now.transmitted_bytes]);
      const set = (name, text) => { row.querySelector(`[data-now=${name}]`).textContent = text; };
      if (last && session.passed_s > last[0]) {
        set("throughput", rate(8 * (now.transmitted_bytes - last[1]) / (session.passed_s - last[0])));
      }
      set("queue", `${now.queue_packets} packets`);
      const events = now.events;
      set("dropped", (events.dropped_full || 0) + (events.dropped_early || 0) + (events.purged || 0));
      set("lost", events.lost || 0);
    }
  }
}

if (document.querySelector("section[data-session]")) {
  refresh();
  setInterval(refresh, 1000);
}
