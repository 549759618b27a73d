// What the user selects: runs, the run of the timeline, axes of the heat map, steps by step or by time. Event listeners are on the document,
// since a live page replaces its controls.

const MAX_LISTED = 100;

const byId = (id) => document.getElementById(id);
const announce = (text) => {
  byId("status").textContent = text;
};

// With new data, what the user selected stays if it still exists; the rest follows the data's defaults.
function mergePicks(previous) {
  const runs = selectableRuns();
  const kept = [...(previous?.runsChosen ? previous.runs : [])].filter((run) => runs.has(run));
  const axes = data.charts.get("heat")?.axes ?? [];
  const timelines = timelineRuns();
  return {
    runsChosen: previous?.runsChosen ?? false,
    timelineChosen: previous?.timelineChosen ?? false,
    runs: new Set(kept.length ? kept : data.picks.runs.filter((run) => runs.has(run)).slice(0, data.maxPicked)),
    timeline: [previous?.timelineChosen ? previous.timeline : "", data.picks.timeline, timelines[0]].find((run) => timelines.includes(run)) ?? "",
    x: axes.includes(previous?.x) ? previous.x : axes[0],
    y: axes.includes(previous?.y) ? previous.y : axes[1],
    by: previous?.by ?? "step",
  };
}

// Run → group, of every run that a chart of selected runs could show.
function selectableRuns() {
  const found = new Map();
  for (const chart of data.charts.values()) {
    if (chart.picks !== "runs") continue;
    for (const name of chart.tables) for (const run of data.tables.get(name)?.runs ?? []) found.set(run, "");
  }
  const table = data.tables.get("runs");
  for (const rowIndex of table?.rowIndices() ?? []) {
    const { run, group } = table.row(rowIndex);
    if (found.has(run)) found.set(run, group ?? "");
  }
  return found;
}

function timelineRuns() {
  const found = new Set();
  for (const chart of data.charts.values()) {
    if (chart.picks !== "run") continue;
    for (const name of chart.tables) for (const run of data.tables.get(name)?.runs ?? []) found.add(run);
  }
  return [...found];
}

function showControls() {
  listRuns();
  setOptions("timeline-run", timelineRuns(), picks.timeline);
  showAxes();
  if (byId("steps-by")) byId("steps-by").value = picks.by;
}

function showAxes() {
  const axes = data.charts.get("heat")?.axes ?? [];
  setOptions("heat-x", axes, picks.x);
  setOptions("heat-y", axes, picks.y);
}

function setOptions(id, values, selected) {
  byId(id)?.replaceChildren(...values.map((value) => new Option(value, value, false, value === selected)));
}

// Selected runs first, then as many as fit; the rest is found with the filter.
function listRuns() {
  const list = byId("run-list");
  if (!list) return;
  const query = byId("run-filter").value.trim().toLowerCase();
  const matching = [...selectableRuns()].filter(([run, group]) => !query || `${run} ${group}`.toLowerCase().includes(query)).map(([run]) => run);
  const sorted = [...matching.filter((run) => picks.runs.has(run)), ...matching.filter((run) => !picks.runs.has(run))];
  list.replaceChildren(...sorted.slice(0, MAX_LISTED).map(runCheckbox));
  const numHidden = sorted.length - MAX_LISTED;
  if (numHidden > 0) list.append(quietParagraph(`and ${numHidden} more. Type part of a name to find them.`));
  if (!sorted.length) list.append(quietParagraph("No run matches."));
  showRunCount(sorted.length);
}

function runCheckbox(run) {
  const checkbox = document.createElement("input");
  Object.assign(checkbox, { type: "checkbox", value: run, checked: picks.runs.has(run) });
  const label = document.createElement("label");
  label.append(checkbox, run);
  return label;
}

function quietParagraph(text) {
  const element = document.createElement("p");
  element.className = "quiet";
  element.textContent = text;
  return element;
}

function showRunCount(numAvailable) {
  byId("run-count").textContent = `${picks.runs.size} selected (at most ${data.maxPicked}); ${numAvailable} available`;
}

function pickRun(checkbox) {
  if (checkbox.checked && picks.runs.size >= data.maxPicked) {
    checkbox.checked = false;
    announce(`At most ${data.maxPicked} runs can be shown. Deselect one first.`);
    byId("run-count").textContent = `${data.maxPicked} selected, the maximum. Deselect one first.`;
    return;
  }
  if (checkbox.checked) picks.runs.add(checkbox.value);
  else picks.runs.delete(checkbox.value);
  picks.runsChosen = true;
  showRunCount(selectableRuns().size);
  announce(picks.runs.size ? `Shown: ${[...picks.runs].join(", ")}` : "No runs selected.");
  redraw((chart) => chart.picks === "runs");
}

// The same axis twice would draw a diagonal: the two are swapped instead.
function pickAxis(axis, otherAxis, value) {
  if (picks[otherAxis] === value) picks[otherAxis] = picks[axis];
  picks[axis] = value;
  showAxes();
  announce(`Across ${picks.x}, down ${picks.y}`);
  redraw((chart) => chart.id === "heat");
}

function onChange(event) {
  const { id, value } = event.target;
  if (event.target.closest("#run-list")) pickRun(event.target);
  else if (id === "heat-x") pickAxis("x", "y", value);
  else if (id === "heat-y") pickAxis("y", "x", value);
  else if (id === "timeline-run") {
    picks.timeline = value;
    picks.timelineChosen = true;
    announce(`Timeline of ${value}`);
    redraw((chart) => chart.picks === "run");
  } else if (id === "steps-by") {
    picks.by = value;
    announce(`Steps by ${value}`);
    redraw(isOverSteps);
  }
}
