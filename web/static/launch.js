// The launch page: what the validator says while one types, and a file from the form without leaving the page.
"use strict";

const form = document.getElementById("launch");
const text = document.getElementById("text");
const verdict = document.getElementById("verdict");
const picture = document.getElementById("picture");
const token = document.querySelector("meta[name=csrf]").content;
let asked = 0;
let pending = 0;

function paragraph(className, words) {
  const made = document.createElement("p");
  made.className = className;
  made.textContent = words;
  return made;
}

// Messages of the validator, each with a button that selects its line.
function messages(className, all) {
  const list = document.createElement("ul");
  list.className = className;
  for (const message of all) {
    const item = document.createElement("li");
    item.textContent = message;
    const line = /^[^:]*:(\d+): /.exec(message);
    if (line) {
      const go = document.createElement("button");
      go.type = "button";
      go.className = "plain";
      go.textContent = "show";
      go.setAttribute("aria-label", `Show line ${line[1]}`);
      go.addEventListener("click", () => toLine(Number(line[1])));
      item.append(" ", go);
    }
    list.append(item);
  }
  return list;
}

function show(answer) {
  if (answer.problems.length) return verdict.replaceChildren(messages("problems", answer.problems));
  const many = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  verdict.replaceChildren(
    paragraph("good", `${many(answer.points, "point")}, ${many(answer.runs, "run")} on the ${answer.backend} backend; ${answer.known} of them have a valid result.`),
    paragraph("", `To be run: ${answer.estimate.sentence}.`),
    ...(answer.warnings.length ? [messages("warnings", answer.warnings)] : []),
  );
  picture.innerHTML = answer.picture; // Made by the server from numbers and checked names.
  picture.hidden = false;
}

function toLine(line) {
  const lines = text.value.split("\n");
  const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  text.focus();
  text.setSelectionRange(start, start + lines[line - 1].length);
  text.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(text).lineHeight));
}

async function check() {
  if (!text.value.trim()) return;
  const mine = ++asked;
  const body = {
    text: text.value,
    file: form.elements.file.value,
    overrides: [
      ...form.elements.overrides.value.split("\n").map((line) => line.trim()).filter(Boolean),
      ...(form.elements.run_backend.value ? [`backend=${form.elements.run_backend.value}`] : []),
    ],
  };
  verdict.setAttribute("aria-busy", "true");
  try {
    const found = await requestJson("/api/check", { method: "POST", headers: { "Content-Type": "application/json", "X-CSRF-Token": token }, body: JSON.stringify(body) });
    if (mine === asked) show(found);
  } catch (error) {
    if (mine === asked) show({ problems: [error.message] });
  }
  if (mine === asked) verdict.removeAttribute("aria-busy");
}

for (const field of [text, form.elements.overrides]) {
  field.addEventListener("input", () => {
    clearTimeout(pending);
    pending = setTimeout(check, 500);
  });
}

form.elements.run_backend.addEventListener("change", check);

// Only a launch leaves the page.
form.addEventListener("submit", (event) => {
  const action = event.submitter?.value;
  if (action === "launch") return;
  event.preventDefault();
  if (action === "build") build();
  else check();
});

async function build() {
  let built;
  try {
    built = await requestJson("/api/build", { method: "POST", headers: { "X-CSRF-Token": token }, body: new URLSearchParams(new FormData(form)) });
  } catch (error) {
    return show({ problems: [error.message] });
  }
  text.value = built.text;
  form.elements.file.value = "new.yaml";
  check();
}
