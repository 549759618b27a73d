"""Programs, scripts, Pythons, torch, DeepSpeed, and the workload's own checks of its settings.

In: a `Need`. Out: checks. Nothing of the runs' environments is imported: versions come from metadata, the CUDA build from torch's version
file. A bundled workload's `Settings` may have `host_problems(self, *, num_gpus: int, cwd: Path) -> list[tuple[str, str]]`: the settings
that cannot work here, each with the reason and the remedy; and `source_problems(self, *, cwd: Path, env: Mapping[str, str],
is_seen: Callable[[Path], bool])` of the same form for what ranks read, where `is_seen` tests whether ranks see a path of this host too.
Each is called once per set of settings.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import platform
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.core.log_lines import shorten_line
from seatrial.core.shell import find_on_path, find_program
from seatrial.machine.gpus import (
    ACCELERATOR,
    CPU,
    CUDA_VISIBLE_DEVICES,
    DEVICE_FILE,
    Driver,
    deepspeed_gpu_indices,
    driver_cuda_version,
    is_deepspeed_on_cpu,
    knows_all_gpus,
    may_see_gpu,
    read_driver,
    runs_on_cpu,
    visible_gpus,
)
from seatrial.machine.host import is_on_all_nodes
from seatrial.machine.software import Interpreter, find_interpreter
from seatrial.preflight.check_definition import (
    NOT_ASKED,
    Need,
    asks_for_gpus,
    information,
    needs_torch,
    refusal,
    script_of,
    settings_module,
    uses_deepspeed,
    warning,
)
from seatrial.records.caution import Check
from seatrial.records.plan import PlaceSpec, RunSpec

PROGRAM = refusal(
    name="program {program}",
    what="the program that each command of the plan starts with: on the run's own PATH, or beside this Python",
    prevents="{program}: No such file or directory",
    fix="{way}",
    in_docs={"way": "install it, activate the environment that has it, or give its full path"},
)
TORCHRUN = warning(
    name="program torchrun",
    what="whether this Python can start torchrun for your script",
    prevents="ModuleNotFoundError: No module named 'torch'",
    fix="pip install 'seatrial[workloads]', or name the torchrun of another environment in launcher.program",
)
SCRIPT = refusal(
    name="script {script}",
    what="that the script lies where the run is started",
    prevents="can't open file '{script}': [Errno 2] No such file or directory",
    fix="name the script as you would type it in {folder}",
)
GIT = information(
    name="git",
    what="whether git is there to record the commit of the code",
    prevents="results that cannot be traced to a commit: git_commit_hash stays empty",
    fix="install git",
)
NVIDIA_SMI = information(
    name="nvidia-smi",
    what="whether nvidia-smi is on PATH; Seatrial itself asks the driver and does not need it",
    prevents="nvidia-smi: command not found, when you follow a fix that names it",
    fix="install the driver's utilities",
)
PIPELINE = warning(
    name="pipeline",
    what="whether a shell in the command loses exit codes: `… | tee log` without `pipefail`, `… || true`, `…; echo done`",
    prevents="a failed program whose exit code is lost: the shell returns that of its last program, and the run looks successful",
    fix="begin the shell's text with `set -eo pipefail;` (bash) and leave out `|| true`; `| tee` is not needed: launcher.log has it all",
)
PROGRAM_CHECKS = (PROGRAM, TORCHRUN, SCRIPT, PIPELINE, GIT, NVIDIA_SMI)
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
SHELL_PUNCTUATION = "|&;<>()\n"
# Commands that always succeed.
ALWAYS_SUCCEED = ("true", ":", "echo", "printf", "date", "sleep", "sync")
ENDS_ON_ERROR = re.compile(r"\bset +(?:-[a-z]*e|-o +errexit)")
# bash's and zsh's exit codes of all programs of a pipeline.
READS_ALL_CODES = re.compile(r"pipefail|\bPIPESTATUS\b|\bpipestatus\b")


def check_programs(need: Need) -> Iterator[Check]:
    yield from _check_programs(need)
    yield from _check_scripts(need)
    if lossy := next((found for spec in need.runs if (found := lost_exit_code(spec))), ""):
        yield PIPELINE.result(False, lossy)
    for definition in (GIT, NVIDIA_SMI):
        yield definition.result(True, find_on_path(definition.name) or "not on PATH")


def _check_programs(need: Need) -> Iterator[Check]:
    typed = {(name, need.environment(spec).get("PATH", os.defpath), spec.cwd) for spec in need.runs if (name := _first_word(spec))}
    for name, path, cwd in sorted(typed):
        where = find_program(name, path, Path(cwd))
        yield PROGRAM.result(where is not None, where or _absence(name, Path(cwd)), program=name, way=_install_fix(name, cwd))
    if any(spec.launcher.kind == "torchrun" and not spec.launcher.program and not spec.workload.module for spec in need.runs):
        there = importlib.util.find_spec("torch") is not None
        yield TORCHRUN.result(
            there, "torch.distributed.run of this Python" if there else "this Python has no torch, so it cannot start torchrun"
        )


def _first_word(spec: RunSpec) -> str | None:
    """The program that a run's command starts with, where the user gave one."""
    if spec.launcher.program:
        return spec.launcher.program[0]
    return spec.workload.script if spec.launcher.kind == "command" else None


