"""What must be equal on all hosts: versions, GPUs, driver, processors, memory and clocks; and that no other campaign runs on one.

In: `HostsNeed` and `Answers`. Out: a `HostCheck` for each host that answered. A host is compared with the majority; of two hosts that
differ, the first in the hostfile counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seatrial.core.hostfile import HostSpec
from seatrial.core.text import GIB, join_names
from seatrial.preflight.check_definition import NO_LABELS, CheckDefinition, HostCheck, hosts_text, refusal, warning
from seatrial.preflight.hosts.queries import Answers, HostsNeed, answer_part, problem_in
from seatrial.records.attempt import HostFacts


def most_common(values: Mapping[str, str]) -> str:
    """The value of most hosts; of several, the first."""
    return max(Counter(values.values()).items(), key=lambda item: item[1])[0] if values else ""


def compare_hosts(
    definition: CheckDefinition, values: Mapping[str, str], *, refuses: bool | None = None, labels: Mapping[str, str] = NO_LABELS
) -> Iterator[HostCheck]:
    """One check per host: ok where it has the most common value."""
    usual = most_common(values)
    others = [host for host, value in values.items() if value == usual]
    for host, value in values.items():
        found = value or "none"
        if value != usual:
            found = f"{value or 'none'}; {usual or 'none'} on {hosts_text(others, labels)}"
        yield definition.on(host, value == usual, found, refuses=refuses)


_SAME_ENVIRONMENT = "install the same versions on each host (one lock file, one image, or one environment on a shared disk)"
SEATRIAL = refusal(
    name="Seatrial version",
    what="that Seatrial is the same version on all hosts and the head, down to its files: they share a protocol",
    prevents="an agent that does not understand the harness, after the ranks have started",
    fix="pip install the same seatrial on each host, or bring its checkouts to one commit",
)
PYTHON = refusal(
    name="Python version",
    what="that the runs' Python is the same on all hosts, to the minor version",
    prevents="ValueError: unsupported pickle protocol; or ModuleNotFoundError on some of the ranks only",
    fix=_SAME_ENVIRONMENT,
)
TORCH = refusal(
    name="torch version",
    what="that torch, and the CUDA it was built for, are the same on all hosts",
    prevents="RuntimeError: Detected mismatch between collectives on ranks; or ranks that hang in the first all-reduce",
    fix=_SAME_ENVIRONMENT,
)
DEEPSPEED = refusal(
    name="deepspeed version",
    what="that DeepSpeed is the same on all hosts",
    prevents="ranks that hang because they partition parameters or name messages in another way; or ModuleNotFoundError: No module named "
    "'deepspeed' on some of them",
    fix=_SAME_ENVIRONMENT,
)
NCCL = refusal(
    name="NCCL version",
    what="that NCCL (nvidia-nccl-cu…) is the same on all hosts",
    prevents="ncclInternalError: Mismatched NCCL version detected",
    fix=_SAME_ENVIRONMENT,
)
OTHER_PACKAGES = refusal(
    name="other packages",
    what="that every other package which decides how fast a step is, or what it computes, is the same on all hosts; refused with "
    "place.alike: refuse, else a warning",
    prevents="ranks that are slower than others, or whose losses drift apart; no error is shown",
    fix=_SAME_ENVIRONMENT,
)
VERSION_CHECKS = (SEATRIAL, PYTHON, TORCH, DEEPSPEED, NCCL, OTHER_PACKAGES)
NCCL_PACKAGES = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")
MAX_SHOWN = 3
DIGITS_SHOWN = 8


def check_versions(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    facts = {host: answers.facts[host] for host in need.names if host in answers.facts}
    yield from _compare_seatrial(answers)
    with_python = {host: one for host, one in facts.items() if one.python}
    yield from compare_hosts(
        PYTHON, {host: ".".join(one.python.split(".")[:2]) for host, one in with_python.items()}, labels=answers.labels
    )
    # Without a plan it is unknown whether a run needs them.
    refuses = need.planned
    for definition, values in (
        (TORCH, {host: _torch_text(one) for host, one in with_python.items()}),
        (DEEPSPEED, {host: one.packages.get("deepspeed", "") for host, one in with_python.items()}),
        (NCCL, {host: "".join(one.packages.get(name, "") for name in NCCL_PACKAGES) for host, one in with_python.items()}),
    ):
        if any(values.values()):
            yield from compare_hosts(definition, values, refuses=refuses, labels=answers.labels)
    yield from _compare_other_packages({host: one.packages for host, one in with_python.items()}, refuses=need.place.alike == "refuse")


def _compare_seatrial(answers: Answers) -> Iterator[HostCheck]:
    """Includes the head, which may not be one of the hosts."""
    versions = {host: one.seatrial for host, one in answers.facts.items()}
    values = {host: f"{one.seatrial}, code {one.code[:DIGITS_SHOWN]}" if one.code else one.seatrial for host, one in answers.facts.items()}
    for found in compare_hosts(SEATRIAL, values, labels=answers.labels):
        same_version = versions[found.host] == most_common(versions)
        text = f"Seatrial's code differs: {found.check.found}" if same_version and not found.check.ok else found.check.found
        yield replace(found, check=replace(found.check, found=text))


def _torch_text(facts: HostFacts) -> str:
    version = facts.packages.get("torch", "")
    return f"{version} for CUDA {facts.torch_cuda}" if version and facts.torch_cuda else version


def _compare_other_packages(packages: Mapping[str, Mapping[str, str]], *, refuses: bool) -> Iterator[HostCheck]:
    names = sorted({name for one in packages.values() for name in one} - {"torch", "deepspeed", "seatrial", *NCCL_PACKAGES})
    usual = {name: most_common({host: one.get(name, "") for host, one in packages.items()}) for name in names}
    for host, one in packages.items():
        unlike = [
            f"{name} {one.get(name) or 'missing'} ({usual[name] or 'none'} elsewhere)" for name in names if one.get(name, "") != usual[name]
        ]
        found = join_names(unlike, MAX_SHOWN) if unlike else f"{len(names)} are the same"
        yield OTHER_PACKAGES.on(host, not unlike, found, refuses=refuses)


_UNLIKE = "use hosts of one kind, or exclude the different one: place.exclude"
ENOUGH_GPUS = refusal(
    name="GPUs for its ranks",
    what="that each host has the GPUs that its slots, or place.include, ask of it",
    prevents="CUDA error: invalid device ordinal, on one host's ranks",
    fix="correct the slots of the hostfile, or place.include; `nvidia-smi -L` on the host lists what it has",
)
GPUS = refusal(
    name="GPU model",
    what="that the GPUs are the same on all hosts; refused with place.alike: refuse, else a warning",
    prevents="steps as slow as the slowest card everywhere, and CUDA out of memory on the smallest; no error names the cause",
    fix=_UNLIKE,
)
DRIVER = refusal(
    name="GPU driver version",
    what="that the GPUs' driver is the same on all hosts; refused with place.alike: refuse, else a warning",
    prevents="The NVIDIA driver on your system is too old, on one host's ranks; or hosts that are slower than others",
    fix="update the driver of the odd hosts",
)
CPU = refusal(
    name="processor",
    what="that the processors have the same model and number; refused with place.alike: refuse, else a warning",
    prevents="data loading and start-up as slow as the slowest host; no error is shown",
    fix=_UNLIKE,
)
MEMORY = refusal(
    name="host memory",
    what="that the hosts have the same memory, give or take a twentieth; refused with place.alike: refuse, else a warning",
    prevents="Killed (exit code -9 or 137), on the ranks of the smallest host",
    fix=_UNLIKE,
)
HARDWARE_CHECKS = (ENOUGH_GPUS, GPUS, DRIVER, CPU, MEMORY)
# Firmware reserves some, so equal hosts differ a little.
MEMORY_RATIO = 0.05


def check_hardware(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    facts = {host: answers.facts[host] for host in need.names if host in answers.facts}
    refuses, labels = need.place.alike == "refuse", answers.labels
    if need.gpus:
        yield from (_enough_gpus(spec, facts[spec.name], answers) for spec in need.hosts if spec.name in facts)
    compared = [
        (CPU, {host: f"{one.cpu_count} x {one.cpu}" for host, one in facts.items()}),
        (MEMORY, memory_texts({host: one.memory_bytes for host, one in facts.items()})),
    ]
    if any(one.gpus for one in facts.values()):
        drivers = {host: one.driver_version for host, one in facts.items()}
        compared = [(GPUS, {host: cards(one.gpus) for host, one in facts.items()}), (DRIVER, drivers), *compared]
    for definition, values in compared:
        yield from compare_hosts(definition, values, refuses=refuses, labels=labels)


def memory_texts(sizes: dict[str, int]) -> dict[str, str]:
    """Host → its memory; sizes within a twentieth get the same text."""
    texts: dict[str, str] = {}
    for host, size in sizes.items():
        like = next((known for known in texts if abs(sizes[known] - size) <= MEMORY_RATIO * max(size, 1)), None)
        texts[host] = texts[like] if like else f"{size / GIB:.0f} GiB"
    return texts


def cards(names: Sequence[str]) -> str:
    """`8 x NVIDIA H100 80GB HBM3`."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names).items()))


