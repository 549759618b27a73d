"""How processes start: the interface of launchers, and what they share.

In: a run's spec and its allocation. Out: argv and the variables of each process. Pure: nothing is looked up or started.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace

from seatrial.core.paths import AttemptPaths
from seatrial.records.launch import Allocation, Node
from seatrial.records.plan import RunSpec


class Launcher(ABC):
    """One way of starting processes; a subclass overrides what differs from a program that starts the ranks itself."""

    @abstractmethod
    def argv(self, spec: RunSpec, allocation: Allocation, attempt: AttemptPaths, variables: Mapping[str, str]) -> tuple[str, ...]:
        """The whole command, workload included; `variables` is the environment it will be started with."""

    def rank_variables(self, spec: RunSpec, allocation: Allocation) -> tuple[dict[str, str], ...]:
        """The variables of each process that the agent starts, beside the common ones."""
        return ({},)

    def rank_log_folder(self, spec: RunSpec, attempt: AttemptPaths) -> str | None:
        """The folder in which the launcher keeps a file for each rank; None where all output comes through its own pipes."""
        return None

    def variables_set_for_ranks(self, allocation: Allocation, variables: Mapping[str, str]) -> dict[str, str]:
        """Variables that the launcher itself sets for every rank in place of `variables`, for the record."""
        return {}


def workload_arguments(spec: RunSpec, attempt: AttemptPaths) -> tuple[str, ...]:
    """`-m MODULE --settings FILE` for a bundled workload, else the user's script and its arguments as typed."""
    workload = spec.workload
    if workload.module:
        return ("-m", workload.module, "--settings", str(attempt.settings), *workload.args)
    script = (workload.script,) if workload.script else ()
    return (*script, *workload.args)


def node_paths(attempt: AttemptPaths, node: Node | None) -> AttemptPaths:
    """Where a node's agent writes: node 0 into the attempt's folder, as on one host, every other into one of its own."""
    return attempt if node is None or node.node_rank == 0 else attempt.node(node.name)


def allocation_for_node(allocation: Allocation, node: Node) -> Allocation:
    return replace(allocation, node=node, devices=node.devices)
