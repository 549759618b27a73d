"""Field names of event and heartbeat lines: the contract between the probe and everything that reads it.

One JSON object a line, nothing nested. Every line starts with `v run attempt rank t m kind` (`t` wall clock, `m` monotonic,
both in seconds). Per kind:

    start      pid host world_size launched_by signal(at which it writes its stacks, "USR2"; or null) process_t(wall clock of its beginning)
               local_rank(null where unknown) gpu(its entry of CUDA_VISIBLE_DEVICES, else its number; null on CPU)
    process_group  backend size transport(null where unknown) interface(null where none is named)
               torch.distributed's default group as this rank sees it, once it is initialised and whenever it is another one
    span       name span_ms                    a named part of the start-up (SPANS), written when it ended
    effective  setting requested effective reason follows(settings it may follow, separated by commas; only where there are any)
    step       step iter_ms samples tokens data_wait_ms preprocess_ms fwd_ms bwd_ms step_ms loss
    pause      name step pause_ms              a named pause (eval, checkpoint, compile) that ended before `step` did
    memory     step allocated_mib reserved_mib peak_mib rss_mib
    figure     name value unit n               a figure reported by the workload; the last one of a name counts
    halt       step at_step                    the rank stops here because of halt.json (attempt, at_step, reason: stop before that step)
    stop       step steps

A `step` line is one unit of work: a training step; for a server it would be a request, with the same fields.

Steps count from 0, so N steps are 0 to N-1, and a heartbeat's `step` is the last one that ended, null before. `iter_ms` is wall
time from step end to step end on the monotonic clock, without pauses; for the first step, from its own start. Phases that were not
measured are null. A loss that is not finite is "nan", "inf" or "-inf".
"""

from __future__ import annotations

EVENT_VERSION = 1
PHASES = ("data_wait_ms", "preprocess_ms", "fwd_ms", "bwd_ms", "step_ms")
STEP_FIELDS = ("step", "iter_ms", "samples", "tokens", *PHASES, "loss")
HEARTBEAT_FIELDS = ("ts", "iso", "pid", "rank", "step", "msg", "phase", "attempt", "host", "step_t", "iter_ms_p50", "paused_s")
"""`step_t` is when `step` ended, `iter_ms_p50` the median of the newest steps, `paused_s` all named pauses up to `step_t`; null before."""
SPANS = ("process_group", "model", "ops_build", "data", "tokenise", "compile")
STARTUP_PARTS = ("launch", "import", *SPANS, "first_step", "other")
"""Launch to process, process to probe, the named spans, the first step itself, and the rest."""
HEARTBEAT_EVERY_S = 5.0
PROCESS_GROUP = "process_group"
# The start event is the first line, but torn or foreign ones may precede it.
START_EVENT_WITHIN_LINES = 20
FIGURE_NAME = r"[A-Za-z0-9_]{1,100}"
"""A name for `probe.figure`; a criterion refers to it as `reported.NAME`."""

# The table that every reader of steps returns, from events or from a script's own lines (there: a row per printed line, `span` steps long).
STEP_TABLE_COLUMNS = ("rank", "step", "span", "t", "m", *STEP_FIELDS[1:])
PAUSE_TABLE_COLUMNS = ("rank", "step", "name", "pause_ms")

# Rank, world size and local rank must come from the same launcher: sbatch sets SLURM_NTASKS around a torchrun with other numbers.
RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
)

# Variables that the harness sets for the probe.
ENV_RUN_DIR = "SEATRIAL_RUN_DIR"
ENV_RUN = "SEATRIAL_RUN"
ENV_ATTEMPT = "SEATRIAL_ATTEMPT"
ENV_RANK_SCOPE = "SEATRIAL_RANK_SCOPE"
ENV_SYNC_TIMING = "SEATRIAL_SYNC_TIMING"
ENV_PHASE_EVERY = "SEATRIAL_PHASE_EVERY"
ENV_TIMING_WINDOW = "SEATRIAL_TIMING_WINDOW"
ENV_STACK_SIGNAL = "SEATRIAL_STACK_SIGNAL"
ENV_ETA_MODE = "SEATRIAL_ETA_MODE"
ENV_ETA_MIN_SAMPLES = "SEATRIAL_ETA_MIN_SAMPLES"
ENV_RESUME_FROM = "SEATRIAL_RESUME_FROM"
"""The folder of an earlier attempt of the same run whose checkpoint this one resumes from; unset where it starts at step 0."""
