"""The Slurm of the tests is a real one: it takes the original scripts' #SBATCH lines, and shows each node its GPUs."""

from __future__ import annotations

from tests.slurm.controller import SlurmCluster


def test_two_nodes_with_eight_gpus_each(slurm_cluster: SlurmCluster) -> None:
    asked = ["--nodes=2", "--ntasks-per-node=1", "--gres=gpu:8", "--cpus-per-task=64", "--partition=gpu", "--time=00:05:00"]
    shown = slurm_cluster.run("srun", *asked, "sh", "-c", "echo $(hostname) $CUDA_VISIBLE_DEVICES")
    assert sorted(shown.splitlines()) == ["node1 0,1,2,3,4,5,6,7", "node2 0,1,2,3,4,5,6,7"]
