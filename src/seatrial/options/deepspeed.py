"""The options of the `deepspeed` runner: which it knows, which of them take a value, and which Seatrial does not pass on.

`OPTIONS` is the table; `option_of`, `split_words` and `values_in` are its own. `NOT_PASSED_ON` says why, for people.
"""

from __future__ import annotations

from types import MappingProxyType

from seatrial.options.words import OptionTable

FLAGS = frozenset(
    {
        "module",
        "no_python",
        "no_local_rank",
        "no_ssh",
        "no_ssh_check",
        "force_multi",
        "save_pid",
        "bind_cores_to_rank",
        "quiet",
        "help",
        # Of older releases.
        "elastic_training",
    }
)
VALUED = frozenset(
    {
        "hostfile",
        "include",
        "exclude",
        "num_nodes",
        "num_gpus",
        "master_port",
        "master_addr",
        "node_rank",
        "launcher",
        "launcher_args",
        "enable_each_rank_log",
        "autotuning",
        "bind_core_list",
        "ssh_port",
        "venv_script",
        "log_level",
        # Of older releases.
        "min_elastic_nodes",
        "max_elastic_nodes",
    }
)
OPTIONS = OptionTable(
    flags=FLAGS,
    valued=VALUED,
    short_names=MappingProxyType({"-H": "hostfile", "-i": "include", "-e": "exclude", "-q": "quiet", "-h": "help"}),
    other_names=MappingProxyType({"num_accelerators": "num_gpus"}),
)
option_of = OPTIONS.option_of
split_words = OPTIONS.split_words
values_in = OPTIONS.values_in

_ELASTIC = "ranks that come and go are not built yet; leave it out"
_PERNODE = "`place: {kind: pernode, nodes: N}` starts one command on each node, without ssh"
NOT_PASSED_ON = MappingProxyType(
    {
        "hostfile": "`place: {kind: hostfile, hostfile: FILE}` says which hosts there are",
        "exclude": "place.include says which GPUs to use; of a hostfile, place.exclude which not to",
        "num_nodes": "place.include says which hosts of a hostfile to use, place.ranks how many of their slots",
        "node_rank": _PERNODE,
        "no_ssh": _PERNODE,
        "launcher": "place.via says what starts the agents on other hosts, pdsh or ssh",
        "launcher_args": "place.ssh_args has the options for ssh",
        "ssh_port": '`place: {ssh_args: ["-p", PORT]}` says it',
        "venv_script": "place.python says which interpreter the hosts have",
        "force_multi": "`place: {kind: hostfile}` does so, with one host too; leave it out",
        "no_ssh_check": "no host is asked by deepspeed, since Seatrial starts it on each; leave it out",
        **dict.fromkeys(("elastic_training", "min_elastic_nodes", "max_elastic_nodes"), _ELASTIC),
        "autotuning": "it starts runs of its own that nobody watches; make the settings it would try axes of the plan",
    }
)
"""Option → why it is refused."""
# On one host these say nothing, with these values.
FOR_ONE_HOST = MappingProxyType({"num_nodes": ("1", "-1"), "node_rank": ("0", "-1"), "no_ssh": ("",), "no_ssh_check": ("",)})
QUIET = "Seatrial counts deepspeed's own lines of the ranks that ended well, since its exit code 0 does not tell; leave it out"
"""Why the runner must not be made quiet."""
# At these levels the lines are printed.
SPEAKING_LEVELS = ("debug", "info")


def is_quiet(name: str, value: str) -> bool:
    """Whether an option keeps the runner from saying how each rank ended."""
    return name == "quiet" or (name == "log_level" and value not in SPEAKING_LEVELS)


def is_for_one_host(name: str, value: str) -> bool:
    """Whether an option of runs on several hosts asks for nothing but this one."""
    return value in FOR_ONE_HOST.get(name, ())
