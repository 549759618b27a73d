"""Mutation testing, bounded: mutmut changes one thing in a function, and a unit test must notice.

    python tests/mutation                                 one mutant of each of 400 functions, for at most 75 minutes
    python tests/mutation --functions 40 statistics       of these modules only
    python tests/mutation --mutants NAME [NAME ...]       these again: names as the table of survivors has them

The packages are analyse, judge, plan, collect and observe; for each mutant the unit tests that call its function are run. Functions are
drawn by --seed and their own names, so that moving one to another module does not change the sample. mutmut works on a copy in
build/mutation; its output is in build/mutation/output.txt. Prints the diff of each survivor, then a line per module, then one JSON line:

    analyse.ranking                4 tried,   4 killed,   0 survived,   0 no_test,   0 not_reached
    …
    {"mutmut": "3.8.0", "seed": 1, "functions": 400, "tried": 400, "killed": 346, "survived": 50, "no_test": 4, "not_reached": 0}

Exits with 0 even if mutants survive: each survivor gets a test, or a row in README.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "mutation"
OUTPUT = FOLDER / "output.txt"
# What mutmut copies: the working tree under the names that it expects.
LINKED = ("src", "tests", "pyproject.toml", "docs", "plans", "runbooks", "benchmarks")
PACKAGES = ("analyse", "judge", "plan", "collect", "observe")
# mutmut's statuses of a mutant that a test noticed; one that never ends was noticed too.
KILLED = ("killed", "timeout")


def main() -> int:
    args = _parse_args()
    _enter_folder()
    # Reads its settings from the current folder on import, and starts processes by fork: imported here, not before.
    from mutmut import __main__ as mutmut
    from mutmut.configuration import config

    config().only_mutate = [f"src/seatrial/{name.replace('.', '/')}.py" for name in _modules(args)]
    chosen: list[str] = []
    try:
        with _stdout_into(OUTPUT), _within(args.seconds):
            _generate(mutmut)
            chosen += args.mutants or _sample(_exit_codes(), args.functions, args.seed)
            mutmut._run(chosen, 1)
    except (SystemExit, Exception) as error:
        sys.exit(f"mutmut failed ({error}): see {OUTPUT}. The tests must pass without a mutant first")
    _report(chosen, args)
    return 0


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/mutation", description="Change the code; see whether a test notices.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="names such as ranking or judge.verdict (default: all)")
    parser.add_argument("--mutants", nargs="+", metavar="NAME", help="run exactly these mutants")
    parser.add_argument("--functions", type=int, default=400, metavar="N", help="number of functions, one mutant of each (400)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which functions and mutants are drawn (1)")
    parser.add_argument("--seconds", type=int, default=4500, metavar="S", help="stop after this long (4500)")
    return parser.parse_args()


def _enter_folder() -> None:
    """Change to build/mutation, with the tree linked in and one thread per library: a thread pool does not survive a fork."""
    # mutmut would continue with the modules, tests and mutants of an earlier run.
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name in LINKED:
        (FOLDER / name).symlink_to(ROOT / name)
    os.chdir(FOLDER)
    os.environ |= {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "CI": "1"}


def _modules(args: argparse.Namespace) -> list[str]:
    """Modules as package.name: those requested, else all of PACKAGES."""
    source = ROOT / "src/seatrial"
    found = [path.relative_to(source).with_suffix("") for package in PACKAGES for path in sorted((source / package).rglob("[!_]*.py"))]
    modules = [".".join(path.parts) for path in found]
    if args.mutants:
        return [name for name in modules if any(mutant.startswith(f"seatrial.{name}.") for mutant in args.mutants)]
    if unknown := [name for name in args.modules if not any(_is_called(module, name) for module in modules)]:
        sys.exit(f"no such module in {' or '.join(PACKAGES)}: {', '.join(unknown)}")
    return [module for module in modules if not args.modules or any(_is_called(module, name) for name in args.modules)]


def _is_called(module: str, name: str) -> bool:
    """`ranking`, `analyse.ranking`, or the package of the module."""
    return name == module or name == module.rpartition(".")[2] or module.startswith(f"{name}.")


@contextlib.contextmanager
def _stdout_into(path: Path) -> Iterator[None]:
    """Redirects the file descriptor: mutmut writes its progress past sys.stdout."""
    sys.stdout.flush()
    kept = os.dup(1)
    with path.open("wb") as output:
        os.dup2(output.fileno(), 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(kept, 1)
            os.close(kept)


@contextlib.contextmanager
def _within(seconds: int) -> Iterator[None]:
    """Interrupt like Ctrl-C at the time limit: mutmut then stops with what it has."""
    signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGINT))
    signal.alarm(seconds)
    with contextlib.suppress(KeyboardInterrupt):
        yield
    signal.alarm(0)


def _generate(mutmut: ModuleType) -> None:
    mutmut.makedirs("mutants", exist_ok=True)
    mutmut.copy_src_dir()
    # mutmut copies no links to folders: plans/ and runbooks/ as an installed package has them.
    shutil.copytree(ROOT / "src/seatrial/shipped", "mutants/src/seatrial/shipped", symlinks=True, dirs_exist_ok=True)
    mutmut.create_mutants(1)


def _exit_codes() -> dict[str, int | None]:
    """Exit code of the tests for every mutant; None where it was not tried."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.utils.file_utils import walk_mutatable_files

    codes: dict[str, int | None] = {}
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        codes |= data.exit_code_by_key
    return codes


