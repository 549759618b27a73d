"""Keys of DeepSpeed's own configuration that this trainer does not act on, so that they can be told from misspelled ones.

Names as DeepSpeed 0.19 reads them; whatever stands below one of them is taken for DeepSpeed's too.
"""

from __future__ import annotations

# Group → names in it, the root's first.
_NOT_ACTED_ON = {
    "": """
        train_batch_size managed_gradient_accumulation dump_state disable_python_gc disable_allgather communication_data_type
        seq_parallel_communication_data_type prescale_gradients gradient_predivide_factor gradient_allreduce_op sparse_gradients
        activation_checkpointing comms_logger tensorboard wandb csv_monitor comet torch_autocast amp zero_allow_untested_optimizer
        zero_force_ds_cpu_optimizer flops_profiler memory_breakdown autotuning use_data_before_expert_parallelism hybrid_engine pipeline
        data_efficiency curriculum_learning checkpoint data_types aio dataloader_drop_last log_level datastates weight_quantization
        compile timers tensor_parallel expert_parallel elasticity compression_training sparse_attention progressive_layer_drop
        eigenvalue nebula
    """,
    "optimizer.": "legacy_fusion",
    "optimizer.params.": "adam_w_mode bias_correction amsgrad",
    "scheduler.params.": "warmup_min_ratio warmup_type last_batch_iteration",
    "fp16.": """
        auto_cast loss_scale initial_scale_power loss_scale_window hysteresis consecutive_hysteresis min_loss_scale
        fp16_master_weights_and_grads
    """,
    "bf16.": "immediate_grad_update check_grad_overflow bf16_master_weights_and_grads bf16_optimizer_states",
    "zero_optimization.": """
        contiguous_gradients reduce_scatter use_multi_rank_bucket_allreduce allgather_partitions compute_grad_norm
        load_from_fp32_weights elastic_checkpoint offload_param offload_optimizer zenflow sub_group_size cpu_offload_param
        cpu_offload_use_pin_memory cpu_offload stage3_prefetch_bucket_size stage3_param_persistence_threshold
        stage3_model_persistence_threshold stage3_max_live_parameters stage3_max_reuse_distance
        stage3_gather_16bit_weights_on_model_save stage3_module_granularity_threshold stage3_use_all_reduce_for_fetch_params
        stage3_allgather_sequential stage3_gather_fp16_weights_on_model_save ignore_unused_parameters legacy_stage1
        round_robin_gradients parameter_alignment zero_hpz_partition_size zero_quantized_weights zero_quantized_nontrainable_weights
        zero_quantized_gradients memory_efficient_linear pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings
        enable_sanity_checks save_muon_momentum_buffer_in_memory leaf_module
    """,
}
NOT_ACTED_ON = frozenset(f"{group}{name}" for group, names in _NOT_ACTED_ON.items() for name in names.split())


def is_known_to_deepspeed(name: str) -> bool:
    """Whether a name below deepspeed_config_yaml is DeepSpeed's, and none of ours."""
    parts = name.split(".")
    return any(".".join(parts[:end]) in NOT_ACTED_ON for end in range(1, len(parts) + 1))
