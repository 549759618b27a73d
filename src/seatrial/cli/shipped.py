"""The plans and runbooks that come with Seatrial, and their text outside a checkout.

They are at the top of the checkout; seatrial/shipped links to them, and a wheel has the files there. Their commands and comments name paths
of a checkout, which a copy adapts to its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLANS = Path(__file__).parents[1] / "shipped" / "plans"
"""The plans of the checkout, or of the wheel."""
RUNBOOKS = PLANS.parent / "runbooks"
PLAN_PATH = re.compile(r"(?<![\w./-])(?:\.\./\.\./)?plans/(?P<name>[\w/-]+)\.yaml")
# Pages that only a checkout has.
PAGE_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)+docs/[^)]*\)")
PAGE = re.compile(r"(?<![\w./-])(?<!\]\()docs/(?P<name>[\w-]+\.md)")


def bundled_plans() -> dict[str, Path]:
    """The plans that come with Seatrial, by name: `tiny-lm-demo`, `stage1/smoke`."""
    return {str(path.relative_to(PLANS).with_suffix("")): path for path in sorted(PLANS.rglob("*.yaml"))}


def named_files(mapping: dict[str, Any]) -> list[str]:
    """Plans that a plan file names, relative to it: what it extends, its base, the plans of its stages, the one it needs."""
    needs, stages = mapping.get("needs"), mapping.get("stages") or ()
    needed = needs.get("plan") if isinstance(needs, dict) else None
    names = (mapping.get("extends"), mapping.get("base"), *(stage.get("plan") for stage in stages if isinstance(stage, dict)), needed)
    return [name for name in names if isinstance(name, str)]


def in_runbook(text: str, name: str) -> str:
    """Text of a runbook or of one of its plans, in the folder that `seatrial runbook` writes."""
    text = re.sub(rf"^# *cd runbooks/{name}\n", "", text, flags=re.MULTILINE)
    text = text.replace(f"cd runbooks/{name} && ", "").replace(f"runbooks/{name}/", "")
    own = {path.name for path in (RUNBOOKS / name / "docs").glob("*.md")}
    return _without_pages(PLAN_PATH.sub(r"plans/\g<name>.yaml", text), lambda page: page in own)


def in_folder(text: str, plan: str, folder: Path) -> str:
    """Text of a plan that `seatrial plan copy` writes into a folder, with the plans it names beside it."""
    text = PLAN_PATH.sub(lambda found: str(folder / f"{Path(found['name']).name}.yaml"), text)
    runbook = plan.partition("/")[0]
    if not (RUNBOOKS / runbook).is_dir():
        return _without_pages(text, lambda page: False)
    text = re.sub(rf"^# *cd runbooks/{runbook}\n", "", text, flags=re.MULTILINE).replace(f"cd runbooks/{runbook} && ", "")
    text = _without_pages(text.replace(f"runbooks/{runbook}/README.md", "its README.md"), lambda page: False)
    source = f"# Of the runbook {runbook}: `seatrial runbook {runbook} DIR` writes its README.md, and the scripts and files named here."
    return f"{source}\n#\n{text}"


def _without_pages(text: str, is_there: Callable[[str], bool]) -> str:
    """The text with documentation pages by name instead of links."""
    text = PAGE_LINK.sub(r"\1", text)
    return PAGE.sub(lambda found: found[0] if is_there(found["name"]) else f"{found['name']} of Seatrial's docs", text)
