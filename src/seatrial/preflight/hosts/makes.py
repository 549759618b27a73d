"""What the hosts are made of: GPUs enough for their ranks, and cards, driver, processor and memory alike. `place.alike: refuse` makes
unlike hosts a reason not to start; else it is said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from seatrial.preflight.hosts.alike import compared
from seatrial.preflight.hosts.answers import Answers, part, trouble
from seatrial.preflight.hosts.rows import HostCheck
from seatrial.preflight.hosts.wanted import Wanted
from seatrial.preflight.question import Question
from seatrial.records.host_facts import HostFacts
from seatrial.records.run_spec import HostSpec
from seatrial.units import GIB

_UNLIKE = "take hosts of one make, or leave the odd one out: place.exclude"
ENOUGH = Question(
    name="GPUs for its ranks",
    looks_at="that each host has the GPUs that its slots, or place.include, ask of it",
    prevents="CUDA error: invalid device ordinal, on one host's ranks",
    fix="correct the slots of the hostfile, or place.include; `nvidia-smi -L` on the host lists what it has",
    refuses=True,
)
GPUS = Question(
    name="GPU model",
    looks_at="that the cards are alike on all hosts; refused with place.alike: refuse, else said",
    prevents="steps as slow as the slowest card everywhere, and CUDA out of memory on the smallest; no error names the cause",
    fix=_UNLIKE,
    refuses=True,
)
DRIVER = Question(
    name="GPU driver version",
    looks_at="that the GPUs' driver is the same on all hosts; likewise",
    prevents="The NVIDIA driver on your system is too old, on one host's ranks; or hosts that are slower than others",
    fix="update the driver of the odd hosts",
    refuses=True,
)
CPU = Question(
    name="processor",
    looks_at="that the processors are alike in model and number; likewise",
    prevents="data loading and start-up as slow as the slowest host; no error is shown",
    fix=_UNLIKE,
    refuses=True,
)
MEMORY = Question(
    name="host memory",
    looks_at="that the hosts have the same memory, give or take a twentieth; likewise",
    prevents="Killed (exit code -9 or 137), on the ranks of the smallest host",
    fix=_UNLIKE,
    refuses=True,
)
QUESTIONS = (ENOUGH, GPUS, DRIVER, CPU, MEMORY)
# Firmware keeps some for itself, so two like hosts differ by a little.
MEMORY_RATIO = 0.05


def checks(wanted: Wanted, answers: Answers) -> Iterator[HostCheck]:
    facts = {host: answers.facts[host] for host in wanted.names if host in answers.facts}
    refuses, labels = wanted.place.alike == "refuse", answers.labels
    if wanted.gpus:
        yield from (_enough(spec, facts[spec.name], answers) for spec in wanted.hosts if spec.name in facts)
    if any(one.gpus for one in facts.values()):
        yield from compared(GPUS, _values(facts, lambda one: cards(one.gpus)), refuses=refuses, labels=labels)
        yield from compared(DRIVER, _values(facts, lambda one: one.driver_version), refuses=refuses, labels=labels)
    yield from compared(CPU, _values(facts, lambda one: f"{one.cpu_count} x {one.cpu}"), refuses=refuses, labels=labels)
    yield from compared(MEMORY, memory_texts(_sizes(facts)), refuses=refuses, labels=labels)


def _values(facts: dict[str, HostFacts], value: Callable[[HostFacts], str]) -> dict[str, str]:
    return {host: value(one) for host, one in facts.items()}


def _sizes(facts: dict[str, HostFacts]) -> dict[str, int]:
    return {host: one.memory_bytes for host, one in facts.items()}


def memory_texts(sizes: dict[str, int]) -> dict[str, str]:
    """Host → its memory; one within a twentieth of another's has the other's text."""
    texts: dict[str, str] = {}
    for host, size in sizes.items():
        like = next((known for known in texts if abs(sizes[known] - size) <= MEMORY_RATIO * max(size, 1)), None)
        texts[host] = texts[like] if like else f"{size / GIB:.0f} GiB"
    return texts


def cards(names: Sequence[str]) -> str:
    """`8 x NVIDIA H100 80GB HBM3`."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names).items()))


def _enough(spec: HostSpec, facts: HostFacts, answers: Answers) -> HostCheck:
    wanted_ids = [int(device) for device in spec.devices if device.isdigit()]
    needed = max([spec.ranks, *(number + 1 for number in wanted_ids)]) if wanted_ids or not spec.devices else spec.ranks
    hung = trouble(part(answers.first, spec.name, "gpus"))
    found = f"{len(facts.gpus)} GPUs, {needed} needed" + (f" ({hung})" if hung else "")
    # A driver that does not tell is no proof that there are none.
    return HostCheck(host=spec.name, check=ENOUGH.answer(len(facts.gpus) >= needed, found, refuses=not hung))
