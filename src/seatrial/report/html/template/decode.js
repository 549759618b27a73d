// The tables of the page, as they are encoded in it: columns of numbers, or of codes with their categories, decoded on first use.
// Rows are selected by the codes of their runs; a row becomes an object only when it is drawn or shown.

class Column {
  constructor(encoded, numRows) {
    this.encoded = encoded;
    this.numRows = numRows;
    this.categories = encoded.categories ?? null;
  }

  get values() {
    this.decoded ??= this.encoded.values ?? expandRunLengths(this.encoded.runs, this.numRows);
    return this.decoded;
  }

  at(rowIndex) {
    const value = this.values[rowIndex];
    return this.categories && value !== null ? this.categories[value] : value;
  }
}

// Run-length encoding: value, count, value, count, …
function expandRunLengths(pairs, numRows) {
  const values = new Array(numRows);
  for (let i = 0, start = 0; i < pairs.length; i += 2) {
    const end = start + pairs[i + 1];
    values.fill(pairs[i], start, end);
    start = end;
  }
  return values;
}

class Table {
  constructor(encoded) {
    this.numRows = encoded.rows;
    this.columns = new Map(Object.entries(encoded.columns).map(([name, column]) => [name, new Column(column, encoded.rows)]));
  }

  get runs() {
    return this.columns.get("run")?.categories ?? [];
  }

  // Indices of all rows, or of those of some runs.
  rowIndices(runs = null) {
    const runColumn = this.columns.get("run");
    if (!runs || !runColumn?.categories) return Array.from({ length: this.numRows }, (_, rowIndex) => rowIndex);
    const codes = new Set(runs.map((run) => runColumn.categories.indexOf(run)));
    const found = [];
    runColumn.values.forEach((code, rowIndex) => {
      if (codes.has(code)) found.push(rowIndex);
    });
    return found;
  }

  row(rowIndex) {
    const cells = {};
    for (const [name, column] of this.columns) cells[name] = column.at(rowIndex);
    return cells;
  }
}

function decodePayload(payload) {
  return {
    tables: new Map(Object.entries(payload.tables).map(([name, table]) => [name, new Table(table)])),
    charts: new Map(payload.charts.map((chart) => [chart.id, chart])),
    picks: payload.picks,
    maxPicked: payload.most_picked,
    axisPrefix: payload.axis,
  };
}
