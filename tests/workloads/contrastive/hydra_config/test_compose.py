"""From a command line to a start: the seeds' commands, launchers' flags, precision, variables, folders, and Hydra kept from doing more."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

pytest.importorskip("hydra")

from seatrial_workloads.common import start_time
from seatrial_workloads.common.choice import Choice
from seatrial_workloads.contrastive.hydra_config.checks import ConfigurationError
from seatrial_workloads.contrastive.hydra_config.command_line import HELP, SHOW, TRAIN, read_command_line
from seatrial_workloads.contrastive.hydra_config.compose import CONFIGS, settings_from

DS = "deepspeed_config_yaml"
BF16, FP16 = f"{DS}.bf16.enabled", f"{DS}.fp16.enabled"

# As deepspeed hands them over: its own words gone, --local_rank first.
SEED_000 = """
  --local_rank=1
  +experiment=limit_longest_1-3_stage1_bf16 experiment_output_dir="/tmp/OUT" hydra.run.dir="/tmp/OUT"
  ++train.max_step_iterations=100000 ++train.log_every_steps=20 ++train.validation_every_steps=500 ++train.checkpoint_every_steps=500
  ++train.deterministic=false ++train.cudnn_benchmark=false ++train.enable_cuda_sync_timing=false ++train.timing_rank_scope=rank0
  ++train.enable_eta_logging=true ++train.eta_distributed_mode=rank0 ++train.eta_min_samples=10
  ++train.data.num_workers=8 ++train.data.prefetch_factor=4
  ++dataset.root_dir=data/LibriSpeech/LibriSpeech_16k_trim
  ++dataset.manifest_path=data/LibriSpeech/LibriSpeech_16k_trim/manifest_16k_trim.tsv
  ++dataset.use_trim=false ++dataset.offline_trimmed=true
  ++train.pretrained_model_checkpoint=data/weights/csa/ckpt_epoch_8.pth
  ++model.speech_encoder.pretrained_path=data/weights/wav2vec2-base ++model.text_encoder.pretrained_path=data/weights/bert-base-uncased
  ++model.speech_encoder.attn_implementation=eager ++model.text_encoder.attn_implementation=eager
  ++model.speech_encoder.torch_dtype=bf16 ++model.text_encoder.torch_dtype=bf16
  deepspeed_config_yaml.zero_optimization.stage=0 deepspeed_config_yaml.train_micro_batch_size_per_gpu=128
  deepspeed_config_yaml.wall_clock_breakdown=false deepspeed_config_yaml.bf16.enabled=true deepspeed_config_yaml.fp16.enabled=false
"""
SEED_001 = """
  --local_rank=0
  +experiment=limit_longest_1-3_stage1_bf16
  '++dataset.root_dir=/code/data/LibriSpeech/LibriSpeech_16k_trim'
  '++dataset.manifest_path=/code/data/LibriSpeech_16k_trim/LibriSpeech/manifest_16k_trim.tsv'
  '++dataset.use_trim=false' '++dataset.offline_trimmed=true'
  'deepspeed_config_yaml.zero_optimization.stage=1' 'deepspeed_config_yaml.train_micro_batch_size_per_gpu=160'
  '++train.data.num_workers=6' '++train.data.prefetch_factor=4'
  '++train.enable_cuda_sync_timing=false' '++train.timing_rank_scope=rank0'