def _sample(names: Iterable[str], count: int, seed: int) -> list[str]:
    """One mutant of each of `count` functions. Both depend on the seed and the function's own name only, not on its module."""
    by_function: dict[str, list[str]] = {}
    for name in names:
        by_function.setdefault(_function_of(name), []).append(name)
    drawn = sorted(by_function, key=lambda function: (_drawn(seed, _bare(function)), function))[:count]
    return sorted(random.Random(_drawn(seed, _bare(function))).choice(sorted(by_function[function], key=_number)) for function in drawn)


def _drawn(seed: int, text: str) -> str:
    return hashlib.sha256(f"{seed} {text}".encode()).hexdigest()


def _function_of(mutant: str) -> str:
    return mutant.rpartition("__mutmut_")[0]


def _bare(function: str) -> str:
    return function.rpartition(".")[2]


def _number(mutant: str) -> int:
    return int(mutant.rpartition("_")[2])


def _module_of(mutant: str) -> str:
    return mutant.rpartition(".")[0].removeprefix("seatrial.")


def _report(chosen: list[str], args: argparse.Namespace) -> None:
    from mutmut.__main__ import find_mutant, get_diff_for_mutant
    from mutmut.stats import status_by_exit_code

    codes = _exit_codes()
    statuses = {name: status_by_exit_code[codes[name]] for name in chosen}
    for name, status in statuses.items():
        if status not in (*KILLED, "not checked"):
            print(f"{name}: {status}\n{get_diff_for_mutant(name, path=find_mutant(name).path)}\n")
    totals: Counter[str] = Counter()
    for module in sorted({_module_of(name) for name in chosen}):
        counts = _counted([status for name, status in statuses.items() if _module_of(name) == module])
        totals.update(counts)
        print(f"{module:28s} {', '.join(f'{count:3d} {name}' for name, count in counts.items())}")
    chosen_by = {} if args.mutants else {"seed": args.seed, "functions": args.functions}
    print(json.dumps({"mutmut": version("mutmut"), **chosen_by, **totals}))


def _counted(statuses: list[str]) -> dict[str, int]:
    """Survived is whatever was tried and not killed, unexpected statuses included."""
    tried = sum(status != "not checked" for status in statuses)
    killed, no_test = sum(status in KILLED for status in statuses), statuses.count("no tests")
    return {
        "tried": tried,
        "killed": killed,
        "survived": tried - killed - no_test,
        "no_test": no_test,
        "not_reached": statuses.count("not checked"),
    }


if __name__ == "__main__":
    sys.exit(main())
