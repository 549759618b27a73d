"""Provenance: host, container, recorded variables, GPUs, and the fingerprint over them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.machine import provenance
from seatrial.machine.gpus import Driver
from seatrial.machine.host import cpu_model, detect_container
from seatrial.machine.provenance import (
    FINGERPRINT_FIELDS,
    FINGERPRINT_PACKAGES,
    HASH_LENGTH,
    NOT_TUNING,
    TUNING_PREFIXES,
    compute_fingerprint,
    fingerprint_differences,
    gather_provenance,
    is_recorded_variable,
    short_hash,
)
from seatrial.machine.software import RECORDED_PACKAGES, package_version
from seatrial.records.attempt import Provenance
from seatrial.records.codec import from_json


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "read_driver", Driver)


def _commit(folder: Path) -> None:
    identity = ["-c", "user.name=A Tester", "-c", "user.email=tester@example.org"]
    for arguments in (["init"], ["add", "."], [*identity, "commit", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def test_variables_are_recorded_in_name_order_and_masked(tmp_path: Path) -> None:
    found = gather_provenance(
        tmp_path,
        [],
        tuning={"NCCL_NET_TOKEN": "hunter2", "NCCL_ALGO": "Ring"},
        environment={"TORCH_HOME": "/t", "HF_TOKEN": "hunter2", "HTTP_PROXY": "http://me:hunter2@h"},
        plan_hash="abc",
    )
    assert found.variables == {"NCCL_ALGO": "Ring", "NCCL_NET_TOKEN": "***"}
    assert found.environment == {"HF_TOKEN": "***", "HTTP_PROXY": "http://me:***@h", "TORCH_HOME": "/t"}
    assert list(found.environment) == sorted(found.environment)
    assert found.plan_hash == "abc"


def test_uncommitted_code_changes_the_fingerprint_and_results_do_not(tmp_path: Path) -> None:
    script, out = tmp_path / "train.py", tmp_path / "out"
    out.mkdir()
    for path in (script, out / "old.csv"):
        path.write_text("1\n")
    _commit(tmp_path)
    first = gather_provenance(tmp_path, [], output=out)
    (out / "new.csv").write_text("2\n")
    (out / "old.csv").write_text("2\n")
    second = gather_provenance(tmp_path, [], output=out)
    assert (second.git_dirty, second.git_diff_sha256) == ("false", "")
    assert second.fingerprint == first.fingerprint
    script.write_text("2\n")
    changed = gather_provenance(tmp_path, [], output=out)
    assert changed.git_diff_sha256 and changed.fingerprint != first.fingerprint


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Provenance)])
def test_every_field_is_described(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "files.md").read_text(encoding="utf-8")
    section = page.partition("\n## provenance.json\n")[2].partition("\n## ")[0]
    assert f"`{name}`" in section


PLAIN = Provenance(host="a", gpu_cc="0:9.0;1:9.0", packages={"torch": "2.13.0"}, variables={"NCCL_ALGO": "Ring"}, container="docker 0a1b")


@pytest.mark.parametrize("name", FINGERPRINT_FIELDS)
def test_every_field_counts(name: str) -> None:
    other = replace(PLAIN, **{name: {"NCCL_ALGO": "Tree"} if name == "variables" else "other"})
    assert compute_fingerprint(other) != compute_fingerprint(PLAIN)
    assert list(fingerprint_differences(PLAIN, other)) == ["NCCL_ALGO" if name == "variables" else name]


@pytest.mark.parametrize("name", FINGERPRINT_PACKAGES)
def test_every_package_of_the_step_counts(name: str) -> None:
    other = replace(PLAIN, packages={**PLAIN.packages, name: "9.9"})
    assert fingerprint_differences(PLAIN, other) == {name: (PLAIN.packages.get(name, ""), "9.9")}
    assert name in RECORDED_PACKAGES, "one that is not recorded could never count"


@pytest.mark.parametrize(
    "changes",
    [
        {"git_dirty": "true"},
        {"git_branch": "other"},
        {"gpu_uuid_list": "GPU-1"},
        {"gpu_cc": "3:9.0"},
        {"nics": {"eth0": "down"}},
        {"memory_bytes": 1},
        {"container": "docker ffff"},
        {"environment": {"HF_HOME": "/x"}},
        {"plan_hash": "1"},
        {"packages": {"torch": "2.13.0", "rich": "1", "hydra-core": "1.3"}},
    ],
)
def test_what_may_differ_between_repeats_does_not_count(changes: dict[str, object]) -> None:
    other = replace(PLAIN, **changes)  # type: ignore[arg-type]
    assert compute_fingerprint(other) == compute_fingerprint(PLAIN)
    assert fingerprint_differences(PLAIN, other) == {}


def test_provenance_of_an_earlier_version_can_be_read_and_compared() -> None:
    old = from_json(Provenance, {"host": "a", "packages": {"torch": "2.13.0"}, "fingerprint": "0123456789ab"})
    assert old.fingerprint == "0123456789ab" and old.git_diff_sha256 == "" and old.nics == {}
    assert fingerprint_differences(old, replace(old, cuda="13.0", fingerprint="f")) == {"cuda": ("", "13.0")}


def test_short_hash_ignores_the_order_of_keys() -> None:
    assert short_hash({"a": 1, "b": [2]}) == short_hash({"b": [2], "a": 1}) != short_hash({"a": 1, "b": [3]})
    assert len(short_hash({})) == HASH_LENGTH


def test_variables_that_can_change_a_run_are_recorded() -> None:
    recorded = ("TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES", "PYTHONPATH", "LD_PRELOAD", "RANK", "VIRTUAL_ENV", *NOT_TUNING)
    assert all(map(is_recorded_variable, (*recorded, *(f"{prefix}X" for prefix in TUNING_PREFIXES))))
    assert all(name.startswith(TUNING_PREFIXES) for name in NOT_TUNING), "else it would not be an exception"
    assert not any(map(is_recorded_variable, ("", "HOME", "PATH", "SSH_AUTH_SOCK", "RANKS", "MY_NCCL_ALGO", "nccl_algo", "WANDB_API_KEY")))


ID = "0a1b2c3d4e5f" + "0" * 52
DOCKER_V1 = f"12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n"
DOCKER_MOUNTS = f"1 2 0:3 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw - ext4 /dev/sda rw\n"
POD = f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-podaa.slice/cri-containerd-{ID}.scope\n"


def _root(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "env", "found"),
    [
        ({}, {}, ""),
        ({"proc/1/cgroup": "0::/init.scope\n"}, {"container": ""}, ""),
        ({".dockerenv": "", "proc/1/cgroup": DOCKER_V1}, {}, f"docker {ID[:12]}"),
        ({".dockerenv": "", "proc/1/cgroup": "0::/\n", "proc/self/mountinfo": DOCKER_MOUNTS}, {}, f"docker {ID[:12]}"),
        ({".dockerenv": ""}, {}, "docker"),
        ({"proc/1/cgroup": DOCKER_V1}, {}, f"docker {ID[:12]}"),
        ({"run/.containerenv": f'engine="podman-5.0"\nid="{ID}"\n'}, {"container": "podman"}, f"podman {ID[:12]}"),
        ({"run/.containerenv": "", "proc/1/cgroup": f"0::/libpod-{ID}.scope\n"}, {}, f"podman {ID[:12]}"),
        ({"proc/1/cgroup": POD}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, f"kubernetes {ID[:12]}"),
        ({".dockerenv": "", "proc/1/cgroup": "0::/\n"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"proc/1/cgroup": POD}, {}, f"kubernetes {ID[:12]}"),
        ({}, {"APPTAINER_CONTAINER": "/images/torch.sif", "SINGULARITY_CONTAINER": "/images/torch.sif"}, "apptainer torch.sif"),
        ({}, {"SINGULARITY_CONTAINER": "/images/torch.sif"}, "singularity torch.sif"),
        ({"proc/1/cgroup": "9:cpu:/lxc/web\n"}, {}, "lxc"),
        ({"run/systemd/container": "systemd-nspawn\n"}, {}, "systemd-nspawn"),
        ({}, {"container": "lxc"}, "lxc"),
    ],
)
def test_container_is_detected(tmp_path: Path, files: dict[str, str], env: dict[str, str], found: str) -> None:
    assert detect_container(_root(tmp_path, files), env) == found


def test_cpu_model_is_the_first_name_with_single_spaces(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some  CPU   9000\nmodel name\t: Other\n")
    assert cpu_model(info) == "Some CPU 9000" and cpu_model(tmp_path / "none")


def test_facts_of_this_host_without_git_and_without_importing_torch(tmp_path: Path) -> None:
    before = "torch" in sys.modules
    found = gather_provenance(tmp_path, [])
    assert found.git_commit_hash == found.gpu_name == found.gpu_cc == ""
    assert found.host and found.platform and found.cpu and found.python and found.cpu_count >= 1 and found.memory_bytes > 2**20
    assert len(found.fingerprint) == HASH_LENGTH and found.packages["seatrial"] and package_version("no-such-package") == ""
    assert ("torch" in sys.modules) == before
    other = gather_provenance(tmp_path, [], program=("/bin/ls",), env={"PATH": "/bin", "NCCL_VERSION": "2.28.3", "CUDNN_VERSION": "9.13.0"})
    assert (other.python, other.packages, other.cuda, other.cudnn, other.nccl) == ("", {}, "", "9.13.0", "2.28.3")
    assert other.fingerprint != found.fingerprint
