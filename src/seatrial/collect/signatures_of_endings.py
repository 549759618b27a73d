"""Ends of a run that no single line tells: limits that were passed, exit codes, ranks that are missing. Part of the registry:
collect.signatures.
"""

from __future__ import annotations

from seatrial.collect.signature import DEEPSPEED, STAGE1, Signature
from seatrial.records.outcome import Cause

OF_ENDINGS: tuple[Signature, ...] = (
    Signature(
        id="start_limit",
        symptom="no `train.log` and heartbeats that wait; `no first step … within … (limits.start_s)`",
        cause=Cause.START_LIMIT,
        why="The launcher failed or hangs before the training begins: another node, a download, a compiler, or storage that does not "
        "answer.",
        action="Read launcher.log for where it stands, and see that the output folder can be written and its storage is well; raise "
        "limits.start_s (MAX_WAIT_TRAIN_LOG_SEC) when loading or compiling really takes longer.",
        topics=(STAGE1,),
    ),
    Signature(
        id="run_limit",
        symptom="`still running after … (limits.run_s)`; in manifests of the original driver exit code 124, or 125 and a `last_step` that "
        "stood still",
        cause=Cause.RUN_LIMIT,
        why="The run took longer than it may: too many steps for the time, a slow machine, or a standstill that nothing else ended.",
        action="Raise limits.run_s (RUN_TIMEOUT_SEC), lower steps, or look in launcher.log for what takes the time; where it stood at one "
        "step, limits.stall ends it sooner and says where each rank stands.",
        topics=(STAGE1,),
    ),
    Signature(
        id="stall",
        symptom="`no step for …`: training stands at one step, or several GPUs of one host never come to a normal pace",
        cause=Cause.STALL,
        why="Ranks wait for what does not come: a collective that not every rank reaches, a loader whose worker is gone, or GPUs of one "
        "host that do not reach one another directly (NCCL P2P).",
        action="Where GPUs of one host stand in a collective (stacks/ in the attempt's folder shows it), run again with "
        "NCCL_P2P_DISABLE=1 in `env`, or before the stage-1 command: for that host only, never as a default.",
        topics=(STAGE1,),
    ),
    Signature(
        id="suspended",
        symptom="`rank N is suspended (SIGSTOP)`",
        cause=Cause.SUSPENDED,
        why="Somebody or something stopped a process of the run, and the others waited for it.",
        action="Find out what stops processes on this host (Ctrl-Z in a shell, a debugger, a scheduler), then run again.",
    ),
    Signature(
        id="memory_limit",
        symptom="`its processes hold … of memory (… limits.memory_gib …)`",
        cause=Cause.MEMORY_LIMIT,
        why="The run's processes took more memory than the plan allows.",
        action="See in host_telemetry.csv whether it grew all the while (a leak) or from the start: lower the batch or the number of data "
        "workers, or raise limits.memory_gib.",
    ),
    Signature(
        id="disk_limit",
        symptom="`its logs and events take … (… limits.disk_gib)`",
        cause=Cause.DISK_LIMIT,
        why="The run printed or recorded more than the plan allows.",
        action="Let the script print less, set rank_scope: rank0 where events are what is large, or raise limits.disk_gib.",
    ),
    Signature(
        id="timeout_command",
        symptom="exit code 124, and nothing in the log",
        cause=Cause.EXIT_CODE,
        why="The program `timeout` ended what it was put before.",
        action="Give `timeout` more time, or leave it out and set limits.run_s, which also takes the stacks of every rank.",
        exit_codes=(124,),
        topics=(STAGE1,),
    ),
    Signature(
        id="ranks_missing",
        symptom="`exit code 0, but only 1 of 2 ranks said they were done`",
        cause=Cause.RANKS_MISSING,
        why="A rank died without a word, and the launcher returned 0 all the same.",
        action="Look in the log of each rank (seatrial logs RUN --rank N) for one that died without a word.",
    ),
    Signature(
        id="deepspeed_launcher_killed",
        symptom="`exit code 0, but the launcher said of 1 of 2 ranks that they ended well`",
        cause=Cause.RANKS_MISSING,
        why="The launcher behind `deepspeed` was killed: `deepspeed` exits with 0 then too.",
        action="Its launcher was killed: look for what kills processes on this host, such as the out-of-memory killer in the kernel log, "
        "then run again. If launcher.log shows that all went well, this DeepSpeed words its lines otherwise: put the probe into the "
        "script.",
        topics=(STAGE1, DEEPSPEED),
    ),
    Signature(
        id="events_removed",
        symptom="`exit code 0, but the event files of its ranks are not there`",
        cause=Cause.RANKS_MISSING,
        why="Somebody or something has removed them while it ran.",
        action="See who clears the output folder; the same command runs it again.",
    ),
    Signature(
        id="no_steps",
        symptom="`exit code 0, but not one step was taken`",
        cause=Cause.NO_STEPS,
        why="The loop had nothing to do.",
        action="Check the number of steps asked for and the length of the dataset.",
    ),
    Signature(
        id="ended_early",
        symptom="`exit code 0, but a rank took 12 of 60 steps`",
        cause=Cause.ENDED_EARLY,
        why="A rank left its loop before the last step that was asked for.",
        action="Look in its log for why it stopped: a dataset that ran out, or a stop rule of its own.",
    ),
    Signature(
        id="agent_lost",
        symptom="`the agent that watched this run was killed`",
        cause=Cause.AGENT_LOST,
        why="The process that starts and ends all others of a run was killed, most often for want of memory.",
        action="Look for the out-of-memory killer in the kernel log, then run again.",
    ),
    Signature(
        id="agent_stopped",
        symptom="`the agent that watched this run was sent TERM from outside, and ended it`",
        cause=Cause.AGENT_LOST,
        why="Somebody or something on the host asked it to end.",
        action="Look for what ends processes on this host (a scheduler, a reaper, a clean-up script), then run again.",
    ),
    Signature(
        id="harness_lost",
        symptom="`the harness ended before this attempt did`",
        cause=Cause.HARNESS_LOST,
        why="`seatrial` itself was killed, or its machine went down; what it had started was ended.",
        action="Nothing to do: it is run again.",
    ),
    Signature(
        id="user",
        symptom="`stopped by the user`",
        cause=Cause.USER,
        why="Ctrl-C, TERM or `seatrial stop`.",
        action="The same command resumes.",
    ),
    Signature(
        id="exception",
        symptom="any other traceback",
        cause=Cause.EXCEPTION,
        why="The script raised an exception that no entry here knows.",
        action="Read the traceback in launcher.log; command.sh in the same folder runs the same command by hand.",
    ),
    Signature(
        id="exit_code",
        symptom="any other exit code, and nothing in the log",
        cause=Cause.EXIT_CODE,
        why="The script chose to end so, or a signal ended it.",
        action="Read the end of launcher.log; command.sh in the same folder runs the same command by hand.",
    ),
    Signature(
        id="unknown",
        symptom="no exit code, and nothing in the log",
        cause=Cause.UNKNOWN,
        why="Nothing was left behind that tells.",
        action="Read the end of launcher.log.",
    ),
)
