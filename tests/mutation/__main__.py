"""Mutation testing of what computes and what judges, bounded: mutmut changes one thing, the tests of that function must notice.

    python tests/mutation                                 a few mutants of every module of analyse/ and judge/, for at most 40 minutes
    python tests/mutation --each 40 holm quantile         more of them, of these modules
    python tests/mutation --mutants NAME [NAME ...]       these again: names as the table of survivors has them

Which mutants are taken hangs on --seed alone. mutmut works in build/mutation, on a copy; what it says is in build/mutation/said.txt.
Prints each survivor's change, then a line a module, then one JSON line:

    analyse.holm                   4 tried,   4 killed,   0 survived,   0 no_test,   0 not_reached
    …
    {"mutmut": "3.8.0", "seed": 1, "each": 4, "tried": 356, "killed": 346, "survived": 10, "no_test": 0, "not_reached": 0}

Ends with 0 also where mutants survive: they are read, and answered with a test or a line in README.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
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
# What mutmut copies from: the tree as it is, under the names that it looks for.
LINKED = ("src", "tests", "pyproject.toml")
PACKAGES = ("analyse", "judge")
# mutmut's own words for how a mutant ended; a mutant that never ends was noticed too.
NOTICED = ("killed", "timeout")


def main() -> int:
    words = _words()
    _stand_in_folder()
    # Reads its settings from the current folder when first asked, and starts processes by fork: imported here, not before.
    from mutmut import __main__ as mutmut
    from mutmut.configuration import config

    config().only_mutate = [f"src/seatrial/{name.replace('.', '/')}.py" for name in _modules(words)]
    chosen: list[str] = []
    try:
        with _said_into(FOLDER / "said.txt"), _within(words.seconds):
            _generate(mutmut)
            chosen += words.mutants or _sample(_ended(), words.each, words.seed)
            mutmut._run(chosen, 1)
    except (SystemExit, Exception) as error:
        sys.exit(f"mutmut gave up ({error}): what it said is in {FOLDER / 'said.txt'}. The tests must pass without a mutant first")
    _report(chosen, words)
    return 0


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/mutation", description="Change the code; see whether a test notices.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="names such as holm or judge.counts; all where none is given")
    parser.add_argument("--mutants", nargs="+", metavar="NAME", help="exactly these mutants again")
    parser.add_argument("--each", type=int, default=4, metavar="N", help="mutants of each module (4)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which of them are taken (1)")
    parser.add_argument("--seconds", type=int, default=2400, metavar="S", help="stop after this long (2400)")
    return parser.parse_args()


def _stand_in_folder() -> None:
    """Be in build/mutation, with the tree linked in and one thread for each library: a pool of threads does not live through a fork."""
    # What an earlier run left there is of other modules, tests and mutants, and mutmut would go on from it.
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name in LINKED:
        (FOLDER / name).symlink_to(ROOT / name)
    os.chdir(FOLDER)
    os.environ |= {"POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "CI": "1"}


def _modules(words: argparse.Namespace) -> list[str]:
    """Modules as package.name: those asked for, else all of both packages and of what lies below them."""
    source = ROOT / "src/seatrial"
    found = [path.relative_to(source).with_suffix("") for package in PACKAGES for path in sorted((source / package).rglob("[!_]*.py"))]
    every = [".".join(path.parts) for path in found]
    if words.mutants:
        return [name for name in every if any(mutant.startswith(f"seatrial.{name}.") for mutant in words.mutants)]
    if unknown := [name for name in words.modules if not any(_is_called(module, name) for module in every)]:
        sys.exit(f"no such module in {' or '.join(PACKAGES)}: {', '.join(unknown)}")
    return [module for module in every if not words.modules or any(_is_called(module, name) for name in words.modules)]


def _is_called(module: str, name: str) -> bool:
    """`holm`, `analyse.holm`, or the folder that a module lies in."""
    return name == module or name == module.rpartition(".")[2] or module.startswith(f"{name}.")


@contextlib.contextmanager
def _said_into(path: Path) -> Iterator[None]:
    """Standard output goes there meanwhile, the descriptor itself: mutmut draws its progress past sys.stdout."""
    sys.stdout.flush()
    kept = os.dup(1)
    with path.open("wb") as said:
        os.dup2(said.fileno(), 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(kept, 1)
            os.close(kept)


@contextlib.contextmanager
def _within(seconds: int) -> Iterator[None]:
    """Interrupt as Ctrl-C would when the time is over: mutmut then stops with what it has."""
    signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGINT))
    signal.alarm(seconds)
    with contextlib.suppress(KeyboardInterrupt):
        yield
    signal.alarm(0)


def _generate(mutmut: ModuleType) -> None:
    mutmut.makedirs("mutants", exist_ok=True)
    mutmut.copy_src_dir()
    mutmut.create_mutants(1)


def _ended() -> dict[str, int | None]:
    """Every mutant there is and how it ended; None where it was not tried."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.utils.file_utils import walk_mutatable_files

    ended: dict[str, int | None] = {}
    for path in walk_mutatable_files():
        of_file = SourceFileMutationData(path=path)
        of_file.load()
        ended |= of_file.exit_code_by_key
    return ended


def _sample(names: Iterable[str], each: int, seed: int) -> list[str]:
    by_module: dict[str, list[str]] = {}
    for name in names:
        by_module.setdefault(_module_of(name), []).append(name)
    # A generator for each module: what one module gains or loses moves no other's sample.
    return [
        name
        for module, of_module in sorted(by_module.items())
        for name in random.Random(f"{seed} {module}").sample(sorted(of_module), min(each, len(of_module)))
    ]


def _module_of(mutant: str) -> str:
    return mutant.rpartition(".")[0].removeprefix("seatrial.")


def _report(chosen: list[str], words: argparse.Namespace) -> None:
    from mutmut.__main__ import find_mutant, get_diff_for_mutant
    from mutmut.stats import status_by_exit_code

    ended = _ended()
    status = {name: status_by_exit_code[ended[name]] for name in chosen}
    for name, how in status.items():
        if how not in (*NOTICED, "not checked"):
            print(f"{name}: {how}\n{get_diff_for_mutant(name, path=find_mutant(name).path)}\n")
    totals: Counter[str] = Counter()
    for module in sorted({_module_of(name) for name in chosen}):
        counts = _counted([how for name, how in status.items() if _module_of(name) == module])
        totals.update(counts)
        print(f"{module:28s} {', '.join(f'{count:3d} {name}' for name, count in counts.items())}")
    chosen_by = {} if words.mutants else {"seed": words.seed, "each": words.each}
    print(json.dumps({"mutmut": version("mutmut"), **chosen_by, **totals}))


def _counted(how: list[str]) -> dict[str, int]:
    """Survived is whatever was tried and not noticed: also what ended in a way that nobody expected."""
    tried, killed, no_test = sum(word != "not checked" for word in how), sum(word in NOTICED for word in how), how.count("no tests")
    return {
        "tried": tried,
        "killed": killed,
        "survived": tried - killed - no_test,
        "no_test": no_test,
        "not_reached": how.count("not checked"),
    }


if __name__ == "__main__":
    sys.exit(main())
