"""What is no failure of a run and yet makes people look for help. Part of the registry: collect.signatures."""

from __future__ import annotations

from seatrial.collect.signature import DEEPSPEED, STAGE1, Signature
from seatrial.records.outcome import Cause

OF_REPORTS: tuple[Signature, ...] = (
    Signature(
        id="telemetry_empty",
        symptom="`gpu_telemetry.csv` or `host_telemetry.csv` without a row; `gpu_telemetry_empty_flag` is true (1 in older tables)",
        cause=Cause.NONE,
        why="No source answered the sampler, or the run was over before its first sample.",
        action="See that the driver answers (`nvidia-smi`) and that /proc can be read: `seatrial doctor` looks at both. Of a run that "
        "ended at once an empty file is to be expected.",
        caution="telemetry_empty",
        topics=(STAGE1,),
    ),
    Signature(
        id="disk_trouble",
        symptom="`… bytes were kept elsewhere while the disk failed`",
        cause=Cause.NONE,
        why="The output's disk failed (`Input/output error`, full, read-only) while Seatrial wrote; the rows were kept and no run was "
        "lost.",
        action="Mend the disk; `seatrial report FOLDER` then puts back what it can and names the rest. Compare figures of that time with "
        "care.",
        caution="kept_elsewhere",
        topics=(STAGE1,),
    ),
    Signature(
        id="slow_start",
        symptom="minutes before the first step of a DeepSpeed run; `Start-up` in summary.md shows where they go",
        cause=Cause.NONE,
        why="Ops such as FusedAdam are compiled when they are first used, and again in every new container.",
        action="Build them once, in the image (DS_BUILD_FUSED_ADAM=1 at DeepSpeed's installation), or keep TORCH_EXTENSIONS_DIR on a disk "
        "that outlives the container; `torch_adam: true` builds nothing. Until then raise limits.start_s.",
        topics=(STAGE1, DEEPSPEED),
    ),
    Signature(
        id="manifest_header",
        symptom="`run_manifest.tsv` of another version, whose header differs",
        cause=Cause.NONE,
        why="Columns came with a new version. What is finished is known by each run's own folder and hash, not by the manifest.",
        action="Nothing to do: the table is widened and keeps its rows, and no run that Seatrial has finished is made again.",
        topics=(STAGE1,),
    ),
    Signature(
        id="driver_log_folder",
        symptom="`tee: outputs/…/driver.log: No such file or directory`",
        cause=Cause.NONE,
        why="`| tee` opens its file before the driver has made the output folder.",
        action="Set DRIVER_LOG_PATH in place of `tee`, or make the folder first (`mkdir -p`).",
        topics=(STAGE1,),
    ),
    Signature(
        id="ranks_left_behind",
        symptom="GPU memory that stays taken after Ctrl-C",
        cause=Cause.NONE,
        why="Ranks of a job that was started without Seatrial outlive their launcher; those of a run are ended with it, whatever happens.",
        action="End them before the next run: `seatrial doctor` and `nvidia-smi` name the processes.",
        topics=(STAGE1,),
    ),
)