def lost_exit_code(spec: RunSpec) -> str:
    """Why a shell in the command may return 0 although a program in it failed, and its text; empty if nothing shows that."""
    argv = (*spec.launcher.program, *spec.launcher.args, *([spec.workload.script] if spec.workload.script else ()), *spec.workload.args)
    for index, argument in enumerate(argv):
        if Path(argument).name not in SHELLS:
            continue
        given = list(itertools.takewhile(lambda one: one[:1] in "-+" or one in ("pipefail", "errexit"), argv[index + 1 :]))
        text = argv[index + 1 + len(given)] if index + 1 + len(given) < len(argv) else ""
        if any(re.fullmatch(r"-[a-z]*c[a-z]*", option) for option in given):
            why = _why_code_is_lost(text, given)
            return f"{why}: {shorten_line(text)}" if why else ""
    return ""


def _why_code_is_lost(text: str, options: Sequence[str]) -> str:
    tokens = _shell_tokens(text)
    if any(token in ("|", "|&") for token in tokens) and not READS_ALL_CODES.search(" ".join((*options, text))):
        return "the exit code of a program before the last `|` is lost"
    while tokens and not tokens[-1].strip(";\n"):
        tokens.pop()
    begins = max((at + 1 for at, token in enumerate(tokens) if not token.strip(SHELL_PUNCTUATION)), default=0)
    before, last = "".join(tokens[begins - 1 : begins]) if begins else "", tokens[begins:]
    if not last or (last[0] not in ALWAYS_SUCCEED and last != ["exit", "0"]):
        return ""
    ends_on_error = ENDS_ON_ERROR.search(text) or any(re.fullmatch(r"-[a-z]*e[a-z]*|errexit", option) for option in options)
    if before == "||" or (not before.strip(";\n") and before and not ends_on_error):
        return f"`{' '.join(last)}` at the end succeeds whatever failed before it"
    return ""


def _shell_tokens(text: str) -> list[str]:
    """Tokens of a shell command, with their quotes; none if it cannot be parsed."""
    lexer = shlex.shlex(text, posix=False, punctuation_chars=SHELL_PUNCTUATION)
    lexer.whitespace, lexer.commenters = " \t\r", ""
    with contextlib.suppress(ValueError):
        return list(lexer)
    return []


def _absence(name: str, cwd: Path) -> str:
    if "/" not in name:
        return "not on PATH and not beside this Python"
    return f"{cwd / name} may not be executed" if (cwd / name).is_file() else f"no such file: {cwd / name}"


def _install_fix(name: str, cwd: str) -> str:
    if "/" in name:
        return f"check the path (a relative one counts from {cwd}) and that the file may be executed"
    how = " (pip install 'seatrial[stage1]')" if name in ("deepspeed", "ds") else ""
    return f"install {name}{how}, activate the environment that has it, or give its full path"


def _check_scripts(need: Need) -> Iterator[Check]:
    # Ranks of a job run elsewhere in the plan's folder, which is here too.
    jobs = (spec for spec in need.whole_runs if spec.place.traits.runs_in_jobs and not Path(script_of(spec)).is_absolute())
    files = {(script_of(spec), spec.cwd) for spec in (*need.runs, *jobs) if script_of(spec)}
    for script, cwd in sorted(files):
        there = (Path(cwd) / script).is_file()
        yield SCRIPT.result(there, "there" if there else f"no such file in {cwd}", script=script, folder=cwd)


