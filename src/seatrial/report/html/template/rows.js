// The rows behind a chart as a table, made when somebody opens it.

const MOST_ROWS = 500;

function fill(details) {
  const chart = data.charts.get(details.dataset.table);
  const whole = data.tables.get(details.dataset.table);
  const parts = chart ? partsOf(chart) : whole ? [{ name: details.dataset.table, table: whole, places: whole.places() }] : [];
  const rows = parts.reduce((sum, part) => sum + part.places.length, 0);
  const holder = details.querySelector("div");
  const shares = parts.length ? sharesOf(parts, rows) : [];
  holder.replaceChildren(sentence(howMany(rows)), ...shares.map((part) => scrolling(tableOf(part.table, part.places), part.name)));
}

// A timeline has rows of several tables: each gets its share of what is shown.
function sharesOf(parts, rows) {
  const share = Math.min(1, MOST_ROWS / rows);
  return parts.map((part) => ({ ...part, places: part.places.slice(0, Math.ceil(part.places.length * share)) }));
}

function howMany(rows) {
  if (!rows) return "There are no rows for what is picked.";
  return rows > MOST_ROWS ? `The first ${MOST_ROWS} of ${rows.toLocaleString("en")} rows.` : `${rows} ${rows === 1 ? "row" : "rows"}.`;
}

function scrolling(table, name) {
  const made = document.createElement("div");
  made.className = "scroll";
  made.tabIndex = 0;
  made.setAttribute("role", "region");
  made.setAttribute("aria-label", `Rows of ${name}`);
  made.append(table);
  return made;
}

function tableOf(table, places) {
  const made = document.createElement("table");
  const columns = [...table.columns].filter(([, column]) => places.some((place) => column.at(place) !== null));
  const head = made.createTHead().insertRow();
  for (const [name, column] of columns) head.append(heading(name, !column.words));
  const body = made.createTBody();
  for (const place of places) {
    const row = body.insertRow();
    for (const [, column] of columns) {
      const cell = row.insertCell();
      cell.textContent = shown(column.at(place));
      if (!column.words) cell.className = "num";
    }
  }
  return made;
}

function heading(name, isNumber) {
  const made = document.createElement("th");
  made.scope = "col";
  made.textContent = name;
  if (isNumber) made.className = "num";
  return made;
}

function shown(value) {
  return value === null || value === "" ? "–" : String(value);
}

function refill(figure) {
  const details = figure.querySelector("details.rows[open]");
  if (details) fill(details);
}
