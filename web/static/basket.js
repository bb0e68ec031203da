// What is to be compared, gathered over several pages: runs and points of any campaigns, kept by this browser.
"use strict";

{
  const MOST = 8;
  const read = () => {
    try {
      const found = JSON.parse(localStorage.getItem("basket") || "[]");
      return Array.isArray(found) ? found.filter((one) => ["run", "point"].includes(one?.kind) && typeof one.id === "string") : [];
    } catch {
      return []; // No storage, or not ours: then there is nothing in it.
    }
  };
  const address = (basket) => `/compare?${new URLSearchParams(basket.map((one) => [one.kind, one.id]))}`;

  function write(basket, words) {
    try {
      localStorage.setItem("basket", JSON.stringify(basket));
    } catch {
      words = "This browser stores nothing for the site, so a comparison cannot be collected.";
    }
    say(words);
    show();
  }

  function add(wanted) {
    const basket = read();
    const fresh = wanted.filter((one) => !basket.some((other) => other.kind === one.kind && other.id === one.id));
    const room = fresh.slice(0, MOST - basket.length);
    const over = fresh.length - room.length;
    write([...basket, ...room], !wanted.length ? "Nothing is chosen." : over ? `${over} left out: at most ${MOST} can be compared.` : `${basket.length + room.length} to compare.`);
  }

  function show() {
    const place = document.getElementById("basket");
    const basket = read();
    place.hidden = !basket.length;
    const list = place.querySelector("ul");
    list.replaceChildren(...basket.map((one, index) => {
      const item = document.createElement("li");
      const remove = document.createElement("button");
      remove.type = "button";
      remove.className = "plain remove";
      remove.textContent = "×";
      remove.setAttribute("aria-label", `Take ${one.label} out of the comparison`);
      remove.addEventListener("click", () => {
        write(read().filter((other) => other.kind !== one.kind || other.id !== one.id), `${one.label} is taken out.`);
        // The keyboard stays where it was: the button it was on is gone.
        (list.querySelectorAll("button")[index] ?? list.querySelector("button:last-of-type") ?? document.getElementById("main")).focus();
      });
      item.append(one.label, " ", remove);
      return item;
    }));
    place.querySelector("a").href = address(basket);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-gather]");
    if (!button) return;
    if (button.dataset.gather) return add([{ kind: "run", id: button.dataset.gather, label: button.dataset.label }]);
    const title = document.querySelector("h1").textContent;
    add([...button.closest("form").querySelectorAll("input:checked")].map((box) => ({
      kind: box.name, id: box.value, label: `${title}: ${box.getAttribute("aria-label").replace(/^Compare /, "")}`,
    })));
  });
  // Another tab may have added to it.
  addEventListener("storage", show);
  addEventListener("pageshow", show);
  show();
}
