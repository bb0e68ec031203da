// Light or dark, as this visitor chose; set before the page is painted.
"use strict";

try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage the system's choice stands.
}
