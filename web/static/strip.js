// Packets crossing the line under study, as slowly as one likes: each waits in its queue, then runs along the line.
"use strict";

const strip = document.getElementById("strip");

if (strip) {
  const canvas = document.getElementById("strip-canvas");
  const told = document.getElementById("strip-told");
  const slider = document.getElementById("strip-at");
  const play = document.getElementById("strip-play");
  const from = document.getElementById("strip-from");
  const span = document.getElementById("strip-span");
  const speed = document.getElementById("strip-speed");
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const KINDS = [["data", "s0"], ["ack", "s2"], ["retransmitted", "mark"]];
  const QUEUE = 0.3; // Share of the width that a queue takes.
  let answer = null;
  let period = [0, 1];
  let now = 0;
  let running = false;
  let last = 0;
  let seen = false;
  let newest = 0;

  async function load() {
    const mine = (newest += 1);
    const start = Math.max(0, Number(from.value) || 0);
    period = [start, start + Number(span.value)];
    now = start;
    const url = new URL(strip.dataset.strip, location.href);
    url.searchParams.set("from", period[0]);
    url.searchParams.set("to", period[1]);
    let found;
    try {
      found = await requestJson(url);
    } catch (error) {
      found = { note: error.message.replace(/\.$/, "") };
    }
    if (mine !== newest) return; // Another period was chosen meanwhile.
    answer = found.note ? null : found;
    canvas.hidden = answer === null;
    if (!answer) return (told.textContent = `Packets cannot be shown: ${found.note}.`);
    const lost = answer.packets.filter((one) => one[2] === null).length;
    told.textContent = `${answer.packets.length} packets${answer.cut ? " (the first of more)" : ""}, ${lost} of them never reached the other end: dropped, purged by the policy, or lost.`;
    paint();
  }

  function paint() {
    if (!answer) return;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, 190];
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = "12px system-ui";
    c.textBaseline = "middle";
    const [left, right] = [8, width - 8];
    const lanes = [52, 138];
    const queue = (right - left) * QUEUE;
    const drawn = [["forward", lanes[0], 1], ["reverse", lanes[1], -1]];
    for (const [name, y, way] of drawn) {
      const side = answer.directions[name];
      const [q0, q1] = way > 0 ? [left, left + queue] : [right - queue, right];
      c.strokeStyle = ink("line");
      c.fillStyle = ink("raised");
      c.fillRect(q0, y - 16, q1 - q0, 32);
      c.strokeRect(q0 + 0.5, y - 15.5, q1 - q0 - 1, 31);
      c.beginPath();
      c.moveTo(way > 0 ? q1 : left, y);
      c.lineTo(way > 0 ? right : q0, y);
      c.strokeStyle = ink("soft");
      c.stroke();
      c.fillStyle = ink("soft");
      c.textAlign = way > 0 ? "left" : "right";
      c.fillText(`${side.queue}`, way > 0 ? q0 : q1, y - 27);
      c.textAlign = way > 0 ? "right" : "left";
      c.fillText(way > 0 ? `${answer.ends[0]} → ${answer.ends[1]}` : `${answer.ends[0]} ← ${answer.ends[1]}`, way > 0 ? right : left, y - 27);
    }
    const waiting = [[], []];
    for (const [entered, leaves, arrives, direction, bytes, kind] of answer.packets) {
      if (entered > now) break;
      const gone = arrives ?? entered + 0.06 * (period[1] - period[0]);
      if (now > gone) continue;
      const y = lanes[direction];
      const long = Math.max(4, Math.min(22, bytes / 60));
      c.fillStyle = ink(KINDS[kind][1]);
      if (arrives === null) {
        // What is never seen again is shown where it went: beside its queue.
        const x = direction === 0 ? left + 8 : right - 8;
        c.strokeStyle = ink("mark");
        c.lineWidth = 2;
        c.beginPath();
        c.moveTo(x - 5, y + 20); c.lineTo(x + 5, y + 30);
        c.moveTo(x + 5, y + 20); c.lineTo(x - 5, y + 30);
        c.stroke();
        c.lineWidth = 1;
        continue;
      }
      if (now < leaves) {
        waiting[direction].push([leaves, kind, long]);
        continue;
      }
      const share = (now - leaves) / Math.max(arrives - leaves, 1e-9);
      const [a, b] = direction === 0 ? [left + queue, right] : [right - queue, left];
      c.fillRect(a + (b - a) * share - long / 2, y - 6, long, 12);
    }
    for (const direction of [0, 1]) {
      const y = lanes[direction];
      let x = direction === 0 ? left + queue - 4 : right - queue + 4;
      let hidden = 0;
      for (const [, kind, long] of waiting[direction].sort((a, b) => a[0] - b[0])) {
        const room = direction === 0 ? x - long - left > 30 : right - x - long > 30;
        if (!room) {
          hidden += 1;
          continue;
        }
        c.fillStyle = ink(KINDS[kind][1]);
        c.fillRect(direction === 0 ? x - long : x, y - 9, long - 1.5, 18);
        x += direction === 0 ? -long : long;
      }
      c.fillStyle = ink("soft");
      c.textAlign = direction === 0 ? "left" : "right";
      if (waiting[direction].length) c.fillText(`${waiting[direction].length} waiting`, direction === 0 ? left + 24 : right - 24, y + 27);
    }
    c.textAlign = "center";
    c.fillStyle = ink("ink");
    c.fillText(`${now.toFixed(3)} s`, width / 2, height / 2);
    let x = width / 2 - 105;
    c.textAlign = "left";
    for (const [name, shade] of KINDS) {
      c.fillStyle = ink(shade);
      c.fillRect(x, height - 12, 12, 8);
      c.fillStyle = ink("soft");
      c.fillText(name, x + 17, height - 8);
      x += 40 + c.measureText(name).width;
    }
    slider.value = Math.round(1000 * (now - period[0]) / (period[1] - period[0]));
    slider.setAttribute("aria-valuetext", `${now.toFixed(3)} s`);
  }

  function frame(time) {
    if (!running) return;
    now += ((time - last) / 1000) * Number(speed.value);
    last = time;
    if (now >= period[1]) {
      now = period[1];
      stop();
    }
    paint();
    if (running) requestAnimationFrame(frame);
  }

  function stop() {
    running = false;
    play.textContent = "Play";
  }

  play.addEventListener("click", async () => {
    if (running) return stop();
    if (!answer) await load();
    if (!answer) return;
    if (now >= period[1]) now = period[0];
    running = true;
    play.textContent = "Pause";
    last = performance.now();
    requestAnimationFrame(frame);
  });
  slider.addEventListener("input", () => {
    now = period[0] + (Number(slider.value) / 1000) * (period[1] - period[0]);
    if (!running) paint();
  });
  for (const field of [from, span]) field.addEventListener("change", load);
  // It follows the plots: the part in view, at most its longest span.
  document.addEventListener("viewed", ({ detail: [start, end] }) => {
    if (end - start >= Number(strip.dataset.duration)) return;
    from.value = start.toFixed(3);
    span.value = [...span.options].map((one) => one.value).find((value) => Number(value) >= end - start) ?? [...span.options].at(-1).value;
    if (seen) load();
  });
  document.addEventListener("themed", paint);
  new ResizeObserver(paint).observe(canvas);
  new IntersectionObserver((entries, watcher) => {
    if (entries.some((entry) => entry.isIntersecting)) {
      watcher.disconnect();
      seen = true;
      load();
    }
  }, { rootMargin: "200px" }).observe(strip);
}
