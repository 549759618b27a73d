"""Column names of every table, in order; those of the chart tables; and other names of the original stage-1 scripts.

The columns of those scripts, `*_STAGE1`, come first and never change. `*_OURS` follow, then axes without a stage-1 column, as `axis_NAME`.

Chart tables are OUT/charts/NAME.csv, from which, with summary.json, every chart is drawn: times are seconds since the launch of the
attempt, downsampling keeps all extremes, and distributions, shares and ranks are of the counted steps, with their window and n.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from seatrial.records.caution import Scalar


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ARRIVALS = _names("offset_bytes t m")
MANIFEST_STAGE1 = _names(
    """
    mode group repeat status exit_code duration_sec last_step last_iter_ms_p50 last_eta_step last_eta_remaining_steps last_eta_sec
    last_eta_hms last_eta_mode iter_p90_over_p50 data_p90_over_p50 step_p90_over_p50 unstable_run_flag port run_dir launcher_log
    train_log zero_stage micro_batch world_size global_batch deterministic cudnn_benchmark wall_clock_breakdown log_every_steps
    validation_every_steps checkpoint_every_steps num_workers prefetch_factor dataset_manifest_path dataset_use_trim
    dataset_offline_trimmed enable_cuda_sync_timing timing_rank_scope precision_mode_req precision_mode_effective
    model_load_dtype_effective attn_impl_effective speech_attn_impl_effective text_attn_impl_effective torch_compile_enabled
    tf32_enabled gpu_name gpu_cc gpu_uuid_list gpu_power_limit_w pcie_gen driver_version git_commit_hash git_commit_short git_branch
    git_dirty gpu_telemetry_rows gpu_telemetry_empty_flag host_telemetry_rows host_telemetry_empty_flag
    """
)
MANIFEST_OURS = _names(
    """
    run outcome cause detail attempt hash group_key current lane plan workload fingerprint attn_impl_req model_load_dtype_req
    fallback_reasons source window_first_step window_last_step window_n warmup_steps excluded_steps steady wall_s wall_steps_per_sec
    wall_samples_per_sec wall_tokens_per_sec wall_iter_p50_ms wall_iter_p90_ms wall_p90_over_p50 startup_sec first_loss last_loss
    started_at signature fault resumed_from resumed_at lost_steps downtime_sec
    """
)
TIMING_POINTS = _names(
    """
    mode group repeat index step data_wait_ms_p50 data_wait_ms_p90 preprocess_ms_p50 preprocess_ms_p90 fwd_ms_p50 fwd_ms_p90
    bwd_ms_p50 bwd_ms_p90 step_ms_p50 step_ms_p90 iter_ms_p50 iter_ms_p90 train_log run attempt
    """
)
ETA_POINTS = _names(
    """
    mode group repeat index step remain_steps eta_sec eta_hms eta_mode train_log run attempt source eta_low_sec eta_high_sec
    basis_iter_ms samples actual_sec error_sec
    """
)
TELEMETRY_FIGURES = _names(
    """
    gpu_util_mean_pct gpu_power_mean_w gpu_power_max_w gpu_energy_j gpu_joules_per_sample gpu_temp_max_c gpu_sm_clock_mean_mhz
    gpu_mem_peak_mib gpu_throttled_pct gpu_throttle_reasons gpu_foreign_process_max host_rss_peak_mib host_cpu_busy_mean_pct
    host_cpu_steal_mean_pct host_mem_available_min_mib telemetry_gaps telemetry_invalid telemetry_cpu_pct telemetry_note
    """
)
STARTUP_COLUMNS = _names(
    """
    startup_launch_sec startup_import_sec startup_process_group_sec startup_model_sec startup_data_sec startup_tokenise_sec
    startup_compile_sec startup_first_step_sec startup_other_sec
    """
)
ETA_QUALITY = _names(
    """
    eta_error_median_sec eta_error_p90_sec eta_error_median_fraction eta_error_p90_fraction
    """
)
FOUND_COLUMNS = _names(
    """
    slow_steps slow_steps_time_share last50_n last50_mean_ms last50_stdev_ms last50_per_sec host_memory host_slope_mib_per_min
    host_slope_low host_slope_high host_mib_per_1000_steps host_hours_left gpu_memory gpu_slope_mib_per_min gpu_slope_low
    gpu_slope_high gpu_mib_per_1000_steps gpu_hours_left straggler straggler_rank straggler_score straggler_phase
    straggler_held_up_ms straggler_n uneven_causes debug_settings slow_signs
    """
)
"""Findings in a run; of several GPUs the one whose memory grows fastest."""
PER_RUN_STAGE1 = _names(
    """
    mode group repeat run_dir train_log launcher_log zero_stage micro_batch world_size global_batch deterministic cudnn_benchmark
    wall_clock_breakdown num_workers prefetch_factor dataset_manifest_path dataset_use_trim dataset_offline_trimmed
    enable_cuda_sync_timing timing_rank_scope precision_mode_req precision_mode_effective model_load_dtype_effective
    attn_impl_effective speech_attn_impl_effective text_attn_impl_effective torch_compile_enabled tf32_enabled gpu_name gpu_cc
    gpu_uuid_list gpu_power_limit_w pcie_gen driver_version git_commit_hash git_commit_short git_branch git_dirty gpu_telemetry_rows
    gpu_telemetry_empty_flag host_telemetry_rows host_telemetry_empty_flag log_every_steps validation_every_steps
    checkpoint_every_steps last_eta_step last_eta_remaining_steps last_eta_sec last_eta_hms last_eta_mode timing_points
    tail_points_used eta_points eta_first_step eta_first_sec eta_first_hms eta_last_step eta_last_sec eta_last_hms eta_mode_effective
    last_step last_iter_p50_ms last_iter_p90_ms last_fwd_p50_ms last_fwd_p90_ms last_bwd_p50_ms last_bwd_p90_ms last_data_wait_p50_ms
    last_data_wait_p90_ms last_step_p50_ms last_step_p90_ms tail_mean_iter_p50_ms tail_mean_iter_p90_ms tail_std_iter_p50_ms
    tail_std_iter_p90_ms all_mean_iter_p50_ms all_std_iter_p50_ms iter_p90_over_p50 data_p90_over_p50 step_p90_over_p50
    rank_iter_spread_p90_ms rank_step_spread_p90_ms rank_spread_points rank_spread_log_source unstable_run_flag tail_steps_per_sec
    tail_samples_per_sec
    """
)
PER_RUN_OURS = (
    *_names(
        """
    run attempt hash group_key lane fingerprint source window_first_step window_last_step window_n warmup_steps excluded_steps steady
    wall_s wall_steps_per_sec wall_samples_per_sec wall_tokens_per_sec wall_iter_p50_ms wall_iter_p90_ms wall_iter_p99_ms
    wall_p90_over_p50 startup_sec duration_sec first_loss last_loss loss_falls
    """
    ),
    *STARTUP_COLUMNS,
    *ETA_QUALITY,
    *TELEMETRY_FIGURES,
    *FOUND_COLUMNS,
    *_names("resumed_from resumed_at lost_steps downtime_sec"),
    "startup_ops_build_sec",
)
GROUP_STAGE1 = _names(
    """
    group mode runs zero_stage micro_batch num_workers prefetch_factor enable_cuda_sync_timing timing_rank_scope
    precision_mode_effective model_load_dtype_effective attn_impl_effective speech_attn_impl_effective text_attn_impl_effective
    torch_compile_enabled tf32_enabled gpu_name gpu_cc gpu_uuid_list gpu_power_limit_w pcie_gen driver_version git_commit_short
    git_branch git_dirty tail_mean_iter_p50_ms_mean tail_mean_iter_p90_ms_mean tail_mean_iter_p50_ms_std tail_mean_iter_p90_ms_std
    tail_mean_iter_p50_ms_min tail_mean_iter_p50_ms_max tail_mean_iter_p90_ms_min tail_mean_iter_p90_ms_max iter_p90_over_p50_mean
    iter_p90_over_p50_std rank_iter_spread_p90_ms_mean rank_iter_spread_p90_ms_std rank_step_spread_p90_ms_mean
    rank_step_spread_p90_ms_std rank_spread_points_mean tail_steps_per_sec_mean tail_steps_per_sec_std tail_samples_per_sec_mean
    tail_samples_per_sec_std unstable_run_count unstable_run_ratio gpu_telemetry_rows_mean gpu_telemetry_empty_count
    gpu_telemetry_empty_ratio host_telemetry_rows_mean host_telemetry_empty_count host_telemetry_empty_ratio stability_score
    speedup_vs_baseline rank_by_iter_p50 rank_by_stability rank_balanced
    """
)
GROUP_OURS = _names(
    """
    rank lane group_key failed_runs failed_attempts set_aside_runs unsteady_runs window_n wall_samples_per_sec
    wall_samples_per_sec_low wall_samples_per_sec_high wall_tokens_per_sec wall_tokens_per_sec_low wall_tokens_per_sec_high
    wall_steps_per_sec wall_steps_per_sec_low wall_steps_per_sec_high wall_iter_p50_ms wall_p90_over_p50 startup_sec duration_sec
    ratio_to_best ratio_low ratio_high tied_with_best can_win reason infrastructure_failures stability stability_ratio_median
    stability_ratio_max throughput_cv_pct stability_causes debug_settings confounded
    """
)
BEST_CONFIG = _names(
    """
    group mode zero_stage micro_batch num_workers prefetch_factor precision_mode_effective model_load_dtype_effective
    attn_impl_effective speech_attn_impl_effective text_attn_impl_effective torch_compile_enabled tf32_enabled gpu_name gpu_cc
    gpu_uuid_list gpu_power_limit_w pcie_gen driver_version git_commit_short git_branch git_dirty tail_mean_iter_p50_ms_mean
    tail_mean_iter_p90_ms_mean rank_iter_spread_p90_ms_mean rank_step_spread_p90_ms_mean stability_score rank_by_stability
    rank_balanced tail_steps_per_sec_mean tail_samples_per_sec_mean gpu_telemetry_rows_mean gpu_telemetry_empty_ratio
    host_telemetry_rows_mean host_telemetry_empty_ratio speedup_vs_baseline
    """
)
BEST_ENV = _names(
    """
    BEST_GROUP BEST_MODE BEST_ZERO_STAGE BEST_MICRO_BATCH BEST_NUM_WORKERS BEST_PREFETCH_FACTOR BEST_PRECISION_MODE_EFFECTIVE
    BEST_MODEL_LOAD_DTYPE_EFFECTIVE BEST_ATTN_IMPL_EFFECTIVE BEST_SPEECH_ATTN_IMPL_EFFECTIVE BEST_TEXT_ATTN_IMPL_EFFECTIVE
    BEST_TORCH_COMPILE_ENABLED BEST_TF32_ENABLED BEST_GPU_NAME BEST_GPU_CC BEST_GPU_UUID_LIST BEST_GPU_POWER_LIMIT_W BEST_PCIE_GEN
    BEST_DRIVER_VERSION BEST_GIT_COMMIT_SHORT BEST_GIT_BRANCH BEST_GIT_DIRTY BEST_TAIL_MEAN_ITER_P50_MS BEST_TAIL_MEAN_ITER_P90_MS
    BEST_RANK_ITER_SPREAD_P90_MS BEST_RANK_STEP_SPREAD_P90_MS BEST_STABILITY_SCORE BEST_RANK_BY_STABILITY BEST_RANK_BALANCED
    BEST_TAIL_STEPS_PER_SEC BEST_TAIL_SAMPLES_PER_SEC BEST_GPU_TELEMETRY_ROWS_MEAN BEST_GPU_TELEMETRY_EMPTY_RATIO
    BEST_HOST_TELEMETRY_ROWS_MEAN BEST_HOST_TELEMETRY_EMPTY_RATIO BEST_SPEEDUP_VS_BASELINE
    """
)
META_KEYS = _names(
    """
    timestamp mode group repeat port zero_stage micro_batch world_size global_batch precision_mode_req precision_mode_effective
    model_load_dtype_req model_load_dtype_effective attn_impl_req attn_impl_effective speech_attn_impl_req speech_attn_impl_effective
    text_attn_impl_req text_attn_impl_effective torch_compile_enabled torch_compile_mode torch_compile_dynamic tf32_enabled
    matmul_precision gpu_name gpu_cc gpu_uuid_list gpu_power_limit_w pcie_gen driver_version git_commit_hash git_commit_short git_branch
    git_dirty enable_gpu_telemetry gpu_telemetry_interval_sec gpu_telemetry_csv enable_host_telemetry host_telemetry_interval_sec
    host_telemetry_csv enable_eta_logging eta_distributed_mode eta_min_samples stall_alert_ratio enable_length_fixed_slice
    fixed_slice_seconds enable_length_bucket length_bucket_boundaries_sec run_dir
    """
)
"""Lines at the head of launcher.log, in the driver's order."""
SKIPPED = _names(
    """
    mode group repeat reason train_log run attempt outcome cause action
    """
)

