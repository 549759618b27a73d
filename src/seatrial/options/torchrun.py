"""The options of torchrun: which it knows, and which of them take a value.

`OPTIONS` is the table; `option_of`, `split_words` and `values_in` are its own. torchrun takes `-` for `_`.
"""

from __future__ import annotations

from types import MappingProxyType

from seatrial.options.words import OptionTable

FLAGS = frozenset({"standalone", "module", "no_python", "run_path", "use_env", "virtual_local_rank", "help"})
VALUED = frozenset(
    {
        "nnodes",
        "nproc_per_node",
        "rdzv_backend",
        "rdzv_endpoint",
        "rdzv_id",
        "rdzv_conf",
        "max_restarts",
        "monitor_interval",
        "start_method",
        "event_log_handler",
        "role",
        "log_dir",
        "redirects",
        "tee",
        "local_ranks_filter",
        "duplicate_stdout_filters",
        "duplicate_stderr_filters",
        "node_rank",
        "master_addr",
        "master_port",
        "local_addr",
        "logs_specs",
        "numa_binding",
        "signals_to_handle",
        "shutdown_timeout",
    }
)
OPTIONS = OptionTable(
    flags=FLAGS,
    valued=VALUED,
    short_names=MappingProxyType({"-m": "module", "-r": "redirects", "-t": "tee", "-h": "help"}),
    dash_is_underscore=True,
)
option_of = OPTIONS.option_of
split_words = OPTIONS.split_words
values_in = OPTIONS.values_in
