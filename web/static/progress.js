// A running campaign's page: how far it is and what each cell does; reloads when a run has landed.
"use strict";

const live = document.querySelector("[data-progress]");

async function look() {
  let answer;
  try {
    answer = await (await fetch(live.dataset.progress)).json();
  } catch {
    return; // The server may be gone for a moment; the next look tells.
  }
  if (answer.state !== "running" || String(answer.valid) !== live.dataset.valid) {
    location.reload();
    return;
  }
  live.querySelector("progress").value = answer.progress.share || 0;
  const cells = (answer.progress.cells || []).map((cell) => {
    const item = document.createElement("li");
    item.textContent = `${cell.cell}: point ${cell.point + 1}, repetition ${cell.repetition + 1}, ${cell.phase}`;
    return item;
  });
  document.getElementById("cells").replaceChildren(...cells);
}

look();
setInterval(look, 2000);
