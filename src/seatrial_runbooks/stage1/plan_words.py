"""A sentence of the harness about a plan or an option, in the words of the driver. In: text. Out: the same with the variables' names."""

from __future__ import annotations

PLAN_WORDS = {
    "place.ranks": "WORLD_SIZE",
    "place.include": "INCLUDE",
    "place.hostfile": "HOSTFILE",
    "place.port": "MASTER_PORT",
    "output: ": "OUTPUT_ROOT: ",
    "choose another with --out": "choose another OUTPUT_ROOT",
    "the same plan without --again resumes": "RESUME_RUNS=true goes on where it stopped",
}


def in_driver_words(text: str) -> str:
    """With the variables in place of keys and options that nobody typed."""
    for word, variable in PLAN_WORDS.items():
        text = text.replace(word, variable)
    return text
