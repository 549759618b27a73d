"""Every command block of the sparse-LM procedure, ours and the seed's, run from a copy of its folder on two CPU ranks with the small
configuration, named explicitly by CONFIG. A block is left out where another makes each of its calls, with the same arguments and variables.

What is changed in a block before it is run, and why (everything else runs as written):

| what | becomes | why |
|---|---|---|
| `CONFIG=…production.yaml` before a command, `export CONFIG=…` | left out: CONFIG is exported as configs/cpu_small.yaml | no GPU |
| `artifacts/m7c_125m_2xa100_prod` | `artifacts/cpu_small` | the out_dir of that configuration |
| `--steps N` of the trainer | 5 | time; the profile begins at step 4 |
| `for mb in 25 50 100`, `for fused in 0 1` | `25 100`, `1` | time |
| `git fetch && git checkout …` | left out | there is no such branch |
| `> artifacts/…` | after `mkdir -p artifacts` | the seed redirects into a folder that is not there |
| `nvidia-smi …` | `…` or true in the seed; ours has its own | no GPU |
| a here-document that ends in `PY FILE` | `last_window.py FILE` | a syntax error in the seed |
| the watchdog's line | in the background, and `wait` at the end | the seed's is a loop in the foreground, before the training |
| `--interval 30`, `--timeout 60`, `--loader-timeout 120` | 1, 2, 3 | time |
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, parse
from tests.runbooks.blocks import NO_SEEDS, SEEDS

RUNBOOK = ROOT / "runbooks" / "sparse-lm"
PLANS = ROOT / "plans"
COPIED = ("configs", "scripts", "nsa")
CONFIG = "configs/cpu_small.yaml"
OUT = Path("artifacts/cpu_small")
TIMEOUT_S = 280
# Of the whole validation, a dozen starts of torch: a minute and a half, and on a busy machine many times that.
WHOLE_S = 900
OFFLINE = "fineweb"
PROGRAMS = ("git", "nvidia-smi", "pytest", "python", "torchrun")
# A line for each call: the program, the variables set for it, its arguments, and its program on stdin. Those given so, or after -c, print
# the out_dir of the configuration.
RECORD = r"""#!/bin/sh
printf '%s\n' "$({
  printf '%s\t' "${0##*/}" $(env | grep -E '^(NSA_|NCCL_|PYTHONPATH=)' | sort) "$@"
  [ "$1" != - ] || cat
} | tr '\n' ' ')" >> "$RECORDED"
case "$1" in -|-c) echo "$OUT_DIR" ;; esac
"""
REWRITES: tuple[tuple[str, str], ...] = (
    (r"^(?:export )?CONFIG=\S+(?: *\\)?\n", ""),
    (r"artifacts/m7c_125m_2xa100_prod", str(OUT)),
    (r"(--ddp [01]) --steps \d+", r"\1 --steps 5"),
    (r"^git fetch.*\n", ""),
    (r"^(git rev-parse HEAD >)", r"mkdir -p artifacts\n\1"),
    (r"^(nvidia-smi [^|\n]*)$", r"\1 || true"),
    (r"python - <<'PY'\nimport sys,statistics(?:.*\n)*?PY (\S+)", r"python scripts/last_window.py \1 --steps 50"),
    (r"^(python scripts/_watchdog\.py [^&\n]*)$((?:.*\n?)*)", r"\1 &\n\2\nwait"),
    (r"for mb in 25 50 100", "for mb in 25 100"),
    (r"for fused in 0 1", "for fused in 1"),
    (r"--interval 30", "--interval 1"),
    (r"--timeout 60", "--timeout 2"),
    (r"--loader-timeout 120", "--loader-timeout 3"),
)


def rewritten(text: str) -> str:
    for pattern, to in REWRITES:
        text = re.sub(pattern, to, text, flags=re.MULTILINE)
    return text.strip()


def seed_blocks() -> list[tuple[str, str]]:
    """The seed's fences name no language."""
    found = sorted(SEEDS.glob("002_*.txt"))
    return [(f"seed-{block.line}", block.text) for file in found for block in parse(file.read_text()).blocks]


def own_blocks() -> list[tuple[str, str]]:
    blocks = parse((RUNBOOK / "README.md").read_text()).blocks
    return [(f"readme-{block.line}", block.text) for block in blocks if block.language == "bash"]


