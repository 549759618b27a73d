"""Long runs that would be for nothing are refused unless confirmed: one that leaves no weights, and one of a toy by mistake. And what
both command lines say of that and of their exit codes."""

from __future__ import annotations

from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.sparse_lm.settings import BYTE_VOCABULARY, Settings

YES = "--yes"
CONFIRMS = "confirm a run of more than 2,000 steps that would leave no checkpoint, or of more than 200 of the default toy"
EXIT_CODES = (
    "Exit code: 0 all steps done, or ended by .HALT (metrics.json has the status), 1 refused or failed, also by a loss that is not finite, "
    "143 ended by TERM."
)
LONG_STEPS, TOY_STEPS = 2000, 200
TOY_PARAMETERS = 10_000_000


def check_long_run(settings: Settings, *, is_named: bool) -> None:
    """`is_named`: the user named the model's size, in a configuration or by settings."""
    every = settings.checkpoint_every
    if settings.steps > LONG_STEPS and (every is None or every > settings.steps):
        when = "no checkpoint is configured" if every is None else f"the first checkpoint would be after step {every}"
        raise StartupError(
            f"{settings.steps} steps, and {when}: the training would leave nothing; "
            f"set train.save_every (checkpoint_every) to {settings.steps} or less, or confirm with {YES}"
        )
    parameters = settings.shape(BYTE_VOCABULARY).num_parameters
    if settings.steps > TOY_STEPS and parameters < TOY_PARAMETERS and not is_named:
        raise StartupError(
            f"{settings.steps} steps of the default model, a toy of {parameters:,} parameters: name its size (--dim, --n_layers, …, "
            f"or --settings FILE), or confirm with {YES}"
        )
