// The tables of the page, as they are encoded in it: columns of numbers, or of codes with their categories, decoded on first use.
// Rows are selected by the codes of their runs; a row becomes an object only when it is drawn or shown.

class Column {
  constructor(encoded, rows) {
    this.encoded = encoded;
    this.rows = rows;
    this.categories = encoded.categories ?? null;
  }

  get values() {
    this.decoded ??= this.encoded.values ?? expanded(this.encoded.runs, this.rows);
    return this.decoded;
  }

  at(row) {
    const value = this.values[row];
    return this.categories && value !== null ? this.categories[value] : value;
  }
}

// Pairs of a value and how often it follows on itself.
function expanded(pairs, rows) {
  const values = new Array(rows);
  for (let at = 0, place = 0; at < pairs.length; at += 2) {
    values.fill(pairs[at], place, place + pairs[at + 1]);
    place += pairs[at + 1];
  }
  return values;
}

class Table {
  constructor(encoded) {
    this.rows = encoded.rows;
    this.columns = new Map(Object.entries(encoded.columns).map(([name, column]) => [name, new Column(column, encoded.rows)]));
  }

  get runs() {
    return this.columns.get("run")?.categories ?? [];
  }

  // Places of all rows, or of those of some runs.
  places(runs = null) {
    const runColumn = this.columns.get("run");
    if (!runs || !runColumn?.categories) return Array.from({ length: this.rows }, (_, place) => place);
    const wanted = new Set(runs.map((run) => runColumn.categories.indexOf(run)));
    const found = [];
    runColumn.values.forEach((code, place) => {
      if (wanted.has(code)) found.push(place);
    });
    return found;
  }

  row(place) {
    const cells = {};
    for (const [name, column] of this.columns) cells[name] = column.at(place);
    return cells;
  }
}

function decoded(payload) {
  return {
    tables: new Map(Object.entries(payload.tables).map(([name, table]) => [name, new Table(table)])),
    charts: new Map(payload.charts.map((chart) => [chart.id, chart])),
    picks: payload.picks,
    mostPicked: payload.most_picked,
    axis: payload.axis,
  };
}
