"""META, CMD and output of the original launcher.log."""

from __future__ import annotations

from seatrial.collect.original.launcher_log import read_blocks

META = ["=== META ===", "timestamp=2026-02-18T17:56:20+08:00", "mode=sweep", "group=g", "repeat=2", "fixed_slice_seconds=", "gpu_name=NaN"]
OVERRIDES = "+experiment=x '++train.max_step_iterations=300' ++train.data.num_workers=6"
CMD = f"deepspeed --include localhost:0,4 --master_port 29650 train.py {OVERRIDES}"
LINES = [*META, "=== CMD ===", CMD, "", "cmd = python", "Traceback"]


def test_a_block_is_taken_apart() -> None:
    (block,) = read_blocks(LINES)
    assert block.meta == {"timestamp": "2026-02-18T17:56:20+08:00", "mode": "sweep", "group": "g", "repeat": "2"}
    assert (block.zone_s, block.start_local_s) == (8 * 3600.0, 1771437380.0)
    assert block.devices == ("0", "4") and block.launcher_args == ("--include", "localhost:0,4", "--master_port", "29650")
    assert block.script_args == ("+experiment=x", "++train.max_step_iterations=300", "++train.data.num_workers=6")
    assert block.cells["max_steps"] == "300" and block.cells["num_workers"] == "6" and block.cells["mode"] == "sweep"
    assert block.output == ("", "cmd = python", "Traceback") and block.head == (*META, "=== CMD ===", CMD)


def test_meta_counts_before_the_command() -> None:
    (block,) = read_blocks(
        [*META, "micro_batch=160", "=== CMD ===", "deepspeed train.py deepspeed_config_yaml.train_micro_batch_size_per_gpu=128"]
    )
    assert block.cells["micro_batch"] == "160"


def test_one_block_for_each_start() -> None:
    first, second = read_blocks([*LINES, *LINES[:3], "=== CMD ===", "conda run -n x deepspeed train.py a=b"])
    assert first.output[-1] == "Traceback" and second.output == () and second.script_args == ("a=b",) and second.launcher_args == ()


def test_a_log_without_blocks_is_output() -> None:
    (block,) = read_blocks(["hello"])
    assert block.output == ("hello",) and block.cells == {} and block.start_local_s is None and block.devices == ()
    assert read_blocks([]) == []


def test_a_block_torn_at_any_line_is_read() -> None:
    for cut in range(1, len(LINES) + 1):
        (block,) = read_blocks(LINES[:cut])
        assert set(block.meta) <= {"timestamp", "mode", "group", "repeat"}
    (torn,) = read_blocks([*META, "=== CMD ===", "deepspeed train.py 'a=b"])
    assert torn.command == ("deepspeed", "train.py", "'a=b")