@cache
def calls_of(command: str) -> frozenset[str]:
    """The programs that a rewritten block starts, each with its arguments and the variables it is given; nothing of it is run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for program in PROGRAMS:
            (folder / program).write_text(RECORD)
            (folder / program).chmod(0o755)
        env = {"PATH": f"{folder}:/usr/bin:/bin", "RECORDED": str(folder / "calls"), "CONFIG": CONFIG, "OUT_DIR": str(OUT)}
        (folder / "work").mkdir()
        subprocess.run(["bash", "-c", command], cwd=folder / "work", env=env, capture_output=True, timeout=30, check=False)
        calls = folder / "calls"
        return frozenset(calls.read_text().splitlines() if calls.exists() else ())


def distinct_blocks() -> dict[str, str]:
    """Rewritten, without those whose every call another one makes too: what both documents have is run once, as ours has it."""
    found: dict[str, str] = {}
    for name, text in (*own_blocks(), *seed_blocks()):
        command = rewritten(text)
        calls = calls_of(command)
        if command and not (calls and any(calls <= calls_of(other) for other in found.values())):
            found[name] = command
    return found


EXPECTED = {
    "baseline: failed_runs": "PASS",
    "bucket sweep: failed_runs": "PASS",
    "selection v2 equals v1 on every pattern": "PASS",
    "the heads of a group read the same blocks": "PASS",
    "gradients are exchanged in bf16": "PASS",
    "near-linear scaling per GPU": "NOT TESTED",
    "attention backends by kernel name, no unexpected fallback": "NOT TESTED",
    "long run: halted_runs": "PASS",
    "long run: reported.gate_entropy_mean": "PASS",
    "fused AdamW, all else equal: failed_runs": "PASS",
}
RUNS = ("baseline/base_r1", "buckets/bucket25_r1", "audit/base_r1", "nvtx/base_r1", "fused/fused_r1", "long-run/base_r1")
DELIVERED = (
    *("acceptance.md", "bucket_table.csv", "fused_table.csv", "parity.log", "v2.log"),
    *(f"artifacts/{name}" for name in ("git_sha.txt", "collect_env.txt", "nvidia_smi.xml")),
    *(f"runs/{run}/{name}" for run in RUNS for name in ("training.csv", "heartbeat_rank0.jsonl", "env.json", "mem_boot.json")),
    *("runs/audit/base_r1/sdpa_audit.json", "runs/nvtx/base_r1/profile_summary.txt"),
)
BLOCKS = distinct_blocks()
pytestmark = [pytest.mark.runbooks, pytest.mark.torch]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The procedure's folder as a user has it, in a checkout with one commit, with a table of an earlier run."""
    work = tmp_path / "runbooks" / "sparse-lm"
    work.mkdir(parents=True)
    for name in COPIED:
        shutil.copytree(RUNBOOK / name, work / name, ignore=shutil.ignore_patterns("__pycache__"))
    for command in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *command], cwd=work, check=True, capture_output=True)
    (work / OUT).mkdir(parents=True)
    rows = "".join(f"{step},2.5,1e-4,{1000 + step},before\n" for step in range(1, 61))
    (work / OUT / "training.csv").write_text(f"step,loss,lr,toks_per_s,run_id\n{rows}")
    return work


