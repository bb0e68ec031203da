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
  annotate(answer);
  if (answer.problems.length) return verdict.replaceChildren(messages("problems", answer.problems));
  const many = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  verdict.replaceChildren(
    paragraph("good", `${many(answer.points, "combination")}, ${many(answer.runs, "run")} on the ${answer.backend} backend; ${answer.known} with a valid result in the store.`),
    paragraph("", `To be run: ${answer.estimate.sentence}.`),
    ...(answer.warnings.length ? [messages("warnings", answer.warnings)] : []),
  );
  picture.innerHTML = answer.picture; // Made by the server from numbers and checked names.
  picture.hidden = false;
}

// The editor --------------------------------------------------------------------------------------------------------

let annotations = [];
const editor = CodeMirror.fromTextArea(text, {
  mode: "yaml",
  lineNumbers: true,
  lineWrapping: true,
  viewportMargin: Infinity,
  gutters: ["CodeMirror-lint-markers", "CodeMirror-linenumbers"],
  lint: { getAnnotations: () => annotations, lintOnChange: false },
  // The Tab key leaves the editor, as it leaves any field.
  extraKeys: { Tab: false, "Shift-Tab": false, "Ctrl-Space": () => offer() },
  screenReaderLabel: "Campaign file",
});
editor.getInputField().setAttribute("aria-describedby", "verdict");
document.getElementById("text-label").addEventListener("click", () => editor.focus());

editor.on("changes", (_, changes) => {
  editor.save();
  // What was wrong in a line that changes is judged anew.
  const lines = new Set(changes.flatMap((change) => [change.from.line, change.to.line]));
  const isMoved = changes.some((change) => change.text.length !== change.removed.length);
  annotations = isMoved ? [] : annotations.filter((one) => !lines.has(one.from.line));
  editor.performLint();
  verdict.setAttribute("aria-busy", "true");
  later();
  if (changes.some((change) => change.origin === "+input" && /^[\w./-]$/.test(change.text.join("")))) offer();
});

let completions = null;
async function offer() {
  completions ??= requestJson("/api/completions").catch(() => ({ keys: [], values: {} }));
  const { keys, values } = await completions;
  editor.showHint({
    completeSingle: false,
    closeOnUnfocus: true,
    hint: () => {
      const at = editor.getCursor();
      const before = editor.getLine(at.line).slice(0, at.ch);
      const word = /[\w./-]*$/.exec(before)[0];
      // A value after "policy:", also in a list; otherwise a field.
      const field = /([\w.-]+):\s*(?:\[[^\]]*)?[\w./-]*$/.exec(before)?.[1].split(".").at(-1);
      const known = field ? (values[field] ?? []) : keys;
      const list = known.filter((one) => one.startsWith(word) && one !== word).map((one) => (field ? one : `${one}: `));
      return { list: list.slice(0, 60), from: CodeMirror.Pos(at.line, at.ch - word.length), to: at };
    },
  });
}

function annotate(answer) {
  const of = (severity) => (message) => {
    const line = Number(/^[^:]*:(\d+): /.exec(message)?.[1]) - 1;
    return line >= 0 && line < editor.lineCount() ? [{ severity, message: message.replace(/^[^:]*:\d+: /, ""), from: CodeMirror.Pos(line, /^\s*/.exec(editor.getLine(line))[0].length), to: CodeMirror.Pos(line) }] : [];
  };
  annotations = [...answer.problems.flatMap(of("error")), ...(answer.warnings ?? []).flatMap(of("warning"))];
  editor.performLint();
}

function toLine(line) {
  editor.focus();
  editor.setSelection(CodeMirror.Pos(line - 1, 0), CodeMirror.Pos(line - 1));
  editor.scrollIntoView(null, 80);
}

async function check() {
  const mine = ++asked;
  if (!text.value.trim()) {
    verdict.removeAttribute("aria-busy");
    return verdict.replaceChildren(paragraph("empty", "The validator's messages appear here."));
  }
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

function later() {
  asked += 1; // An answer that is under way is about another text.
  clearTimeout(pending);
  pending = setTimeout(check, 500);
}
form.elements.overrides.addEventListener("input", later);

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
  editor.setValue(built.text);
  form.elements.file.value = "new.yaml";
  check();
}

// A flow's hosts are those of the topology.
const hostsOf = JSON.parse(document.querySelector("[data-hosts]").dataset.hosts);
function offerHosts() {
  const hosts = hostsOf[form.elements.topology.value];
  for (const select of document.querySelectorAll("select[name$='.from'], select[name$='.to']")) {
    for (const option of select.options) option.hidden = option.disabled = Boolean(option.value && hosts && !hosts.includes(option.value));
    if (!select.selectedOptions[0]?.disabled) continue;
    select.value = hosts[select.name.endsWith(".from") ? 0 : 1];
  }
}
form.elements.topology.addEventListener("change", offerHosts);
offerHosts();