AXIS = "axis_"
"""Prefix of the columns of axes without a stage-1 column."""
# Axes and settings with a stage-1 column; every other axis follows as `axis_NAME`.
STAGE1_SETTINGS = frozenset(
    _names(
        """
        checkpoint_every_steps cudnn_benchmark dataset_manifest_path dataset_offline_trimmed dataset_use_trim deterministic
        micro_batch num_workers prefetch_factor validation_every_steps wall_clock_breakdown zero_stage
        """
    )
)


SWEEP_LABELS = {"zero_stage": "z", "micro_batch": "mb", "num_workers": "nw", "prefetch_factor": "pf"}
"""Axes of a sweep, in the driver's order → their labels in group names."""

TRAINER_KEYS = {
    "++train.log_every_steps": "log_every",
    "++train.validation_every_steps": "validation_every_steps",
    "++train.checkpoint_every_steps": "checkpoint_every_steps",
    "++train.deterministic": "deterministic",
    "++train.cudnn_benchmark": "cudnn_benchmark",
    "++train.data.num_workers": "num_workers",
    "++train.data.prefetch_factor": "prefetch_factor",
    "++train.data.use_length_bucket": "length_buckets",
    "++train.data.bucket_boundaries_second": "bucket_boundaries_s",
    "++train.enable_torch_compile": "torch_compile",
    "++train.torch_compile_mode": "torch_compile_mode",
    "++train.torch_compile_dynamic": "torch_compile_dynamic",
    "++train.enable_tf32": "tf32",
    "++train.matmul_precision": "matmul_precision",
    "++train.pretrained_model_checkpoint": "pretrained_checkpoint",
    "++train.fixed_slice_seconds": "fixed_slice_s",
    "++dataset.root_dir": "dataset_root",
    "++dataset.manifest_path": "dataset_manifest_path",
    "++dataset.use_trim": "dataset_use_trim",
    "++dataset.offline_trimmed": "dataset_offline_trimmed",
    "++model.speech_encoder.pretrained_path": "speech_model",
    "++model.text_encoder.pretrained_path": "text_model",
    "++model.speech_encoder.attn_implementation": "speech_attn_impl",
    "++model.text_encoder.attn_implementation": "text_attn_impl",
    "++model.speech_encoder.torch_dtype": "model_load_dtype",
    "++model.text_encoder.torch_dtype": "model_load_dtype",
    "deepspeed_config_yaml.train_micro_batch_size_per_gpu": "micro_batch",
    "deepspeed_config_yaml.zero_optimization.stage": "zero_stage",
    "deepspeed_config_yaml.wall_clock_breakdown": "wall_clock_breakdown",
    "++train.precision": "precision",
}
"""Key of train.py → setting, in the order of the command."""

