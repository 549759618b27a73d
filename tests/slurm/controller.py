"""A real Slurm on the hosts of a test cluster: slurmctld on the head, which is the login node too, slurmd on every node.

    with slurm(nodes=2, folder=tmp_path) as cluster:
        cluster.hosts.run("head", ["sbatch", "job.sh"])
        cluster.stop_controller()

Partition `gpu` (and `urgent`, which preempts it) with 64 CPUs and 8 GPUs a node: the CPUs by `config_overrides`, the GPUs by device nodes
that nothing stands behind. Timeouts are as short as Slurm takes them, so that a lost node is noticed in ten seconds and a requeued job
starts again in as many.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.cluster.hosts import Hosts, cluster
from tests.cluster.running import SYSTEM_PATH, inside
from tests.cluster.state import ClusterError
from tests.waiting import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "mknod")
CPUS, GPUS, MEMORY_MB = 64, 8, 1_000_000
UP_S = 30.0

SETTINGS = {
    "ClusterName": "trial",
    "SlurmctldHost": "head",
    "SlurmUser": "root",
    "AuthType": "auth/munge",
    # The wait of a requeued job: 120 s by default.
    "AuthInfo": "cred_expire=5",
    "MpiDefault": "none",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "GresTypes": "gpu",
    "SlurmdParameters": "config_overrides",
    "ReturnToService": "2",
    "SlurmdTimeout": "5",
    "MessageTimeout": "2",
    "BatchStartTimeout": "10",
    "KillWait": "5",
    "JobRequeue": "1",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "SchedulerParameters": "bf_interval=2,sched_interval=2,sched_min_interval=200000,batch_sched_delay=0",
    "AccountingStorageType": "accounting_storage/none",
    "JobCompType": "jobcomp/none",
}


def unavailable() -> str:
    """Why no Slurm can be started here; empty when one can."""
    lacking = [program for program in PROGRAMS if shutil.which(program, path=SYSTEM_PATH) is None]
    return f"missing: {', '.join(lacking)} (bash tests/system-packages.sh)" if lacking else ""


@contextlib.contextmanager
def slurm(
    folder: Path, nodes: int = 2, *, shared: Sequence[Path] = (), settings: Mapping[str, str] | None = None, accounting: bool = False
) -> Iterator[SlurmCluster]:
    """Up, with every node idle, for as long as the block lasts. `accounting` adds slurmdbd and MariaDB on the head."""
    with cluster(nodes, folder, shared=shared) as hosts:
        started = SlurmCluster(hosts, folder / "slurm", {**SETTINGS, **(settings or {})}, accounting)
        started.up()
        yield started


class SlurmCluster:
    """Its daemons, and what the tests ask of it."""

    def __init__(self, hosts: Hosts, folder: Path, settings: Mapping[str, str], accounting: bool) -> None:
        self.hosts, self.folder, self._settings, self._accounting = hosts, folder, settings, accounting

    def up(self) -> None:
        for name in ("etc", "log", "state", *(f"spool/{host}" for host in self.hosts.names)):
            (self.folder / name).mkdir(parents=True)
        self._configure()
        for host in self.hosts.names:
            self._prepare(host)
        if self._accounting:
            self._start_accounting()
        self.start_controller("-c")
        for host in self.hosts.nodes:
            self.start_slurmd(host)
        self.wait_idle()

    def run(self, *argv: str, check: bool = True) -> str:
        """A command on the login node; its output."""
        done = self.hosts.run("head", argv, check=check)
        return done.stdout

    def jobs(self) -> list[str]:
        """Every job that Slurm has not finished with: `12 RUNNING`."""
        return self.run("squeue", "--all", "-h", "-o", "%i %T").splitlines()

    def state(self, job: str) -> str:
        found = self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T", check=False)
        return found.strip()

    def wait_idle(self, timeout_s: float = UP_S) -> None:
        def idle() -> bool:
            shown = self.hosts.run("head", ["timeout", "5", "sinfo", "-h", "-p", "gpu", "-t", "idle", "-o", "%D"]).stdout.split()
            return shown == [str(len(self.hosts.nodes))]

        until_m = time.monotonic() + timeout_s
        while not idle():
            if time.monotonic() > until_m:
                raise ClusterError(f"Slurm is not up:\n{self._logs()}")
            time.sleep(0.1)

    def boot(self, host: str) -> None:
        """A node that is off, with its slurmd."""
        self.hosts.boot(host)
        self._prepare(host)
        self.start_slurmd(host)

    def start_slurmd(self, host: str) -> None:
        inside(self.hosts.state, host, ["slurmd"])

    def start_controller(self, *options: str) -> None:
        inside(self.hosts.state, "head", ["slurmctld", *options])

    def stop_controller(self) -> None:
        """As for an upgrade: running jobs go on, and no command gets an answer."""
        pid = inside(self.hosts.state, "head", ["cat", "/run/slurmctld.pid"]).strip()
        inside(self.hosts.state, "head", ["kill", pid])
        wait_until(lambda: int(pid) not in self.hosts.processes("head", "slurmctld"), "slurmctld ends")

    def _prepare(self, host: str) -> None:
        gpus = "; ".join(f"mknod /run/gpus/nvidia{gpu} c 195 {gpu}" for gpu in range(GPUS))
        script = f"mount --bind {self.folder}/etc /etc/slurm; mkdir -p /run/munge /run/gpus; {gpus}"
        inside(self.hosts.state, host, ["sh", "-ec", script])
        key, log = self.folder / "etc" / "munge.key", self.folder / "log" / f"munged-{host}.log"
        inside(self.hosts.state, host, ["munged", "--force", f"--key-file={key}", f"--log-file={log}", "--seed-file=/run/munge/seed"])

    def _configure(self) -> None:
        etc, log, nodes = self.folder / "etc", self.folder / "log", self.hosts.nodes
        (etc / "munge.key").write_bytes(secrets.token_bytes(128))
        (etc / "munge.key").chmod(0o400)
        settings = {
            **self._settings,
            "StateSaveLocation": str(self.folder / "state"),
            "SlurmctldPidFile": "/run/slurmctld.pid",
            "SlurmctldLogFile": str(log / "slurmctld.log"),
            "SlurmdPidFile": "/run/slurmd.pid",
            "SlurmdLogFile": str(log / "slurmd-%n.log"),
            "SlurmdSpoolDir": str(self.folder / "spool" / "%n"),
            **({"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageHost": "head"} if self._accounting else {}),
        }
        names, per_cpu = ",".join(nodes), MEMORY_MB // CPUS
        layout = f"CPUs={CPUS} Boards=1 SocketsPerBoard=2 CoresPerSocket={CPUS // 2} ThreadsPerCore=1 RealMemory={MEMORY_MB}"
        lines = [
            *(f"{name}={value}" for name, value in settings.items()),
            f"NodeName={names} {layout} Gres=gpu:{GPUS} State=UNKNOWN",
            f"PartitionName=gpu Nodes=ALL Default=YES DefMemPerCPU={per_cpu} MaxTime=INFINITE PriorityTier=1 State=UP",
            f"PartitionName=urgent Nodes=ALL DefMemPerCPU={per_cpu} MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF State=UP",
        ]
        (etc / "slurm.conf").write_text("\n".join(lines) + "\n")
        (etc / "gres.conf").write_text(f"AutoDetect=off\nNodeName={names} Name=gpu File=/run/gpus/nvidia[0-{GPUS - 1}]\n")
        (etc / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        database = {
            "AuthType": "auth/munge",
            "DbdHost": "head",
            "SlurmUser": "root",
            "PidFile": "/run/slurmdbd.pid",
            "LogFile": str(log / "slurmdbd.log"),
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "localhost",
            "StorageUser": "root",
            "StorageLoc": "slurm_acct",
        }
        (etc / "slurmdbd.conf").write_text("".join(f"{name}={value}\n" for name, value in database.items()))
        (etc / "slurmdbd.conf").chmod(0o600)

    def _start_accounting(self) -> None:
        data, state = self.folder / "database", self.hosts.state
        common = ["--no-defaults", "--user=root", f"--datadir={data}"]
        inside(state, "head", ["mariadb-install-db", *common, "--auth-root-authentication-method=socket", "--skip-test-db"])
        inside(state, "head", ["mkdir", "-p", "/run/mysqld"])
        options = [
            "--socket=/run/mysqld/mysqld.sock",
            "--pid-file=/run/mariadbd.pid",
            "--skip-networking",
            "--innodb-lock-wait-timeout=900",
        ]
        self.hosts.start("head", ["mariadbd", *common, *options])
        ping = ["mariadb-admin", "--no-defaults", "-S", "/run/mysqld/mysqld.sock", "ping"]
        wait_until(lambda: self.hosts.run("head", ping).returncode == 0, "the database answers")
        inside(state, "head", ["slurmdbd"])
        listed = ["timeout", "5", "sacctmgr", "-n", "list", "cluster"]
        wait_until(lambda: self.hosts.run("head", listed).returncode == 0, "slurmdbd answers")
        self.run("sacctmgr", "-i", "add", "cluster", str(self._settings["ClusterName"]))

    def _logs(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-2000:]}" for path in sorted((self.folder / "log").iterdir()))
