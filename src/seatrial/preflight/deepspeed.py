"""What a run with DeepSpeed needs of this host: the package, GPUs it can be told of by number, and ninja for the ops it builds itself."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from seatrial.machine.deepspeed_devices import ACCELERATOR, CPU, gpu_numbers, is_on_cpu, may_see_a_gpu, needs_no_gpu
from seatrial.machine.gpus import DEVICE_FILE, LIMIT, Driver, is_certain, read_driver, visible_gpus
from seatrial.machine.interpreter import interpreter_of
from seatrial.preflight.need import Need, uses_deepspeed
from seatrial.preflight.question import Question
from seatrial.records.check import Check
from seatrial.records.run_spec import RunSpec
from seatrial.shell import on_path

PACKAGE = Question(
    name="deepspeed in {python}",
    looks_at="that the Python which starts `deepspeed` has the package",
    prevents="ModuleNotFoundError: No module named 'deepspeed'",
    fix="pip install 'seatrial[stage1]' there, or name the deepspeed of another environment in launcher.program",
    refuses=True,
)
DEVICES = Question(
    name="GPUs for deepspeed",
    looks_at="that `deepspeed` can be told of a GPU for each rank: it takes numbers only, and counts no hidden ones",
    prevents="ValueError: invalid literal for int() with base 10: 'GPU-…'; or CUDA error: invalid device ordinal, on a rank without a GPU",
    fix="name GPUs by number (place.include or CUDA_VISIBLE_DEVICES), lower place.ranks, or for CPU ranks set env: {{DS_ACCELERATOR: cpu}}",
    refuses=True,
)
HIDDEN = Question(
    name="hidden GPUs under deepspeed",
    looks_at="CPU ranks on a host with GPUs: `deepspeed` gives each rank a CUDA_VISIBLE_DEVICES of its own, also where it was empty",
    prevents="ranks that train on GPUs which were hidden from them; no error is shown",
    fix="set the script's own device to cpu, or start CPU ranks with launcher torchrun here",
)
NINJA = Question(
    name="ninja",
    looks_at="that ninja is on the PATH of runs that use DeepSpeed on GPUs; one in an environment that is not activated is not found",
    prevents="RuntimeError: Unable to JIT load the fused_adam op due to ninja not being installed",
    fix="pip install ninja into the environment of the run, and activate it or put its bin folder on PATH",
)
TWO_NINJAS = Question(
    name="one ninja",
    looks_at="how many different ninja are on the PATH of runs that use DeepSpeed",
    prevents="the ops of DeepSpeed built anew, a minute each, whenever another ninja comes first on PATH",
    fix="keep one of them, or set the PATH in the plan's env",
)
QUESTIONS = (PACKAGE, DEVICES, HIDDEN, NINJA, TWO_NINJAS)


def checks(need: Need) -> Iterator[Check]:
    launched = [spec for spec in need.runs if spec.launcher.kind == "deepspeed"]
    using = [spec for spec in need.runs if uses_deepspeed(spec)]
    if not using:
        return
    driver = read_driver()
    yield from _packages(need, launched)
    if launched:
        yield devices(need, launched, driver)
        yield hidden(need, launched, driver)
    yield from ninjas(need, using, driver)


def _packages(need: Need, launched: Sequence[RunSpec]) -> Iterator[Check]:
    """One check for each Python; one that cannot be asked, or is not there, is told of elsewhere."""
    for program, spec in {spec.launcher.program[:1]: spec for spec in launched}.items():
        python = interpreter_of(program, Path(spec.cwd), need.environment(spec))
        there = "deepspeed" in python.packages or (not program and importlib.util.find_spec("deepspeed") is not None)
        if python.python:
            # What lies in a source tree has no metadata: only of this Python it is known for certain.
            yield PACKAGE.answer(
                there,
                f"deepspeed {python.packages.get('deepspeed', 'without metadata')}" if there else "not installed",
                refuses=not program,
                python=f"the Python of {program[0]}" if program else "this Python",
            )


def devices(need: Need, launched: Sequence[RunSpec], driver: Driver) -> Check:
    """A number for each rank, of a GPU that is there."""
    certain = is_certain(driver, DEVICE_FILE.exists())
    troubles = dict.fromkeys(filter(None, (_device_trouble(need, spec, driver, certain) for spec in launched)))
    return DEVICES.answer(not troubles, "; ".join(troubles) or "as many as ranks, or CPU ranks")


def _device_trouble(need: Need, spec: RunSpec, driver: Driver, certain: bool) -> str:
    variables = _variables(need, spec, driver)
    try:
        gpu_numbers(spec.place.devices, spec.place.ranks, variables)
    except ValueError as error:
        return str(error)
    seen = len(visible_gpus(driver.gpus, (), variables))
    if spec.place.devices or is_on_cpu(variables) or not certain or seen >= spec.place.ranks:
        return ""
    return f"{seen} GPUs to be seen, and {spec.place.ranks} ranks need one each"


def hidden(need: Need, launched: Sequence[RunSpec], driver: Driver) -> Check:
    """CPU ranks beside GPUs that CUDA_VISIBLE_DEVICES was to hide; a bundled workload does what its device says."""
    free = [spec for spec in launched if not spec.place.devices and spec.settings.get("device") != CPU]
    exposed = bool(driver.gpus) and any(not may_see_a_gpu(need.environment(spec), driver) for spec in free)
    return HIDDEN.answer(not exposed, f"{len(driver.gpus)} GPUs here, and {LIMIT} hides them" if exposed else "none")


def ninjas(need: Need, using: Sequence[RunSpec], driver: Driver) -> Iterator[Check]:
    """Whether the ops can be built, and by whom."""
    paths = {need.environment(spec).get("PATH", os.defpath): spec for spec in using}
    found = {path: every_ninja(path, Path(spec.cwd)) for path, spec in paths.items()}
    if all(is_on_cpu(_variables(need, spec, driver)) for spec in using):
        # Nothing is built for them.
        return
    first = next((there[0] for there in found.values() if there), "")
    yield NINJA.answer(all(found.values()), first if all(found.values()) else "not on PATH")
    most = max(found.values(), key=len)
    yield TWO_NINJAS.answer(len(most) < 2, " and ".join(most) or "none")


def every_ninja(path: str, cwd: Path) -> tuple[str, ...]:
    """Each ninja of a PATH in its order; links to one file are one."""
    found: dict[Path, str] = {}
    for folder in path.split(os.pathsep):
        program = on_path("ninja", folder, cwd)
        if program:
            found.setdefault(Path(program).resolve(), program)
    return tuple(found.values())


def _variables(need: Need, spec: RunSpec, driver: Driver) -> Mapping[str, str]:
    """What the run gets, with what Seatrial adds for DeepSpeed."""
    given = need.environment(spec)
    return {ACCELERATOR: CPU, **given} if needs_no_gpu(spec, need.caller, driver) else given
