"""Prove that mpirun starts a rank on every host, with the limits and the environment of its container."""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from taco_launch.core.command import Command, Result
from taco_launch.core.errors import HostError, UsageError, last_line
from taco_launch.core.launch.job_facts_from import job_facts_from
from taco_launch.core.launch.launchers import open_mpi as mpirun
from taco_launch.core.launch.spec_for_head import spec_for_head
from taco_launch.core.model import codec
from taco_launch.core.model.host import paths
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec, Profile
from taco_launch.core.model.plans import LaunchPlan, Placement, Share
from taco_launch.core.signatures.log_scan import explain
from taco_launch.hosts.fanout import Answer
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.remote.reply_errors import understood
from taco_launch.hosts.remote.transport import Transport
from taco_launch.setup.model.ops import ProofFailure
from taco_launch.setup.proofs.proof import LOOK_SECONDS, ContainerProbe, ProofScope, silent

# What a session or a login has of its own, and not of the image.
_OWN = frozenset(("HOME", "HOSTNAME", "PWD", "SHLVL", "TERM"))
_LISTS = ("LD_LIBRARY_PATH", "PATH")  # mpirun may put its own folders before those of the image

# mpirun listens on the same ports in every proof, so only one runs at a time: $1 is the lock, $2 the seconds to wait for it.
# $3 is the file that mpirun's line names, which comes by the input; empty if it names none.
_LOCK = f"{paths.RUN}/verify.lock"
_WAIT_SECONDS = 600
_BUSY = "another set-up verifies this cluster"
_ALONE = f"""umask 077
exec 9>>"$1" || exit
flock -w "$2" 9 || {{ echo "{_BUSY}" >&2; exit 1; }}
file=$3
shift 3
trap '[ -z "$file" ] || rm -f "$file"' EXIT
[ -z "$file" ] || cat >"$file" || exit
"$@"
"""

# So many bytes of what mpirun printed are read.
_MOST_READ = 1 << 16
# One rank on every host, in a line: its number, its limit of locked memory, the variables that $1 names.
_MARK = "taco-launch-verify "
_RANK = f"""import hashlib, json, os, resource, sys
def told(name):
    value = os.environ.get(name)
    return value if value is None or name in {_LISTS!r} else hashlib.sha256(os.fsencode(value)).hexdigest()[:16]
rank, memlock = int(os.environ["OMPI_COMM_WORLD_RANK"]), resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
print({_MARK!r} + json.dumps([rank, memlock, {{name: told(name) for name in json.loads(sys.argv[1])}}]))
"""


def train(
    head: Transport, cluster: ProofScope, seen: Mapping[str, ContainerProbe], profile: Profile
) -> Iterable[ProofFailure]:
    """Have mpirun start a rank on every host, and compare what each has with its container."""
    names = sorted({name for each in seen.values() for name in each.env} - _OWN)
    command = ("python3", "-I", "-S", "-c", _RANK, json.dumps(names))
    try:
        plan = _plan(cluster, tuple(seen), command, profile)
    except (UsageError, HostError) as error:  # the network that the inventory asks for does not exist
        return [
            ProofFailure(
                tuple(seen), "cannot run jobs as the inventory describes them", error.message, error.hint or ""
            )
        ]
    limit = LOOK_SECONDS + len(seen)
    env = (word for name, value in plan.env for word in ("--env", f"{name}={value}"))
    inside = ("timeout", "-k", "5", str(limit), *plan.executed)
    path, text = next(((file.path, file.text) for file in plan.files), ("", ""))
    alone = ("/bin/sh", "-c", _ALONE, "verify", _LOCK, f"{_WAIT_SECONDS}", path)
    argv = (*alone, "docker", "exec", *env, cluster.name, *inside)
    try:
        result = head.run(Command(argv, text.encode(), sudo=True, timeout=_WAIT_SECONDS + limit + 10))
    except HostError as error:
        return silent([Answer(head.name, error=error)])
    if last_line(result.stderr) == _BUSY:
        hint = f"run this command again when that one has ended; to see it, on {head.name}: fuser -v {_LOCK}"
        return [ProofFailure((head.name,), "was not verified", f"{_BUSY} for {_WAIT_SECONDS} s", hint)]
    with understood(head.name, "ranks on all hosts"):
        told = _ranks(result, plan)
    missing = [host for number, host in enumerate(seen) if number not in told]
    if result.exit_code or missing:
        typed = mpirun.line(plan.tokens[: -len(command)])
        hint = f"on {head.name}: docker exec {cluster.name} {typed} hostname"
        return [_failed(head.name, tuple(seen), missing, result, hint)]
    return [
        flaw
        for number, host in enumerate(seen)
        for flaw in _differences(host, cluster.inventory.cluster, seen[host], *told[number])
    ]


