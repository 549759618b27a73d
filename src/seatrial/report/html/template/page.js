// The page itself: reads the data inside it, draws, handles input, and is replaced in place when a live page has new data.

const THEMES = ["auto", "light", "dark"];
const THEME_KEY = "seatrial-theme";
const REFIT_AFTER_MS = 150;

let data = null;
let picks = null;
let seen = null;
let refitting = 0;
let fittedTo = innerWidth;

function take(payload) {
  data = decoded(payload);
  picks = pickAnew(picks);
  showControls();
  followSections();
  for (const details of document.querySelectorAll("details.rows[open]")) fill(details);
  redraw();
}

// A live page: new texts and new data; what is drawn stays until it is redrawn.
async function replace({ main, payload }) {
  const before = new Map(figures().map((figure) => [figure.dataset.chart, plotOf(figure)]));
  document.querySelector("main").innerHTML = main;
  for (const figure of figures()) {
    const drawn = before.get(figure.dataset.chart);
    if (drawn?.firstChild) plotOf(figure).replaceWith(drawn);
    before.delete(figure.dataset.chart);
  }
  for (const id of before.keys()) forget(id);
  take(payload);
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
  const now = document.documentElement.dataset.theme ?? "auto";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  setTheme(next);
  say(`Theme: ${next}`);
  try {
    localStorage.setItem(THEME_KEY, next);
  } catch {
    // A page opened from a file may be refused its storage: the theme then lasts as long as the page.
  }
}

// Panels are as wide as the page was when they were drawn; all other charts fit themselves.
function refitSoon() {
  clearTimeout(refitting);
  refitting = setTimeout(() => {
    if (innerWidth === fittedTo) return;
    fittedTo = innerWidth;
    redraw((chart) => "vconcat" in chart.spec);
  }, REFIT_AFTER_MS);
}

// Which section is read is marked in the list of sections.
function followSections() {
  seen?.disconnect();
  seen = new IntersectionObserver(markSection, { rootMargin: "-15% 0px -75% 0px" });
  for (const section of document.querySelectorAll("main > section")) seen.observe(section);
}

function markSection(entries) {
  const entered = entries.find((entry) => entry.isIntersecting);
  if (!entered) return;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${entered.target.id}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

// On paper nothing can be opened: all is open, except the rows behind charts, which would be a book, and the numbers behind findings, which
// would fill pages before the first chart.
const PRINTED = 'details:not(.rows):not(.why):not([open]), details.rows[data-table="runs"]:not([open])';

function openForPrint() {
  for (const details of document.querySelectorAll(PRINTED)) {
    details.dataset.opened = "";
    details.open = true;
    // The event that fills them comes after the paper is laid out.
    if (details.matches(".rows")) fill(details);
  }
}

function closeAfterPrint() {
  for (const details of document.querySelectorAll("details[data-opened]")) {
    delete details.dataset.opened;
    details.open = false;
  }
}

document.addEventListener("change", changed);
document.addEventListener("input", (event) => {
  if (event.target.id === "run-filter") listRuns();
});
document.addEventListener("toggle", (event) => {
  if (event.target.matches?.("details.rows[open]")) fill(event.target);
}, true);
addEventListener("resize", refitSoon);
addEventListener("beforeprint", openForPrint);
addEventListener("afterprint", closeAfterPrint);
byId("theme").addEventListener("click", nextTheme);
setTheme(document.documentElement.dataset.theme ?? "auto");
take(JSON.parse(byId("page-data").textContent));
window.seatrial = { drawAll, replace, picked };
