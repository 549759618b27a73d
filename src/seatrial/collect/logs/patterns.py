"""Patterns of the lines that decide how a job ended: good and bad ends, restarts, progress bars, tracebacks."""

from __future__ import annotations

import re

# In log lines of torchrun's own modules.
ELASTIC = "distributed/elastic/"
# After NCCL's error of a rank comes the address it could not reach.
LAST_ERROR = "Last error:"
# What is printed when training is over and all went well: a sentence of its own, behind a logger's prefix at most, and not about an epoch.
GOOD_END = re.compile(
    r"'train_runtime': |\btrain_runtime\s+=|exits successfully\.$|^\[after training is done\]"
    r"|^`Trainer\.fit` stopped: `max_\w+=\S+` reached"
    r"|(?:^\W{0,5}|[\]:|>] *|- +)[Tt]raining (?:has |is )?(?:completed|finished|complete|done)\b(?!.*\b(?:[Ee]poch|valid|val\b))"
)
# A script that says how its program ended: with an exit status, which goes to 255 (an HTTP status does not), or that the training failed,
# not its data or another one that is spoken of.
BAD_STATUS = re.compile(
    r"\b(?:exit(?:ed)?|return(?:ed)?|finished|ended|done)\b.{0,12}?\b(?:status|code)\W{1,3}-?(?:[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])(?!\d)"
    r"|\b(?:finished|ended|completed?|done) with (?:errors\b|[1-9]\d{0,8} (?:failed|failures?|errors?)\b)"
    r"|^\W{0,5}\w+ (?:finished|ended|complete|done)\W{1,4}FAILED\b"
    r"|(?:^\W{0,5}|[\]:|>] *|- +)(?:the )?(?:training|job|run|trial|experiment)(?: (?:run|job|script|process|\S{0,3}\d{1,9}))?"
    r"(?: (?:has|was|is))?(?: (?:finished|ended|stopped|completed?)\b[^.]{0,60})?[ :,]{1,3}(?:loss |it )?(?<!\b0 )(?<!\bno )"
    r"(?:failed|aborted|crashed|diverged|did ?n[o']t (?:complete|finish|converge))\b",
    re.IGNORECASE,
)
# Where a line begins within a line: at a carriage return, or with another rank's prefix behind a line that was not ended. Not behind
# other prefixes, nor quoted.
LINE_BEGINS = re.compile(r"""\r|(?<=[^\s:'"(`])(?=\[rank\d{1,9}\]:)""")
# What Python draws before the lines of a group of exceptions.
GROUP_BARS = re.compile(r"^ {2,20}[|+] (?=\S|  )")
CLOSED_PIPE = "BrokenPipeError"
# The job or a part of it restarts.
RESTART = re.compile(r"\b(?:will restart|restart(?:ing|ed)|relaunch\w*|resum(?:e|ed|ing)|retry(?:ing)?|attempt \d{1,4})\b", re.IGNORECASE)
# As tqdm, rich and Keras draw it; and tqdm's of unknown length.
PROGRESS_BAR = re.compile(
    r"(?:\|[^|]{0,400}\|\s*|[━╸╺] +)(?P<done>\d{1,12})/(?P<total>\d{1,12}) [\[\d]"
    r"|^\s{0,5}(?P<done2>\d{1,12})/(?P<total2>\d{1,12}) (?:\[[=>.]{5,80}\]|━)"
    r"|^(?:.{0,80}: )?(?P<done3>\d{1,12})it \["
)
# The first frame of a traceback from the top of a program.
TOP_OF_PROGRAM = re.compile(r"(?:,|:\d{1,9}) in (?:<module>|_run_module_as_main)\s*$")
# As rich draws a traceback: in a box, with the exception below it.
BOXED_HEAD = re.compile(r"^╭─+ Traceback \(most recent call last\) ─+╮")
BOX_SIDES = ("│", "╰")
# Above each thread's frames, as faulthandler prints them for a crash.
STACK_HEAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]{4,16} .{0,80}\(most recent call first\):")
INTERRUPT = "KeyboardInterrupt"
# Of Lightning, which then ends in good order.
CAUGHT_INTERRUPT = re.compile(r"^(?:\W{0,5}|.{0,60} )Detected KeyboardInterrupt\b")
# torchrun's own exception when it is sent TERM, as by a scheduler.
TERMINATED = "SignalException"


def progress(line: str) -> tuple[str, str] | None:
    """Position and length of a progress bar; the length is empty if unknown."""
    match = PROGRESS_BAR.search(line)
    if match is None:
        return None
    return match["done"] or match["done2"] or match["done3"], match["total"] or match["total2"] or ""
