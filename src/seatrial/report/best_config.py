"""The recommended group as files to use: best_config.json, best_config.env and best_overrides.txt.

In: CampaignResults. Out: the three files, or none (and those of an earlier report removed) where no group can be recommended.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

from seatrial.core import files
from seatrial.core.paths import CampaignPaths
from seatrial.core.tables import format_cell
from seatrial.records.codec import to_json
from seatrial.records.columns import BEST_CONFIG, BEST_ENV
from seatrial.records.measure import GroupSummary
from seatrial.records.plan import RunSpec
from seatrial.records.results import CampaignResults
from seatrial.report.tables import Row, group_rows
from seatrial.report.text import one_line

# Overrides of stage 1's trainer; a workload with a ZeRO stage takes the same names.
HYDRA_KEYS = (
    ("zero_stage", "deepspeed_config_yaml.zero_optimization.stage"),
    ("micro_batch", "deepspeed_config_yaml.train_micro_batch_size_per_gpu"),
    ("num_workers", "train.data.num_workers"),
    ("prefetch_factor", "train.data.prefetch_factor"),
    ("speech_attn_impl_effective", "model.speech_encoder.attn_implementation"),
    ("text_attn_impl_effective", "model.text_encoder.attn_implementation"),
    ("model_load_dtype_effective", "model.speech_encoder.torch_dtype"),
    ("model_load_dtype_effective", "model.text_encoder.torch_dtype"),
    ("tf32_enabled", "train.enable_tf32"),
)
# Plain scalars that YAML reads as text, and those that it does not.
_PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*")
_NOT_TEXT = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


@dataclass(frozen=True, kw_only=True)
class BestConfig:
    """The recommended group, its row in the tables and the spec of its runs."""

    group: GroupSummary
    row: Row
    spec: RunSpec | None
    confounded: str = ""
    """What confounds it with another group; empty where all else is equal."""
    condition: str = ""
    """What must hold for it to be the best, where that is unknown."""


def find_best(results: CampaignResults) -> BestConfig | None:
    """The recommended group; None where there is none."""
    chosen = next((group for group in results.groups if group.group == results.ranking.recommended), None)
    if chosen is None:
        return None
    row = next(row for row in group_rows(results) if row["group"] == chosen.group)
    specs = (run.attempt.spec for run in results.runs if run.attempt.current and run.attempt.spec.key == chosen.group_key)
    confounded = next((row.confounded for row in results.ranking.groups if row.group == chosen.group), "")
    return BestConfig(group=chosen, row=row, spec=next(specs, None), confounded=confounded, condition=results.ranking.condition)


def write_best(results: CampaignResults, paths: CampaignPaths) -> None:
    """Write the three files, or remove them."""
    best = find_best(results)
    if best is None:
        for path in (paths.best_config_json, paths.best_config_env, paths.best_overrides):
            path.unlink(missing_ok=True)
        return
    files.write_json(paths.best_config_json, best_config(results, best))
    files.write_text(paths.best_config_env, best_env(best))
    files.write_text(paths.best_overrides, best_overrides(best))


def best_config(results: CampaignResults, best: BestConfig) -> dict[str, Any]:
    """Stage 1's 36 keys, then the settings and how certain the choice is."""
    ranking = results.ranking
    estimate = best.group.figures.get(ranking.metric)
    ranked = next((row for row in ranking.groups if row.group == best.group.group), None)
    config = {
        **{key: best.row.get(key) for key in BEST_CONFIG},
        "settings": best.spec.settings if best.spec else {},
        "axes": best.group.axes,
        "rank_metric": ranking.metric,
        "rank_unit": ranking.unit,
        "value": ranked.value if ranked else None,
        "value_low": estimate.low if estimate else None,
        "value_high": estimate.high if estimate else None,
        "n_runs": best.group.runs,
        "n_steps": best.group.window_n,
        "decided": ranking.decided,
        "reason": ranking.reason,
        "latency_winner": ranking.latency_winner,
        "caution": _caution(best) or None,
        "recommended_reason": ranking.recommended_reason,
    }
    plain: dict[str, Any] = to_json(config)
    return plain


def best_env(best: BestConfig) -> str:
    """`NAME=value` lines that a shell can source."""
    values = dict(zip(BEST_ENV, (format_cell(best.row.get(key), key) for key in BEST_CONFIG), strict=True))
    values |= {"BEST_AXIS_" + re.sub(r"[^A-Z0-9_]", "_", name.upper()): format_cell(value) for name, value in best.group.axes.items()}
    values |= {"BEST_CAUTION": _caution(best)} if _caution(best) else {}
    return _comment(best) + "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def best_overrides(best: BestConfig) -> str:
    """A comment, then stage 1's hydra lines where the workload has a ZeRO stage, else lines for `seatrial run --set`."""
    for_trainer = best.row.get("zero_stage") is not None
    command = "the trainer's command" if for_trainer else "`seatrial run PLAN --set LINE`"
    lines = [f"# {format_cell(best.group.group)}: each line is for {command}"]
    if for_trainer:
        lines += [f"{key}={_yaml(best.row[column])}" for column, key in HYDRA_KEYS if best.row.get(column) is not None]
        if (precision := best.row.get("precision_mode_effective")) is not None:
            lines += [f"deepspeed_config_yaml.{kind}.enabled={_yaml(precision == kind)}" for kind in ("bf16", "fp16")]
    # A bundle is chosen by its name: its axis takes no values.
    bundles = {name: value for name, value in best.group.axes.items() if best.spec and best.spec.labels.get(name) == ""}
    lines += [
        f"# {name} {format_cell(value)} is a bundle of the plan: `--only {format_cell(best.group.group)}`"
        for name, value in bundles.items()
    ]
    chosen = [f"axes.{name}=[{_yaml(value)}]" for name, value in best.group.axes.items() if name not in bundles]
    # The trainer takes every line that is not a comment.
    lines += [f"# with a plan: --set {line}" for line in chosen] if for_trainer else chosen
    return _comment(best) + "\n".join(lines) + "\n"


def _caution(best: BestConfig) -> str:
    """What qualifies its figures: debug settings, confounding, a condition; else empty."""
    debug = f"measured with {one_line(', '.join(best.group.debug))} on: its figures are not those of a plain run"
    confounded = f"confounded with another group: {one_line(best.confounded)}"
    known = ((debug, best.group.debug), (confounded, best.confounded), (f"the best only {best.condition}", best.condition))
    return "; ".join(text for text, is_so in known if is_so)


def _comment(best: BestConfig) -> str:
    return f"# {_caution(best)}\n" if _caution(best) else ""


def _yaml(value: Any) -> str:
    """A value on one line, as YAML reads it back; JSON is YAML, and plain scalars need no quotes."""
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return json.dumps(to_json(value), ensure_ascii=False)
