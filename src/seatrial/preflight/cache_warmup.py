"""Fills caches before a campaign (`seatrial doctor PLAN --warm`), which otherwise costs the first run on a host its start-up time.

In: a `Need` and each host's answer to the query `warm`. Out: the query, and a check for everything that was built, with its
seconds, or why it was not. A bundled workload that can do it names the module in its settings (`WARM_UP`); it runs on each host with the
interpreter and the variables of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from seatrial.core.errors import printable
from seatrial.preflight.check_definition import Need, information, settings_module, warning
from seatrial.records.caution import Check
from seatrial.records.launch import Reply
from seatrial.records.plan import RunSpec

OPS = warning(
    name="DeepSpeed ops",
    what="with --warm: builds the ops that DeepSpeed compiles on first use (FusedAdam), or says why there is nothing to build",
    prevents="minutes in the start-up of the first run on this host (startup_ops_build_sec), or a slower optimiser",
    fix="install what the build lacks (nvcc of torch's CUDA version, ninja), or set settings.torch_adam=true",
)
COMPILED = warning(
    name="torch.compile {of}",
    what="with --warm: compiles the model as the runs with torch_compile will, into torch's cache of kernels",
    prevents="minutes in the start-up of the first run on this host (startup_compile_sec), or runs that are not compiled",
    fix="see the reason; `--set settings.torch_compile=false` runs without",
    in_docs={"of": "SETTINGS"},
)
FLASH = warning(
    name="flash attention",
    what="with --warm: one call of flash attention, where a run requests it",
    prevents="runs that fall back to sdpa",
    fix="install flash-attn for this torch and GPU, or set settings.attn_impl=sdpa",
)
WARM_UP = warning(
    name="warm-up",
    what="with --warm: whether the host could do it at all",
    prevents="a first run whose start-up takes minutes longer than the others'",
    fix="run the module there by hand, see what fails, and start again",
)
NOTHING = information(
    name="caches to fill",
    what="with --warm: whether a workload of the plan has caches that can be filled beforehand",
    prevents="a warm-up without effect",
    fix="leave --warm out",
)
WARM_CHECKS = (OPS, COMPILED, FLASH, WARM_UP, NOTHING)
DEFINITIONS = {"ops": OPS, "compile": COMPILED, "flash": FLASH}


def warm_query(need: Need) -> dict[str, Any] | None:
    """The query for each host; None if no run has caches to fill."""
    runs = [spec for spec in need.runs if _module(spec)]
    if not runs:
        return None
    first = runs[0]
    settings = [{**spec.settings, **{name: value for name, value in spec.axes.items() if name in spec.settings}} for spec in runs]
    return {
        "ask": "warm",
        "module": _module(first),
        "settings": list({repr(sorted(each.items())): each for each in settings}.values()),
        "program": list(first.launcher.program[:1]),
        "cwd": first.cwd,
        "variables": dict(first.env),
    }


def _module(spec: RunSpec) -> str:
    return str(getattr(settings_module(spec.workload.module), "WARM_UP", "")) if spec.workload.module else ""


def warm_checks(reply: Reply) -> Iterator[Check]:
    """Checks from one host's answer."""
    error = reply.trouble or reply.answer.get("trouble")
    results = reply.answer.get("results")
    if error or not isinstance(results, list):
        yield WARM_UP.result(False, printable(str(error or "no results")))
        return
    if not results:
        yield NOTHING.result(True, "nothing to do: no DeepSpeed, torch.compile or flash attention in these runs")
    for result in results:
        if isinstance(result, Mapping) and (definition := DEFINITIONS.get(str(result.get("what")))):
            took_s = result.get("took_s")
            took = f"; {took_s:.1f} s" if isinstance(took_s, float) else ""
            yield definition.result(
                result.get("ok") is True, printable(f"{result.get('found')}{took}"), of=printable(str(result.get("of")))
            )
