"""The plan's reference, generated from the schema: docs/plan.md, the JSON Schema for editors, and the list of criteria for a terminal.

`markdown()` is the whole page; write it with `python -m seatrial.plan.reference docs/plan.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.core.errors import UsageError, did_you_mean
from seatrial.core.files import write_text
from seatrial.core.log_lines import LOG_FORMATS
from seatrial.plan.criteria import CRITERIA_PRESETS, CriteriaPreset
from seatrial.plan.load import UNSUPPORTED_KEYS, UNSUPPORTED_KINDS
from seatrial.plan.schema import RANK_MEANINGS, SHORT_FORMS, Plan, StrictModel
from seatrial.records.plan import TimingSpec
from seatrial.records.verdict import METRICS, REPORTED, SCOPES, Criterion, MetricEntry


class _Record(StrictModel):
    """Descriptions of `TimingSpec`, which `Timing` inherits: pydantic takes those of a class's own fields only."""

    timing: TimingSpec


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a plan file, short forms included."""
    schema = Plan.model_json_schema()
    for key, canonical in SHORT_FORMS.items():
        inner = schema["$defs"][Plan.model_fields[key].annotation.__name__]["properties"][canonical]  # type: ignore[union-attr]
        word = {name: inner[name] for name in ("enum", "const") if name in inner} or {"type": "string"}
        _also(schema["properties"][key], word)
    _also(schema["properties"]["axes"]["additionalProperties"], schema["$defs"]["Axis"]["properties"]["values"])
    for key, field in Plan.model_fields.items():
        # Pydantic drops a description that equals the type's own.
        schema["properties"][key].setdefault("description", field.description)
    inherited, timing = _Record.model_json_schema()["$defs"]["TimingSpec"], schema["$defs"]["Timing"]
    timing["description"] = inherited["description"]
    for key, entry in timing["properties"].items():
        entry.setdefault("description", inherited["properties"][key]["description"])
    complete_criterion(schema["$defs"]["CriterionPart"])
    schema["properties"]["sentinel"]["anyOf"].append({"type": "integer", "minimum": 1})
    schema["properties"]["needs"]["anyOf"].append({"type": "string"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Seatrial plan"}


def _also(where: dict[str, Any], short: dict[str, Any]) -> None:
    where["anyOf"] = [{"$ref": where.pop("$ref")}, {name: item for name, item in short.items() if name not in ("description", "title")}]


def complete_criterion(criterion: dict[str, Any]) -> None:
    """Add to the JSON Schema of a criterion what its types do not say: known names, and the short form of a baseline."""
    properties = criterion["properties"]
    properties["metric"]["anyOf"] = [{"enum": sorted(METRICS)}, {"type": "string", "pattern": r"^reported\..+$"}, {"type": "null"}]
    properties["ready"]["anyOf"] = [{"enum": sorted(CRITERIA_PRESETS)}, {"type": "null"}]
    properties["scope"]["anyOf"] = [{"enum": list(SCOPES)}, {"type": "null"}]
    properties["baseline"]["anyOf"].append({"type": "string"})
    criterion["oneOf"] = [{"required": ["metric"]}, {"required": ["ready"]}]


_HEAD = """\
# The plan

For authors of plans.
One YAML file says what is run, over which settings, how often, and what must hold. `seatrial plan show PLAN` prints the matrix and every
command, `seatrial run PLAN` runs it, `seatrial plan schema` prints the JSON Schema of this page for an editor.

```yaml
name: tiny-lm-demo
workload: tiny_lm                     # or: {script: train.py, args: ["--bs", "{micro_batch}"]}
settings: {d_model: 128, seq_len: 128}
launcher: torchrun
place: {kind: local, ranks: 2}        # GPUs: {kind: local, include: "localhost:0,1"}; hosts: {kind: hostfile, hostfile: hosts}
axes:
  micro_batch: [8, 16]
  num_workers: [0, 2]
repeats: 3
steps: 60
```

A plan is strict: an unknown key, a value of the wrong type, an axis without values or with one twice is an error that names file, line, key
and the nearest right word. `--set a.b=c` sets one key from the command line, `--set axes.micro_batch=[8,16]` the values of an axis.
Words follow YAML 1.2: `1e-3` is a number, `true` and `false` are the only truth values, `yes` is text. Relative paths are relative to
the folder seatrial is started in, that of `extends` to the plan's own folder.

Groups are named by labels and values (`mb8_nw0`), runs by group and repeat (`mb8_nw0_r1`). A finished run is not run again as long as
what changes its result is the same: workload and arguments, the script's bytes, settings, axes, launcher, place, environment, steps,
`rank_scope`, `timing.sync` and `timing.phase_every`. Of a place on many hosts that is how ranks and GPUs lie on them and which network
they use, not which hosts these are. Limits, criteria, order and how lines are read may change freely. A run is looked for under its
name, so with another label, prefix or output folder it runs anew.

