"""Both engines, with real ranks on gloo: the same losses, bit-exact resuming, a clean end."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from seatrial.core.ports import reserve_port  # noqa: E402
from seatrial_workloads.common.checkpoints import CheckpointError, load_tensors  # noqa: E402
from seatrial_workloads.common.engines import Engine, EngineOptions, create_engine  # noqa: E402
from seatrial_workloads.common.engines.deepspeed_engine import check_no_scalars  # noqa: E402
from seatrial_workloads.common.precision import Precision, choose_precision  # noqa: E402
from tests.harness import skip_without  # noqa: E402
from tests.workloads.cpu_ranks import ALONE  # noqa: E402
from tests.workloads.ranks import rank_environment  # noqa: E402

STAGES = ("deepspeed0", "deepspeed1", "deepspeed2", "deepspeed3")
LONGEST_S = 200


@dataclass(frozen=True)
class ProgramResult:
    """Results and output of each rank."""

    results: list[dict[str, Any]]
    stdout: list[str]
    stderr: list[str]
    compiled: list[Path]


def run_program(act: str, folder: Path, environments: list[dict[str, str]]) -> ProgramResult:
    extensions = folder / "extensions"
    argv = [sys.executable, "-m", "tests.workloads.common.engine_program", act, str(folder)]
    started = [
        subprocess.Popen(
            argv,
            env={**environment, "TORCH_EXTENSIONS_DIR": str(extensions)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        for environment in environments
    ]
    try:
        outputs = [process.communicate(timeout=LONGEST_S) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * len(started), "\n".join(stderr for _, stderr in outputs)
    results = [json.loads((folder / f"result_rank{rank}.json").read_text()) for rank in range(len(started))]
    return ProgramResult(results, [stdout for stdout, _ in outputs], [stderr for _, stderr in outputs], list(extensions.rglob("*")))


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> ProgramResult:
    skip_without("deepspeed", "transformers")
    with reserve_port() as held:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(held.port)}
        return run_program("train", tmp_path_factory.mktemp("two"), [{**rank_environment(rank, 2), **address} for rank in range(2)])


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> ProgramResult:
    skip_without("deepspeed", "transformers")
    launched = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    environment = {name: value for name, value in rank_environment(0, 1).items() if name not in launched}
    return run_program("alone", tmp_path_factory.mktemp("one"), [environment])


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGES)
def test_every_stage_has_the_losses_of_ddp(two_ranks, name):
    for own in two_ranks.results:
        assert own[name]["losses"] == pytest.approx(own["ddp0"]["losses"], rel=1e-5)
        assert own[name]["validation"] == pytest.approx(own["ddp0"]["validation"], rel=1e-5)
    first, second = (own["ddp0"] for own in two_ranks.results)
    assert first["losses"] != second["losses"], "each rank has its own rows"
    assert first["validation"] == second["validation"], "and all have the same weights"


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["", "_bf16"])
@pytest.mark.parametrize("name", ["ddp0", *STAGES])
def test_resuming_is_bit_exact(two_ranks, name, ending):
    for own in two_ranks.results:
        found = own[f"{name}{ending}"]
        assert found["resumed"] == found["losses"][2:]
        assert found["extra"] == {"seen": [1, 2]}
        assert found["frozen_resumed"] == found["frozen"]
        assert {"checkpoint.json", "training.pt", "random_states_rank0.pt", "random_states_rank1.pt"} < set(found["files"])


@pytest.mark.slow
def test_bf16_is_close_and_each_stage_records_its_mixed_precision(two_ranks):
    for own in two_ranks.results:
        exact = own["ddp0"]["losses"]
        assert own["deepspeed0_bf16"]["losses"] == pytest.approx(own["ddp0_bf16"]["losses"], rel=1e-4)
        for name in ("ddp0", *STAGES):
            assert own[f"{name}_bf16"]["losses"] == pytest.approx(exact, rel=0.03)
            assert own[f"{name}_bf16"]["losses"] != exact
        modes = [own[f"{name}_bf16"]["choices"]["mixed_precision"][1] for name in ("ddp0", *STAGES)]
        assert modes == ["autocast", "autocast", "weights", "weights", "weights"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "same", "mode"),
    [
        ("weights0", "deepspeed1", "weights"),
        ("autocast1", "deepspeed0", "autocast"),
        ("autocast3", "deepspeed0", "autocast"),
    ],
)
def test_a_stage_with_the_other_mixed_precision_trains_as_the_stages_that_have_it_by_default(two_ranks, name, same, mode):
    """Weights under ZeRO 0 is as under ZeRO 1, autocast under ZeRO 1 and 3 as under ZeRO 0; each resumes bit by bit."""
    for own in two_ranks.results:
        found, expected = own[f"{name}_bf16"], own[f"{same}_bf16"]
        assert found["choices"]["mixed_precision"][:2] == [mode, mode]
        # bf16 rounds by 0.4 %; a step of Adam without gradients, as DeepSpeed takes one before the first, would make it 2 %.
        assert found["losses"] == pytest.approx(expected["losses"], rel=0.01)
        assert found["resumed"] == found["losses"][2:]


@pytest.mark.slow
def test_a_full_disk_on_one_rank_is_an_error_on_both_and_keeps_the_older_checkpoint(two_ranks):
    first, second = (own["full_disk"] for own in two_ranks.results)
    assert "ckpt_iter_2 could not be written (another rank failed to write" in first["error"]
    assert "ckpt_iter_2 could not be written" in second["error"]
    for own in (first, second):
        assert own["newest"] == "ckpt_iter_1"
        assert [name for name in own["left"] if "ckpt" in name] == ["ckpt_iter_1"]


@pytest.mark.slow
def test_the_end_is_clean_and_nothing_was_compiled(two_ranks, one_process):
    for result in (two_ranks, one_process):
        for stderr in result.stderr:
            assert not re.search(r"warn|destroy_process_group|leak|Traceback", stderr, re.IGNORECASE), stderr
        assert result.stdout == [""] * len(result.stdout)
        assert result.compiled == []
    choices = two_ranks.results[0]["deepspeed1"]["choices"]
    assert choices["optimizer"][:2] == ["auto", "AdamW"] and "overlap_comm" not in choices
    assert two_ranks.results[0]["deepspeed0"]["choices"]["overlap_comm"][:2] == [True, False]


@pytest.mark.slow
def test_a_single_process_needs_no_launcher(one_process):
    found = one_process.results[0]
    assert found["deepspeed"] == pytest.approx(found["ddp"], rel=1e-5)


class Line(torch.nn.Module):
    """A tiny model for what needs no second rank."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.frozen = torch.nn.Linear(width, width).requires_grad_(False)
        self.trained = torch.nn.Linear(width, 1)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, rows):
        return self.dropout(self.trained(self.frozen(rows))).pow(2).mean()


