// The rows of a chart as a table, built when it is opened: one page of one table at a time, of telemetry one metric at a time.
// The controls are created once, so that they keep the focus when the page changes.

const PAGE_ROWS = 500;

// Table → its page and the selected part; kept when a live page replaces everything else.
const pageStates = new Map();

function pageState(details) {
  const name = details.dataset.table;
  if (!pageStates.has(name)) pageStates.set(name, { page: 0, part: "" });
  return pageStates.get(name);
}

function showRows(details) {
  details.pager ??= createPager(details);
  const { select, label, bar } = details.pager;
  const parts = splitByMetric(tableParts(details.dataset.table));
  updateOptions(select, parts, pageState(details).part);
  label.hidden = parts.length < 2;
  const part = parts[Math.max(select.selectedIndex, 0)];
  bar.hidden = label.hidden && (part?.rowIndices.length ?? 0) <= PAGE_ROWS;
  showPage(details, part);
}

function tableParts(name) {
  const chart = data.charts.get(name);
  if (chart) return chartParts(chart);
  const table = data.tables.get(name);
  return table ? [{ name, table, rowIndices: table.rowIndices() }] : [];
}

// A part for each metric of a table that has metrics; other tables are one part.
function splitByMetric(parts) {
  return parts.flatMap((part) => {
    const metric = part.table.columns.get("metric");
    if (!metric) return [part];
    const byName = new Map();
    for (const rowIndex of part.rowIndices) {
      const name = `${part.name}: ${metric.at(rowIndex)}`;
      if (!byName.has(name)) byName.set(name, []);
      byName.get(name).push(rowIndex);
    }
    return [...byName].map(([name, rowIndices]) => ({ ...part, name, rowIndices }));
  });
}

function updateOptions(select, parts, selected) {
  const names = parts.map((part) => part.name);
  if (names.join("\n") === [...select.options].map((option) => option.value).join("\n")) return;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(selected)) select.value = selected;
}

function createPager(details) {
  const select = document.createElement("select");
  const label = document.createElement("label");
  label.append("Rows of ", select);
  const previous = pagerButton("Previous", details, -1);
  const next = pagerButton("Next", details, 1);
  const bar = document.createElement("div");
  bar.className = "pager";
  bar.append(label, previous, next);
  const count = quietParagraph("");
  count.setAttribute("aria-live", "polite");
  const container = document.createElement("div");
  select.addEventListener("change", () => {
    Object.assign(pageState(details), { page: 0, part: select.value });
    showRows(details);
  });
  details.querySelector("div").replaceChildren(bar, count, container);
  return { select, label, bar, previous, next, count, container };
}

function pagerButton(text, details, offset) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.setAttribute("aria-label", `${text} rows`);
  button.addEventListener("click", () => {
    pageState(details).page += offset;
    showRows(details);
  });
  return button;
}

function showPage(details, part) {
  const { previous, next, count, container } = details.pager;
  const numRows = part?.rowIndices.length ?? 0;
  const lastPage = Math.max(Math.ceil(numRows / PAGE_ROWS) - 1, 0);
  const state = pageState(details);
  state.page = Math.min(Math.max(state.page, 0), lastPage);
  const start = state.page * PAGE_ROWS;
  const focused = document.activeElement;
  previous.hidden = next.hidden = lastPage === 0;
  previous.disabled = state.page === 0;
  next.disabled = state.page === lastPage;
  // A disabled button that keeps the focus swallows key presses.
  if (focused === previous && previous.disabled) next.focus();
  if (focused === next && next.disabled) previous.focus();
  const text = rowCountText(start, Math.min(start + PAGE_ROWS, numRows), numRows);
  if (count.textContent !== text) count.textContent = text;
  container.replaceChildren(
    ...(numRows ? [scrollRegion(tableElement(part.table, part.rowIndices.slice(start, start + PAGE_ROWS)), part.name)] : []),
  );
}

function rowCountText(start, end, numRows) {
  if (!numRows) return "No rows for the selected runs.";
  if (numRows <= PAGE_ROWS) return `${numRows} ${numRows === 1 ? "row" : "rows"}.`;
  return `Rows ${(start + 1).toLocaleString("en")} to ${end.toLocaleString("en")} of ${numRows.toLocaleString("en")}.`;
}

function scrollRegion(table, name) {
  const element = document.createElement("div");
  element.className = "scroll";
  element.tabIndex = 0;
  element.setAttribute("role", "region");
  element.setAttribute("aria-label", `Rows of ${name}`);
  element.append(table);
  return element;
}

function tableElement(table, rowIndices) {
  const element = document.createElement("table");
  const all = [...table.columns, ...runColumns(table)];
  const columns = all.filter(([, column]) => rowIndices.some((rowIndex) => column.at(rowIndex) !== null));
  const head = element.createTHead().insertRow();
  for (const [name, column] of columns) head.append(headerCell(name, !column.categories));
  const body = element.createTBody();
  for (const rowIndex of rowIndices) {
    const row = body.insertRow();
    for (const [, column] of columns) {
      const cell = row.insertCell();
      cell.textContent = cellText(column.at(rowIndex));
      if (!column.categories) cell.className = "num";
    }
  }
  return element;
}

// Window and n of each row's run, for tables without these columns.
function runColumns(table) {
  const runs = data.tables.get("runs");
  const runColumn = table.columns.get("run");
  if (!runs || !runColumn || table.columns.has("n")) return [];
  const indexOfRun = new Map(runs.rowIndices().map((rowIndex) => [runs.columns.get("run").at(rowIndex), rowIndex]));
  return ["window", "n"].map((name) => {
    const column = runs.columns.get(name);
    const at = (rowIndex) => {
      const run = runColumn.at(rowIndex);
      return indexOfRun.has(run) ? (column?.at(indexOfRun.get(run)) ?? null) : null;
    };
    return [`run's ${name}`, { categories: column?.categories ?? null, at }];
  });
}

function headerCell(name, isNumber) {
  const element = document.createElement("th");
  element.scope = "col";
  element.textContent = name;
  if (isNumber) element.className = "num";
  return element;
}

function cellText(value) {
  return value === null || value === "" ? "–" : String(value);
}

function updateOpenRows(figure) {
  const details = figure.querySelector("details.rows[open]");
  if (details) showRows(details);
}