`criteria` says what must hold for PASS: a metric, its scope and a bound, or a preset by its name.

```yaml
criteria:
  - {metric: failed_runs, at_most: 0}
  - {metric: startup_s, at_most: 2, unit: min, reason: nightly runs have an hour}
  - {metric: speedup_pct, at_least: 8, baseline: mb8_nw0}            # or {campaign: outputs/last-week, group: mb8_nw0}, {history: NAME}
  - {ready: stage1_stability}
sentinel: 4                           # the first group again after every fourth run: what changes in it is the platform
```

`needs` names a campaign that must have passed first: its verdict is PASS, by the `ready` preset if one is named, and it ran on this machine
or these hosts with this software, as fingerprints compare them; the code may have changed. A verdict older than one of its attempts does
not count: `seatrial report` judges it again. Otherwise nothing is started, unless with `--ignore-needs`.

```yaml
needs: {campaign: outputs/phase-b, ready: stage1_stability, plan: phase-b.yaml}      # short: needs: outputs/phase-b
```
"""


_STAGES = """\
## Stages

What needs several plans is a file with `stages`: campaigns and commands that `seatrial run FILE` runs in order, with one acceptance at the
end. `plans/sparse-lm/validation.yaml` is one.

```yaml
name: checks
stages:
  - {name: snapshot, command: ["{python}", -m, torch.utils.collect_env]}
  - {name: baseline, plan: baseline.yaml, set: {steps: 200}}
  - {name: scaling, plan: scaling.yaml, needs_gpus: 2}
acceptance: ["{python}", accept.py, "{output}"]
```

The same command resumes: a campaign continues with the remaining runs, a command that ended with exit code 0 is not run again
(`--again` runs all). `--only NAME` selects stages, `--set` is for the plan of each and comes last. Every plan is read before the first
stage starts. Each campaign is in a folder of its stage's name; [files.md](files.md#of-a-plan-with-stages) has the rest.
"""


def _stages_sections() -> list[str]:
    from seatrial.plan.stages import StagedPlan

    schema = StagedPlan.model_json_schema()
    stage = schema["$defs"]["Stage"]
    for model, part in ((StagedPlan, schema), (StagedPlan.model_fields["stages"].annotation.__args__[0], stage)):  # type: ignore[union-attr]
        for key, field in model.model_fields.items():
            part["properties"][key].setdefault("description", field.description)
    keys = _section("Keys of a file with stages", "", schema, schema["required"])
    return [_STAGES, keys, _section("`stages`", stage["description"], stage, stage["required"])]


def markdown() -> str:
    schema = json_schema()
    sections = [_section("Keys", "", schema, schema["required"])]
    sections += [
        _section(f"`{key}`", part["description"], part, part.get("required", []))
        for key, part in _parts_under(schema["properties"], schema["$defs"], "")
    ]
    return "\n".join(
        [
            _HEAD,
            *sections,
            *_stages_sections(),
            _metrics_section(),
            _presets_section(),
            _rank_by_section(),
            _formats_section(),
            _unsupported_section(),
        ]
    )


def _parts_under(properties: dict[str, Any], by_name: dict[str, Any], above: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(dotted key, schema) of every key that holds keys of its own, in the plan's order, depth first."""
    for key, where in properties.items():
        for name, part in by_name.items():
            if f"$defs/{name}'" in str(where):
                yield f"{above}{key}", part
                yield from _parts_under(part["properties"], by_name, f"{above}{key}.")


