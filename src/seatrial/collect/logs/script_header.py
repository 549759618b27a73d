"""What a script prints about itself (work of a step, number of ranks), and the work of each row of the step table.

In: lines of launcher.log, the run's spec, and what its agent saw of its ranks. Out: `ScriptHeader`, `RankCount`, and `StepWork` with the
samples and tokens of one rank in one step, each with its source. A value of the plan comes before one of the log.

Scripts print the work of all ranks together; the step table holds that of one rank, which every figure multiplies by the number of ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from seatrial.collect.logs.launcher_log import StampedLine
from seatrial.core.log_lines import strip_colours
from seatrial.core.text import count
from seatrial.records.caution import Caution, Number
from seatrial.records.launch import COMMAND_LAUNCHERS, ObservedRanks
from seatrial.records.plan import RunSpec, WorkloadSpec

_COUNT = r"(\d[\d,]{0,17})\b"
# Fact → expressions, by what prints them. Samples and tokens are those of all ranks in one optimiser step.
HEADER_LINES: dict[str, tuple[re.Pattern[str], ...]] = {
    "samples": (
        # Hugging Face Trainer, and scripts written after it.
        re.compile(rf"\bTotal train batch size \(w\. parallel, distributed & accumulation\) = {_COUNT}"),
        # torchtitan.
        re.compile(rf"\blocal batch size [\d,]+, global batch size {_COUNT}"),
        # Megatron-LM's list of arguments.
        re.compile(rf"\bglobal_batch_size \.{{3,}} {_COUNT}"),
    ),
    "tokens": (re.compile(rf"\btokens per iteration will be: {_COUNT}"),),
    "sequence_length": (
        re.compile(rf"\bglobal batch size [\d,]+, .*\bsequence length {_COUNT}"),
        re.compile(rf"\bseq_length \.{{3,}} {_COUNT}"),
    ),
    "world_size": (
        re.compile(rf"\busing world size: {_COUNT}"),
        # Lightning.
        re.compile(rf"\bAll distributed processes registered\. Starting with {_COUNT} processes"),
    ),
}
# Every line with a fact holds one of these.
HEADER_WORDS = (
    *("Total train batch size", "local batch size", "global_batch_size", "seq_length", "tokens per iteration will be"),
    *("using world size", "distributed processes registered"),
)
HEADER_KEYWORDS = tuple(word.encode() for word in HEADER_WORDS)
LONGEST_QUOTE = 160
WORK = ("samples", "tokens")


@dataclass(frozen=True, kw_only=True)
class PrintedFact:
    """A number that the script printed about itself."""

    value: int
    line: str


@dataclass(frozen=True, kw_only=True)
class ScriptHeader:
    """By fact: `samples` and `tokens` of all ranks in one step, `sequence_length`, `world_size`."""

    facts: dict[str, PrintedFact] = field(default_factory=dict)
    contradictory: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Facts printed with several values; not used."""

    @property
    def tokens(self) -> PrintedFact | None:
        """Tokens as printed, else samples times sequence length."""
        samples, length = self.facts.get("samples"), self.facts.get("sequence_length")
        if "tokens" in self.facts or samples is None or length is None:
            return self.facts.get("tokens")
        line = samples.line if samples.line == length.line else f"{samples.line}' and '{length.line}"
        return PrintedFact(value=samples.value * length.value, line=line)


def read_header(lines: Iterable[StampedLine]) -> ScriptHeader:
    """Every fact in the lines; one that is printed with different values belongs to more than one training."""
    found: dict[str, dict[int, str]] = {}
    for line in lines:
        if not any(word in line.text for word in HEADER_WORDS):
            continue
        text = strip_colours(line.text)
        for fact, patterns in HEADER_LINES.items():
            match = next((match for pattern in patterns if (match := pattern.search(text))), None)
            if match and (value := int(match[1].replace(",", ""))) > 0:
                found.setdefault(fact, {}).setdefault(value, text.strip()[:LONGEST_QUOTE])
    return ScriptHeader(
        facts={fact: PrintedFact(value=value, line=line) for fact, by in found.items() if len(by) == 1 for value, line in by.items()},
        contradictory={fact: tuple(sorted(by)) for fact, by in found.items() if len(by) > 1},
    )


@dataclass(frozen=True, kw_only=True)
class RankCount:
    """The number of ranks of a run."""

    size: int
    """If unknown, the plan's, which then is not used."""
    is_known: bool = True
    source: str = ""
    """Its source, if not the plan; for an unknown number, the reason."""


def count_ranks(spec: RunSpec, observed: ObservedRanks | None, header: ScriptHeader) -> RankCount:
    """Number of ranks by the rank variables of processes, else by the log, else by the plan.

    A plan counts one rank for a program that it does not know, such as a shell: where that program started a launcher, and neither
    variables nor the log show its ranks, the number is unknown."""
    planned, sizes = spec.place.ranks, observed.world_sizes if observed else ()
    if len(sizes) == 1:
        return RankCount(size=sizes[0], source="" if sizes[0] == planned else "WORLD_SIZE of its processes")
    if (printed := header.facts.get("world_size")) is not None and not sizes:
        return RankCount(size=printed.value, source="" if printed.value == planned else f"the log: '{printed.line}'")
    # Seatrial starts the ranks itself or was given their number.
    if planned > 1 or (spec.launcher.kind in ("torchrun", "deepspeed") and not _leaves_ranks_open(spec)):
        return RankCount(size=planned)
    why = _why_unknown(spec, observed)
    return RankCount(size=planned, is_known=not why, source=why)


