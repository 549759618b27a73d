"""What each runtime leaves for a process to find, as recorded from one, under a root folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.machine.container import container

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
def test_container_is_named_by_what_it_left(tmp_path: Path, files: dict[str, str], env: dict[str, str], found: str) -> None:
    assert container(_root(tmp_path, files), env) == found


def test_this_process_has_an_answer() -> None:
    assert isinstance(container(), str)