def _section(title: str, description: str, part: dict[str, Any], required: list[str]) -> str:
    rows = [f"| `{key}` | {_default(key, entry, required)} | {_cell(entry['description'])} |" for key, entry in part["properties"].items()]
    text = f"\n{description}\n" if description else ""
    return f"## {title}\n{text}\n| key | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _default(key: str, entry: dict[str, Any], required: list[str]) -> str:
    if key in required:
        return "required"
    value = entry.get("default")
    if value in (None, "", {}, []):
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if not isinstance(value, dict) else "–"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _metrics_section() -> str:
    rows = [
        f"| `{name}` | {entry.unit or '–'} | {', '.join(f'`{scope}`' for scope in entry.scopes)} | `{entry.default_scope}` | "
        f"{'yes' if entry.needs_bound else 'no'} | {'yes' if entry.compares else ''} | {entry.meaning} |"
        for name, entry in METRICS.items()
    ]
    rows.append(
        f"| `{REPORTED}NAME` | as reported | `every_run` | `every_run` | yes | | what the workload reports by `probe.figure(NAME, …)` |"
    )
    return (
        "## Metrics of `criteria`\n\nOne that compares needs a `baseline`; without one it is inconclusive.\n\n"
        "| metric | unit | scopes | default scope | bound | compares | meaning |\n|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _presets_section() -> str:
    parts = ["## Criteria presets\n\nNamed by `- {ready: NAME}`; those that compare take a `baseline` beside it.\n"]
    for name, preset in CRITERIA_PRESETS.items():
        rows = [f"| `{gate.metric}` | `{gate.scope}` | {bound_text(gate)} | {_cell(gate.reason)} |" for gate in preset.criteria]
        title = f"### `{name}`\n\n{preset.meaning[0].upper()}{preset.meaning[1:]}{', with a `baseline`' if preset.compares else ''}.\n"
        parts.append(f"{title}\n| metric | scope | bound | reason |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def bound_text(criterion: Criterion) -> str:
    """`at least 20 %`; `holds` for a metric without a bound."""
    unit = "" if criterion.unit in ("", "ratio") else f" {criterion.unit}"
    bounds = (("at least", criterion.at_least), ("at most", criterion.at_most))
    return " and ".join(f"{word} {bound:,.10g}{unit}" for word, bound in bounds if bound is not None) or "holds"


def _rank_by_section() -> str:
    rows = [f"| `{name}` | {meaning} |" for name, meaning in RANK_MEANINGS.items()]
    return "## Values of `rank_by`\n\n| value | groups are ordered by |\n|---|---|\n" + "\n".join(rows) + "\n"


def _formats_section() -> str:
    names = ", ".join(f"`{name}`" for name in LOG_FORMATS)
    return f"## Log formats of `workload.reads`\n\n`auto`, `none`, {names}.\n"


def _unsupported_section() -> str:
    rows = [f"| `{'.'.join(map(str, path))}` | {instead} |" for path, instead in UNSUPPORTED_KEYS.items()]
    rows += [
        f"| `{'.'.join(map(str, path))}: {kind}` | {instead} |"
        for path, kinds in UNSUPPORTED_KINDS.items()
        for kind, instead in kinds.items()
    ]
    return "## Not supported yet\n\nThese keys and values are refused by name.\n\n| key | instead |\n|---|---|\n" + "\n".join(rows) + "\n"


def criteria_listing(name: str | None = None) -> str:
    """All metrics and presets, or the one called `name`."""
    if name is None:
        return "\n".join(
            [
                "Metrics, `- {metric: NAME, at_most: BOUND}`",
                *(line for name, entry in METRICS.items() for line in _metric_lines(name, entry)),
                f"  {REPORTED}NAME (every_run)",
                "      what the workload reports with probe.figure(NAME, …)",
                "\nCriteria presets, `- {ready: NAME}`",
                *(line for name, preset in CRITERIA_PRESETS.items() for line in _preset_lines(name, preset)),
            ]
        )
    if name in METRICS:
        return "\n".join(_metric_lines(name, METRICS[name]))
    if name in CRITERIA_PRESETS:
        return "\n".join(_preset_lines(name, CRITERIA_PRESETS[name]))
    raise UsageError(f"no metric and no criteria preset is called '{name}'; {did_you_mean(name, [*METRICS, *CRITERIA_PRESETS])}")


def criterion_line(criterion: Criterion) -> str:
    """`speedup_pct at least 20 % (winner) against mb8, from stage1_speedup_v100`; a group that it names in place of the winner."""
    against = f" against {criterion.baseline.text}" if criterion.baseline else ""
    source = f", from {criterion.ready}" if criterion.ready else ""
    return f"{criterion.metric} {bound_text(criterion)} ({criterion.group or criterion.scope}){against}{source}"


def _metric_lines(name: str, entry: MetricEntry) -> list[str]:
    unit = f" in {entry.unit}" if entry.unit and entry.unit != "ratio" else ""
    notes = [*(["takes no bound"] if not entry.needs_bound else []), *(["needs a baseline"] if entry.compares else [])]
    more = f" [{', '.join(notes)}]" if notes else ""
    # The default scope comes first.
    scopes = [entry.default_scope, *(scope for scope in entry.scopes if scope != entry.default_scope)]
    return [f"  {name}{unit} ({', '.join(scopes)}){more}", f"      {entry.meaning}"]


def _preset_lines(name: str, preset: CriteriaPreset) -> list[str]:
    baseline = " [needs a baseline]" if preset.compares else ""
    gates = [f"      {gate.metric} {bound_text(gate)} ({gate.scope}): {gate.reason}" for gate in preset.criteria]
    return [f"  {name}{baseline}: {preset.meaning}", *gates]


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), markdown())
