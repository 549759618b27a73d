"""The procedure's YAML configurations. In: a file with the sections model, nsa, data, runtime and train. Out: settings, and what has no
effect here.

    config = read_config(Path("configs/m7c_125m_2xa100_production.yaml"))
    Settings(**config.settings)

Strict: an unknown section or key is refused, and named with the nearest known one.

Two kinds of long runs are refused unless confirmed: one that leaves no weights, and one of the default toy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.core.errors import did_you_mean
from seatrial_workloads.common.effective_settings import Choice
from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.sparse_lm.settings import Settings, toy_problem, unsaved_problem

Convert = Callable[[Any], Any]


def as_is(value: Any) -> Any:
    return value


def never_if_zero(value: Any) -> Any:
    """0 in the files means never."""
    return None if value == 0 else value


def as_float(value: Any) -> Any:
    """YAML 1.1 reads 2e-4 as text: it requires a point before the exponent."""
    try:
        return float(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else value
    except ValueError:
        return value


# Section → key → setting and conversion.
KEYS: dict[str, dict[str, tuple[str, Convert]]] = {
    "model": {name: (name, as_is) for name in ("dim", "n_layers", "n_heads", "n_kv_groups", "d_k", "d_v")},
    "nsa": {
        "l": ("cmp_block", as_is),
        "d": ("cmp_stride", as_is),
        "l_sel": ("sel_block", as_is),
        "n_sel": ("n_sel", as_is),
        "w": ("window", as_is),
        "phi": ("phi", as_is),
        "gate_temperature": ("gate_temperature", as_float),
        "rope_base": ("rope_base", as_float),
    },
    "data": {"tokenizer": ("tokenizer", as_is), "local_path": ("local_path", as_is)},
    "runtime": {
        "device": ("device", as_is),
        "precision": ("precision", as_is),
        "mixed_precision": ("mixed_precision", as_is),
        "gradient_checkpointing": ("gradient_checkpointing", as_is),
        "compile": ("compile", as_is),
        "cuda_graph": ("cuda_graph", as_is),
        "use_flash": ("sdpa", lambda value: {True: "any", False: "no_flash"}.get(value, value)),
    },
    "train": {
        **{name: (name, as_is) for name in ("steps", "seq_len", "batch_size", "lr_schedule", "warmup_steps", "log_every", "seed")},
        **{name: (name, as_float) for name in ("lr", "weight_decay", "grad_clip")},
        "accumulate_grad_batches": ("accumulate", as_is),
        "eval_every": ("eval_every", never_if_zero),
        "save_every": ("checkpoint_every", never_if_zero),
        "fault": ("fault", as_is),
    },
}
OUT_DIR = ("train", "out_dir")
NO_FLASH_ATTENTION_2 = "there is no FlashAttention 2 path: FlexAttention or SDPA, by device"
NO_EFFECT = {
    ("runtime", "use_triton_sel"): "there is no Triton kernel for selection: selected_path decides",
    ("runtime", "sel_triton_min_L"): "there is no Triton kernel for selection: selected_path decides",
    ("runtime", "fa2_enabled"): NO_FLASH_ATTENTION_2,
    ("runtime", "fa2_min_len_win"): NO_FLASH_ATTENTION_2,
    ("runtime", "fa2_min_len_cmp"): NO_FLASH_ATTENTION_2,
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The content of one file."""

    path: Path
    settings: dict[str, Any]
    out_dir: Path
    no_effect: dict[str, Choice] = field(default_factory=dict)


def read_config(path: Path) -> Config:
    content = _read_yaml(path)
    settings: dict[str, Any] = {}
    no_effect: dict[str, Choice] = {}
    for section, values in content.items():
        if section not in KEYS:
            raise StartupError(f"{path}: unknown section '{section}': {did_you_mean(str(section), list(KEYS))}")
        if not isinstance(values, dict):
            raise StartupError(f"{path}: {section} is {values!r}; expected keys and values")
        for key, value in values.items():
            where = (section, key)
            if where in NO_EFFECT:
                # Off is the default.
                if value not in (False, None, -1):
                    no_effect[f"{section}.{key}"] = Choice(value, None, NO_EFFECT[where])
            elif where != OUT_DIR:
                name, convert = _known_key(path, section, key)
                settings[name] = convert(value)
    out_dir = content.get("train", {}).get("out_dir")
    if not isinstance(out_dir, str) or not out_dir:
        raise StartupError(f"{path}: train.out_dir is {out_dir!r}; expected the folder that the run's files go to")
    return Config(path=path, settings=settings, out_dir=Path(out_dir), no_effect=no_effect)


def _known_key(path: Path, section: str, key: str) -> tuple[str, Convert]:
    known = KEYS[section]
    if key not in known:
        others = [name for its_section, name in (*NO_EFFECT, OUT_DIR) if its_section == section]
        raise StartupError(f"{path}: unknown key '{section}.{key}': {did_you_mean(str(key), [*known, *others])}")
    return known[key]


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise StartupError(f"the configuration {path} cannot be read ({error}): give an existing file in CONFIG") from error
    except yaml.YAMLError as error:
        raise StartupError(f"{path} is not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(content, dict):
        raise StartupError(f"{path} contains {type(content).__name__}; expected the sections {', '.join(KEYS)}")
    return content


YES = "--yes"
CONFIRMS = "confirm a run of more than 2,000 steps that would leave no checkpoint, or of more than 200 of the default toy"
EXIT_CODES = (
    "Exit code: 0 all steps done, 1 refused or failed, also by a loss that is not finite, 4 ended by .HALT before the last step, "
    "143 ended by TERM. torchrun itself then exits with 1."
)


def check_long_run(settings: Settings, *, is_named: bool) -> None:
    """`is_named`: the user named the model's size, in a configuration or by settings."""
    unsaved, toy = unsaved_problem(settings), toy_problem(settings)
    if unsaved:
        raise StartupError(f"{unsaved}; set train.save_every (checkpoint_every) to {settings.steps} or less, or confirm with {YES}")
    if toy and not is_named:
        raise StartupError(f"{toy}: name its size (--dim, --n_layers, …, or --settings FILE), or confirm with {YES}")