ORIGINAL_SCRIPTS = "original_scripts"
"""Kind of the caution at the head of a report on a folder of the original scripts."""


Columns = dict[str, list[Scalar]]
"""A table by column, all of one length."""

RUN_KEY_COLUMNS = ("run", "group", "repeat")
"""The first columns of every chart table on disk; `RunCharts.tables` lacks them."""
STEPS, STEP_TIMES, PHASES, RANKS, TELEMETRY, SPANS, ETA = "steps", "step_times", "phases", "ranks", "telemetry", "spans", "eta"
CHART_TABLES: dict[str, tuple[str, ...]] = {
    STEPS: ("rank", "step", "begin_s", "t_s", "iter_ms", "loss", "counted"),
    STEP_TIMES: ("quantile", "iter_ms", "first_step", "last_step", "n"),
    PHASES: ("phase", "mean_ms", "share_pct", "first_step", "last_step", "n"),
    RANKS: ("rank", "host", "gpu", "iter_p50_ms", "work_p50_ms", "wait_p50_ms", "first_step", "last_step", "n"),
    TELEMETRY: ("source", "metric", "t_s", "value"),
    SPANS: ("source", "span", "begin_s", "end_s"),
    ETA: ("step", "elapsed_s", "eta_s", "low_s", "high_s", "actual_s"),
}
"""By file name. `steps` are those of the lowest rank that reported any, downsampled: a row begins with its first step (`begin_s`) and ends
with its last (`t_s`); `counted` is whether they are in the window and hold no pause. `source` is `host`, `gpu 0` or `rank 0`, on many
hosts `host NAME` and `gpu NAME:0`; a metric has the name of its telemetry column; a span of a GPU is `throttled REASON`."""
# The type of a column follows from its name in every table; all others are floats.
NAME_COLUMNS = frozenset({"run", "group", "host", "gpu", "phase", "source", "metric", "span"})
INTEGER_COLUMNS = frozenset({"repeat", "rank", "step", "first_step", "last_step", "n"})
BOOLEAN_COLUMNS = frozenset({"counted"})
TIME_COLUMNS = frozenset({"begin_s", "end_s", "t_s", "elapsed_s", "eta_s", "low_s", "high_s", "actual_s"})
"""Seconds, to the millisecond."""
NON_FINITE_COLUMNS = frozenset({"loss"})
"""Columns in which nan and inf are kept."""
DRAWN_GPU = (
    "power_w", "sm_clock_mhz", "temp_c", "util_gpu_pct", "mem_used_mib", "mem_free_mib", "pcie_rx_kib_per_s", "pcie_tx_kib_per_s",
)  # fmt: skip
DRAWN_HOST = (
    "cpu_user_pct", "cpu_system_pct", "rss_kib", "mem_available_kib", "disk_read_kib_per_s", "disk_write_kib_per_s", "net_rx_kib_per_s",
    "net_tx_kib_per_s",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Detail:
    """How many points of a run are kept."""

    steps: int
    telemetry: int
    """Points per metric and source."""
    eta: int


@dataclass(frozen=True, kw_only=True)
class RunCharts:
    """The charts of one attempt."""

    tables: dict[str, Columns] = field(default_factory=dict)
    """By name in CHART_TABLES, without RUN_KEY_COLUMNS; empty tables are left out."""
    gpus: int = 0
    """GPUs with samples."""
    gpus_drawn: int = 0
    """GPUs with all their metrics in the telemetry table; the others appear only where they exceed these."""
    hosts: int = 0
    """Hosts with samples, for a run on several."""
    hosts_drawn: int = 0