# The oldest torch that the bundled workloads are tested with.
OLDEST_TORCH = (2, 11)
SHOWN_PACKAGES = ("torch", "transformers", "deepspeed", "lightning", "vllm")

PYTHON = information(
    name="Python",
    what="the Python of the harness and its packages",
    prevents="results from the wrong Python environment",
    fix="start seatrial from the right environment",
)
RUN_PYTHON = information(
    name="Python of {program}",
    what="the Python a plan's own program belongs to, often not the harness's, and its packages",
    prevents="results from the wrong Python environment",
    fix="give the program by its full path",
)
TORCH = refusal(
    name="torch for {workload}",
    what="that the Python which runs a bundled workload has torch",
    prevents="ModuleNotFoundError: No module named 'torch'",
    fix="pip install 'seatrial[workloads]'{there}",
    in_docs={"there": ""},
)
TORCH_AGE = warning(
    name="torch version",
    what="that torch is not older than what the bundled workloads are tried with",
    prevents="AttributeError: module 'torch' has no attribute … in a bundled workload",
    fix="pip install 'torch>=2.11' in that environment",
)
WORKLOADS = warning(
    name="seatrial in the Python of {program}",
    what="that a Python of your own choice has the bundled workload it is to run",
    prevents="ModuleNotFoundError: No module named 'seatrial_workloads'",
    fix="pip install 'seatrial[workloads]' in that environment, or leave launcher.program out",
)
CUDA_BUILD = refusal(
    name="CUDA build of torch",
    what="that torch was built for CUDA when the plan requests GPUs",
    prevents="AssertionError: Torch not compiled with CUDA enabled",
    fix="install a CUDA build of torch there (the selector on pytorch.org gives the command), or ask for CPU ranks: place: "
    "{{kind: local, ranks: N}}",
)
CUDA_DRIVER = refusal(
    name="driver for torch",
    what="that the driver supports the CUDA version torch was built for",
    prevents="RuntimeError: The NVIDIA driver on your system is too old",
    fix="update the driver, or install a torch built for CUDA {takes}",
    in_docs={"takes": "that the driver supports"},
)
PYTHON_CHECKS = (PYTHON, RUN_PYTHON, TORCH, TORCH_AGE, WORKLOADS, CUDA_BUILD, CUDA_DRIVER)


@dataclass(frozen=True, kw_only=True)
class UsedPython:
    """One interpreter and the requirements of its runs."""

    interpreter: Interpreter
    program: str = ""
    """As typed; empty for the harness's own."""
    workloads: tuple[str, ...] = ()
    """Bundled workloads that need torch here."""
    bundled: bool = False
    asks_for_gpus: bool = False


def check_pythons(need: Need) -> Iterator[Check]:
    own = find_interpreter((), Path.cwd(), need.base_env)
    yield PYTHON.result(True, f"{platform.python_version()}{_versions_text(own.packages)}")
    takes = driver_cuda_version()
    for used in pythons_of(need):
        yield from judge_python(used, takes)
    if not need.planned:
        yield from judge_cuda_driver(UsedPython(interpreter=own), takes)


def pythons_of(need: Need) -> list[UsedPython]:
    """Every interpreter that the runs start, once."""
    by_program: dict[tuple[str, ...], list[RunSpec]] = {}
    for spec in need.runs:
        if spec.launcher.kind != "command" or spec.launcher.program:
            path = need.environment(spec).get("PATH", "")
            by_program.setdefault((*spec.launcher.program[:1], spec.cwd, path), []).append(spec)
    return [_used(need, specs) for specs in by_program.values()]


def _used(need: Need, specs: list[RunSpec]) -> UsedPython:
    first = specs[0]
    return UsedPython(
        interpreter=find_interpreter(first.launcher.program, Path(first.cwd), need.environment(first), start=need.starts_programs),
        program="".join(first.launcher.program[:1]),
        workloads=tuple(sorted({spec.workload.name for spec in specs if needs_torch(spec)})),
        bundled=any(spec.workload.module for spec in specs),
        asks_for_gpus=any(asks_for_gpus(spec) for spec in specs),
    )


