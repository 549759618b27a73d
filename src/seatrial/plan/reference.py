"""docs/plan.md, made from the schema's own descriptions so that it cannot say something else.

`markdown()` is the whole page; write it with `python -m seatrial.plan.reference docs/plan.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.files import write_text
from seatrial.plan.json_schema import json_schema
from seatrial.plan.ready_criteria import READY_CRITERIA
from seatrial.plan.unbuilt import KEYS, KINDS
from seatrial.plan.values import RANK_MEANINGS
from seatrial.records.criteria_catalog import METRICS, REPORTED
from seatrial.records.log_formats import READY
from seatrial.records.verdict import Criterion

_HEAD = """\
# The plan

For whoever writes a plan.
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
name, so another label, prefix or output folder starts anew.

What must hold for PASS stands under `criteria`: a metric, where it is looked at, and a bound, or a ready set by its name.

```yaml
criteria:
  - {metric: failed_runs, at_most: 0}
  - {metric: startup_s, at_most: 2, unit: min, reason: nightly runs have an hour}
  - {metric: speedup_pct, at_least: 8, baseline: mb8_nw0}            # or {campaign: outputs/last-week, group: mb8_nw0}, {history: NAME}
  - {ready: stage1_stability}
sentinel: 4                           # the first group again after every fourth run: what changes in it is the platform
```
"""


def markdown() -> str:
    """The reference page of the plan."""
    schema = json_schema()
    sections = [_section("Keys", "", schema, schema["required"])]
    sections += [_section(f"`{key}`", part["description"], part, part.get("required", [])) for key, part in _parts(schema)]
    return "\n".join([_HEAD, *sections, _metrics(), _ready(), _rank_by(), _formats(), _unbuilt()])


def _parts(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every key that holds keys of its own, with what they are, in the order of the plan; a key within one comes right after it."""
    return list(_parts_under(schema["properties"], schema["$defs"], ""))


def _parts_under(properties: dict[str, Any], by_name: dict[str, Any], above: str) -> Iterator[tuple[str, dict[str, Any]]]:
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


def _metrics() -> str:
    rows = [
        f"| `{name}` | {entry.unit or '–'} | {', '.join(f'`{scope}`' for scope in entry.scopes)} | `{entry.default_scope}` | "
        f"{'yes' if entry.needs_bound else 'no'} | {'yes' if entry.compares else ''} | {entry.meaning} |"
        for name, entry in METRICS.items()
    ]
    rows.append(
        f"| `{REPORTED}NAME` | as reported | `every_run` | `every_run` | yes | | what the workload told by `probe.figure(NAME, …)` |"
    )
    return (
        "## Metrics of `criteria`\n\nOne that compares needs a `baseline`; without one it is inconclusive.\n\n"
        "| metric | unit | scopes | default scope | bound | compares | meaning |\n|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _ready() -> str:
    """Each set with a row for each of its criteria."""
    parts = ["## Ready criteria\n\nNamed by `- {ready: NAME}`; those that compare take a `baseline` beside it.\n"]
    for name, ready in READY_CRITERIA.items():
        rows = [f"| `{gate.metric}` | `{gate.scope}` | {bound_text(gate)} | {_cell(gate.reason)} |" for gate in ready.criteria]
        title = f"### `{name}`\n\n{ready.meaning[0].upper()}{ready.meaning[1:]}{', with a `baseline`' if ready.compares else ''}.\n"
        parts.append(f"{title}\n| metric | scope | bound | reason |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def bound_text(criterion: Criterion) -> str:
    """`at least 20 %`; `holds` for one that takes no bound."""
    unit = "" if criterion.unit in ("", "ratio") else f" {criterion.unit}"
    bounds = (("at least", criterion.at_least), ("at most", criterion.at_most))
    return " and ".join(f"{word} {bound:,.10g}{unit}" for word, bound in bounds if bound is not None) or "holds"


def _rank_by() -> str:
    rows = [f"| `{name}` | {meaning} |" for name, meaning in RANK_MEANINGS.items()]
    return "## Values of `rank_by`\n\n| value | groups are ordered by |\n|---|---|\n" + "\n".join(rows) + "\n"


def _formats() -> str:
    names = ", ".join(f"`{name}`" for name in READY)
    return f"## Log formats of `workload.reads`\n\n`auto`, `none`, {names}.\n"


def _unbuilt() -> str:
    rows = [f"| `{'.'.join(map(str, path))}` | {meanwhile} |" for path, meanwhile in KEYS.items()]
    rows += [
        f"| `{'.'.join(map(str, path))}: {kind}` | {meanwhile} |" for path, kinds in KINDS.items() for kind, meanwhile in kinds.items()
    ]
    return (
        "## Known, not built yet\n\nThese are refused by name, so that none is taken in silence.\n\n| key | meanwhile |\n|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


if __name__ == "__main__":
    write_text(Path(sys.argv[1]), markdown())