def _why_unknown(spec: RunSpec, observed: ObservedRanks | None) -> str:
    """Why the number is unknown for a run that the plan counts as one rank; empty where it is one."""
    if observed is not None and len(observed.world_sizes) > 1:
        return f"its processes had different numbers in WORLD_SIZE ({', '.join(map(str, observed.world_sizes))})"
    if observed is not None and observed.spawned > 1:
        return f"it started {observed.spawned} processes by multiprocessing, without rank variables"
    if observed is not None and observed.forked > 1:
        return f"it forked {observed.forked} processes that worked while it waited, and a fork shows no rank variables"
    if _leaves_ranks_open(spec):
        return f"it was left to torchrun (nproc_per_node), and {_not_seen(observed)}"
    # accelerate sets no variables where it starts a single process; the others always do.
    launchers = [name for name in observed.launchers if name != "accelerate"] if observed is not None else _launchers_in(spec)
    if launchers and spec.launcher.kind == "command":
        return f"it was started through {' and '.join(launchers)}, and {_not_seen(observed)}"
    return ""


def _not_seen(observed: ObservedRanks | None) -> str:
    """Why no ranks were seen: ranks may end between two samples."""
    looks = f" at {count(observed.looks, 'look')}: ranks that ran for less than a few seconds may have been missed" if observed else ""
    return f"no process with rank variables was seen{looks}"


def _leaves_ranks_open(spec: RunSpec) -> bool:
    """`--nproc_per_node auto` stays among the launcher's arguments; a number becomes the plan's."""
    return any("nproc_per_node" in argument.replace("-", "_") for argument in spec.launcher.args)


def _launchers_in(spec: RunSpec) -> list[str]:
    """Launchers in the command, for attempts whose agent recorded none."""
    words = re.split(r"[^\w./-]+", " ".join((spec.workload.script or "", *spec.workload.args)))
    return list(dict.fromkeys(name for word in words if word and (name := PurePath(word).name) in COMMAND_LAUNCHERS))


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """What is known about the work of one step, apart from step lines."""

    ranks: int
    """Work of all ranks is divided by this."""
    typed: dict[str, float] = field(default_factory=dict)
    """`samples` and `tokens` of one rank, from the plan. Empty if the number of ranks is unknown: totals would be wrong."""
    printed: dict[str, int] = field(default_factory=dict)
    """`samples`, `tokens` of all ranks and `sequence_length`, from the log."""
    takes_lines: bool = True
    """Whether `samples` and `tokens` in a line, which are one rank's, count."""

    def of_line(self, values: Mapping[str, float]) -> dict[str, float | None]:
        """Samples and tokens of one rank in the step of a line. The plan's own patterns come first, then the plan's number, the line's
        total of all ranks (a batch may grow), and the header's."""
        of_all = {**self.printed, **{name: values[f"global_{name}"] for name in WORK if f"global_{name}" in values}}
        if "global_samples" in values and "global_tokens" not in values and "sequence_length" in self.printed:
            of_all["tokens"] = values["global_samples"] * self.printed["sequence_length"]
        shared = {name: of_all[name] / self.ranks for name in WORK if name in of_all}
        found = {**shared, **self.typed, **({name: values[name] for name in WORK if name in values} if self.takes_lines else {})}
        return {name: found.get(name) for name in WORK}


def work_of_a_step(workload: WorkloadSpec, ranks: RankCount, header: ScriptHeader) -> StepWork:
    """The work by the plan and the header."""
    typed = {"samples": workload.samples_per_step, "tokens": workload.tokens_per_step}
    facts = {**header.facts, **({"tokens": header.tokens} if header.tokens else {})}
    return StepWork(
        ranks=ranks.size,
        typed={name: value for name, value in typed.items() if value is not None and ranks.is_known},
        printed={name: fact.value for name, fact in facts.items() if name in (*WORK, "sequence_length")},
        takes_lines=ranks.is_known,
    )


def work_cautions(workload: WorkloadSpec, ranks: RankCount, header: ScriptHeader) -> Iterator[Caution]:
    """Sources of samples, tokens and the number of ranks, and contradictions between them."""
    if not ranks.is_known:
        yield Caution(
            kind="ranks_unknown",
            text=f"The number of ranks is unknown: {ranks.source}. Figures per rank, and samples and tokens that the plan gives per rank, "
            "are left out. Start the ranks through torchrun or deepspeed without a shell in between, or use the probe.",
        )
    elif ranks.source:
        yield Caution(kind="ranks_observed", numbers={"ranks": ranks.size}, text=f"{count(ranks.size, 'rank')}, from {ranks.source}.")
    for name, fact in (("samples", header.facts.get("samples")), ("tokens", header.tokens)):
        typed: float | None = getattr(workload, f"{name}_per_step")
        numbers: dict[str, Number] = {f"{name}_per_step": fact.value if fact else None}
        if fact is None:
            yield from _contradiction(name, header.contradictory.get(name, ()))
        elif typed is None or not ranks.is_known:
            text = f"{name.capitalize()} per step {fact.value:,}, from the log: '{fact.line}'."
            yield Caution(kind="work_from_log", numbers=numbers, text=text)
        elif (ours := typed * ranks.size) != fact.value:
            yield Caution(
                kind="work_disagrees",
                numbers={**numbers, "typed": ours},
                text=f"{name.capitalize()} per step: {ours:,g} by the plan ({typed:,g} on each of {count(ranks.size, 'rank')}), but the "
                f"log says {fact.value:,}: '{fact.line}'. The plan's are used: check {name}_per_step, or leave it out.",
            )


def _contradiction(name: str, values: Sequence[int]) -> Iterator[Caution]:
    if values:
        yield Caution(
            kind="work_contradictory",
            numbers={"values": ", ".join(map(str, values))},
            text=f"The log gives several numbers of {name} per step ({', '.join(f'{value:,}' for value in values)}), so none is used: set "
            f"{name}_per_step.",
        )
