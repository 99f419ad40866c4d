// What the pages do beyond plain links and forms: times, open rows, live updates, the start form, copying. Every action works without it.
"use strict";
(() => {
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const on = (type, handler, root = document) => root.addEventListener(type, handler);
  const sprite = (svg, name) => {
    const use = svg && find("use", svg);
    if (use) use.setAttribute("href", use.getAttribute("href").replace(/#.*/, `#${name}`));
  };
  const kept = (storage) => ({
    get: (key) => { try { return storage().getItem(key); } catch { return null; } },
    set: (key, value) => { try { storage().setItem(key, value); } catch { /* switched off or full: nothing is kept */ } },
    drop: (key) => { try { storage().removeItem(key); } catch { /* switched off */ } },
  });
  const forever = kept(() => localStorage);
  const thisTab = kept(() => sessionStorage);

  // -- theme ---------------------------------------------------------------------------------------
  const THEMES = { "": "follows the system", light: "light", dark: "dark" };

  function showTheme() {
    const button = find("#theme");
    if (!button) return;
    button.hidden = false;
    button.setAttribute("aria-label", `Theme: ${THEMES[document.documentElement.dataset.theme || ""]}`);
    button.title = button.getAttribute("aria-label");
  }

  function nextTheme() {
    const names = Object.keys(THEMES);
    const name = names[(names.indexOf(document.documentElement.dataset.theme || "") + 1) % names.length];
    if (name) forever.set("theme", name); else forever.drop("theme");
    if (name) document.documentElement.dataset.theme = name; else delete document.documentElement.dataset.theme;
    showTheme();
    say(`Theme: ${THEMES[name]}`);
  }

  // -- times: relative words kept true, clocks in the reader's zone; the server's words are UTC ---------
  const pad = (number) => String(number).padStart(2, "0");
  const clock = (date, seconds) => [date.getHours(), date.getMinutes(), ...(seconds ? [date.getSeconds()] : [])].map(pad).join(":");
  const oneUnit = (s) => (s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h`);
  const UNITS = [[86400, "day"], [3600, "h"], [60, "min"], [1, "s"]];

  function twoUnits(seconds) {
    const at = UNITS.findIndex(([size]) => seconds >= size);
    if (at < 0) return "0 s";
    const words = (many, unit) => `${many} ${unit}${unit === "day" && many > 1 ? "s" : ""}`;
    const [size, unit] = UNITS[at];
    const rest = at + 1 < UNITS.length ? Math.floor((seconds % size) / UNITS[at + 1][0]) : 0;
    return words(Math.floor(seconds / size), unit) + (rest ? ` ${words(rest, UNITS[at + 1][1])}` : "");
  }

  function ago(date, now) {
    const seconds = Math.trunc((now - date) / 1000);
    if (Math.abs(seconds) < 5) return "just now";
    if (seconds < 0) return `in ${oneUnit(-seconds)}`;
    if (seconds < 86400) return `${oneUnit(seconds)} ago`;
    if (seconds < 2 * 86400) return "yesterday";
    if (seconds < 14 * 86400) return `${Math.floor(seconds / 86400)} days ago`;
    return date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
  }

  const zone = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
  const SHOWN = {
    ago: (date, now) => ago(date, now),
    span: (date, now) => `${twoUnits(Math.max(0, Math.floor((now - date) / 1000)))} ago`,
    since: (date, now) => twoUnits(Math.max(0, Math.floor((now - date) / 1000))),
    left: (date, now) => twoUnits(Math.max(0, Math.ceil((date - now) / 1000))),
    exact: (date) => zone.format(date),
    clock: (date, now, said) => (/^\d\d:\d\d(?!:)/.test(said) ? clock(new Date(Math.ceil(date / 60000) * 60000), false) : clock(date, true)),
  };

  function freshenTimes() {
    const now = new Date();
    for (const time of all("time[datetime]")) {
      const kind = Object.keys(SHOWN).find((name) => time.classList.contains(name));
      if (!kind) continue;
      const date = new Date(time.dateTime);
      const said = time.textContent;
      const words = SHOWN[kind](date, now, said);
      if (said !== words) time.textContent = words;
      if (time.dataset.zoned) continue;
      time.dataset.zoned = "1";
      time.title = kind === "exact" ? said : `${zone.format(date)} (${time.title})`;
    }
  }

  // -- the one polite voice ----------------------------------------------------------------------------
  function say(text) {
    const voice = find("#announcer");
    if (voice && voice.textContent !== text) voice.textContent = text;
  }

  // -- rows: opened and shut in place ----------------------------------------------------------------
  function toggle(button) {
    const row = button.closest(".loop");
    const opened = !row.classList.contains("is-open");
    row.classList.toggle("is-open", opened);
    button.setAttribute("aria-expanded", String(opened));
    find(".loop-body", row).hidden = !opened;
    if (opened) htmx.trigger(button, "unfold");
    greet(false);
  }

  // -- swaps: nothing that the reader holds is taken away, and no version goes back -----------------
  const version = (element) => Number((element && element.dataset && element.dataset.version) || 0);
  const fresh = new WeakSet(); // nodes that a morph is just making: they take every attribute
  const isRow = (node) => node.nodeType === 1 && node.matches("article.loop");
  const READERS = [
    ["class", "article.loop"], ["hidden", ".loop-body, [data-copy], [data-fill]"], ["aria-expanded", ".open"],
    ["open", "details"], ["checked", ".views input"], ["title", "time"], ["data-zoned", "time"],
  ];

  Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, incoming) => {
    if (old.nodeType !== 1) return true;
    if (!old.attributes.length) fresh.add(old);
    if (isRow(old) && incoming.nodeType === 1 && version(incoming) < version(old)) return false;
    if (old.matches(".loop-body:not([data-unloaded])") && incoming.matches("[data-unloaded]")) return false;
    return !(old.matches("time[data-zoned]") && old.dateTime === incoming.dateTime);
  };
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
    fresh.has(node) || !READERS.some(([attribute, selector]) => attribute === name && node.matches(selector));

  let holding = ""; // the row that has the focus while it is swapped

  on("htmx:oobBeforeSwap", (event) => {
    const { target, fragment } = event.detail;
    if (target.id === "loops") {
      // A row that is here already, by the socket or by the form's answer, keeps its place and the focus in it.
      for (const row of all("article.loop", fragment)) {
        const here = document.getElementById(row.id);
        if (!here) continue;
        if (version(row) > version(here)) setTimeout(catchUp);
        row.closest("li").remove();
      }
      return;
    }
    if (!isRow(target)) return;
    if (version(find("article.loop", fragment)) < version(target)) event.detail.shouldSwap = false;
    else if (target.contains(document.activeElement)) holding = target.id;
  });

  function settle() {
    if (holding && document.activeElement === document.body) {
      const link = find(`#${CSS.escape(holding)} h3 a`);
      if (link) link.focus();
    }
    holding = "";
    for (const follower of all("[data-follows]")) {
      const row = document.getElementById(follower.dataset.follows);
      if (version(row) <= version(follower)) continue;
      follower.dataset.version = row.dataset.version;
      htmx.trigger(follower, "changed");
    }
    for (const button of all("[data-copy][hidden]")) button.hidden = !navigator.clipboard;
    for (const button of all("[data-fill][hidden]")) button.hidden = false;
    freshenTimes();
  }

  // -- live: the socket first, a slow poll while something is active -----------------------------------
  const POLL = 12000;
  const SILENCE = 25000; // the server says something every ten seconds
  const RETRY_ITSELF = [1006, 1011, 1012, 1013]; // closed so, the extension comes back on its own
  const link = { wrapper: null, socket: null, open: false, speaks: false, met: false, paused: thisTab.get("paused") === "1", heard: new Date() };

  function view() {
    const ids = (selector) => all(selector).map((row) => row.id.slice("loop-".length));
    const rows = ids("article.loop");
    return {
      shown: ids("article.loop[data-active]"),
      open: ids("article.loop.is-open"),
      newest: "grows" in find("#socket").dataset ? rows.reduce((a, b) => (a > b ? a : b), "") : null,
    };
  }

  function greet(wantsState) {
    if (link.open) link.wrapper.sendImmediately(JSON.stringify({ ...view(), state: wantsState }));
  }

  function poll() {
    for (const element of all("[data-backstop][data-active]")) htmx.trigger(element, "refresh");
    const socket = find("#socket");
    if (!socket) return;
    const values = { view: JSON.stringify(view()) };
    htmx.ajax("POST", socket.dataset.stateFrom, { source: socket, target: socket, swap: "none", values });
  }

  function backstop() {
    if (link.paused || document.hidden) return;
    if (all("[data-active]").length || (find("#socket") && !link.speaks)) poll();
  }

  function catchUp() {
    if (link.paused || document.hidden) return;
    if (link.open) greet(true); else poll();
  }

  function showLink() {
    const note = find("#connection");
    if (!note) return;
    const state = link.paused ? "paused" : link.speaks ? "live" : "reconnecting";
    const words = {
      paused: "Paused by you",
      live: "Live",
      reconnecting: link.met ? `Reconnecting, data from ${clock(link.heard, true)}` : "Connecting",
    };
    note.hidden = false;
    note.dataset.state = state;
    note.classList.toggle("lost", state === "reconnecting");
    note.classList.toggle("held", state === "paused");
    sprite(find("svg", note), { paused: "pause", live: "live", reconnecting: "offline" }[state]);
    if (find("span", note).textContent !== words[state]) find("span", note).textContent = words[state];
    const button = find("#pause");
    button.hidden = false;
    button.setAttribute("aria-pressed", String(link.paused));
    find("span", button).textContent = link.paused ? "Resume updates" : "Pause updates";
  }

  function pause() {
    link.paused = !link.paused;
    thisTab.set("paused", link.paused ? "1" : "");
    showLink();
    catchUp();
  }

  const toLogin = () => location.assign(`/login/?next=${encodeURIComponent(location.pathname + location.search)}`);

  on("htmx:wsOpen", (event) => {
    Object.assign(link, { wrapper: event.detail.socketWrapper, socket: event.detail.event.target, open: true, alive: Date.now() });
    greet(!link.paused);
  });

  on("htmx:wsBeforeMessage", (event) => {
    const isBeat = !/^\s*</.test(event.detail.message);
    link.alive = Date.now();
    if (!link.paused) link.heard = new Date();
    if (isBeat || link.paused) event.preventDefault();
    if (link.speaks) return;
    link.speaks = link.met = true;
    showLink();
  });

  on("htmx:wsAfterMessage", settle);

  on("htmx:wsClose", (event) => {
    const closed = event.detail.event;
    if (link.socket && closed.target !== link.socket && link.open) return; // one that was replaced
    link.open = link.speaks = false;
    if (closed.code === 4401) return toLogin();
    if (closed.code === 4403) return location.reload();
    showLink();
    if (link.wrapper && !RETRY_ITSELF.includes(closed.code)) setTimeout(() => link.wrapper.reconnect(), 500 + 2500 * Math.random());
  });

  function watchSilence() {
    if (link.open && Date.now() - link.alive > SILENCE) {
      link.open = link.speaks = false;
      showLink();
      link.wrapper.reconnect();
    }
  }

  // -- the start form -----------------------------------------------------------------------------------
  const draftKey = (form) => `draft:${form.getAttribute("action")}${form.closest(".panel") ? "" : location.search}`;

  function keepDraft(form) {
    const fields = [...new FormData(form)].filter(([name]) => !["csrfmiddlewaretoken", "once", "grows"].includes(name));
    thisTab.set(draftKey(form), JSON.stringify(fields));
  }

  function restoreDraft(form) {
    if (!form || find("#loop-errors")) return;
    const draft = thisTab.get(draftKey(form));
    if (!draft) return;
    const fields = JSON.parse(draft);
    for (const box of all("input[type=checkbox], input[type=radio]", form)) {
      box.checked = fields.some(([name, value]) => name === box.name && value === box.value);
    }
    for (const [name, value] of fields) {
      const input = form.elements.namedItem(name);
      if (input && "value" in input && !["checkbox", "radio"].includes(input.type)) input.value = value;
    }
    form.dispatchEvent(new Event("input", { bubbles: true }));
  }

  function shutPanel() {
    find("#run-panel").replaceChildren();
    find("#run-panel").className = "";
    const button = find("#run-loop");
    if (button) button.focus();
  }

  function startButton(sending) {
    const button = find("#start-loop");
    if (!button) return;
    button.textContent = sending ? "Starting…" : "Start Loop";
    if (sending) button.setAttribute("aria-disabled", "true"); else button.removeAttribute("aria-disabled");
  }

  on("submit", (event) => {
    const form = event.target;
    if (form.id !== "loop-form") return;
    if (find("#start-loop").getAttribute("aria-disabled") === "true") {
      event.preventDefault();
      event.stopImmediatePropagation();
      return;
    }
    thisTab.set("draft-sent", draftKey(form));
    startButton(true);
  }, document.documentElement);

  on("htmx:afterRequest", (event) => {
    if (event.target.id === "loop-form" && !event.detail.successful) startButton(false);
    if (event.target.id !== "socket" || !event.detail.successful) return;
    link.heard = new Date();
    showLink();
  });

  on("htmx:configRequest", (event) => {
    if (event.detail.elt.name === "stop") event.detail.parameters["opened"] = view().open;
  });

  on("htmx:afterSwap", (event) => {
    if (!event.detail.target || event.detail.target.id !== "run-panel") return;
    const form = find("#loop-form");
    if (!form || find("#loop-errors")) return;
    restoreDraft(form);
    keepDraft(form);
    find("#message").focus({ preventScroll: false });
  });

  on("loop-started", (event) => {
    thisTab.drop(thisTab.get("draft-sent"));
    const row = find(`#loop-${CSS.escape(event.detail.id)} h3 a`);
    if (row) row.focus();
    greet(true);
  });

  // -- what was not done: said beside what was pressed; the page, and what is typed in it, stays ------------------------
  const BY_ITSELF = "#socket, [data-backstop], [data-follows], #outlook";

  function notDone(pressed, sentence) {
    forgetNotDone(pressed);
    const said = document.createElement("p");
    said.className = "not-done";
    said.setAttribute("role", "alert");
    said.textContent = sentence;
    const form = pressed.closest("#loop-form");
    const beside = form ? find(".form-foot", form) : pressed.closest(".act, .row, .filters") || pressed.parentElement;
    beside.append(said);
    if (form) startButton(false);
  }

  const forgetNotDone = (pressed) => {
    const around = pressed.closest("#loop-form, .act, .row, .filters") || pressed.parentElement;
    for (const said of all(".not-done", around)) said.remove();
  };

  on("htmx:beforeRequest", (event) => { if (!event.detail.elt.matches(BY_ITSELF)) forgetNotDone(event.detail.elt); });

  on("htmx:beforeSwap", (event) => {
    const { xhr, requestConfig } = event.detail;
    if (xhr.status < 400) return;
    const plain = (xhr.getResponseHeader("Content-Type") || "").startsWith("text/plain");
    if (xhr.getResponseHeader("HX-Redirect") || (!plain && event.detail.shouldSwap)) return;
    event.detail.shouldSwap = false;
    const pressed = requestConfig.elt;
    if (!pressed.matches(BY_ITSELF)) notDone(pressed, plain ? xhr.responseText : `Not done: the server answered ${xhr.status}. Try again, or reload the page.`);
    else if ([403, 404].includes(xhr.status)) location.reload(); // what the page shows is not the reader's to see any more
  });

  on("htmx:sendError", (event) => {
    const pressed = event.detail.requestConfig.elt;
    if (!pressed.matches(BY_ITSELF)) notDone(pressed, "Not sent: the server cannot be reached. Try again when the page is live.");
  });

  // -- wiring ----------------------------------------------------------------------------------------------
  on("click", (event) => {
    const target = event.target.closest("button, a, [data-copy]");
    if (!target) return;
    if (target.matches(".open")) {
      event.preventDefault();
      toggle(target);
    } else if (target.getAttribute("aria-disabled") === "true") event.preventDefault();
    else if (target.id === "theme") nextTheme();
    else if (target.id === "pause") pause();
    else if (target.id === "cancel-loop" && target.closest(".panel")) {
      event.preventDefault();
      shutPanel();
    } else if (target.id === "reset-loop" || target.matches(".pattern")) thisTab.drop(draftKey(find("#loop-form")));
    else if (target.matches("[data-copy]")) copy(target);
    else if (target.matches("[data-fill]")) fill(target);
  });

  function fill(button) {
    const input = document.getElementById(button.dataset.fill);
    input.value = button.dataset.value;
    input.dispatchEvent(new Event("input", { bubbles: true }));
    input.focus();
  }

  async function copy(button) {
    await navigator.clipboard.writeText(find(button.dataset.copy).textContent);
    say(button.dataset.copied);
    sprite(find("svg", button), "done");
    setTimeout(() => sprite(find("svg", button), "copy"), 1500);
  }

  on("input", (event) => {
    const form = event.target.closest("#loop-form[data-draft]") || (event.target.id === "loop-form" ? event.target : null);
    if (form) keepDraft(form);
  });

  on("htmx:afterSettle", settle);
  on("visibilitychange", catchUp);
  on("pageshow", (event) => { if (event.persisted) { startButton(false); catchUp(); } }, window);

  on("DOMContentLoaded", () => {
    showTheme();
    showLink();
    settle();
    const sent = thisTab.get("draft-sent");
    if (sent && find("#loops")) {
      thisTab.drop(sent);
      thisTab.drop("draft-sent");
    }
    restoreDraft(find("#loop-form"));
    setInterval(freshenTimes, 5000);
    setInterval(backstop, POLL);
    setInterval(watchSilence, 5000);
  });
})();