def judge_python(used: UsedPython, takes: str) -> Iterator[Check]:
    """The checks of one Python; one that could not be queried is left to the run itself."""
    if not used.interpreter.asked:
        yield RUN_PYTHON.result(True, NOT_ASKED, program=used.program)
    if not used.interpreter.python:
        return
    packages = used.interpreter.packages
    if used.program:
        yield RUN_PYTHON.result(True, f"{used.interpreter.python}{_versions_text(packages)}", program=used.program)
        if used.bundled:
            there = "seatrial" in packages
            yield WORKLOADS.result(there, "installed" if there else "not installed", program=used.program)
    for workload in used.workloads:
        yield _has_torch(used, workload)
    if used.workloads and "torch" in packages:
        yield TORCH_AGE.result(_release(packages["torch"]) >= OLDEST_TORCH, f"torch {packages['torch']}")
    if used.asks_for_gpus and "torch" in packages:
        build = cuda_build(used.interpreter)
        text = {"cpu": "a CPU build", "": "its version does not say its build"}.get(build, f"built for CUDA {build}")
        yield CUDA_BUILD.result(build != "cpu", f"torch {packages['torch']}: {text}", refuses=bool(used.workloads))
        yield from judge_cuda_driver(used, takes)


def judge_cuda_driver(used: UsedPython, takes: str) -> Iterator[Check]:
    """The CUDA version of torch against the driver's; nothing where either is unknown."""
    build = cuda_build(used.interpreter)
    if not takes or build in ("", "cpu"):
        return
    # Within one major version an older driver runs newer builds.
    ok = _major(build) <= _major(takes)
    found = f"torch {used.interpreter.packages.get('torch', '')} is built for CUDA {build}, the driver supports up to {takes}"
    yield CUDA_DRIVER.result(ok, found, refuses=bool(used.workloads), takes=_major(takes))


def cuda_build(interpreter: Interpreter) -> str:
    """`cpu`, or the CUDA version that torch was built for; empty if unknown."""
    return interpreter.torch_cuda or ("cpu" if "+cpu" in interpreter.packages.get("torch", "") else "")


def _has_torch(used: UsedPython, workload: str) -> Check:
    # A torch built in its source tree has no metadata.
    there = (
        "torch" in used.interpreter.packages
        or bool(used.interpreter.torch_cuda)
        or (not used.program and importlib.util.find_spec("torch") is not None)
    )
    python = f"the Python of {used.program}" if used.program else "this Python"
    return TORCH.result(
        there, "installed" if there else f"not installed in {python}", workload=workload, there=" there" * bool(used.program)
    )


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _release(version: str) -> tuple[int, int]:
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else OLDEST_TORCH


def _versions_text(packages: Mapping[str, str]) -> str:
    return "".join(f", {name} {packages[name]}" for name in SHOWN_PACKAGES if name in packages)


DEEPSPEED_PACKAGE = refusal(
    name="deepspeed in {python}",
    what="that the Python which starts `deepspeed` has the package",
    prevents="ModuleNotFoundError: No module named 'deepspeed'",
    fix="pip install 'seatrial[stage1]' there, or name the deepspeed of another environment in launcher.program",
)
DEEPSPEED_DEVICES = refusal(
    name="GPUs for deepspeed",
    what="that `deepspeed` can be given a GPU for each rank: it takes numbers only, and hidden GPUs do not count",
    prevents="ValueError: invalid literal for int() with base 10: 'GPU-…'; or CUDA error: invalid device ordinal, on a rank without a GPU",
    fix="name GPUs by number (place.include or CUDA_VISIBLE_DEVICES), lower place.ranks, or for CPU ranks set env: {{DS_ACCELERATOR: cpu}}",
)
HIDDEN_GPUS = warning(
    name="hidden GPUs under deepspeed",
    what="CPU ranks on a host with GPUs: `deepspeed` gives each rank a CUDA_VISIBLE_DEVICES of its own, also where it was empty",
    prevents="ranks that train on GPUs which were hidden from them; no error is shown",
    fix="set the script's own device to cpu, or start CPU ranks with launcher torchrun here",
)
NINJA = warning(
    name="ninja",
    what="that ninja is on the PATH of runs that use DeepSpeed on GPUs; one in an environment that is not activated is not found",
    prevents="RuntimeError: Unable to JIT load the fused_adam op due to ninja not being installed",
    fix="pip install ninja into the environment of the run, and activate it or put its bin folder on PATH",
)
TWO_NINJAS = warning(
    name="one ninja",
    what="how many different ninja are on the PATH of runs that use DeepSpeed",
    prevents="the ops of DeepSpeed rebuilt, a minute each, whenever another ninja comes first on PATH",
    fix="keep one of them, or set the PATH in the plan's env",
)
DEEPSPEED_CHECKS = (DEEPSPEED_PACKAGE, DEEPSPEED_DEVICES, HIDDEN_GPUS, NINJA, TWO_NINJAS)


