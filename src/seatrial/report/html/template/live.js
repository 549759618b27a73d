// What the page has besides when it is served while a campaign runs: bars that move, and new data when there are some.
// Polls the server of the page every two seconds, less often when the tab is hidden or the server does not answer. All that it shows is put in
// as text; the one piece of HTML (the inside of <main>) is rendered by the server, which escapes every name, and no script in it may run.
"use strict";
(() => {
  const EVERY_MS = 2000;
  const OVER_MS = 15000;
  const HIDDEN_MS = 60000;
  const LONGEST_MS = 60000;
  const LOST_AFTER = 2;
  const LAST_LOOKS = 8;
  // Looks at news that wait for a reader's hands.
  const LONGEST_WAIT = 15;

  const STYLE = `
    #live { max-width: 1100px; margin: 0 auto; padding: .75rem clamp(1rem, 3vw, 2rem); font-size: .9rem; line-height: 1.4;
      font-variant-numeric: tabular-nums; display: grid; gap: .3rem .75rem; align-items: center;
      grid-template-columns: minmax(5rem, auto) minmax(4rem, 1fr) minmax(29rem, auto); border-bottom: 1px solid var(--line); }
    #live [hidden] { display: none; }
    #live-short { color: var(--quiet); font-size: .9rem; }
    #live .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 18rem; font-weight: 600; }
    #live progress { width: 100%; height: .75rem; accent-color: #0072B2; }
    #live .words { text-align: right; color: var(--quiet); }
    #live .message { grid-column: 1 / -1; overflow-wrap: anywhere; }
    #live .alarm, #live .trouble { padding: .3rem .75rem; border-left: 4px solid var(--open); background: var(--open-ground); border-radius: 4px; }
    @media (min-width: 1320px) { #live { max-width: calc(1100px + 10.5rem); } }
    #live .trouble { position: fixed; z-index: 9; left: 50%; bottom: .75rem; transform: translateX(-50%); width: max-content;
      max-width: calc(100vw - 2rem); color: var(--open); box-shadow: 0 2px 8px rgb(0 0 0 / 30%); }
    @media (max-width: 54rem) {
      #live { grid-template-columns: minmax(0, 1fr); gap: .1rem; }
      #live .words { text-align: left; margin-bottom: .3rem; }
      #live .name { max-width: none; }
    }
    @media print { #live { display: none; } }`;

  const hiddenElement = (name, className) => {
    const element = document.createElement(name);
    element.className = className;
    element.hidden = true;
    return element;
  };

  // Written only where it differs, so that a selection and the place of a screen reader stay.
  const say = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
    element.hidden = !text;
  };

  class Bar {
    constructor(parent) {
      this.name = hiddenElement("span", "bar name");
      this.progress = hiddenElement("progress", "bar");
      this.words = hiddenElement("span", "bar words");
      parent.append(this.name, this.progress, this.words);
    }

    show(bar) {
      say(this.name, bar ? bar.name : "");
      say(this.words, bar ? bar.text : "");
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
      // In the bar that stays in sight, and announced by screen readers: only what seldom changes.
      this.short = hiddenElement("span", "");
      this.short.id = "live-short";
      this.short.setAttribute("role", "status");
      const top = document.querySelector("header");
      top.querySelector("button").before(this.short);
      this.element = document.createElement("aside");
      this.element.id = "live";
      this.element.setAttribute("aria-label", "The campaign as it runs");
      this.campaign = new Bar(this.element);
      this.run = new Bar(this.element);
      this.alarm = hiddenElement("span", "message alarm");
      this.status = hiddenElement("span", "message status");
      this.trouble = hiddenElement("span", "message trouble");
      this.trouble.setAttribute("role", "status");
      this.element.append(this.alarm, this.status, this.trouble);
      top.after(this.element);
    }

    show(state) {
      // The folder has not been read yet.
      if (!("runs_now" in state)) return;
      this.campaign.show(state.campaign);
      this.run.show(state.run);
      say(this.alarm, state.alarm || "");
      say(this.status, statusText(state));
      this.be(stateOf(state), state.campaign);
    }

    be(state, campaign) {
      const word = { over: "Over", stopped: "Stopped", running: "Running", idle: "Not running", lost: "Connection lost" }[state];
      const how = state === "stopped" ? `; ${missing(campaign)} still to be run, the same command resumes` : "";
      say(this.short, campaign ? `${word}: ${campaign.done} of ${campaign.of} runs${how}` : word);
      this.element.dataset.state = state;
    }
  }

  const missing = (campaign) => Math.max(campaign.of - campaign.done, 0);

  // A campaign that is not running is over when all its runs are, and was stopped otherwise.
  function stateOf(state) {
    if (state.runs_now) return "running";
    if (state.campaign && missing(state.campaign)) return "stopped";
    return state.over ? "over" : "idle";
  }

  function statusText(state) {
    if (stateOf(state) === "stopped") return "The campaign is not running, and runs are left: the same command resumes it.";
    if (state.over) return "The campaign is over. This page shows how it ended, and stays until its server is stopped.";
    if (!state.runs_now) return `The campaign is not running. ${state.line}.`;
    return state.run ? "" : state.line || "";
  }

  // The answer as JSON, or an error with the reason.
  async function fetchJson(path) {
    const answer = await fetch(path, { credentials: "same-origin", cache: "no-store", redirect: "error" });
    if (answer.status === 403) throw new Error("refused");
    if (!answer.ok) throw new Error(`answered ${answer.status}`);
    return answer.json();
  }

  // Scroll position, focus, typed text and opened details stay, though everything inside <main> is replaced.
  function kept(main) {
    const opened = new Set([...main.querySelectorAll("details[open]")].map(address));
    const aside = [...main.querySelectorAll(".scroll, #run-list")].map((one) => [address(one), one.scrollLeft, one.scrollTop]);
    const at = anchor(main);
    const active = main.contains(document.activeElement) ? document.activeElement : null;
    const focused = active ? address(active) : "";
    const filter = document.getElementById("run-filter");
    const typed = filter ? [filter.value, filter.selectionStart, filter.selectionEnd] : null;
    return () => {
      for (const one of main.querySelectorAll("details")) if (opened.has(address(one))) one.open = true;
      retype(typed);
      for (const [where, left, top] of aside) find(main, where)?.scrollTo({ left, top, behavior: "instant" });
      if (focused) find(main, focused)?.focus({ preventScroll: true });
      const now = at ? document.getElementById(at.id) : null;
      if (now) window.scrollBy({ top: now.getBoundingClientRect().top - at.top, behavior: "instant" });
    };
  }

  function retype(typed) {
    const filter = document.getElementById("run-filter");
    if (!filter || !typed || !typed[0]) return;
    filter.value = typed[0];
    filter.setSelectionRange(typed[1], typed[2]);
    filter.dispatchEvent(new Event("input", { bubbles: true }));
  }

  // The way from the nearest element with an id: the same in the old HTML and in the new. A run's box goes by its run.
  function address(element) {
    if (element.id) return `#${element.id}`;
    const home = element.parentElement ? element.parentElement.closest("[id]") : null;
    const like = home ? [...home.querySelectorAll(element.tagName)] : [];
    const which = element.type === "checkbox" ? element.value : like.indexOf(element);
    return `${home ? home.id : ""}>${element.tagName}>${which}`;
  }

  function find(main, wanted) {
    if (wanted.startsWith("#")) return document.getElementById(wanted.slice(1));
    return [...main.querySelectorAll(wanted.split(">")[1])].find((one) => address(one) === wanted);
  }

  // The topmost section or chart in sight: it must not move.
  function anchor(main) {
    if (window.scrollY === 0) return null;
    for (const one of main.querySelectorAll("[id]")) {
      const box = one.getBoundingClientRect();
      if (box.height > 0 && box.top >= 0) return { id: one.id, top: box.top };
    }
    return null;
  }

  // A selection to copy, or a list that may be open, is not replaced under the reader's hands.
  function isBusy() {
    const marked = window.getSelection();
    return (marked && !marked.isCollapsed) || document.activeElement?.matches("main select");
  }

  class Page {
    constructor(version) {
      this.version = version;
      this.waited = 0;
    }

    async follow(version) {
      if (version === this.version || version === "0") return;
      if (isBusy() && this.waited < LONGEST_WAIT) {
        this.waited += 1;
        return;
      }
      this.waited = 0;
      const parts = await fetchJson("/data.json");
      const main = document.querySelector("main");
      const restore = kept(main);
      // Held until all charts are drawn again, or a page that is shorter for a moment would scroll.
      main.style.minHeight = `${main.offsetHeight}px`;
      try {
        const drawn = window.seatrial.replace(parts);
        unlink();
        restore();
        document.title = `Sea trial: ${parts.title}`;
        this.version = parts.version;
        await drawn;
      } finally {
        main.style.minHeight = "";
      }
    }
  }

  // This server has the page and nothing beside it: files in the campaign's folder are named, not linked.
  function unlink() {
    for (const link of document.querySelectorAll("#files a")) link.removeAttribute("href");
  }

  const banner = new Banner();
  const page = new Page(document.querySelector('meta[name="seatrial-version"]').content);
  let failed = 0;
  let timer = 0;
  let looking = false;
  let looksSinceOver = 0;

  async function look() {
    if (looking) return;
    looking = true;
    clearTimeout(timer);
    let next = EVERY_MS;
    try {
      const state = await fetchJson("/state.json");
      banner.show(state);
      await page.follow(state.version);
      failed = 0;
      say(banner.trouble, state.problem || "");
      // The last results come a moment after the end.
      looksSinceOver = state.over ? looksSinceOver + 1 : 0;
      next = looksSinceOver > LAST_LOOKS ? OVER_MS : EVERY_MS;
    } catch (error) {
      failed += 1;
      next = Math.min(EVERY_MS * 2 ** failed, LONGEST_MS);
      if (error.message === "refused") {
        say(banner.trouble, "The server of this page was restarted: open the address that it printed, with its token.");
        banner.be("lost", null);
      } else if (error.message.startsWith("answered")) {
        say(banner.trouble, "The page could not be refreshed: this is the last version. Trying again.");
      } else if (failed >= LOST_AFTER) {
        say(banner.trouble, "The connection to `seatrial watch --web` is lost: this is the last version. Trying again.");
        banner.be("lost", null);
      }
    }
    looking = false;
    timer = setTimeout(look, document.hidden ? Math.max(next, HIDDEN_MS) : next);
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) look();
  });
  unlink();
  look();
})();
