"""Ready ways to read the lines of scripts that know nothing of Seatrial.

A format is a list of regular expressions with named groups. Each line is searched (not matched) with every expression; what the
groups found is put together until a line brings a new `step`. Group names:

    step               step or iteration number               required somewhere in a format
    iter_ms iter_s     time of a step as the script itself printed it
    samples tokens     work of one rank in one step
    samples_per_s tokens_per_s      the script's own rate, shown beside ours
    loss

The wall clock is not taken from the text: every chunk of output is stamped when it arrives.
"""

from __future__ import annotations

from seatrial.records.run_spec import LogPatterns

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
GROUP_NAMES = ("step", "iter_ms", "iter_s", "samples", "tokens", "samples_per_s", "tokens_per_s", "loss")

READY: dict[str, LogPatterns] = {
    "seed": LogPatterns(name="seed", lines=(rf"\bStep (?P<step>\d+): Loss (?P<loss>{NUMBER}|nan)",)),
    "nanogpt": LogPatterns(name="nanogpt", lines=(rf"\biter (?P<step>\d+): loss (?P<loss>{NUMBER}|nan), time (?P<iter_ms>{NUMBER})\s*ms",)),
}
