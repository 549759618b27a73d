// Charts: the rows that are picked go into the chart's document, and Vega draws it. One is drawn at a time, the nearest to what is seen first,
// when the browser is idle. `data-state` is the state of each. Which rows a chart draws is declared in its fields (`Chart` in data.py).

// Errors only: warnings are about layers that have nothing to show.
const OPTIONS = { ast: true, actions: false, renderer: "svg", logLevel: 1 };
const IDLE_WITHIN_MS = 200;
// Room for the labels beside panels, which Vega-Lite cannot fit to the page.
const BESIDE_PANELS_PX = 118;
const NARROWEST_PX = 180;

const views = new Map();
let drawing = null;
let hurried = false;

const figures = () => [...document.querySelectorAll("figure.chart")];
const plotOf = (figure) => figure.querySelector("[data-plot]");

const isSeries = (chart) => picks.by in chart.x_by;

// The tables a chart draws from, and where in them its rows are: of which runs depends on what is picked.
function partsOf(chart) {
  const runs = { runs: [...picks.runs], run: [picks.timeline] }[chart.picks] ?? null;
  const parts = chart.tables.filter((name) => data.tables.has(name)).map((name) => ({ name, table: data.tables.get(name) }));
  return parts.map((part) => ({ ...part, places: part.table.places(runs) })).filter((part) => part.places.length);
}

function rowsOf(chart) {
  return partsOf(chart).flatMap(({ name, table, places }) => {
    const chosen = Object.entries(columnsOf(chart)).map(([where, column]) => [where, table.columns.get(column)]);
    return places.map((place) => {
      const row = table.row(place);
      if (chart.tables.length > 1) row.kind = name;
      for (const [where, column] of chosen) row[where] = chart.axes.length ? level(column?.at(place)) : column?.at(place);
      return row;
    });
  });
}

// Where the reader chooses what is across or down, a row has it as `x` and `y`.
function columnsOf(chart) {
  if (isSeries(chart)) return { x: chart.x_by[picks.by][0] };
  if (chart.axes.length > 1) return { x: `${data.axis}${picks.x}`, y: `${data.axis}${picks.y}` };
  return chart.axes.length ? { x: `${data.axis}${chart.axes[0]}` } : {};
}

function titlesOf(chart) {
  if (isSeries(chart)) return { "{x}": chart.x_by[picks.by][1] };
  return chart.axes.length > 1 ? { "{x}": picks.x, "{y}": picks.y } : { "{x}": chart.axes[0] };
}

function level(value) {
  if (value === null || value === undefined) return "none";
  return typeof value === "boolean" ? String(value) : value;
}

// The chart's document with its rows, the words for what the reader chose, and the width there is.
function filled(chart, rows, width) {
  const spec = titled(chart.spec, titlesOf(chart));
  const fitted = Math.max(width - BESIDE_PANELS_PX, NARROWEST_PX);
  const panels = spec.vconcat ? { vconcat: spec.vconcat.map((panel) => ({ ...panel, width: fitted })) } : {};
  return { ...spec, ...panels, datasets: { rows } };
}

// Titles alone: a run may well be named `{x}`.
function titled(part, titles, key = "") {
  if (typeof part === "string") return key === "title" && Object.hasOwn(titles, part) ? titles[part] : part;
  if (Array.isArray(part)) return part.map((one) => titled(one, titles, key));
  if (part === null || typeof part !== "object") return part;
  return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, titled(value, titles, name)]));
}

async function draw(figure) {
  const chart = data.charts.get(figure.dataset.chart);
  const turn = figure.turn;
  const rows = chart ? rowsOf(chart) : [];
  const outcome = rows.length ? await embedded(figure, chart, rows) : nothingToDraw(figure);
  // What was picked meanwhile is drawn next.
  if (figure.turn === turn) figure.dataset.state = outcome;
  showRuns(figure, chart);
  refill(figure);
}

function nothingToDraw(figure) {
  cleared(figure).textContent = "There is nothing to draw for what is picked.";
  return "empty";
}

async function embedded(figure, chart, rows) {
  const plot = plotOf(figure);
  // Held while it is redrawn, so that nothing below it moves.
  plot.style.minHeight = plot.firstChild ? `${plot.offsetHeight}px` : "";
  try {
    forget(chart.id);
    const spec = filled(chart, rows, plot.clientWidth);
    views.set(chart.id, await withoutNoise(() => window.vegaEmbed(plot, spec, OPTIONS)));
    return "drawn";
  } catch (error) {
    cleared(figure).textContent = `It could not be drawn (${error.message}); the rows behind it are below.`;
    return "failed";
  } finally {
    plot.style.minHeight = "";
  }
}

// Vega-Lite warns of every chart with a row a name that it cannot fit its height, though only the width is to fit; its logger cannot be set.
async function withoutNoise(act) {
  const warn = console.warn;
  console.warn = (...parts) => {
    if (!parts.some((part) => String(part).includes('Dropping "fit-'))) warn.apply(console, parts);
  };
  try {
    return await act();
  } finally {
    console.warn = warn;
  }
}

function cleared(figure) {
  forget(figure.dataset.chart);
  const plot = plotOf(figure);
  plot.replaceChildren();
  return plot;
}

function forget(id) {
  views.get(id)?.finalize();
  views.delete(id);
}

function showRuns(figure, chart) {
  const place = figure.querySelector("[data-whose]");
  if (!place || !chart) return;
  const runs = chart.picks === "run" ? [picks.timeline] : [...picks.runs];
  place.textContent = runs.length ? `Of ${runs.join(", ")}.` : "No run is picked.";
}

// Marks charts as waiting; `wanted` says which.
function redraw(wanted = () => true) {
  for (const figure of figures()) {
    const chart = data.charts.get(figure.dataset.chart);
    // A page without Vega has its rows only.
    if (!chart || !wanted(chart) || figure.hasAttribute("data-rows-only")) continue;
    figure.turn = (figure.turn ?? 0) + 1;
    figure.dataset.state = "waiting";
  }
  drawWaiting();
}

function drawWaiting() {
  drawing ??= oneByOne().finally(() => {
    drawing = null;
  });
  return drawing;
}

async function oneByOne() {
  while (nearestWaiting()) {
    if (!hurried) await idle();
    const figure = nearestWaiting();
    if (figure) await draw(figure);
  }
}

function nearestWaiting() {
  const waiting = figures().filter((figure) => figure.dataset.state === "waiting");
  const far = waiting.map((figure) => {
    const box = figure.getBoundingClientRect();
    return Math.max(box.top - innerHeight, -box.bottom, 0);
  });
  return waiting[far.indexOf(Math.min(...far))];
}

function idle() {
  if (!window.requestIdleCallback) return new Promise((done) => setTimeout(done));
  return new Promise((done) => requestIdleCallback(done, { timeout: IDLE_WITHIN_MS }));
}

// All that is not drawn yet, without waiting for an idle moment: for printing.
async function drawAll() {
  hurried = true;
  try {
    await drawWaiting();
  } finally {
    hurried = false;
  }
}