def _plan(cluster: ProofScope, hosts: tuple[str, ...], command: tuple[str, ...], profile: Profile) -> LaunchPlan:
    inventory = cluster.inventory
    spec = JobSpec(
        name="verify",
        command=command,
        hosts=tuple(host for host in inventory.hosts if host.name in hosts),
        head=inventory.head,
        profile=profile,
        network=replace(inventory.network, port_range=_upper(inventory.network.port_range)),
        container=inventory.container,
        versions=inventory.versions,
        mpirun=inventory.mpirun,
        cluster=inventory.cluster,
    )
    spec = spec_for_head(spec)
    facts = job_facts_from(JobFacts(root=True), spec, [cluster.facts[host] for host in hosts])
    placement = Placement(tuple(Share(host, 1) for host in hosts), "one rank on every host")
    return mpirun.plan(spec, "verify", placement, facts, (), paths.folder(inventory.cluster))


def _upper(ports: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the upper half of a range of ports: the proof has no leases, and those of jobs are for ports below that."""
    return ports and (ports[0] + (ports[1] - ports[0] + 1) // 2, ports[1])


def _ranks(result: Result, plan: LaunchPlan) -> dict[int, tuple[int, Mapping[str, str | None]]]:
    """Read what the ranks said: limit and variables by rank, without the variables that the line itself gives."""
    lines = result.stdout.decode("utf-8", "replace").splitlines()
    told = [codec.load(line.partition(_MARK)[2]) for line in lines if _MARK in line]
    options = itertools.pairwise(plan.executed)
    given = {word.partition("=")[0] for option, word in options if option == "-x" and "=" in word}
    return {
        int(rank): (int(memlock), {name: env[name] and str(env[name]) for name in env.keys() - given})
        for rank, memlock, env in told
    }


def _failed(head: str, hosts: tuple[str, ...], missing: list[str], result: Result, hint: str) -> ProofFailure:
    # what a host says may be of any length, and each line is looked through for all that is known
    text = (result.stdout[-_MOST_READ:] + result.stderr[-_MOST_READ:]).decode("utf-8", "replace")
    known = explain(text.splitlines())
    why = known[0].cause if known else last_line(result.stderr) or last_line(result.stdout)
    silent = f", no rank on {fold(missing)}" if missing else ""
    return ProofFailure(
        (head,),
        f"cannot run mpirun across {fold(hosts)}",
        f"exit code {result.exit_code}{silent}: {why or 'no output'}",
        f"{known[0].next} Then {hint}" if known else hint,
    )


def _differences(
    host: str, cluster: str, seen: ContainerProbe, memlock: int, env: Mapping[str, str | None]
) -> Iterable[ProofFailure]:
    """Compare a rank with what the main process of its container has."""
    if memlock != seen.memlock:
        yield ProofFailure(
            (host,),
            "gives ranks a different limit of locked memory (ulimit -l) than its container has",
            f"{_bytes(memlock)}, not {_bytes(seen.memlock)}",
            f"on {host}: systemctl restart {paths.unit(cluster)}, when no job runs",
        )
    lost = [name for name, value in seen.env.items() if name in env and not _same(name, value, env[name])]
    if lost:
        yield ProofFailure(
            (host,),
            "does not give ranks the environment of its container",
            f"different values in the ranks: {', '.join(lost)}",
            "check whether a start-up file of root's shell in the image (.bashrc) sets them again",
        )


def _same(name: str, value: str, found: str | None) -> bool:
    if found is None:
        return False
    if name in _LISTS:
        return set(value.split(":")) <= set(found.split(":"))
    return hashlib.sha256(os.fsencode(value)).hexdigest()[:16] == found


def _bytes(count: int) -> str:
    return "any amount" if count < 0 else f"{count >> 10} KiB"