def run(folder: Path, command: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SEATRIAL_", "NSA_", "PYTEST_"))}
    env = {
        **inherited,
        "CONFIG": CONFIG,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def check_baseline(folder: Path, output: str) -> None:
    assert "[ddp] gradient compression enabled: bf16" in output
    header = (folder / OUT / "training.csv").read_text().splitlines()[0]
    assert header.startswith("step,loss,lr,toks_per_s,")
    assert json.loads((folder / OUT / "env.json").read_text())["out_dir"].endswith(OUT.name)
    assert (folder / OUT / "heartbeat_rank1.jsonl").is_file()


def check_profile(folder: Path, output: str) -> None:
    assert "nsa.sel.ranges_v2" in (folder / OUT / "profile_summary.txt").read_text()


def check_snapshot(folder: Path, output: str) -> None:
    assert len((folder / "artifacts" / "git_sha.txt").read_text().split()[0]) == 40
    assert "PyTorch version" in (folder / "artifacts" / "collect_env.txt").read_text()
    assert (folder / "artifacts" / "nvidia_smi.xml").exists()


def says(text: str) -> Callable[[Path, str], None]:
    def check(folder: Path, output: str) -> None:
        assert text in output, output[-3000:]

    return check


# A part of the command → what it must show; the first that matches.
CHECKS: tuple[tuple[str, Callable[[Path, str], None]], ...] = (
    ("NSA_SEL_RANGES_V2=1", check_baseline),
    ("_watchdog.py", says("every rank is done; no anomaly")),
    ("NSA_NVTX=1", check_profile),
    ("NSA_SDPA_AUDIT=1", says("[sdpa-audit]")),
    ("snapshot.py", check_snapshot),
    ("collect_env", check_snapshot),
    ("v2_performance_improvement", says("NOT TESTED")),
    ("last_window.py", says("n=")),
    ("yaml.safe_load", says("artifacts/")),
    ("train_showcase.py", says("[end]")),
    ("validate.py --cpu --only acceptance", says("NOT TESTED")),
    ("pytest", says("passed")),
    ("", lambda folder, output: None),
)


def those(*, offline: bool) -> list[object]:
    """Blocks that need the network, or those that do not."""
    return [pytest.param(text, id=name) for name, text in BLOCKS.items() if (OFFLINE in text) == offline]


@pytest.mark.parametrize("command", those(offline=False))
def test_a_block_runs(folder: Path, command: str) -> None:
    done = run(folder, command)

    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{command}\n{output[-5000:]}"
    next(check for part, check in CHECKS if part in command)(folder, output)


@pytest.mark.parametrize("command", those(offline=True))
def test_without_a_network_the_loader_blocks_stop_before_step_1(folder: Path, command: str) -> None:
    done = run(folder, command)

    assert done.returncode != 0
    assert "[smoke][FAIL]" in done.stdout
    assert "step 0001" not in done.stdout + done.stderr
    assert "local" in done.stdout + done.stderr


def test_without_a_network_a_tokenizer_of_the_hub_stops_the_training_before_step_1(folder: Path) -> None:
    config = (folder / CONFIG).read_text().replace("tokenizer: byte", "tokenizer: gpt2")
    (folder / "configs" / "gpt2.yaml").write_text(config)
    done = run(folder, "CONFIG=configs/gpt2.yaml python scripts/train_showcase.py --dataset synthetic --ddp 0 --steps 5 --loader-timeout 3")

    [sentence] = [line for line in done.stderr.splitlines() if line.startswith("train_showcase: error: ")]
    assert done.returncode == 1 and "step 0001" not in done.stdout + done.stderr
    assert "the tokenizer 'gpt2'" in sentence and "data.tokenizer" in sentence


def test_a_trainer_that_is_refused_does_not_leave_its_watchdog_waiting(folder: Path) -> None:
    [block] = [text for name, text in BLOCKS.items() if name.startswith("readme-") and "_watchdog.py" in text]
    # It waits for a run for ten minutes, beyond the timeout of a block.
    assert "NSA_LR is 'nan'" in run(folder, f"export NSA_LR=nan\n{block}").stderr


def test_with_local_files_the_loader_blocks_run(folder: Path) -> None:
    """With the one small file of docs/sparse-lm.md, which two ranks share."""
    made = next(block.text for block in parse((ROOT / "docs" / "sparse-lm.md").read_text()).blocks if "text/part-0.jsonl" in block.text)
    assert run(folder, "\n".join(made.splitlines()[:2])).returncode == 0

    done = run(
        folder,
        "python scripts/automation/fwe_smoke.py --seq-len 64 --batch 2 --local-path text && torchrun --nproc_per_node=2 "
        "scripts/train_showcase.py --dataset fineweb_edu_local --local-path text --ddp 1 --steps 3",
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\[smoke\]\[OK\] first batch in \d+\.\d\ds shape=\(2, 64\)$", done.stdout, re.MULTILINE)


@pytest.mark.skipif(not seed_blocks(), reason=NO_SEEDS)
def test_every_block_of_the_seed_is_among_those_that_run() -> None:
    assert len(seed_blocks()) == 14
    for _, text in seed_blocks():
        calls = calls_of(rewritten(text))
        assert calls and any(calls <= calls_of(command) for command in BLOCKS.values()), text


def test_an_unset_config_is_answered_with_the_first_line_of_the_procedure(folder: Path) -> None:
    done = run(folder, "unset CONFIG; python scripts/train_showcase.py --dataset synthetic --ddp 0 --steps 3")

    first = own_blocks()[0][1].strip()
    assert first.startswith("export CONFIG=")
    assert done.returncode != 0
    assert first in done.stdout + done.stderr


@pytest.mark.timeout(2 * WHOLE_S)
def test_the_validation_ends_in_a_table_and_deliverables(folder: Path) -> None:
    plan = PLANS / "sparse-lm" / "validation-cpu.yaml"
    done = run(folder, f"seatrial run {plan} --out out --set steps=6 --set repeats=1", WHOLE_S)

    out = folder / "out" / "deliverables"
    rows = {row["criterion"]: row for row in json.loads((out / "acceptance.json").read_text())}
    # Six steps decide neither leaks nor losses.
    assert done.returncode == 3, done.stdout[-3000:] + done.stderr[-3000:]
    stages = json.loads((folder / "out" / "stages.json").read_text())["stages"]
    assert {name for name, stage in stages.items() if stage["exit_code"] is None} == {"scaling"}
    assert {name: rows[name]["status"] for name in EXPECTED} == EXPECTED
    index = (out / "index.md").read_text()
    for name in DELIVERED:
        assert f"({name})" in index
        assert (out / name).is_file()

    again = run(folder, "python scripts/validate.py --cpu --out out --steps 6 --repeats 1 --only parity,baseline")
    assert again.returncode == 3 and "finished earlier" in again.stdout, "nothing that is finished is run again"
    assert len(list((folder / "out" / "baseline" / "base_r1").glob("attempt-*"))) == 1
