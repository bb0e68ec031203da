// What every page has: the theme's switch, forms that show their result at once, keys, and what changes while one looks.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// Asking the site -----------------------------------------------------------------------------------------------------

// Both fail with a sentence for people.
async function answerOf(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    throw new Error("The site does not answer; is it still running?");
  }
}

async function requestJson(address, options) {
  const answer = await answerOf(address, options);
  const body = await answer.json().catch(() => null);
  if (!answer.ok || body === null) throw new Error(body?.error ?? `The site answered with status ${answer.status}.`);
  return body;
}

// A page of which a script takes parts. It says so, and the messages for the page that comes next wait for that page.
async function requestPage(address) {
  const answer = await answerOf(address, { headers: { Accept: "text/html", "X-Requested-With": "fetch" } });
  if (!answer.ok) throw new Error(`The site answered with status ${answer.status}.`);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// Theme -------------------------------------------------------------------------------------------------------------

const isDark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const theme = $("#theme");
function nameTheme() {
  theme.textContent = isDark() ? "Light" : "Dark";
}
theme.hidden = false;
nameTheme();
theme.addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("theme", next);
  } catch {
    // It holds for this page then.
  }
  nameTheme();
  document.dispatchEvent(new Event("themed"));
});

// Forms that show their result at once -------------------------------------------------------------------------------

function atOnce(form) {
  const go = () => {
    const url = new URL(location.href);
    for (const [key, value] of new FormData(form)) url.searchParams.delete(key);
    for (const [key, value] of new FormData(form)) if (value !== "") url.searchParams.append(key, value);
    url.searchParams.delete("page");
    url.hash = form.getAttribute("action") || "";
    if (url.href !== location.href) location.assign(url);
  };
  form.addEventListener("change", (event) => event.target.type !== "search" && go());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go();
  });
}
$$("form[data-auto]").forEach(atOnce);

// Search -------------------------------------------------------------------------------------------------------------

const everything = $("#everything");
const found = $("#found");
const TYPING_MS = 150;
let typed = 0;
function leave() {
  typed += 1; // An answer that is under way does not open it again.
  found.hidden = true;
}
everything?.addEventListener("input", async () => {
  const mine = ++typed;
  await new Promise((done) => setTimeout(done, TYPING_MS));
  if (mine !== typed) return;
  const words = everything.value.trim();
  if (!words) return leave();
  const page = await requestPage(`/search?q=${encodeURIComponent(words)}`).catch(() => null);
  if (mine !== typed || !page) return;
  const held = found.contains(document.activeElement) && document.activeElement.getAttribute("href");
  found.replaceChildren(...page.getElementById("hits").childNodes);
  found.hidden = false;
  // An answer that comes late must not take the focus from who is walking through the earlier one.
  if (held) ($$("a", found).find((link) => link.getAttribute("href") === held) ?? everything).focus();
});
// Arrows go through what was found, and Escape leaves it.
everything?.form.addEventListener("keydown", (event) => {
  const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.key === "Escape") leave();
  if (!way || found.hidden) return;
  const stops = [everything, ...$$("a", found)];
  stops[stops.indexOf(document.activeElement) + way]?.focus();
  event.preventDefault();
});
everything?.form.addEventListener("focusout", (event) => {
  if (event.relatedTarget && !everything.form.contains(event.relatedTarget)) leave();
});
document.addEventListener("pointerdown", (event) => {
  if (everything && !everything.form.contains(event.target)) leave();
});

// Keys ---------------------------------------------------------------------------------------------------------------

const PLACES = { h: "/", c: "/campaigns", s: "/scorecard", l: "/launch", i: "/import", d: "/docs" };
let going = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable]")) return;
  if (going && PLACES[event.key]) {
    location.assign(PLACES[event.key]);
    event.preventDefault();
  }
  going = event.key === "g";
  if (event.key === "/") {
    everything?.focus();
    event.preventDefault();
  }
  if (event.key === "?") $("#keys").showModal();
});

// A link to something folded opens it.
function unfold() {
  // Ids are plain, so nothing is decoded: an address may end with any signs.
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", unfold);
unfold();

// Figures are shared: a link to the figure on its page, its picture, or an element that shows it on another page.
async function share(button) {
  const figure = button.closest("figure");
  const told = $("output", figure);
  const svg = $(".exports > a", figure).href; // It follows the zoom.
  const picture = svg.replace(/\.svg(?=\?|$)/, ".png");
  const place = figure.id || figure.closest("[id]").id;
  const words = document.title.replaceAll("&", "&amp;").replaceAll('"', "&quot;");
  const texts = { link: `${location.href.split("#")[0]}#${place}`, embed: `<img src="${svg.replaceAll("&", "&amp;")}" alt="${words}">`, picture };
  const text = texts[button.dataset.copy];
  try {
    if (button.dataset.copy === "picture") {
      await navigator.clipboard.write([new ClipboardItem({ "image/png": fetch(picture).then((answer) => answer.blob()) })]);
    } else await navigator.clipboard.writeText(text);
    told.textContent = "Copied";
  } catch {
    // Browsers give the clipboard to https and to this machine alone.
    const field = document.createElement("input");
    field.readOnly = true;
    field.value = text;
    field.setAttribute("aria-label", "To copy");
    told.replaceChildren(field);
    field.select();
  }
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) share(button);
  for (const open of $$(".share[open]")) if (!open.contains(event.target)) open.open = false;
});

