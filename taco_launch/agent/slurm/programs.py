"""sbatch, squeue, scancel and scontrol, each with a limit of time; their errors as ours."""

import os
import subprocess
from typing import Dict, List, Mapping, Optional, Sequence

from taco_launch.core.errors import HostError, UsageError, last_line
from taco_launch.core.slurm import job_states
from taco_launch.core.slurm.job_states import SlurmJob

# slurmctld answers in less than a second; a busy one of a large site is retried by its programs for some.
_SECONDS = 60.0
_NO_CLUSTER = (
    "set SLURM_CONF=FILE if slurm.conf is not in its usual place, or use -i slurm: on a login node of the cluster"
)
# What slurmctld answers about a request that it will never grant.
_REFUSES = "Batch job submission failed: "
_UNKNOWN = "Invalid job id specified"
# What Slurm's programs print where slurmctld does not answer, or not in time.
_NO_ANSWER = (
    "Unable to contact",
    "timed out",
    "Connection refused",
    "Connection reset",
    "temporarily unable",
    "Resource temporarily unavailable",
    "Zero Bytes",
    "Munge",
    "authentication",
    "configuration source",
    "resolve_ctls",
)
# By these variables a user changes what Slurm's programs do; whose they are is not known here.
_OVERRIDES = ("SBATCH_", "SLURM_", "SQUEUE_", "SCANCEL_", "SINFO_", "SALLOC_", "SRUN_")


def submit(script: str, environ: Mapping[str, str]) -> int:
    """Submit a batch script in the environment of the job's submission, and return the job's number.

    Raises:
        UsageError: Slurm refuses it; with its reason.
        HostError: Slurm cannot be asked.
    """
    answer = _call(("sbatch", "--parsable"), script, environ)
    number = answer.strip().partition(";")[0]  # `;CLUSTER` follows where there are several
    if not number.isdecimal():
        raise HostError(f"sbatch: its answer has no job number: {answer[:80]!r}")
    return int(number)


def jobs() -> Dict[str, SlurmJob]:
    """Return all jobs of this user that Slurm knows, by their ids; also those that ended a few minutes ago.

    Raises:
        HostError: Slurm cannot be asked.
    """
    text = _call(
        (
            "squeue",
            "--noheader",
            "--all",
            "--array",
            "--states=all",
            f"--user={os.geteuid()}",
            f"--format={job_states.FORMAT}",
        )
    )
    return job_states.parse_squeue(text)


def find(mark: str) -> Optional[int]:
    """Return the number of the job of this user with that comment, None where there is none. Raises as `jobs` does."""
    text = _call(("squeue", "--noheader", "--all", f"--user={os.geteuid()}", "--format=%F|%k"))
    return next((int(line.partition("|")[0]) for line in text.splitlines() if line.endswith(f"|{mark}")), None)


def cluster() -> str:
    """Return the name of the cluster that is asked. Raises as `jobs` does."""
    names = (
        line.split("=", 1)[1] for line in _call(("scontrol", "show", "config")).splitlines() if "ClusterName" in line
    )
    return next(names, "").strip()


def details(job: str) -> Optional[Dict[str, str]]:
    """Return what Slurm tells of a job, as NAME: VALUE; None where it does not know it any more. Raises as `jobs` does."""
    text = describe(job)
    return None if text is None else job_states.parse_pairs(text)


def describe(job: str) -> Optional[str]:
    """Return what `scontrol show job -d` prints of a job; None where Slurm does not know it. Raises as `jobs` does."""
    try:
        return _call(("scontrol", "show", "job", "--details", "--oneliner", job))
    except HostError as error:
        if _UNKNOWN in error.message or f"Job {job} not found" in error.message:  # of an array
            return None
        raise


def cancel(job: str, name: str) -> None:
    """Have a job of that name ended; of one that has ended that is no error. Raises as `jobs` does."""
    if not is_of_array(job):
        _call(("scancel", "--quiet", f"--name={name}", job))
        return
    own_name = (details(job) or {}).get("JobName")
    if own_name == name:  # with --name, scancel ends all jobs of an array that wait (22.05)
        _call(("scancel", "--quiet", job))


def is_of_array(job: str) -> bool:
    """Return whether this is the id of a job of an array."""
    return "_" in job


def hold(job: str) -> None:
    """Have a waiting job wait until it is released. Raises as `jobs` does."""
    _call(("scontrol", "hold", job))


def release(job: str) -> None:
    """Have a held job wait for its nodes again. Raises as `jobs` does."""
    _call(("scontrol", "release", job))


def names_of(nodes: str) -> List[str]:
    """Return the nodes that a list of Slurm's stands for, such as n[1-2]. Raises as `jobs` does."""
    return _call(("scontrol", "show", "hostnames", nodes)).split()


def addresses_of(nodes: str) -> Dict[str, str]:
    """Return by what name or IP address Slurm reaches each node. Raises as `jobs` does."""
    lines = _call(("sinfo", "--Node", "--noheader", f"--nodes={nodes}", "--format=%N %o")).splitlines()
    pairs = (line.split() for line in lines)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _call(argv: Sequence[str], text: str = "", environ: Mapping[str, str] = os.environ) -> str:
    program = argv[0]
    try:
        done = subprocess.run(
            argv,
            input=text.encode("utf-8", "surrogateescape"),
            env={
                name: value
                for name, value in environ.items()
                if not name.startswith(_OVERRIDES) or name == "SLURM_CONF"
            },
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise HostError(f"{program} was not found: Slurm is not installed on this machine", hint=_NO_CLUSTER) from None
    except OSError as error:
        raise HostError(f"{program}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise HostError(
            f"{program} did not answer within {_SECONDS:g} s", hint="is slurmctld running? sinfo shows it"
        ) from None
    if not done.returncode:
        return done.stdout.decode("utf-8", "replace")
    words = last_line(done.stderr or done.stdout).replace(f"{program}: error: ", "") or f"exit {done.returncode}"
    _before, refused, reason = words.partition(_REFUSES)
    # A script that sbatch cannot read is refused for good, too; who does not answer may have the job all the same.
    if (refused or program == "sbatch") and not any(text in words for text in _NO_ANSWER):
        hint = "taco-launch run --dry-run shows what it requests, sinfo -s shows the partitions"
        raise UsageError(f"Slurm refuses the job: {reason or words}", hint)
    missing = "configuration source" in words or "resolve_ctls_from_dns_srv" in words
    raise HostError(f"{program}: {words}", hint=_NO_CLUSTER if missing else "sinfo shows the state of the cluster")
