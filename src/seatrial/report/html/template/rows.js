// The rows behind a chart as a table, built when it is opened: one page of one table at a time, of telemetry one metric at a time.
// The controls are created once, so that they keep the focus when a page is turned.

const PAGE_ROWS = 500;

// Table → the page and the choice that the reader turned to; a live page rebuilds everything else.
const turned = new Map();

function turnedTo(details) {
  const name = details.dataset.table;
  if (!turned.has(name)) turned.set(name, { page: 0, choice: "" });
  return turned.get(name);
}

function fill(details) {
  details.shown ??= pager(details);
  const { choose, label, bar } = details.shown;
  const choices = choicesOf(partsBehind(details.dataset.table));
  offer(choose, choices, turnedTo(details).choice);
  label.hidden = choices.length < 2;
  const choice = choices[Math.max(choose.selectedIndex, 0)];
  bar.hidden = label.hidden && (choice?.places.length ?? 0) <= PAGE_ROWS;
  turn(details, choice);
}

function partsBehind(name) {
  const chart = data.charts.get(name);
  if (chart) return partsOf(chart);
  const whole = data.tables.get(name);
  return whole ? [{ name, table: whole, places: whole.places() }] : [];
}

// Of a table with metrics each of them, of others all their rows.
function choicesOf(parts) {
  return parts.flatMap((part) => {
    const metric = part.table.columns.get("metric");
    if (!metric) return [part];
    const found = new Map();
    for (const place of part.places) {
      const name = `${part.name}: ${metric.at(place)}`;
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(place);
    }
    return [...found].map(([name, places]) => ({ ...part, name, places }));
  });
}

function offer(choose, choices, before) {
  const names = choices.map((choice) => choice.name);
  if (names.join("\n") === [...choose.options].map((option) => option.value).join("\n")) return;
  choose.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(before)) choose.value = before;
}

function pager(details) {
  const choose = document.createElement("select");
  const label = document.createElement("label");
  label.append("Rows of ", choose);
  const previous = turner("Previous", details, -1);
  const next = turner("Next", details, 1);
  const bar = document.createElement("div");
  bar.className = "pager";
  bar.append(label, previous, next);
  const count = sentence("");
  count.setAttribute("aria-live", "polite");
  const place = document.createElement("div");
  choose.addEventListener("change", () => {
    Object.assign(turnedTo(details), { page: 0, choice: choose.value });
    fill(details);
  });
  details.querySelector("div").replaceChildren(bar, count, place);
  return { choose, label, bar, previous, next, count, place };
}

function turner(word, details, by) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = word;
  element.setAttribute("aria-label", `${word} rows`);
  element.addEventListener("click", () => {
    turnedTo(details).page += by;
    fill(details);
  });
  return element;
}

function turn(details, choice) {
  const { previous, next, count, place } = details.shown;
  const rows = choice?.places.length ?? 0;
  const last = Math.max(Math.ceil(rows / PAGE_ROWS) - 1, 0);
  const at = turnedTo(details);
  at.page = Math.min(Math.max(at.page, 0), last);
  const from = at.page * PAGE_ROWS;
  const had = document.activeElement;
  previous.hidden = next.hidden = last === 0;
  previous.disabled = at.page === 0;
  next.disabled = at.page === last;
  // A button that can be pressed no more would keep the keys to itself.
  if (had === previous && previous.disabled) next.focus();
  if (had === next && next.disabled) previous.focus();
  const text = howMany(from, Math.min(from + PAGE_ROWS, rows), rows);
  if (count.textContent !== text) count.textContent = text;
  place.replaceChildren(...(rows ? [scrolling(tableOf(choice.table, choice.places.slice(from, from + PAGE_ROWS)), choice.name)] : []));
}

function howMany(from, to, rows) {
  if (!rows) return "There are no rows for what is picked.";
  if (rows <= PAGE_ROWS) return `${rows} ${rows === 1 ? "row" : "rows"}.`;
  return `Rows ${(from + 1).toLocaleString("en")} to ${to.toLocaleString("en")} of ${rows.toLocaleString("en")}.`;
}

function scrolling(table, name) {
  const element = document.createElement("div");
  element.className = "scroll";
  element.tabIndex = 0;
  element.setAttribute("role", "region");
  element.setAttribute("aria-label", `Rows of ${name}`);
  element.append(table);
  return element;
}

function tableOf(table, places) {
  const element = document.createElement("table");
  const all = [...table.columns, ...columnsOfRun(table)];
  const columns = all.filter(([, column]) => places.some((place) => column.at(place) !== null));
  const head = element.createTHead().insertRow();
  for (const [name, column] of columns) head.append(heading(name, !column.categories));
  const body = element.createTBody();
  for (const place of places) {
    const row = body.insertRow();
    for (const [, column] of columns) {
      const cell = row.insertCell();
      cell.textContent = shown(column.at(place));
      if (!column.categories) cell.className = "num";
    }
  }
  return element;
}

// Window and n of a row's run, for tables that have none of their own.
function columnsOfRun(table) {
  const runs = data.tables.get("runs");
  const runColumn = table.columns.get("run");
  if (!runs || !runColumn || table.columns.has("n")) return [];
  const placeOf = new Map(runs.places().map((place) => [runs.columns.get("run").at(place), place]));
  return ["window", "n"].map((name) => {
    const column = runs.columns.get(name);
    const at = (place) => (placeOf.has(runColumn.at(place)) ? (column?.at(placeOf.get(runColumn.at(place))) ?? null) : null);
    return [`run's ${name}`, { categories: column?.categories ?? null, at }];
  });
}

function heading(name, isNumber) {
  const element = document.createElement("th");
  element.scope = "col";
  element.textContent = name;
  if (isNumber) element.className = "num";
  return element;
}

function shown(value) {
  return value === null || value === "" ? "–" : String(value);
}

function refill(figure) {
  const details = figure.querySelector("details.rows[open]");
  if (details) fill(details);
}
