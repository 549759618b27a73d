// The page itself: reads its embedded data, draws, handles input; a live page replaces its content when there are new data.

const THEMES = ["auto", "light", "dark"];
const THEME_KEY = "seatrial-theme";
const RESIZE_DEBOUNCE_MS = 150;

let data = null;
let picks = null;
let sectionObserver = null;
let resizeTimer = 0;
let panelsPageWidth = innerWidth;

function load(payload) {
  data = decodePayload(payload);
  picks = mergePicks(picks);
  showControls();
  observeSections();
  for (const details of document.querySelectorAll("details.rows[open]")) showRows(details);
  redraw();
}

// New markup and data for a live page; drawn charts stay until they are redrawn.
async function replace({ main, payload }) {
  const oldPlots = new Map(figures().map((figure) => [figure.dataset.chart, plotOf(figure)]));
  document.querySelector("main").innerHTML = main;
  for (const figure of figures()) {
    const plot = oldPlots.get(figure.dataset.chart);
    if (plot?.firstChild) plotOf(figure).replaceWith(plot);
    oldPlots.delete(figure.dataset.chart);
  }
  for (const id of oldPlots.keys()) finalizeView(id);
  load(payload);
  await drawAll();
}

function picked() {
  const { runs, timeline, x, y, by } = picks;
  return { runs: [...runs], timeline, x, y, by };
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = byId("theme");
  button.querySelector("span").textContent = theme;
  button.setAttribute("aria-label", `Theme: ${theme}`);
}

function nextTheme() {
  const current = document.documentElement.dataset.theme ?? "auto";
  const next = THEMES[(THEMES.indexOf(current) + 1) % THEMES.length];
  setTheme(next);
  announce(`Theme: ${next}`);
  try {
    localStorage.setItem(THEME_KEY, next);
  } catch {
    // Browsers may refuse storage to a page opened from a file: the theme then lasts until it is closed.
  }
}

// Panels have the width that the page had when they were drawn; Vega fits all other charts.
function onResize() {
  clearTimeout(resizeTimer);
  resizeTimer = setTimeout(() => {
    if (innerWidth === panelsPageWidth) return;
    panelsPageWidth = innerWidth;
    redraw((chart) => "vconcat" in chart.spec);
  }, RESIZE_DEBOUNCE_MS);
}

// The section in view is marked in the navigation.
function observeSections() {
  sectionObserver?.disconnect();
  sectionObserver = new IntersectionObserver(markSection, { rootMargin: "-15% 0px -75% 0px" });
  for (const section of document.querySelectorAll("main > section")) sectionObserver.observe(section);
}

function markSection(entries) {
  const entered = entries.find((entry) => entry.isIntersecting);
  if (!entered) return;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${entered.target.id}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

// Nothing can be opened on paper, so everything is opened for print, except charts' data tables and the evidence of findings, which would
// fill many pages.
const OPENED_FOR_PRINT = 'details:not(.rows):not(.why):not([open]), details.rows[data-table="runs"]:not([open])';

function openForPrint() {
  for (const details of document.querySelectorAll(OPENED_FOR_PRINT)) {
    details.dataset.opened = "";
    details.open = true;
    // The toggle event that fills it comes after the print layout.
    if (details.matches(".rows")) showRows(details);
  }
}

function closeAfterPrint() {
  for (const details of document.querySelectorAll("details[data-opened]")) {
    delete details.dataset.opened;
    details.open = false;
  }
}

document.addEventListener("change", onChange);
document.addEventListener("input", (event) => {
  if (event.target.id === "run-filter") listRuns();
});
document.addEventListener("toggle", (event) => {
  if (event.target.matches?.("details.rows[open]")) showRows(event.target);
}, true);
addEventListener("resize", onResize);
addEventListener("beforeprint", openForPrint);
addEventListener("afterprint", closeAfterPrint);
byId("theme").addEventListener("click", nextTheme);
setTheme(document.documentElement.dataset.theme ?? "auto");
load(JSON.parse(byId("page-data").textContent));
window.seatrial = { drawAll, replace, picked };