def check_deepspeed(need: Need) -> Iterator[Check]:
    launched = [spec for spec in need.runs if spec.launcher.kind == "deepspeed"]
    using = [spec for spec in need.runs if uses_deepspeed(spec)]
    if not using:
        return
    driver = read_driver()
    yield from _check_packages(need, launched)
    if launched:
        yield check_deepspeed_devices(need, launched, driver)
        yield check_hidden_gpus(need, launched, driver)
    yield from check_ninja(need, using, driver)


def _check_packages(need: Need, launched: Sequence[RunSpec]) -> Iterator[Check]:
    """One check per Python that could be queried."""
    for program, spec in {spec.launcher.program[:1]: spec for spec in launched}.items():
        python = find_interpreter(program, Path(spec.cwd), need.environment(spec), start=need.starts_programs)
        there = "deepspeed" in python.packages or (not program and importlib.util.find_spec("deepspeed") is not None)
        if python.python:
            # A source tree has no metadata: only this Python can be searched for certain.
            yield DEEPSPEED_PACKAGE.result(
                there,
                f"deepspeed {python.packages.get('deepspeed', 'without metadata')}" if there else "not installed",
                refuses=not program,
                python=f"the Python of {program[0]}" if program else "this Python",
            )


def check_deepspeed_devices(need: Need, launched: Sequence[RunSpec], driver: Driver) -> Check:
    certain = knows_all_gpus(driver, DEVICE_FILE.exists())
    problems = dict.fromkeys(filter(None, (_device_problem(need, spec, driver, certain) for spec in launched)))
    return DEEPSPEED_DEVICES.result(not problems, "; ".join(problems) or "as many as ranks, or CPU ranks")


def _device_problem(need: Need, spec: RunSpec, driver: Driver, certain: bool) -> str:
    variables = _variables(need, spec, driver)
    try:
        deepspeed_gpu_indices(spec.place.devices, spec.place.ranks, variables)
    except ValueError as error:
        return str(error)
    seen = len(visible_gpus(driver.gpus, (), variables))
    if spec.place.devices or is_deepspeed_on_cpu(variables) or not certain or seen >= spec.place.ranks:
        return ""
    return f"{seen} visible GPUs, and {spec.place.ranks} ranks need one each"


def check_hidden_gpus(need: Need, launched: Sequence[RunSpec], driver: Driver) -> Check:
    """CPU ranks on a host whose GPUs CUDA_VISIBLE_DEVICES hides; a bundled workload sets its own device."""
    free = [spec for spec in launched if not spec.place.devices and spec.settings.get("device") != CPU]
    exposed = bool(driver.gpus) and any(not may_see_gpu(need.environment(spec), driver) for spec in free)
    return HIDDEN_GPUS.result(not exposed, f"{len(driver.gpus)} GPUs here, and {CUDA_VISIBLE_DEVICES} hides them" if exposed else "none")


def check_ninja(need: Need, using: Sequence[RunSpec], driver: Driver) -> Iterator[Check]:
    paths = {need.environment(spec).get("PATH", os.defpath): spec for spec in using}
    found = {path: every_ninja(path, Path(spec.cwd)) for path, spec in paths.items()}
    if all(is_deepspeed_on_cpu(_variables(need, spec, driver)) for spec in using):
        # Nothing is built for them.
        return
    first = next((there[0] for there in found.values() if there), "")
    yield NINJA.result(all(found.values()), first if all(found.values()) else "not on PATH")
    most = max(found.values(), key=len)
    yield TWO_NINJAS.result(len(most) < 2, " and ".join(most) or "none")


def every_ninja(path: str, cwd: Path) -> tuple[str, ...]:
    """Every ninja on a PATH, in order; links to one file count once."""
    found: dict[Path, str] = {}
    for folder in path.split(os.pathsep):
        program = find_on_path("ninja", folder, cwd)
        if program:
            found.setdefault(Path(program).resolve(), program)
    return tuple(found.values())