// Paper is light and narrow: figures are drawn again to its width.
let shownTheme = null;
addEventListener("beforeprint", () => {
  shownTheme = document.documentElement.dataset.theme ?? "";
  document.documentElement.dataset.theme = "light";
  document.documentElement.dataset.paper = "";
  document.dispatchEvent(new Event("themed"));
});
addEventListener("afterprint", () => {
  delete document.documentElement.dataset.paper;
  if (shownTheme) document.documentElement.dataset.theme = shownTheme;
  else delete document.documentElement.dataset.theme;
  document.dispatchEvent(new Event("themed"));
});

// What changes while one looks ---------------------------------------------------------------------------------------

// For those who listen: one sentence for a change of state, and how many runs are there at most every half minute.
const QUIET_MS = 30_000;
let counted = Date.now();
const say = (words) => ($("#live-said").textContent = words);
function heard(what, before, now) {
  const plain = (text) => text.replace(/\s+/g, " ").trim();
  if (plain(before) === plain(now)) return;
  if (what === "state") {
    counted = Date.now();
    return say(`The campaign is ${plain(now)}.`);
  }
  if (Date.now() - counted < QUIET_MS) return;
  counted = Date.now();
  say(plain(now).replace(/ valid.*/, " valid."));
}

// The markup as the server sent it, without what scripts drew into it.
function source(element) {
  const copy = element.cloneNode(true);
  for (const board of copy.querySelectorAll(".board")) board.replaceWith(document.createElement("div"));
  return copy.innerHTML;
}

// The page is asked for again and its marked parts are put in place of the old ones; nothing else moves. One at a time, so
// that a late answer replaces no newer one.
let swapping = Promise.resolve();
let following = null;
function swap() {
  const begin = () => {
    following = null;
    return (swapping = replaceParts());
  };
  return (following ??= swapping.then(begin, begin));
}

async function replaceParts() {
  const address = location.href;
  let fresh;
  try {
    fresh = await requestPage(address);
  } catch {
    return; // The server may be gone for a moment; the next event tells.
  }
  if (location.href !== address) return replaceParts(); // The explorer shows another view by now.
  for (const old of $$("[data-swap]")) {
    const next = fresh.getElementById(old.id);
    if (!next || source(next) === source(old)) continue;
    // An element that somebody is working in stays as it is.
    if (old.contains(document.activeElement) && document.activeElement !== document.body) continue;
    const chosen = new Set($$("input:checked", old).map((box) => box.value));
    if (old.dataset.say) heard(old.dataset.say, old.textContent, next.textContent);
    old.replaceWith(document.adoptNode(next));
    $$("form[data-auto]", next).forEach(atOnce);
    for (const box of $$("input[type=checkbox]", next)) box.checked = chosen.has(box.value);
  }
  if (typeof Figures !== "undefined") Figures.embedded();
  document.dispatchEvent(new Event("swapped"));
}

function tell(state) {
  for (const one of state.campaigns) {
    const bar = $(`[data-share="${CSS.escape(one.id)}"]`);
    if (bar) bar.value = one.progress.share || 0;
    const words = $(`[data-pace="${CSS.escape(one.id)}"]`);
    if (words) words.textContent = one.pace;
    const list = $(`[data-cells="${CSS.escape(one.id)}"]`);
    if (list) {
      list.replaceChildren(...one.working.map((words) => {
        const item = document.createElement("li");
        item.textContent = words;
        return item;
      }));
    }
  }
}

const live = $("[data-live]");
if (live) {
  // Progress alone does not change the page's text: only what is counted does.
  const shape = (state) => JSON.stringify([state.campaigns.map((one) => [one.id, one.state, one.valid, one.invalid]), state.requests, state.runners, state.counts]);
  let last = null;
  let waiting = 0;
  let source = null;
  const hear = (event) => {
    const state = JSON.parse(event.data);
    tell(state);
    // What was shown as under way may have ended between the page and its first event.
    const isBehind = last === null ? $(".state.running, .state.waiting") !== null : shape(state) !== last;
    if (isBehind && !waiting) {
      // Runs that land one after another are shown together.
      waiting = setTimeout(() => {
        waiting = 0;
        swap();
      }, 300);
    }
    last = shape(state);
    document.documentElement.dataset.live = "on";
  };
  const listen = () => {
    source = new EventSource(live.dataset.events);
    source.addEventListener("state", hear);
  };
  listen();
  addEventListener("pagehide", () => source.close());
  // A page that the browser kept comes back as it was left, without its stream and behind the store.
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    listen();
    swap();
  });
}
