"""Ready ways to read the lines of scripts that know nothing of Seatrial.

A format is a list of regular expressions with named groups. Each line is searched (not matched) with every expression; what the
groups found is put together until a line brings a new `step`. Group names:

    step               step or iteration number               required somewhere in a format
    total              length of the bar the step is of: lines with another total are of another bar (tokenising, evaluation)
    iter_ms iter_s     time of a step as the script itself printed it; used only where no arrival times were kept
    samples tokens     work of one rank in one step
    samples_per_s tokens_per_s      the script's own rate, shown beside ours
    loss
    pause              no number: a match shows that something else than training took place, and the row that follows holds it

The wall clock is not taken from the text: every chunk of output is stamped when it arrives. Colours are taken out of a line
before it is searched; numbers may carry thousands commas.
"""

from __future__ import annotations

from seatrial.records.run_spec import LogPatterns

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
PAUSE = "pause"
GROUP_NAMES = ("step", "total", "iter_ms", "iter_s", "samples", "tokens", "samples_per_s", "tokens_per_s", "loss", PAUSE)

_LOSS = rf"(?P<loss>{NUMBER}|-?[nN]a[nN]|-?inf)"
_BAR = r"\|[^|]*\|\s*(?P<step>\d+)/(?P<total>\d+|\?) \[[^\]]*"

READY: dict[str, LogPatterns] = {
    "seed": LogPatterns(name="seed", lines=(rf"(?<!Val )\bStep (?P<step>\d+): Loss {_LOSS}",)),
    # The bar of an evaluation is nested under that of the training, and tqdm ends it with "cursor up": it must not count.
    "hf_trainer": LogPatterns(name="hf_trainer", lines=(rf"^\s*\d+%{_BAR}\](?!\x1b\[A)", rf"\{{'loss': '?{_LOSS}'?[,}}]")),
    "deepspeed": LogPatterns(
        name="deepspeed",
        lines=(
            r"\[Rank 0\] step=(?P<step>\d+), skipped=\d+",
            r"(?:global_step=|\] \d+/)(?P<step>\d+), (?:RunningAvg)?SamplesPerSec=",
            rf"CurrSamplesPerSec=(?P<samples_per_s>{NUMBER})",
        ),
    ),
    "torchtitan": LogPatterns(
        name="torchtitan",
        lines=(rf"(?<!validate )\bstep:\s*(?P<step>[\d,]+)\s+loss:\s*{_LOSS}", r"(?<!validate )\bstep:.*\btps: (?P<tokens_per_s>[\d,]+)"),
    ),
    "lightning": LogPatterns(
        name="lightning",
        lines=(rf"^\s*Epoch \d+:\s+(?:\d+%)?{_BAR}", rf"^\s*Epoch \d+:.*[\s,](?:train[_/])?loss(?:_step)?={_LOSS}"),
    ),
    "nanogpt": LogPatterns(
        name="nanogpt",
        lines=(rf"\biter (?P<step>\d+): loss {_LOSS}, time:? (?P<iter_ms>{NUMBER})\s*ms",),
    ),
}

# A line that a ready format reads, a pause included, has one of these in it: a hundred megabytes of other output is passed over by them.
TELLING = tuple(word.encode() for word in ("tep", "iter ", "oss", "|", "Epoch", "SamplesPerSec", "Timing", "aving", "aved", "alid", "eval"))

# Formats whose step is that of a progress bar: it shows how many steps are done, so the first one shows as 1/N.
BARS = ("hf_trainer", "lightning")

# Lines that show that something else than training took place before the next step: name of the pause → expression. The row of
# that step then holds more than steps, and is left out of the window as a named pause is.
PAUSE_LINES: dict[str, dict[str, str]] = {
    "seed": {"eval": r"Validation Finished for Step", "checkpoint": r"\bSaving .*checkpoint|Saved checkpoint"},
    "hf_trainer": {"eval": r"'eval_(?:loss|runtime)':", "checkpoint": r"Saving model checkpoint"},
    "deepspeed": {"checkpoint": r"Saving model checkpoint|\[Torch\] Saved "},
    "torchtitan": {"eval": r"validate step:", "checkpoint": r"Saving the checkpoint|Finished saving the checkpoint"},
    "lightning": {"eval": r"^\s*Validat(?:ion|ing)\b.*\|\s*\d+/"},
    "nanogpt": {"eval": r"\bstep \d+: train loss .*val loss", "checkpoint": r"saving checkpoint to"},
}
