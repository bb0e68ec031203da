// The explorer: every change of its form, and every link of its own, loads the view's new address in place.
"use strict";

{
  const boards = [];
  let newest = 0;

  // The view as an address: the form's fields, without empty ones. What was dragged or paged belongs to the old view.
  function address(form) {
    const url = new URL(form.action);
    for (const [key, value] of new FormData(form)) if (value !== "") url.searchParams.append(key, value);
    return url;
  }

  async function go(url, isNew = true) {
    const mine = (newest += 1);
    $("#explore-body").setAttribute("aria-busy", "true");
    let page;
    try {
      page = await requestPage(url);
    } catch {
      page = null;
    }
    if (mine !== newest) return;
    if (!page) return location.assign(url); // The browser shows what is wrong.
    const body = $("#explore-body"); // Runs that landed meanwhile may have replaced it.
    const next = document.adoptNode(page.getElementById("explore-body"));
    const focused = document.activeElement?.id;
    for (const one of $$("details[open][id]", body)) next.querySelector(`#${CSS.escape(one.id)}`)?.setAttribute("open", "");
    body.replaceWith(next);
    if (isNew) history.pushState(null, "", url);
    wire();
    if (focused) document.getElementById(focused)?.focus();
    say(`${$("#runs [role=status]")?.textContent ?? ""} shown.`);
  }

  function wire() {
    for (const chart of boards.splice(0)) chart.remove();
    views();
    $$("[data-panel]").forEach(draw);
    for (const row of $$("tr[data-cells]")) {
      const show = (rows) => () => mark(rows);
      for (const [on, off] of [["mouseenter", "mouseleave"], ["focusin", "focusout"]]) {
        row.addEventListener(on, show([row]));
        row.addEventListener(off, show([]));
      }
    }
  }

  // Saved views are addresses that this browser keeps, by campaign.
  function saved(change = null) {
    const key = `views ${$("#views").dataset.views}`;
    try {
      const all = JSON.parse(localStorage.getItem(key) ?? "{}");
      if (!change) return all;
      change(all);
      localStorage.setItem(key, JSON.stringify(all));
      return all;
    } catch {
      return {};
    }
  }

  function views() {
    const panel = $("#views");
    if (!panel) return;
    const rows = Object.entries(saved()).map(([name, query]) => {
      const row = document.createElement("li");
      const link = Object.assign(document.createElement("a"), { href: `${location.pathname}${query}`, textContent: name });
      link.dataset.here = "";
      const remove = Object.assign(document.createElement("button"), { type: "button", className: "plain", textContent: "Remove" });
      remove.setAttribute("aria-label", `Remove the view ${name}`);
      remove.addEventListener("click", () => {
        saved((all) => delete all[name]);
        views();
      });
      row.append(link, " ", remove);
      return row;
    });
    $("ul", panel).replaceChildren(...rows);
  }

  document.addEventListener("click", (event) => {
    if (event.target.id !== "save-view") return;
    const name = $("#view-name").value.trim();
    if (!name) return $("#view-name").focus();
    saved((all) => (all[name] = location.search));
    $("#view-name").value = "";
    views();
  });

  // Finding a metric hides the others from its list; Enter takes the first.
  document.addEventListener("input", (event) => {
    const { finds } = event.target.dataset;
    if (!finds) return;
    const words = event.target.value.toLowerCase().split(/\s+/);
    for (const option of $$(`#${finds} option`)) option.hidden = !words.every((word) => `${option.textContent} ${option.value}`.toLowerCase().includes(word));
    for (const group of $$(`#${finds} optgroup`)) group.hidden = $$("option", group).every((option) => option.hidden);
  });
  document.addEventListener("keydown", (event) => {
    const { finds } = event.target.dataset;
    if (!finds || event.key !== "Enter") return;
    event.preventDefault();
    const first = $$(`#${finds} option`).find((option) => !option.hidden);
    if (!first) return;
    $(`#${finds}`).value = first.value;
    changed($(`#${finds}`).form);
  });

  function changed(form) {
    form.querySelector("[name=box]")?.remove();
    go(address(form));
  }

  document.addEventListener("change", (event) => {
    if (event.target.form?.id === "explore") changed(event.target.form);
  });
  document.addEventListener("submit", (event) => {
    if (event.target.id === "explore") {
      event.preventDefault();
      changed(event.target);
    } else if (event.target.closest("#explore-body .pager")) {
      event.preventDefault();
      const url = new URL(location.href);
      for (const [key, value] of new FormData(event.target)) if (key === "page") url.searchParams.set(key, value);
      go(url);
    }
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("#explore-body a[data-here], #explore-body .pager a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(link.href);
  });
  addEventListener("popstate", () => go(location.href, false));
  document.addEventListener("swapped", wire);

  // A field that is dropped on a slot trades places with the one there.
  let dragged = null;
  document.addEventListener("dragstart", (event) => (dragged = event.target.closest?.("[data-field]")?.dataset.field ?? null));
  const slot = (event) => dragged && event.target.closest?.(".slot");
  document.addEventListener("dragover", (event) => {
    if (!slot(event)) return;
    event.preventDefault();
    slot(event).classList.add("over");
  });
  document.addEventListener("dragleave", (event) => event.target.closest?.(".slot")?.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    const target = slot(event);
    if (!target) return;
    event.preventDefault();
    const here = $("select", target);
    const there = $$(".slot select").find((one) => one.value === dragged);
    if (there) there.value = here.value;
    here.value = dragged;
    changed(here.form);
  });
  document.addEventListener("dragend", () => (dragged = null));

  // Figures -----------------------------------------------------------------------------------------------------------

  let marked = { cells: new Set(), runs: new Set() };

  // The marks of some rows of the table, and of pinned runs, are ringed.
  function mark(rows) {
    const all = [...rows, ...$$("tr.pinned")];
    marked = { cells: new Set(all.flatMap((row) => row.dataset.cells.split(" ").map(Number))), runs: new Set(all.map((row) => row.dataset.run)), whole: rows.some((row) => !row.dataset.run) };
    for (const chart of boards) chart.plot.redraw(false);
  }

  function rings(figure, number, u) {
    const ratio = devicePixelRatio || 1;
    u.ctx.save();
    u.ctx.strokeStyle = Figures.color("mark");
    u.ctx.lineWidth = 2 * ratio;
    for (const one of figure.series) {
      one.cell?.forEach((cell, index) => {
        if (one.y[index] == null || !(one.run && !marked.whole ? marked.runs.has(one.run[index]) : marked.cells.has(cell))) return;
        const [x, y] = [u.valToPos(one.x[index], "x", true), u.valToPos(one.y[index], "y", true)];
        u.ctx.beginPath();
        if (one.kind === "cells") {
          const [wide, high] = FigureSeries.size(u, one, true);
          u.ctx.rect(x - wide / 2, y - high / 2, wide, high);
        } else u.ctx.arc(x, y, 7 * ratio, 0, 2 * Math.PI);
        u.ctx.stroke();
      });
    }
    const [panel, x0, x1, y0, y1] = ($(".panels").dataset.box || "-1").split(":").map(Number);
    if (panel === number) {
      const [left, right] = [u.valToPos(x0, "x", true), u.valToPos(x1, "x", true)];
      const [top, bottom] = y0 === undefined ? [u.bbox.top, u.bbox.top + u.bbox.height] : [u.valToPos(y1, "y", true), u.valToPos(y0, "y", true)];
      u.ctx.setLineDash([5 * ratio, 4 * ratio]);
      u.ctx.strokeStyle = Figures.color("accent");
      u.ctx.strokeRect(left, top, right - left, bottom - top);
    }
    u.ctx.restore();
  }

  // The rows of the mark that the cursor is near.
  function near(best) {
    const [one, index] = best ?? [];
    const run = one?.run?.[index];
    const cell = String(one?.cell?.[index] ?? "");
    for (const row of $$("tr[data-cells]")) row.classList.toggle("near", Boolean(one) && (run && row.dataset.run ? row.dataset.run === run : row.dataset.cells.split(" ").includes(cell)));
  }

  function draw(holder) {
    const number = Number(holder.dataset.panel);
    const figure = JSON.parse($("script", holder).textContent);
    const wide = $(".panels");
    const brush = (x, y) => {
      const url = new URL(location.href);
      url.searchParams.set("box", [number, ...x, ...(y ?? [])].map((end) => (typeof end === "number" ? +end.toPrecision(6) : end)).join(":"));
      url.searchParams.delete("page");
      go(url);
    };
    boards.push(Figures.draw($(".board", holder), figure, {
      height: $$("[data-panel]").length > 1 ? 230 : undefined,
      readout: true,
      onBrush: brush,
      onNear: near,
      onRun: (id) => location.assign(wide.dataset.runs.replace("RUN", id)),
      onDraw: (u) => rings(figure, number, u),
    }));
    holder.dataset.drawn = "true";
  }

  document.addEventListener("DOMContentLoaded", () => {
    wire();
    mark([]);
  });
}