def line_engine(*, precision: Precision | None = None, seed: int = 0, width: int = 3, **options: Any) -> Engine:
    torch.manual_seed(seed)
    wanted = EngineOptions(**{"lr": 0.1, "schedule_steps": 10, **options})
    return create_engine("ddp", Line(width), ALONE, precision or choose_precision("fp32", None), wanted)


def train(engine: Engine, steps: range) -> list[float]:
    found = []
    for step in steps:
        loss = engine.forward(rows=torch.full((4, 3), 0.1 * step + 1))
        engine.backward(loss)
        engine.step()
        found.append(loss.item())
    return found


def test_resuming_restores_the_loss_scale_of_fp16(tmp_path):
    fp16 = Precision(requested="fp16", effective="fp16", reason="for this test; a CPU can, slowly")
    engine = line_engine(precision=fp16)
    train(engine, range(2))
    engine.save(tmp_path, {})
    rest = train(engine, range(2, 5))
    again = line_engine(precision=fp16, seed=1, exclude_frozen=False)
    again.model.frozen.load_state_dict(engine.model.frozen.state_dict())
    again.load(tmp_path)
    assert train(again, range(2, 5)) == rest
    assert all(math.isfinite(loss) for loss in rest)
    assert load_tensors(tmp_path / "training.pt")["scaler"]["scale"] > 1


def test_frozen_weights_are_excluded_by_default_and_not_changed_by_loading(tmp_path):
    for exclude, expected in (
        (True, {"trained.weight", "trained.bias"}),
        (False, {"trained.weight", "trained.bias", "frozen.weight", "frozen.bias"}),
    ):
        line_engine(exclude_frozen=exclude).save(tmp_path, {})
        assert set(load_tensors(tmp_path / "model.pt")["model"]) == expected
    line_engine().save(tmp_path, {})
    other = line_engine(seed=5)
    frozen = other.model.frozen.weight.clone()
    other.load(tmp_path)
    assert torch.equal(other.model.frozen.weight, frozen)
    assert torch.equal(other.model.trained.weight, line_engine().model.trained.weight)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    line_engine().save(tmp_path, {})
    with pytest.raises(CheckpointError, match=r"size mismatch for trained\.weight"):
        line_engine(width=4).load(tmp_path)
    (tmp_path / "model.pt").unlink()
    torch.save({"model": {"trained.bias": torch.zeros(1), "head": torch.zeros(1)}}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"lacks trained\.weight, and has also head"):
        line_engine().load(tmp_path)
    (tmp_path / "training.pt").unlink()
    torch.save({"model": line_engine().model.state_dict()}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"training\.pt is missing: the checkpoint is incomplete"):
        line_engine().load(tmp_path)


def test_a_warm_up_changes_neither_weights_nor_gradients():
    engine, plain = line_engine(), line_engine()
    engine.warm_up(rows=torch.ones(4, 3))
    assert all(parameter.grad is None for parameter in engine.model.parameters())
    torch.manual_seed(3)
    warmed = train(engine, range(3))
    torch.manual_seed(3)
    assert warmed == train(plain, range(3))


def test_clipping_has_an_effect():
    assert train(line_engine(gradient_clipping=0.0), range(3)) != train(line_engine(gradient_clipping=0.01), range(3))


def test_models_that_cannot_be_trained_are_refused():
    with pytest.raises(ValueError, match="no weight of the model requires a gradient"):
        create_engine("ddp", Line().requires_grad_(False), ALONE, choose_precision("fp32", None), EngineOptions(lr=0.1))
    scalar = Line()
    scalar.scale = torch.nn.Parameter(torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"scale is a scalar weight, which DeepSpeed cannot communicate: give it the shape \(1,\)"):
        check_no_scalars(scalar)
