// What the reader picks: runs, the run of the timeline, axes of the heat map, steps by step or by time. Event listeners are on the document,
// since a live page gets new controls now and then.

const MAX_LISTED = 100;

const byId = (id) => document.getElementById(id);
const say = (text) => {
  byId("status").textContent = text;
};

// What the reader picked stays so with new data, as far as it is still there; what was not picked follows the data.
function pickAnew(before) {
  const runs = runsToPick();
  const kept = [...(before?.chosen ? before.runs : [])].filter((run) => runs.has(run));
  const axes = data.charts.get("heat")?.axes ?? [];
  const timelines = timelineRuns();
  return {
    chosen: before?.chosen ?? false,
    timelineChosen: before?.timelineChosen ?? false,
    runs: new Set(kept.length ? kept : data.picks.runs.filter((run) => runs.has(run)).slice(0, data.mostPicked)),
    timeline: [before?.timelineChosen ? before.timeline : "", data.picks.timeline, timelines[0]].find((run) => timelines.includes(run)) ?? "",
    x: axes.includes(before?.x) ? before.x : axes[0],
    y: axes.includes(before?.y) ? before.y : axes[1],
    by: before?.by ?? "step",
  };
}

// Run → group, of every run that a chart of picked runs could show.
function runsToPick() {
  const found = new Map();
  for (const chart of data.charts.values()) {
    if (chart.picks !== "runs") continue;
    for (const name of chart.tables) for (const run of data.tables.get(name)?.runs ?? []) found.set(run, "");
  }
  const table = data.tables.get("runs");
  for (const place of table?.places() ?? []) {
    const { run, group } = table.row(place);
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
  options("timeline-run", timelineRuns(), picks.timeline);
  showAxes();
  if (byId("steps-by")) byId("steps-by").value = picks.by;
}

function showAxes() {
  const axes = data.charts.get("heat")?.axes ?? [];
  options("heat-x", axes, picks.x);
  options("heat-y", axes, picks.y);
}

function options(id, values, chosen) {
  byId(id)?.replaceChildren(...values.map((value) => new Option(value, value, false, value === chosen)));
}

// Those picked first, then as many as one can look through; the rest is found by typing.
function listRuns() {
  const list = byId("run-list");
  if (!list) return;
  const sought = byId("run-filter").value.trim().toLowerCase();
  const matching = [...runsToPick()].filter(([run, group]) => !sought || `${run} ${group}`.toLowerCase().includes(sought)).map(([run]) => run);
  const inOrder = [...matching.filter((run) => picks.runs.has(run)), ...matching.filter((run) => !picks.runs.has(run))];
  list.replaceChildren(...inOrder.slice(0, MAX_LISTED).map(runBox));
  const more = inOrder.length - MAX_LISTED;
  if (more > 0) list.append(sentence(`and ${more} more: type a part of a name to find them`));
  if (!inOrder.length) list.append(sentence("No run has that in its name."));
  countRuns(inOrder.length);
}

function runBox(run) {
  const box = document.createElement("input");
  Object.assign(box, { type: "checkbox", value: run, checked: picks.runs.has(run) });
  const label = document.createElement("label");
  label.append(box, run);
  return label;
}

function sentence(text) {
  const element = document.createElement("p");
  element.className = "quiet";
  element.textContent = text;
  return element;
}

function countRuns(matching) {
  byId("run-count").textContent = `${picks.runs.size} picked, at most ${data.mostPicked}; ${matching} to choose from`;
}

function pickRun(box) {
  if (box.checked && picks.runs.size >= data.mostPicked) {
    box.checked = false;
    say(`At most ${data.mostPicked} runs can be shown: deselect one first.`);
    byId("run-count").textContent = `${data.mostPicked} runs are shown, the most possible: deselect one first`;
    return;
  }
  if (box.checked) picks.runs.add(box.value);
  else picks.runs.delete(box.value);
  picks.chosen = true;
  countRuns(runsToPick().size);
  say(picks.runs.size ? `Shown: ${[...picks.runs].join(", ")}` : "No run is picked.");
  redraw((chart) => chart.picks === "runs");
}

// Both axes the same would draw a diagonal: the other one gives way.
function pickAxis(which, other, value) {
  if (picks[other] === value) picks[other] = picks[which];
  picks[which] = value;
  showAxes();
  say(`Across ${picks.x}, down ${picks.y}`);
  redraw((chart) => chart.id === "heat");
}

function changed(event) {
  const { id, value } = event.target;
  if (event.target.closest("#run-list")) pickRun(event.target);
  else if (id === "heat-x") pickAxis("x", "y", value);
  else if (id === "heat-y") pickAxis("y", "x", value);
  else if (id === "timeline-run") {
    picks.timeline = value;
    picks.timelineChosen = true;
    say(`Timeline of ${value}`);
    redraw((chart) => chart.picks === "run");
  } else if (id === "steps-by") {
    picks.by = value;
    say(`Steps by ${value}`);
    redraw(isSeries);
  }
}