def _enough_gpus(spec: HostSpec, facts: HostFacts, answers: Answers) -> HostCheck:
    wanted_ids = [int(device) for device in spec.devices if device.isdigit()]
    needed = max([spec.ranks, *(number + 1 for number in wanted_ids)]) if wanted_ids or not spec.devices else spec.ranks
    hung = problem_in(answer_part(answers.first, spec.name, "gpus"))
    found = f"{len(facts.gpus)} GPUs, {needed} needed" + (f" ({hung})" if hung else "")
    # A driver that does not answer does not prove that there are no GPUs.
    return ENOUGH_GPUS.on(spec.name, len(facts.gpus) >= needed, found, refuses=not hung)


OTHER_CAMPAIGNS = warning(
    name="running campaigns",
    what="that no agent of another Seatrial campaign runs on a host",
    prevents="two campaigns that slow each other down; no error is shown",
    fix="wait for it, or end it with `seatrial stop` and its folder",
    noise=True,
)
CAMPAIGN_CHECKS = (OTHER_CAMPAIGNS,)
MAX_NAMED = 3


def check_other_campaigns(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    """Agents of other campaigns. What an earlier attempt of this campaign left running does not count: the next agent ends it."""
    for host in need.names:
        if host not in answers.facts:
            continue
        others = [folder for folder in answers.facts[host].campaigns if Path(folder) != Path(need.output)]
        yield OTHER_CAMPAIGNS.on(host, not others, ", ".join(others[:MAX_NAMED]) or "none")


MAX_OFF_S = 1.0

CLOCK = warning(
    name="clock",
    what="how far each host's wall clock is ahead of the head's; Seatrial measures it during every run too, and lays events of all "
    "hosts side by side by the measured offset",
    prevents="logs of several hosts that cannot be laid side by side, files from the future (make: Clock skew detected), certificates and "
    "tokens that are not valid yet; no error names the cause",
    fix="start chrony or systemd-timesyncd there (`timedatectl set-ntp true`)",
)
CLOCK_CHECKS = (CLOCK,)


def check_clocks(need: HostsNeed, answers: Answers) -> Iterator[HostCheck]:
    for host in need.names:
        clock = answers.first[host].clock if answers.answered(host) else None
        if clock is None:
            continue
        doubt_s = clock.round_trip_s / 2
        off = abs(clock.offset_s) - doubt_s > MAX_OFF_S
        found = f"{offset_text(clock.offset_s)} (within {doubt_s * 1000:.0f} ms)"
        yield CLOCK.on(host, not off, f"{found}; events are corrected by what is measured" if off else found)


def offset_text(offset_s: float) -> str:
    """`3600.0 s ahead`."""
    return f"{abs(offset_s):.1f} s {'ahead' if offset_s > 0 else 'behind'}" if abs(offset_s) >= 0.05 else "the same"
