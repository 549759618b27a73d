"""Column names of every table, in order: the seeds' first, under their names, then ours.

`*_SEED` tuples are the seeds' own and never change; `*_OURS` follow them; axes without a seed column follow as `axis_NAME`.
"""

from __future__ import annotations


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ARRIVALS = _names("offset_bytes t m")
MANIFEST_SEED = _names(
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
    started_at signature fault
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
"""What records.health holds of a run; of several GPUs the one whose memory grows fastest."""
PER_RUN_SEED = _names(
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
)
GROUP_SEED = _names(
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
    stability_ratio_max throughput_cv_pct stability_causes debug_settings
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
SKIPPED = _names(
    """
    mode group repeat reason train_log run attempt outcome cause action
    """
)

AXIS = "axis_"
"""How the columns begin that hold the levels of an axis without a seed column."""
# Axes and settings the seeds have a column for; every other axis follows as `axis_NAME`.
SEED_SETTINGS = frozenset(
    _names(
        """
        checkpoint_every_steps cudnn_benchmark dataset_manifest_path dataset_offline_trimmed dataset_use_trim deterministic
        micro_batch num_workers prefetch_factor validation_every_steps wall_clock_breakdown zero_stage
        """
    )
)