"""


def refused(*argv: str, env: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as error:
        settings_from(argv, env or {})
    return str(error.value)


def test_the_command_of_the_first_seed():
    start = settings_from(shlex.split(SEED_000), {})
    settings = start.settings
    assert start.run_dir == Path("/tmp/OUT")
    assert (settings.steps, settings.zero_stage, settings.micro_batch, settings.num_workers) == (100_000, 0, 128, 8)
    assert (settings.precision, settings.model_load_dtype, settings.speech_attention, settings.text_attention) == (
        "bf16",
        "bf16",
        "eager",
        "eager",
    )
    assert settings.pretrained_checkpoint == "data/weights/csa/ckpt_epoch_8.pth"
    assert start.environment["LOCAL_RANK"] == "1"
    assert list(start.no_effect) == [f"{DS}.steps_per_print"]


def test_the_command_of_the_second_seed():
    start = settings_from(shlex.split(SEED_001), {})
    settings = start.settings
    assert (settings.precision, settings.zero_stage, settings.micro_batch, settings.prefetch_factor) == ("bf16", 1, 160, 4)
    assert settings.dataset_root == "/code/data/LibriSpeech/LibriSpeech_16k_trim"
    assert (settings.speech_model, settings.text_model) == ("data/weights/wav2vec2-base", "data/weights/bert-base-uncased")
    assert start.run_dir.parent == Path("outputs/train")


@pytest.mark.parametrize("flag", [["--local_rank=1"], ["--local_rank", "1"], ["--local-rank=1"], ["--local-rank", "1"]])
def test_the_local_rank_is_taken_out_and_kept(flag):
    start = settings_from([*flag, "train.seed=1", "experiment_output_dir=x"], {})
    assert (start.settings.seed, start.environment["LOCAL_RANK"]) == (1, "1")
    assert "LOCAL_RANK" not in settings_from([*flag], {"LOCAL_RANK": "0"}).environment


def test_the_local_rank_of_a_process_alone_is_none():
    assert "LOCAL_RANK" not in settings_from(["--local_rank=-1"], {}).environment


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--local_rank"], "argument --local_rank/--local-rank: expected one argument"),
        (["--local_rank=x"], "invalid int value: 'x'"),
        (["--config-dir", "x"], "unknown option '--config-dir'"),
        (["-m"], "what is to be swept goes to `seatrial run PLAN`"),
        (["train.seed=1,2"], "train.seed=1,2 is several values: write a list as train.seed=[1,2]"),
        (["garbage"], "cannot read 'garbage' (missing EQUAL at '<EOF>')"),
        (["experiment_output_dir=/a=b"], "cannot read 'experiment_output_dir=/a=b'"),
        (["++train.log_evry_steps=1"], "did you mean 'train.log_every_steps'?"),
        (["train.log_evry_steps=1"], "did you mean 'train.log_every_steps'?"),
        (["++train={log_evry_steps: 1}"], "did you mean 'train.log_every_steps'?"),
        (["+train.seed=1"], "An item is already at 'train.seed'. Either remove + prefix"),
        (["~train.seed"], "train.seed was taken out"),
        (["train=5"], "Config group override must be a string"),
        (["+experiment=limit_longest_1-3_stage1_bf61"], "there is no experiment 'limit_longest_1-3_stage1_bf61': did you mean 'limit_"),
        (["experiment=limit_longest_1-3_stage1"], "use +experiment=limit_longest_1-3_stage1"),
        (["model=whisper"], "there is no model 'whisper': known: csa"),
        (["hydra.run.dirr=x"], "unknown key 'hydra.run.dirr': did you mean 'hydra.run.dir'?"),
        (["++hydra.typo=x"], "unknown key 'hydra.typo'"),
        (["hydra.searchpath=[file:///nowhere]"], "path=/nowhere is not available"),
        (["train.resume_from=${nope:1}"], "train.resume_from: Unsupported interpolation type nope"),
        (["train.timing_window=0"], "train.timing_window is 0; it must be 1 or more"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(argv, told):
    message = refused(*argv)
    assert told in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("words", "precision"),
    [
        ([], "auto"),
        (["+experiment=limit_longest_1-3_stage1"], "auto"),
        (["+experiment=limit_longest_1-3_stage1_bf16"], "bf16"),
        (["+experiment=limit_longest_1-3_stage1_bf16", f"{BF16}=false"], "fp32"),
        (["+experiment=limit_longest_1-3_stage1_bf16", f"{BF16}=false", f"{FP16}=true"], "fp16"),
        ([f"{BF16}=false", f"{FP16}=false"], "fp32"),
        ([f"{FP16}=true"], "fp16"),
        ([f"{BF16}=true", "train.precision=fp32"], "fp32"),
        ([f"{BF16}=true", "train.precision=auto"], "auto"),
    ],
)
def test_where_the_precision_comes_from(words, precision):
    assert settings_from(words, {}).settings.precision == precision


def test_both_formats_at_once_are_refused():
    assert "are both true" in refused("+experiment=limit_longest_1-3_stage1_bf16", f"{FP16}=true")


def test_switches_that_the_precision_stands_over_are_told():
    told = settings_from(["+experiment=limit_longest_1-3_stage1_bf16", "train.precision=fp32"], {}).no_effect
    assert told[BF16] == Choice(True, False, "train.precision=fp32 stands over it")


@pytest.mark.parametrize("longest", [3, 4, 5, 6])
def test_stage_2_has_its_slices_and_asks_for_weights(longest):
    experiment = f"+experiment=limit_longest_1-{longest}_stage2"
    assert "give train.pretrained_model_checkpoint=VALUE" in refused(experiment)
    settings = settings_from([experiment, "train.pretrained_model_checkpoint=a.pth", "train.data.use_length_bucket=true"], {}).settings
    assert (settings.slice_range_s, settings.pretrained_checkpoint) == ((1.0, float(longest)), "a.pth")
    assert settings.boundaries_s[-1] == longest


def test_an_experiment_of_ones_own_is_found_and_checked(tmp_path):
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_text("# @package _global_\ntrain: {seed: 9}\n")
    words = [f"hydra.searchpath=[file://{tmp_path}]", "+experiment=mine"]
    assert settings_from(words, {}).settings.seed == 9
    file.write_text("# @package _global_\ntrain: {sed: 9}\n")
    assert refused(*words) == "unknown key 'train.sed': did you mean 'train.seed'?"


def test_the_manifest_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("LIBRISPEECH_MANIFEST_PATH", "/data/m.tsv")
    assert settings_from([], {}).settings.dataset_manifest_path == "/data/m.tsv"
    assert settings_from(["dataset.manifest_path=null"], {}).settings.dataset_manifest_path is None
    monkeypatch.setenv("LIBRISPEECH_MANIFEST_PATH", "")
    assert settings_from([], {}).settings.dataset_manifest_path is None


def test_timing_keys_become_the_variables_that_the_probe_reads():
    words = ["train.timing_window=50", "train.timing_rank_scope=all", "train.enable_cuda_sync_timing=true", "train.eta_min_samples=3"]
    assert settings_from([*words, "train.eta_distributed_mode=global_max"], {}).environment == {
        "SEATRIAL_TIMING_WINDOW": "50",
        "SEATRIAL_RANK_SCOPE": "all",
        "SEATRIAL_SYNC_TIMING": "1",
        "SEATRIAL_ETA_MIN_SAMPLES": "3",
        "SEATRIAL_ETA_MODE": "global_max",
    }
    assert settings_from(["train.enable_eta_logging=false"], {}).environment["SEATRIAL_ETA_MODE"] == "off"


def test_a_variable_that_is_set_already_stands_and_that_is_told():
    env = {"SEATRIAL_TIMING_WINDOW": "20", "SEATRIAL_RANK_SCOPE": "rank0", "SEATRIAL_ETA_MODE": "off"}
    start = settings_from(["train.enable_eta_logging=false"], env)
    assert not set(env) & set(start.environment)
    reason = "SEATRIAL_TIMING_WINDOW was already set where the process was started"
    assert start.no_effect["train.timing_window"] == Choice(100, "20", reason)
    # Said alike by both: nothing to tell.
    assert not {"train.timing_rank_scope", "train.enable_eta_logging"} & set(start.no_effect)
    assert {variable.name: variable.given_by for variable in start.variables}["SEATRIAL_TIMING_WINDOW"] == "environment"


def test_keys_without_effect_say_so():
    told = settings_from(["train.checkpoint_save_latest=false", "hydra.job.chdir=true"], {}).no_effect
    assert told["train.checkpoint_save_latest"].effective is True
    assert told[f"{DS}.steps_per_print"].requested == 20
    assert "writes no file" in told["hydra.job.chdir"].reason


def test_who_names_the_run_folder():
    both = ["experiment_output_dir=/a", "hydra.run.dir=/b"]
    start = settings_from(both, {"SEATRIAL_RUN_DIR": "/h"})
    assert start.run_dir == Path("/h")
    assert start.resolved["experiment_output_dir"] == "/h"
    told = start.no_effect
    assert told["experiment_output_dir"] == Choice("/a", "/h", "SEATRIAL_RUN_DIR stands over it")
    assert told["hydra.run.dir"] == Choice("/b", "/h", "SEATRIAL_RUN_DIR stands over it")
    assert settings_from(both, {}).run_dir == Path("/a")
    assert settings_from(["hydra.run.dir=/b"], {}).run_dir == Path("/b")
    assert "experiment_output_dir" not in settings_from(["experiment_output_dir=/h/"], {"SEATRIAL_RUN_DIR": "/h"}).no_effect


@pytest.fixture
def launcher_started(tmp_path, monkeypatch):
    """A /proc whose launcher began at 2026-11-15 00:00:05 UTC."""
    monkeypatch.setattr(start_time, "PROC", tmp_path)
    monkeypatch.setattr(start_time.os, "getppid", lambda: 77)
    monkeypatch.setattr(start_time.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(start_time.time, "localtime", start_time.time.gmtime)
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "stat").write_text("77 (a launcher) S " + " ".join(["0"] * 18) + " 500 0 0\n")
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1794700800\n")


@pytest.mark.parametrize("of_node", ["LOCAL_WORLD_SIZE", "LOCAL_SIZE"])
def test_ranks_of_one_launcher_agree_on_a_folder(launcher_started, of_node):
    found = {settings_from([], {"RANK": rank, "WORLD_SIZE": "2", of_node: "2"}).run_dir for rank in "01"}
    assert found == {Path("outputs/train/20261115-000005")}


def test_the_time_in_a_folder_that_was_typed_is_the_launchers_too(launcher_started):
    env = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_SIZE": "2"}
    assert settings_from(["hydra.run.dir=out/${now:%H%M%S}"], env).run_dir == Path("out/000005")
    assert settings_from(["experiment_output_dir=out/${now:%H%M%S}"], env).run_dir == Path("out/000005")


def test_a_launcher_that_cannot_be_seen_gives_no_time(launcher_started, tmp_path):
    (tmp_path / "77" / "stat").unlink()
    assert "ranks whose launcher /proc does not show" in refused(env={"RANK": "1", "WORLD_SIZE": "2", "LOCAL_SIZE": "2"})


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "ranks started one by one have no time in common"),
        ({"RANK": "0", "WORLD_SIZE": "4", "LOCAL_SIZE": "2"}, "ranks on several nodes have no time in common"),
    ],
)
def test_ranks_without_a_common_launcher_need_a_folder(env, told):
    message = refused(env=env)
    assert told in message
    assert message.endswith("give experiment_output_dir=FOLDER")
    assert settings_from(["experiment_output_dir=/a"], env).run_dir == Path("/a")


def test_hydra_changes_nothing_around_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings_from(["+experiment=limit_longest_1-3_stage1_bf16", "hydra.job.chdir=true", f"hydra.run.dir={tmp_path}/out"], {})
    assert Path.cwd() == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "wanted"), [([], TRAIN), (["-h"], HELP), (["--help", "++train.typo=1"], HELP), (["--cfg", "job", "--resolve"], SHOW)]
)
def test_what_is_wanted(argv, wanted):
    assert read_command_line(argv).wanted == wanted


def test_every_experiment_composes():
    for file in (CONFIGS / "experiment").glob("*.yaml"):
        assert settings_from([f"+experiment={file.stem}", "train.pretrained_model_checkpoint=a.pth"], {}).settings.min_slice_s == 1.0
