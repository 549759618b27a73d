"""Harmless lines as DeepSpeed and torch print them, in all their forms: for tests of what must not fall for them."""

from __future__ import annotations

EARLY_QUERY = "Attempting to get learning rate from scheduler before it has started"
WRONG_ORDER = (
    "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you should call them"
)
NOT_CALLED = "Warning: WARNING: destroy_process_group() was not called before program exit"
WHERE_TO_READ = "which can leak resources. For more info, please see https://pytorch.org/docs/stable/distributed.html#shutdown"
NOT_DESTROYED = "Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL. On normal program exit, the"
# With and without the mark that the merged log puts before a rank's lines.
BY_ID = {
    "triton_autotune": (
        "df: /root/.triton/autotune: No such file or directory",
        "df: .triton/autotune: No such file or directory",
        "[rank3]: df: ‘/home/me/.cache/triton_7/autotune’: No such file or directory",
    ),
    "lr_scheduler_early": (
        f"[2026-11-15 14:02:31,880] [WARNING] [lr_schedules.py:906:get_lr] {EARLY_QUERY}",
        f"[rank1]: /opt/venv/lib/torch/optim/lr_scheduler.py:267: {WRONG_ORDER} in the opposite order: `optimizer.step()` first.",
    ),
    "no_hostfile": (
        "[2026-11-15 14:02:11,120] [WARNING] [runner.py:232:fetch_hostfile] Unable to find hostfile, will proceed with training with local "
        "resources only.",
    ),
    "destroy_process_group": (
        f"[rank0]:[W1115 14:02:40.115640219 ProcessGroupNCCL.cpp:1538] {NOT_CALLED}, {WHERE_TO_READ} (function operator())",
        f"[rank0]: [rank0]:[W702 01:08:23.472346684 ProcessGroupNCCL.cpp:1476] {NOT_CALLED}",
        f"[rank1]:[W402 14:24:36.814764033 ProcessGroupNCCL.cpp:1250] {NOT_DESTROYED} application should call destroy_process_group to "
        "ensure that any pending NCCL operations have finished in this process.",
    ),
}
HARMLESS_LINES = [line for lines in BY_ID.values() for line in lines]
