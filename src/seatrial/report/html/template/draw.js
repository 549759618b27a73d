// Charts: the rows of the selected runs go into the chart's Vega-Lite spec, and Vega draws it. Charts are drawn one at a time while the
// browser is idle, the one nearest to the viewport first; `data-state` is the state of each. Which rows a chart draws is declared in its
// fields (`Chart` in data.py).

// Errors only: warnings are about empty layers.
const OPTIONS = { ast: true, actions: false, renderer: "svg", logLevel: 1 };
const IDLE_TIMEOUT_MS = 200;
// Width of the labels beside panels: Vega-Lite cannot fit panels to the page.
const PANEL_LABELS_PX = 118;
const MIN_PANEL_PX = 180;

const views = new Map();
let drawing = null;
let skipIdle = false;

const figures = () => [...document.querySelectorAll("figure.chart")];
const plotOf = (figure) => figure.querySelector("[data-plot]");

const isOverSteps = (chart) => picks.by in chart.x_by;

// The tables that a chart draws, each with the indices of the selected runs' rows.
function chartParts(chart) {
  const runs = { runs: [...picks.runs], run: [picks.timeline] }[chart.picks] ?? null;
  const parts = chart.tables.filter((name) => data.tables.has(name)).map((name) => ({ name, table: data.tables.get(name) }));
  return parts.map((part) => ({ ...part, rowIndices: part.table.rowIndices(runs) })).filter((part) => part.rowIndices.length);
}

function chartRows(chart) {
  return chartParts(chart).flatMap(({ name, table, rowIndices }) => {
    const selected = Object.entries(axisColumns(chart)).map(([axis, column]) => [axis, table.columns.get(column)]);
    return rowIndices.map((rowIndex) => {
      const row = table.row(rowIndex);
      if (chart.tables.length > 1) row.kind = name;
      for (const [axis, column] of selected) row[axis] = chart.axes.length ? axisLevel(column?.at(rowIndex)) : column?.at(rowIndex);
      return row;
    });
  });
}

// Fields `x` and `y` of a row, and the columns that the user selected for them.
function axisColumns(chart) {
  if (isOverSteps(chart)) return { x: chart.x_by[picks.by][0] };
  if (chart.axes.length > 1) return { x: `${data.axisPrefix}${picks.x}`, y: `${data.axisPrefix}${picks.y}` };
  return chart.axes.length ? { x: `${data.axisPrefix}${chart.axes[0]}` } : {};
}

function axisTitles(chart) {
  if (isOverSteps(chart)) return { "{x}": chart.x_by[picks.by][1] };
  return chart.axes.length > 1 ? { "{x}": picks.x, "{y}": picks.y } : { "{x}": chart.axes[0] };
}

function axisLevel(value) {
  if (value === null || value === undefined) return "none";
  return typeof value === "boolean" ? String(value) : value;
}

// The chart's spec with its rows, the titles of the selected axes, and the available width.
function completeSpec(chart, rows, width) {
  const spec = replaceTitles(chart.spec, axisTitles(chart));
  const panelWidth = Math.max(width - PANEL_LABELS_PX, MIN_PANEL_PX);
  const panels = spec.vconcat ? { vconcat: spec.vconcat.map((panel) => ({ ...panel, width: panelWidth })) } : {};
  return { ...spec, ...panels, datasets: { rows } };
}

// Titles alone: a run may well be named `{x}`.
function replaceTitles(part, titles, key = "") {
  if (typeof part === "string") return key === "title" && Object.hasOwn(titles, part) ? titles[part] : part;
  if (Array.isArray(part)) return part.map((item) => replaceTitles(item, titles, key));
  if (part === null || typeof part !== "object") return part;
  return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, replaceTitles(value, titles, name)]));
}

async function draw(figure) {
  const chart = data.charts.get(figure.dataset.chart);
  const request = figure.drawRequest;
  const rows = chart ? chartRows(chart) : [];
  const state = rows.length ? await embedChart(figure, chart, rows) : showEmpty(figure);
  // A selection made while it was drawn has requested another drawing.
  if (figure.drawRequest === request) figure.dataset.state = state;
  showRuns(figure, chart);
  updateOpenRows(figure);
}

function showEmpty(figure) {
  clearPlot(figure).textContent = "Nothing to draw for this selection.";
  return "empty";
}

async function embedChart(figure, chart, rows) {
  const plot = plotOf(figure);
  // The height is kept while it is redrawn, so that nothing below it moves.
  plot.style.minHeight = plot.firstChild ? `${plot.offsetHeight}px` : "";
  try {
    finalizeView(chart.id);
    const spec = completeSpec(chart, rows, plot.clientWidth);
    views.set(chart.id, await withoutFitWarnings(() => window.vegaEmbed(plot, spec, OPTIONS)));
    return "drawn";
  } catch (error) {
    clearPlot(figure).textContent = `The chart could not be drawn (${error.message}). Its data table is below.`;
    return "failed";
  } finally {
    plot.style.minHeight = "";
  }
}

// Vega-Lite warns that it cannot fit the height of charts with one row per name, though only the width is to fit; its logger cannot be set.
async function withoutFitWarnings(callback) {
  const warn = console.warn;
  console.warn = (...parts) => {
    if (!parts.some((part) => String(part).includes('Dropping "fit-'))) warn.apply(console, parts);
  };
  try {
    return await callback();
  } finally {
    console.warn = warn;
  }
}

function clearPlot(figure) {
  finalizeView(figure.dataset.chart);
  const plot = plotOf(figure);
  plot.replaceChildren();
  return plot;
}

function finalizeView(id) {
  views.get(id)?.finalize();
  views.delete(id);
}

function showRuns(figure, chart) {
  const element = figure.querySelector("[data-shown-runs]");
  if (!element || !chart) return;
  const runs = chart.picks === "run" ? [picks.timeline] : [...picks.runs];
  element.textContent = runs.length ? `${chart.picks === "run" ? "Run" : "Runs"}: ${runs.join(", ")}.` : "No runs selected.";
}

// Marks the charts for which `isAffected` holds as waiting, and draws them.
function redraw(isAffected = () => true) {
  for (const figure of figures()) {
    const chart = data.charts.get(figure.dataset.chart);
    // A page without Vega has tables only.
    if (!chart || !isAffected(chart) || figure.hasAttribute("data-rows-only")) continue;
    figure.drawRequest = (figure.drawRequest ?? 0) + 1;
    figure.dataset.state = "waiting";
  }
  drawWaiting();
}

function drawWaiting() {
  drawing ??= drawOneByOne().finally(() => {
    drawing = null;
  });
  return drawing;
}

async function drawOneByOne() {
  while (nearestWaiting()) {
    if (!skipIdle) await waitForIdle();
    const figure = nearestWaiting();
    if (figure) await draw(figure);
  }
}

function nearestWaiting() {
  const waiting = figures().filter((figure) => figure.dataset.state === "waiting");
  const distances = waiting.map((figure) => {
    const box = figure.getBoundingClientRect();
    return Math.max(box.top - innerHeight, -box.bottom, 0);
  });
  return waiting[distances.indexOf(Math.min(...distances))];
}

function waitForIdle() {
  if (!window.requestIdleCallback) return new Promise((resolve) => setTimeout(resolve));
  return new Promise((resolve) => requestIdleCallback(resolve, { timeout: IDLE_TIMEOUT_MS }));
}

// Draws all waiting charts without waiting for the browser to be idle: for printing.
async function drawAll() {
  skipIdle = true;
  try {
    await drawWaiting();
  } finally {
    skipIdle = false;
  }
}
