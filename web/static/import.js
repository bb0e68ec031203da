// The import page: a file that is dropped anywhere on the form is sent, and its plots are shown once it was read.
"use strict";

const drop = document.getElementById("drop");
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function reading(one) {
  if (!one.phase) return `Reading ${one.names.join(", ")}…`;
  const written = one.written_bytes ? `, ${(one.written_bytes / 1e6).toFixed(1)} MB so far` : "";
  return `Reading ${one.names.join(", ")}: ${one.phase}${written}, for ${Math.round(one.elapsed_s)} s…`;
}

async function follow(address, told) {
  const fail = (words) => {
    told.className = "bad lines";
    told.textContent = words;
  };
  for (;;) {
    let one;
    try {
      one = await requestJson(address);
    } catch (error) {
      return fail(error.message);
    }
    if (one.state === "done" && one.runs.length === 1) return location.assign(`/runs/${one.runs[0]}`);
    if (one.state === "done") return location.assign(`/import/${one.id}`);
    if (one.state === "failed") return fail(one.said);
    told.textContent = one.state === "waiting" ? "Waiting for other captures to be read…" : reading(one);
    await wait(400);
  }
}

function send(files) {
  const told = document.getElementById("told");
  told.className = "";
  const body = new FormData();
  for (const name of ["csrf", "label", "note"]) body.append(name, drop.elements[name].value);
  for (const file of files) body.append("capture", file);
  const request = new XMLHttpRequest();
  const bar = document.createElement("progress");
  bar.max = 1;
  bar.value = 0;
  bar.setAttribute("aria-label", "Sent");
  told.replaceChildren(bar);
  request.upload.addEventListener("progress", (event) => event.lengthComputable && (bar.value = event.loaded / event.total));
  request.addEventListener("load", () => {
    if (request.status !== 202) {
      told.className = "bad";
      told.textContent = request.response?.error ?? `The site answered with status ${request.status}.`;
      return;
    }
    follow(`/api/imports/${request.response.id}`, told);
  });
  request.addEventListener("error", () => {
    told.className = "bad";
    told.textContent = "The site does not answer; is it still running?";
  });
  request.open("POST", "/api/imports");
  request.responseType = "json";
  request.send(body);
}

if (drop) {
  drop.addEventListener("submit", (event) => {
    event.preventDefault();
    if (drop.elements.capture.files.length) send(drop.elements.capture.files);
  });
  for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", (event) => drop.contains(event.relatedTarget) || drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files.length) send(event.dataTransfer.files);
  });
}
for (const told of document.querySelectorAll("[data-import]")) follow(told.dataset.import, told);
