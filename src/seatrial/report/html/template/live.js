// The page of a running campaign: progress bars, and new data as they come.
// Polls the page's server every two seconds, less often when the tab is hidden or the server does not answer. Everything is inserted as text,
// except the content of <main>, which the server renders with every name escaped; no script in it may run.
"use strict";
(() => {
  const POLL_MS = 2000;
  const POLL_OVER_MS = 15000;
  const POLL_HIDDEN_MS = 60000;
  const MAX_BACKOFF_MS = 60000;
  const FAILURES_UNTIL_LOST = 2;
  // The last results come a moment after the end of the campaign.
  const FAST_POLLS_AFTER_END = 8;
  // Polls for which an update is deferred while the user is busy.
  const MAX_DEFERRED = 15;

  const STYLE = `
    #live { max-width: 1100px; margin: 0 auto; padding: .75rem clamp(1rem, 3vw, 2rem); font-size: .9rem; line-height: 1.4;
      font-variant-numeric: tabular-nums; display: grid; gap: .3rem .75rem; align-items: center;
      grid-template-columns: minmax(5rem, auto) minmax(4rem, 1fr) minmax(29rem, auto); border-bottom: 1px solid var(--line); }
    #live [hidden] { display: none; }
    #live-short { color: var(--quiet); font-size: .9rem; }
    #live .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 18rem; font-weight: 600; }
    #live progress { width: 100%; height: .75rem; accent-color: #0072B2; }
    #live .text { text-align: right; color: var(--quiet); }
    #live .message { grid-column: 1 / -1; overflow-wrap: anywhere; }
    #live .alarm, #live .problem { padding: .3rem .75rem; border-left: 4px solid var(--open); background: var(--open-ground); border-radius: 4px; }
    @media (min-width: 1320px) { #live { max-width: calc(1100px + 10.5rem); } }
    #live .problem { position: fixed; z-index: 9; left: 50%; bottom: .75rem; transform: translateX(-50%); width: max-content;
      max-width: calc(100vw - 2rem); color: var(--open); box-shadow: 0 2px 8px rgb(0 0 0 / 30%); }
    @media (max-width: 54rem) {
      #live { grid-template-columns: minmax(0, 1fr); gap: .1rem; }
      #live .text { text-align: left; margin-bottom: .3rem; }
      #live .name { max-width: none; }
    }
    @media print { #live { display: none; } }`;

  const hiddenElement = (name, className) => {
    const element = document.createElement(name);
    element.className = className;
    element.hidden = true;
    return element;
  };

  // Written only if it differs, so that a selection and a screen reader's position stay.
  const setText = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
    element.hidden = !text;
  };

  class Bar {
    constructor(parent) {
      this.name = hiddenElement("span", "bar name");
      this.progress = hiddenElement("progress", "bar");
      this.text = hiddenElement("span", "bar text");
      parent.append(this.name, this.progress, this.text);
    }

    show(bar) {
      setText(this.name, bar ? bar.name : "");
      setText(this.text, bar ? bar.text : "");
      this.name.title = bar ? bar.name : "";
      this.progress.hidden = !bar;
      if (!bar) return;
      this.progress.setAttribute("aria-label", `${bar.name}: ${bar.text}`);
      if (bar.of > 0) {
        this.progress.max = bar.of;
        this.progress.value = Math.min(bar.done, bar.of);
      } else {
        this.progress.removeAttribute("value");
      }
    }
  }

  class Banner {
    constructor() {
      const style = document.createElement("style");
      style.textContent = STYLE;
      document.head.append(style);
      // In the sticky header, and announced by screen readers: only what seldom changes.
      this.short = hiddenElement("span", "");
      this.short.id = "live-short";
      this.short.setAttribute("role", "status");
      const top = document.querySelector("header");
      top.querySelector("button").before(this.short);
      this.element = document.createElement("aside");
      this.element.id = "live";
      this.element.setAttribute("aria-label", "Campaign progress");
      this.campaign = new Bar(this.element);
      this.run = new Bar(this.element);
      this.alarm = hiddenElement("span", "message alarm");
      this.status = hiddenElement("span", "message status");
      this.problem = hiddenElement("span", "message problem");
      this.problem.setAttribute("role", "status");
      this.element.append(this.alarm, this.status, this.problem);
      top.after(this.element);
    }

    show(state) {
      // The campaign's folder has not been read yet.
      if (!("runs_now" in state)) return;
      this.campaign.show(state.campaign);
      this.run.show(state.run);
      setText(this.alarm, state.alarm || "");
      setText(this.status, statusText(state));
      this.setState(stateOf(state), state.campaign);
    }

    setState(state, campaign) {
      const label = { over: "Finished", stopped: "Stopped", running: "Running", idle: "Not running", lost: "Connection lost" }[state];
      const advice = state === "stopped" ? `; ${runsLeft(campaign)} left. Run the same command to resume` : "";
      setText(this.short, campaign ? `${label}: ${campaign.done} of ${campaign.of} runs${advice}` : label);
      this.element.dataset.state = state;
    }
  }

  const runsLeft = (campaign) => Math.max(campaign.of - campaign.done, 0);

  // A campaign that is not running and has runs left was stopped.
  function stateOf(state) {
    if (state.runs_now) return "running";
    if (state.campaign && runsLeft(state.campaign)) return "stopped";
    return state.over ? "over" : "idle";
  }

  function statusText(state) {
    if (stateOf(state) === "stopped") return "Stopped with runs left. Run the same command to resume.";
    if (state.over) return "Campaign finished. This page stays available until its server is stopped.";
    if (!state.runs_now) return `Not running. ${state.line}.`;
    return state.run ? "" : state.line || "";
  }

  // The response as JSON; an error whose message is "refused" or "status CODE" otherwise.
  async function fetchJson(path) {
    const response = await fetch(path, { credentials: "same-origin", cache: "no-store", redirect: "error" });
    if (response.status === 403) throw new Error("refused");
    if (!response.ok) throw new Error(`status ${response.status}`);
    return response.json();
  }

  // Returns a function that restores scroll positions, focus, the filter's text and opened details after <main> is replaced.
  function captureView(main) {
    const opened = new Set([...main.querySelectorAll("details[open]")].map(elementPath));
    const scrolls = [...main.querySelectorAll(".scroll, #run-list")].map((element) => [elementPath(element), element.scrollLeft, element.scrollTop]);
    const anchor = scrollAnchor(main);
    const active = main.contains(document.activeElement) ? document.activeElement : null;
    const focused = active ? elementPath(active) : "";
    const filter = document.getElementById("run-filter");
    const typed = filter ? [filter.value, filter.selectionStart, filter.selectionEnd] : null;
    return () => {
      for (const details of main.querySelectorAll("details")) if (opened.has(elementPath(details))) details.open = true;
      restoreFilter(typed);
      for (const [path, left, top] of scrolls) findByPath(main, path)?.scrollTo({ left, top, behavior: "instant" });
      if (focused) findByPath(main, focused)?.focus({ preventScroll: true });
      const element = anchor ? document.getElementById(anchor.id) : null;
      if (element) window.scrollBy({ top: element.getBoundingClientRect().top - anchor.top, behavior: "instant" });
    };
  }

  function restoreFilter(typed) {
    const filter = document.getElementById("run-filter");
    if (!filter || !typed || !typed[0]) return;
    filter.value = typed[0];
    filter.setSelectionRange(typed[1], typed[2]);
    filter.dispatchEvent(new Event("input", { bubbles: true }));
  }

  // A path from the nearest ancestor with an id, the same in old and new markup. A run's checkbox is identified by its run.
  function elementPath(element) {
    if (element.id) return `#${element.id}`;
    const ancestor = element.parentElement ? element.parentElement.closest("[id]") : null;
    const sameTag = ancestor ? [...ancestor.querySelectorAll(element.tagName)] : [];
    const key = element.type === "checkbox" ? element.value : sameTag.indexOf(element);
    return `${ancestor ? ancestor.id : ""}>${element.tagName}>${key}`;
  }

  function findByPath(main, path) {
    if (path.startsWith("#")) return document.getElementById(path.slice(1));
    return [...main.querySelectorAll(path.split(">")[1])].find((element) => elementPath(element) === path);
  }

  // The topmost visible section or chart, which must not move; null at the top of the page.
  function scrollAnchor(main) {
    if (window.scrollY === 0) return null;
    for (const element of main.querySelectorAll("[id]")) {
      const box = element.getBoundingClientRect();
      if (box.height > 0 && box.top >= 0) return { id: element.id, top: box.top };
    }
    return null;
  }

  // Whether the user has selected text, or may have a list open: an update would discard it.
  function isBusy() {
    const selection = window.getSelection();
    return (selection && !selection.isCollapsed) || document.activeElement?.matches("main select");
  }

  class Page {
    constructor(version) {
      this.version = version;
      this.deferred = 0;
    }

    async update(version) {
      if (version === this.version || version === "0") return;
      if (isBusy() && this.deferred < MAX_DEFERRED) {
        this.deferred += 1;
        return;
      }
      this.deferred = 0;
      const parts = await fetchJson("/data.json");
      const main = document.querySelector("main");
      const restoreView = captureView(main);
      // The height is kept until all charts are redrawn: a page that is shorter for a moment would scroll.
      main.style.minHeight = `${main.offsetHeight}px`;
      try {
        const drawn = window.seatrial.replace(parts);
        removeFileLinks();
        restoreView();
        document.title = `Sea trial: ${parts.title}`;
        this.version = parts.version;
        await drawn;
      } finally {
        main.style.minHeight = "";
      }
    }
  }

  // This server has only the page: files in the campaign's folder are named, not linked.
  function removeFileLinks() {
    for (const link of document.querySelectorAll("#files a")) link.removeAttribute("href");
  }

  const banner = new Banner();
  const page = new Page(document.querySelector('meta[name="seatrial-version"]').content);
  let failures = 0;
  let timer = 0;
  let isPolling = false;
  let pollsSinceEnd = 0;

  async function poll() {
    if (isPolling) return;
    isPolling = true;
    clearTimeout(timer);
    let delayMs = POLL_MS;
    try {
      const state = await fetchJson("/state.json");
      banner.show(state);
      await page.update(state.version);
      failures = 0;
      setText(banner.problem, state.problem || "");
      pollsSinceEnd = state.over ? pollsSinceEnd + 1 : 0;
      delayMs = pollsSinceEnd > FAST_POLLS_AFTER_END ? POLL_OVER_MS : POLL_MS;
    } catch (error) {
      failures += 1;
      delayMs = Math.min(POLL_MS * 2 ** failures, MAX_BACKOFF_MS);
      if (error.message === "refused") {
        setText(banner.problem, "The server was restarted. Open the new address that it printed, with its token.");
        banner.setState("lost", null);
      } else if (error.message.startsWith("status")) {
        setText(banner.problem, "Refresh failed; retrying. This page may be out of date.");
      } else if (failures >= FAILURES_UNTIL_LOST) {
        setText(banner.problem, "Connection to `seatrial watch --web` lost; retrying. This page may be out of date.");
        banner.setState("lost", null);
      }
    }
    isPolling = false;
    timer = setTimeout(poll, document.hidden ? Math.max(delayMs, POLL_HIDDEN_MS) : delayMs);
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) poll();
  });
  removeFileLinks();
  poll();
})();
