"""Versions that must be equal on all hosts of a run: Seatrial's own, Python, torch, DeepSpeed, NCCL, and whatever else runs in a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from seatrial.preflight.hosts.alike import compared, most_common
from seatrial.preflight.hosts.answers import Answers
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question
from seatrial.records.host_facts import HostFacts
from seatrial.wording import named

_SAME_ENVIRONMENT = "install the same versions on each host (one lock file, one image, or one environment on a shared disk)"
SEATRIAL = Question(
    name="Seatrial version",
    looks_at="that Seatrial is the same version on all hosts and the head, down to its files: harness and agents speak with each other",
    prevents="an agent that does not understand what it is told, after the ranks have started",
    fix="pip install the same seatrial on each host, or bring its checkouts to one commit",
    refuses=True,
)
PYTHON = Question(
    name="Python version",
    looks_at="that the runs' Python is the same on all hosts, to the minor version",
    prevents="ValueError: unsupported pickle protocol; or ModuleNotFoundError on some of the ranks only",
    fix=_SAME_ENVIRONMENT,
    refuses=True,
)
TORCH = Question(
    name="torch version",
    looks_at="that torch, and the CUDA it was built for, are the same on all hosts",
    prevents="RuntimeError: Detected mismatch between collectives on ranks; or ranks that hang in the first all-reduce",
    fix=_SAME_ENVIRONMENT,
    refuses=True,
)
DEEPSPEED = Question(
    name="deepspeed version",
    looks_at="that DeepSpeed is the same on all hosts",
    prevents="ranks that hang because they partition parameters or name messages in another way; or ModuleNotFoundError: No module named "
    "'deepspeed' on some of them",
    fix=_SAME_ENVIRONMENT,
    refuses=True,
)
NCCL = Question(
    name="NCCL version",
    looks_at="that NCCL (nvidia-nccl-cu…) is the same on all hosts",
    prevents="ncclInternalError: Mismatched NCCL version detected",
    fix=_SAME_ENVIRONMENT,
    refuses=True,
)
OTHERS = Question(
    name="other packages",
    looks_at="that every other package which decides how fast a step is, or what it computes, is the same on all hosts; refused with "
    "place.alike: refuse, else said",
    prevents="ranks that are slower than others, or whose losses drift apart; no error is shown",
    fix=_SAME_ENVIRONMENT,
    refuses=True,
)
QUESTIONS = (SEATRIAL, PYTHON, TORCH, DEEPSPEED, NCCL, OTHERS)
NCCL_PACKAGES = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")
MOST_SHOWN = 3
DIGITS_SHOWN = 8


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    facts = {host: answers.facts[host] for host in wanted.names if host in answers.facts}
    yield from _seatrial(answers)
    asked = {host: one for host, one in facts.items() if one.python}
    yield from compared(PYTHON, {host: _minor(one.python) for host, one in asked.items()}, labels=answers.labels)
    # Without a plan nobody knows whether any run needs them.
    refuses = wanted.planned
    for question, values in (
        (TORCH, {host: _torch(one) for host, one in asked.items()}),
        (DEEPSPEED, {host: one.packages.get("deepspeed", "") for host, one in asked.items()}),
        (NCCL, {host: "".join(one.packages.get(name, "") for name in NCCL_PACKAGES) for host, one in asked.items()}),
    ):
        if any(values.values()):
            yield from compared(question, values, refuses=refuses, labels=answers.labels)
    yield from _others({host: one.packages for host, one in asked.items()}, refuses=wanted.place.alike == "refuse")


def _seatrial(answers: Answers) -> Iterator[HostCheck]:
    """Of the head too, which is none of the hosts where it only starts them."""
    versions = {host: one.seatrial for host, one in answers.facts.items()}
    values = {host: f"{one.seatrial}, code {one.code[:DIGITS_SHOWN]}" if one.code else one.seatrial for host, one in answers.facts.items()}
    for found in compared(SEATRIAL, values, labels=answers.labels):
        same_version = versions[found.host] == most_common(versions)
        text = f"Seatrial's code differs: {found.check.found}" if same_version and not found.check.ok else found.check.found
        yield replace(found, check=replace(found.check, found=text))


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])


def _torch(facts: HostFacts) -> str:
    version = facts.packages.get("torch", "")
    return f"{version} for CUDA {facts.torch_cuda}" if version and facts.torch_cuda else version


def _others(packages: Mapping[str, Mapping[str, str]], *, refuses: bool) -> Iterator[HostCheck]:
    names = sorted({name for one in packages.values() for name in one} - {"torch", "deepspeed", "seatrial", *NCCL_PACKAGES})
    usual = {name: most_common({host: one.get(name, "") for host, one in packages.items()}) for name in names}
    for host, one in packages.items():
        unlike = [
            f"{name} {one.get(name) or 'missing'} ({usual[name] or 'none'} elsewhere)" for name in names if one.get(name, "") != usual[name]
        ]
        found = named(unlike, MOST_SHOWN) if unlike else f"{len(names)} alike"
        yield HostCheck(host=host, check=OTHERS.answer(not unlike, found, refuses=refuses))
