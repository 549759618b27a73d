"""The procedure's command line, without torch: configurations, variables, flags, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial_workloads.common.errors import StartupError
from seatrial_workloads.common.run_folder import check_writable
from seatrial_workloads.sparse_lm.config import check_long_run
from seatrial_workloads.sparse_lm.settings import BYTE_VOCABULARY, Settings, split_batch
from seatrial_workloads.sparse_lm.showcase import check_save, read_start
from seatrial_workloads.sparse_lm.variables import VARIABLES

CONFIGS = Path(__file__).parents[3] / "runbooks" / "sparse-lm" / "configs"
PRODUCTION, TOY = (str(CONFIGS / f"{name}.yaml") for name in ("m7c_125m_2xa100_production", "train_showcase"))
TWO_RANKS = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}


def test_the_production_configuration_is_the_model_of_78_million_parameters():
    start = read_start(["--ddp", "1", "--steps", "300"], {"CONFIG": PRODUCTION, **TWO_RANKS})
    settings = start.settings
    assert settings.shape(BYTE_VOCABULARY).num_parameters == 78_295_332
    assert (settings.seq_len, settings.batch_size, settings.accumulate, settings.precision) == (2048, 2, 2, "bf16")
    assert (settings.lr, settings.lr_schedule, settings.warmup_steps, settings.grad_clip) == (2e-4, "cosine", 2000, 1.0)
    assert (settings.steps, settings.checkpoint_every, settings.eval_every) == (300, 5000, 1000)
    assert (settings.ddp_compression, settings.fused_adam, settings.gradient_checkpointing) == ("bf16", False, True)
    assert start.out_dir == Path("artifacts/m7c_125m_2xa100_prod")


def test_the_toy_is_the_default_of_the_settings():
    start = read_start([], {"CONFIG": TOY})
    assert start.settings == Settings(precision="fp32", fused_adam=False, report_docs=1000)
    assert start.out_dir == Path("artifacts/train_showcase")


def test_flags_come_before_variables_and_variables_before_the_file():
    env = {
        "CONFIG": TOY,
        "NSA_BATCH_SIZE": "4",
        "NSA_SEQ_LEN": "64",
        "NSA_SEL_RANGES_V2": "0",
        "NSA_DDP_BUCKET_MB": "50",
        "NSA_OPT_FUSED": "1",
    }
    env |= {
        "NSA_PREFILL_BATCHED": "0",
        "NSA_TB_DISABLE": "1",
        "NSA_DISABLE_AUX_STATS": "1",
        "NSA_HEARTBEAT_EVERY": "1",
        "NSA_WATCH_HALT": "1",
    }
    start = read_start(["--batch-size", "6", "--no-gc", "--compile", "--dataset", "fineweb_edu", "--loader-timeout", "5"], env)
    settings = start.settings
    assert (settings.batch_size, settings.seq_len, settings.ranges, settings.ddp_bucket_mb) == (6, 64, "v1", 50.0)
    assert (settings.prefill, settings.tensorboard, settings.statistics, settings.fused_adam) == ("sequential", False, False, True)
    assert (settings.dataset, settings.loader_timeout_s, settings.compile) == ("fineweb_edu", 5.0, True)
    assert {name: choice.effective for name, choice in start.no_effect.items()} == {"NSA_HEARTBEAT_EVERY": None}


@pytest.mark.parametrize(
    ("argv", "env", "problem"),
    [
        ([], {"CONFIG": ""}, "export CONFIG=configs/m7c_125m_2xa100_production.yaml"),
        (["--step", "3"], {}, "unknown flag --step: did you mean '--steps'"),
        (["--precision", "bf16"], {}, "unknown flag --precision"),
        (["--dataset", "fineweb"], {}, "fineweb_edu_local"),
        ([], {"NSA_DDP_BUCKETS_MB": "3"}, "did you mean 'NSA_DDP_BUCKET_MB'"),
        ([], {"NSA_PREFILL_BATCHED": "yess"}, "expected 1 or 0"),
        ([], {"NSA_DDP_COMPRESS": "int8"}, "expected bf16, fp16 or none"),
        ([], {"NSA_LR": "nan"}, "^NSA_LR is 'nan'; expected a finite number$"),
        ([], {"NSA_DDP_BUCKET_MB": "nan"}, "NSA_DDP_BUCKET_MB is 'nan'"),
        ([], {"NSA_PG_TIMEOUT_MIN": "-inf"}, "NSA_PG_TIMEOUT_MIN is '-inf'"),
        ([], {"NSA_LR": "fast"}, "expected a finite number"),
        ([], {"NSA_PG_TIMEOUT_MIN": "1e300"}, "group_timeout_s is 6e[+]301; it must be 31536000 or less"),
        ([], {"NSA_USE_FA2": "1"}, "no FlashAttention 2 path"),
        ([], {"NSA_FORCE_BRANCH": "cmp"}, "it changes the model"),
        ([], {"NSA_SDPA_FLASH_ONLY": "1", "NSA_SDPA_NO_FLASH": "1"}, "contradict each other"),
        ([], {"CONFIG": "nowhere.yaml"}, "nowhere.yaml cannot be read"),
        (["--ddp", "0"], TWO_RANKS, "there are 2"),
        (["--ddp", "1"], {}, "torchrun"),
        (["--dataset", "fineweb_edu_local"], {}, "local_path is not set"),
        (["--local-path", "text"], {}, "local_path has no effect"),
        (["--steps", "2001"], {}, "no checkpoint is configured"),
        (["--steps", "2001"], {"CONFIG": PRODUCTION}, "after step 5000"),
        (["--batch-size", "0"], {}, "batch_size is 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_named(argv, env, problem):
    with pytest.raises(StartupError, match=problem):
        read_start(argv, {"CONFIG": TOY, **env})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model: {dims: 3}", r"unknown key 'model.dims': did you mean 'dim'"),
        ("modle: {dim: 3}", "unknown section 'modle'"),
        ("train: {steps: 3}", "train.out_dir is None"),
        ("train: {out_dir: a, lr: fast}", "lr is 'fast'"),
        ("- 1", "expected the sections"),
        ("model: {", "is not YAML"),
    ],
)
def test_a_configuration_is_strict(tmp_path, text, problem):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(StartupError, match=problem):
        read_start([], {"CONFIG": str(tmp_path / "config.yaml")})


def test_every_variable_does_one_thing_and_off_is_never_refused():
    for name, variable in VARIABLES.items():
        assert sum(map(bool, (variable.sets, variable.no_effect, variable.refused, variable.read_by))) == 1, name
        if variable.refused:
            read_start([], {"CONFIG": TOY, name: "0"})


def test_a_long_run_needs_a_checkpoint_and_a_named_model_or_yes():
    read_start(["--steps", "2001", "--yes"], {"CONFIG": TOY})
    check_long_run(Settings(steps=2001, checkpoint_every=2001), is_named=True)
    check_long_run(Settings(steps=200), is_named=False)
    with pytest.raises(StartupError, match=r"toy of 254,\d+ parameters"):
        check_long_run(Settings(steps=201), is_named=False)


def test_folders_that_cannot_be_written_are_refused_before_anything_starts(tmp_path):
    (tmp_path / "file").touch()
    for check, named in (
        (
            lambda: check_writable(tmp_path / "file" / "out", "train.out_dir"),
            "^train.out_dir is .*out, and no file can be written",
        ),
        (lambda: check_save(tmp_path / "file" / "model.pt"), r"^the folder of --save is .* \(File exists\): use another folder"),
        (lambda: check_save(tmp_path), "^--save is .*, which is not a file: name the file"),
    ):
        with pytest.raises(StartupError, match=named):
            check()
    check_save(tmp_path / "new" / "model.pt")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "named"), [(["--phi", "conv", "--window", "32"], False), (["--dim=128"], True), (["--n_layers", "1"], True), ([], False)]
)
def test_only_its_size_names_the_model(tmp_path, monkeypatch, argv, named):
    pytest.importorskip("torch")
    from seatrial_workloads.sparse_lm import train

    monkeypatch.delenv("SEATRIAL_RUN_DIR", raising=False)
    monkeypatch.setattr(train, "train", lambda *args: None)
    arguments = ["--steps", "300", "--run-dir", str(tmp_path), *argv]
    if named:
        train.main(arguments)
        return
    with pytest.raises(SystemExit, match="300 steps of the default model, a toy"):
        train.main(arguments)
    train.main([*arguments, "--yes"])


@pytest.mark.parametrize(("rows", "world_size", "expected"), [(2, 2, [1, 1]), (5, 2, [3, 2]), (8, 3, [3, 3, 2]), (1, 1, [1])])
def test_a_global_batch_is_split_with_the_remainder_to_lower_ranks(rows, world_size, expected):
    shares = [split_batch(rows, rank, world_size) for rank in range(world_size)]
    assert [len(share) for share in shares] == expected
    assert [row for share in shares for row in share] == list(range(rows))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"dim": "wide"}, "dim is 'wide'"),
        ({"cmp_block": 10, "cmp_stride": 4}, "cmp_block"),
        ({"selected_path": "fast"}, "selected is 'fast'"),
        ({"precision": "fp16", "device": "cpu"}, "loss scaling"),
        ({"fault": "hang"}, "hang@STEP"),
        ({"ddp_bucket_mb": 0.0}, "ddp_bucket_mb is 0.0"),
    ],
)
def test_settings_are_refused_before_anything_starts(values, problem):
    with pytest.raises(ValueError, match=problem):
        Settings(**values)