def _variables(need: Need, spec: RunSpec, driver: Driver) -> Mapping[str, str]:
    """Environment of the run, with what Seatrial adds for DeepSpeed."""
    given = need.environment(spec)
    return {ACCELERATOR: CPU, **given} if runs_on_cpu(spec, need.base_env, driver) else given


HOOK, SOURCES_HOOK = "host_problems", "source_problems"

WORKLOAD_SETTING = refusal(
    name="setting {key}",
    what="problems that a bundled workload reports for its settings on this host, such as a precision that its device does not have. For "
    "Slurm jobs only models and data on a shared file system are checked here, the rest on the first node before ranks start",
    prevents="the same error of {workload}, from every rank, after the start",
    fix="change {key} in `settings` or its axis, or run on a host that supports it",
)
SETTING_CHECKS = (WORKLOAD_SETTING,)


def check_workload_settings(need: Need) -> Iterator[Check]:
    driver = read_driver() if any(judges_its_host(spec) for spec in need.runs) else None
    certain = driver is not None and knows_all_gpus(driver, DEVICE_FILE.exists())
    problems: dict[tuple[str, str, str], bool] = {}
    seen: set[tuple[object, ...]] = set()
    for spec in need.runs:
        env = need.environment(spec)
        num_gpus = len(visible_gpus(driver.gpus, spec.place.devices, env)) if driver else 0
        # Repeats would get the same result.
        case = (spec.workload.module, tuple(sorted(spec.settings.items())), num_gpus, spec.cwd, tuple(sorted(spec.env.items())))
        if case not in seen:
            seen.add(case)
            # With an unknown number of GPUs the workload's judgement is uncertain.
            problems |= {(spec.workload.name, *found): certain for found in host_problems(spec, num_gpus)}
            problems |= {(spec.workload.name, *found): True for found in source_problems(spec, env)}
    for spec in need.whole_runs:
        if spec.place.traits.runs_in_jobs and not _is_contained(spec.place):
            found_there = source_problems(spec, need.environment(spec), lambda path: is_on_all_nodes(path, need.shared))
            problems |= {(spec.workload.name, *found): True for found in found_there}
    for (workload, key, sentence), refuses in problems.items():
        yield WORKLOAD_SETTING.result(False, sentence.rstrip("."), refuses=refuses, key=key, workload=workload)


def problems_on_node(spec: RunSpec, env: Mapping[str, str]) -> list[str]:
    """Problems of a job's settings by its workload, on this node; none for ranks in a container, which is unknown here."""
    if _is_contained(spec.place):
        return []
    driver = read_driver() if judges_its_host(spec) else None
    certain = driver is not None and knows_all_gpus(driver, DEVICE_FILE.exists())
    num_gpus = len(visible_gpus(driver.gpus, spec.place.devices, env)) if driver else 0
    of_host = host_problems(spec, num_gpus) if certain else []
    return [sentence for _, sentence in (*of_host, *source_problems(spec, env))]


def host_problems(spec: RunSpec, num_gpus: int) -> list[tuple[str, str]]:
    """(setting, problem) by the workload, on this host; none if it does not judge."""
    return list(_settings(spec).host_problems(num_gpus=num_gpus, cwd=Path(spec.cwd))) if judges_its_host(spec) else []


def source_problems(spec: RunSpec, env: Mapping[str, str], is_seen: Callable[[Path], bool] = lambda path: True) -> list[tuple[str, str]]:
    """(setting, problem) of files and downloads that ranks read; none if the workload does not judge."""
    if spec.workload.module is None or not hasattr(settings_module(spec.workload.module).Settings, SOURCES_HOOK):
        return []
    return list(_settings(spec).source_problems(cwd=Path(spec.cwd), env=env, is_seen=is_seen))


def judges_its_host(spec: RunSpec) -> bool:
    """Whether its workload checks its own settings against the host."""
    return spec.workload.module is not None and hasattr(settings_module(spec.workload.module).Settings, HOOK)


def _settings(spec: RunSpec) -> Any:
    return settings_module(str(spec.workload.module)).Settings(**spec.settings)


def _is_contained(place: PlaceSpec) -> bool:
    """Whether ranks run in a container, whose file system is not this host's."""
    return place.slurm is not None and place.slurm.container is not None
