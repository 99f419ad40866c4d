// Sets the remembered theme before the first paint; without one the page follows the system.
"use strict";
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("theme");
  } catch {
    // storage may be switched off: the system's theme it is
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
