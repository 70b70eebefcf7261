"""Prove that a cluster can train: every host reaches every other, mpirun starts a rank on each, and all are alike."""

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from importlib.resources import files
from typing import Any

from taco_launch.backend.elsewhere import for_elsewhere
from taco_launch.command import Command, Result, shell
from taco_launch.diagnose import explain
from taco_launch.errors import HostError, UsageError
from taco_launch.frozen import dataclass
from taco_launch.inventory.ranges import fold
from taco_launch.launch.job_facts_from import over_ssh
from taco_launch.launch.launchers import open_mpi as mpirun
from taco_launch.model import codec
from taco_launch.model.host.facts import HostFacts
from taco_launch.model.host.hosts import Container, Inventory
from taco_launch.model.job_facts import JobFacts
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import LaunchPlan, Placement, Share
from taco_launch.model.profiles import Profile
from taco_launch.remote.answers import understood
from taco_launch.remote.fanout import Answer, Fanout
from taco_launch.remote.transport import Transport, last_words
from taco_launch.setup import paths
from taco_launch.setup.stages.firewall import active
from taco_launch.setup.stages.ssh_mesh import address

# What a packet takes between two hosts at most, with a lost one sent again twice.
_SECONDS = 6
_LOOK_SECONDS = 60
_AT_ONCE = 16  # as peers.py does it
_MOST_SAID = 1000
# What a session or a login has of its own, and not of the image.
_OWN = frozenset(("HOME", "HOSTNAME", "PWD", "SHLVL", "TERM"))
_LISTS = ("LD_LIBRARY_PATH", "PATH")  # mpirun may put its own folders before those of the image

# $1 is the container, the others are for peers.py, which comes by the input.
_LOOK = """docker container inspect --format '{{.Image}} {{.State.Pid}}' "$1" || exit
docker container inspect --format '{{json .Config.Env}}' "$1" || exit
grep '^Max locked memory' "/proc/$(docker container inspect --format '{{.State.Pid}}' "$1")/limits" || exit
container=$1
shift
exec docker exec -i "$container" python3 -I -S - "$@"
"""
# One rank on every host, in a line: its number, its limit of locked memory, the variables that $1 names.
_MARK = "taco-launch-verify "
_RANK = f"""import hashlib, json, os, resource, sys
def told(name):
    value = os.environ.get(name)
    return value if value is None or name in {_LISTS!r} else hashlib.sha256(os.fsencode(value)).hexdigest()[:16]
rank, memlock = int(os.environ["OMPI_COMM_WORLD_RANK"]), resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
print({_MARK!r} + json.dumps([rank, memlock, {{name: told(name) for name in json.loads(sys.argv[1])}}]))
"""


@dataclass(frozen=True)
class Flaw:
    """What is wrong with hosts: `what` they cannot do, the evidence, and what to type next."""

    hosts: tuple[str, ...]
    what: str
    evidence: str
    hint: str = ""

    def __str__(self) -> str:
        """Give one line: hosts, what, evidence."""
        return f"{fold(self.hosts)} {self.what}: {self.evidence}"


@dataclass(frozen=True)
class _Seen:
    """What a host's container is: image, environment, limit of locked memory (bytes, -1 none), port that listens."""

    image: str
    env: Mapping[str, str] = field(repr=False)
    memlock: int
    port: int


@dataclass(frozen=True)
class _Cluster:
    """What is asked about: hosts that are set up, the address of each, and where they are."""

    inventory: Inventory
    container: Container
    facts: Mapping[str, HostFacts]
    addresses: Mapping[str, str]

    @property
    def name(self) -> str:
        return paths.container(self.inventory.cluster)


def verify(
    inventory: Inventory,
    fanout: Fanout,
    facts: Mapping[str, HostFacts],
    report: Callable[[str], None],
    profile: Profile,
) -> tuple[Flaw, ...]:
    """Prove it for the hosts that `facts` holds, all of them reached by `fanout`; give what is wrong.

    Every host's container goes to every other's by ssh, and to a port of the range that programs are given; then mpirun
    starts a rank on each from the head, with the options that `profile` gives a job. `report` is told what is being done.
    """
    if inventory.container is None:
        return ()
    cluster, flaws = _cluster(inventory, inventory.container, facts)
    if len(cluster.addresses) > 1:
        report(f"proof: does each of {len(cluster.addresses)} hosts reach every other")
    looked = fanout.only(cluster.addresses).each(lambda host: _look(host, cluster))
    flaws += _silent(looked)
    seen = {answer.host: answer.value for answer in looked if answer.value is not None}
    flaws += _images(cluster, seen)
    asked = fanout.only(seen).each(lambda host: _ask(host, cluster, seen))
    flaws += _silent(asked)
    ways = {answer.host: answer.value for answer in asked if answer.value is not None}
    flaws += _blocked(cluster, seen, ways)
    # mpirun would only wait for hosts that do not reach one another
    if not flaws and inventory.head in seen:
        report(f"proof: does mpirun start a rank on {fold(seen)}")
        head = next(each for each in fanout.transports if each.name == inventory.head)
        flaws += _train(head, cluster, seen, profile)
    return tuple(flaws)


def _silent(answers: Iterable[Answer[Any]]) -> Iterable[Flaw]:
    for answer in answers:
        if answer.error is not None:
            said = answer.error.message.removeprefix(f"{answer.host}: ")
            yield Flaw((answer.host,), "cannot be asked", said, answer.error.hint or "")


def _cluster(inventory: Inventory, container: Container, facts: Mapping[str, HostFacts]) -> tuple[_Cluster, list[Flaw]]:
    found: dict[str, str] = {}
    flaws = []
    for host in inventory.hosts:
        if host.name in facts:
            where = address(host, facts[host.name], inventory.network.interface)
            if isinstance(where, str):
                found[host.name] = where
            else:
                flaws.append(Flaw((host.name,), "has no address that is known", where.reason))
    return _Cluster(inventory, container, facts, found), flaws


def _program() -> bytes:
    return files("taco_launch.flows.setup").joinpath("peers.py").read_bytes()


# --- each host's container, and whom it reaches


def _look(host: Transport, cluster: _Cluster) -> _Seen:
    """Look at a container, and have it listen on a port of those that programs are given."""
    first, last = cluster.inventory.network.port_range or (0, 0)
    peers = [where for name, where in cluster.addresses.items() if name != host.name]
    wait = _LOOK_SECONDS + _patience(len(peers))
    words = ("listen", cluster.addresses[host.name], str(first), str(last), str(wait), *peers)
    argv = ("/bin/sh", "-c", _LOOK, "look", cluster.name, *words)
    result = host.run(Command(argv, _program(), sudo=True, timeout=_LOOK_SECONDS))
    lines = result.stdout.decode("utf-8", "replace").splitlines()
    if result.exit_code or len(lines) != 4:
        raise HostError(
            f"{host.name}: cannot look into container {cluster.name}: {_said(result)}",
            f"on {host.name}: docker logs {cluster.name}",
        )
    with understood(host.name, f"container {cluster.name}"):
        env = dict(pair.split("=", 1) for pair in codec.load(lines[1]) or () if "=" in pair)
        limit, port = lines[2].split()[3], int(codec.load(lines[3])["port"])
        return _Seen(lines[0].split()[0], env, -1 if limit == "unlimited" else int(limit), port)


def _ask(host: Transport, cluster: _Cluster, seen: Mapping[str, _Seen]) -> list[dict[str, Any]]:
    """Send a container to all others, beginning with the next one: nobody is asked by all at once."""
    names = list(seen)
    place = names.index(host.name)
    order = [*names[place + 1 :], *names[:place]]
    if not order:
        return []
    peers = (word for name in order for word in (name, cluster.addresses[name], str(seen[name].port)))
    argv = ("docker", "exec", "-i", cluster.name, "python3", "-I", "-S", "-", "ask", str(_SECONDS), *peers)
    limit = _LOOK_SECONDS + _patience(len(order))
    result = host.run(Command(argv, _program(), sudo=True, timeout=limit))
    if result.exit_code:
        raise HostError(
            f"{host.name}: cannot ask container {cluster.name} for the others: {_said(result)}",
            f"on {host.name}: docker exec {cluster.name} ssh -v {order[0]} true",
        )
    with understood(host.name, f"container {cluster.name}, asked for the others"):
        return [_reached(codec.load(line), order) for line in result.stdout.splitlines()]


def _reached(answer: Mapping[str, Any], peers: Sequence[str]) -> dict[str, Any]:
    """Return what a container said of one of its peers, checked: a way that failed says why.

    Raises:
        ValueError: it is not that.
    """
    read = {"peer": str(answer["peer"]), "connected": answer["connected"] is True}
    if read["peer"] not in peers:
        raise ValueError(f"{read['peer']!r:.60} is none of its peers")
    for way in ("ssh", "port"):
        read[way] = None if answer[way] is None else str(answer[way])[:_MOST_SAID]
    return read


def _patience(peers: int) -> float:
    """Give the seconds in which so many peers are asked, whatever they answer: three tries to connect, and ssh's."""
    return 5 * _SECONDS * -(-peers // _AT_ONCE)


def _blocked(cluster: _Cluster, seen: Mapping[str, _Seen], ways: Mapping[str, list[dict[str, Any]]]) -> Iterable[Flaw]:
    """Say who does not reach whom, hosts in the same plight together."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for host, answers in ways.items():
        for answer in answers:
            for flaw in _way(cluster, seen, answer):
                found.setdefault(flaw, []).append(host)
    for (what, evidence, hint), hosts in found.items():
        yield Flaw(tuple(hosts), what, evidence, hint)


def _way(cluster: _Cluster, seen: Mapping[str, _Seen], answer: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Say what is wrong with the way to one peer: (what, evidence, next step)."""
    peer, ssh, port = answer["peer"], answer["ssh"], answer["port"]
    where = cluster.addresses[peer]
    ports = {cluster.container.ssh_port: None if answer["connected"] else ssh, seen[peer].port: port}
    for why in dict.fromkeys(filter(None, ports.values())):
        stopped = [f"{number}" for number, said in ports.items() if said == why]
        what = f"cannot reach {peer} at {where}:{' and :'.join(stopped)}"
        firewall = active(cluster.facts[peer])
        if firewall is None:
            hint = f"is the network whole, and no firewall or security group between them? ping {where}"
            if why == "connection refused" and str(cluster.container.ssh_port) in stopped:
                hint = f"on {peer}: docker logs {cluster.name} tells why no sshd listens there"
            yield what, why, hint
            continue
        rule = firewall.detail.partition(": ")[2]
        if cluster.inventory.network.firewall == "manage":
            hint = f"on {peer}: nft list ruleset, iptables -S: what else stops it there?"
        else:
            hint = f"let {peer} take TCP from the cluster's hosts, or have set-up do it: network: {{firewall: manage}}"
        yield what, f"{why}; firewall: {firewall.tool} on {peer} drops: {rule}", hint
    if answer["connected"] and ssh is not None:
        yield (
            f"cannot log in to the container of {peer} ({where}:{cluster.container.ssh_port})",
            ssh,
            f"try it there: docker exec {cluster.name} ssh -v {peer} true",
        )


def _images(cluster: _Cluster, seen: Mapping[str, _Seen]) -> Iterable[Flaw]:
    """Say whose container is of another image than the head's."""
    right = cluster.inventory.head if cluster.inventory.head in seen else next(iter(seen), "")
    odd: dict[str, list[str]] = {}
    for host, each in seen.items():
        if each.image != seen[right].image:
            odd.setdefault(each.image, []).append(host)
    for image, hosts in odd.items():
        yield Flaw(
            tuple(hosts),
            f"has a container of another image than {right}",
            f"{_short(image)}, not {_short(seen[right].image)}",
            f"have the same everywhere: {shell(('taco-launch', '-i', cluster.inventory.source, 'setup'))}",
        )


def _short(image: str) -> str:
    return image.removeprefix("sha256:")[:12]


# --- mpirun across all of them


def _train(head: Transport, cluster: _Cluster, seen: Mapping[str, _Seen], profile: Profile) -> Iterable[Flaw]:
    """Have mpirun start a rank on every host, and compare what each has with its container."""
    names = sorted({name for each in seen.values() for name in each.env} - _OWN)
    command = ("python3", "-I", "-S", "-c", _RANK, json.dumps(names))
    try:
        plan = _plan(cluster, tuple(seen), command, profile)
    except (UsageError, HostError) as error:  # the network that the inventory asks for is not there
        return [Flaw(tuple(seen), "cannot run jobs as the inventory has them", error.message, error.hint or "")]
    limit = _LOOK_SECONDS + len(seen)
    env = (word for name, value in plan.env for word in ("--env", f"{name}={value}"))
    inside = ("timeout", "-k", "5", str(limit), *plan.executed)
    try:
        with _put(head, plan):
            result = head.run(Command(("docker", "exec", *env, cluster.name, *inside), sudo=True, timeout=limit + 10))
    except HostError as error:
        return _silent([Answer(head.name, error=error)])
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


@contextmanager
def _put(head: Transport, plan: LaunchPlan) -> Iterator[None]:
    """Have the plan's files on the head for as long as the block lasts.

    Raises:
        HostError: they cannot be put there, or not be removed; what the block raises itself comes first.
    """
    remove = Command(("rm", "-f", *(file.path for file in plan.files)), sudo=True, timeout=_LOOK_SECONDS)
    try:
        for file in plan.files:
            head.put(file.text.encode(), file.path, sudo=True)
        yield
    except BaseException:
        if plan.files:
            with suppress(HostError):
                head.run(remove)
        raise
    if plan.files:
        head.run(remove)


def _plan(cluster: _Cluster, hosts: tuple[str, ...], command: tuple[str, ...], profile: Profile) -> LaunchPlan:
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
    spec = for_elsewhere(spec)
    facts = over_ssh(JobFacts(root=True), spec, [cluster.facts[host] for host in hosts])
    placement = Placement(tuple(Share(host, 1) for host in hosts), "one rank on every host")
    return mpirun.plan(spec, "verify", placement, facts, (), paths.folder(inventory.cluster))


def _upper(ports: tuple[int, int] | None) -> tuple[int, int] | None:
    """Give the upper half of a range of ports: the proof has no leases, and those of jobs are for ports below that."""
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


def _failed(head: str, hosts: tuple[str, ...], missing: list[str], result: Result, hint: str) -> Flaw:
    text = (result.stdout + result.stderr).decode("utf-8", "replace")
    known = explain(text.splitlines())
    why = known[0].cause if known else last_words(result.stderr) or last_words(result.stdout)
    silent = f", no rank on {fold(missing)}" if missing else ""
    return Flaw(
        (head,),
        f"cannot run mpirun across {fold(hosts)}",
        f"exit code {result.exit_code}{silent}: {why or 'it said nothing'}",
        f"{known[0].next} Then {hint}" if known else hint,
    )


def _differences(host: str, cluster: str, seen: _Seen, memlock: int, env: Mapping[str, str | None]) -> Iterable[Flaw]:
    """Compare a rank with what the main process of its container has."""
    if memlock != seen.memlock:
        yield Flaw(
            (host,),
            "gives ranks another limit of locked memory (ulimit -l) than its container has",
            f"{_bytes(memlock)}, not {_bytes(seen.memlock)}",
            f"on {host}: systemctl restart {paths.unit(cluster)}, when no job runs",
        )
    lost = [name for name, value in seen.env.items() if name in env and not _same(name, value, env[name])]
    if lost:
        yield Flaw(
            (host,),
            "does not give ranks the environment of its container",
            f"{', '.join(lost)} {'is' if len(lost) == 1 else 'are'} another there",
            "does a start-up file of root's shell in the image (.bashrc) set them anew?",
        )


def _same(name: str, value: str, found: str | None) -> bool:
    if found is None:
        return False
    if name in _LISTS:
        return set(value.split(":")) <= set(found.split(":"))
    return hashlib.sha256(os.fsencode(value)).hexdigest()[:16] == found


def _bytes(count: int) -> str:
    return "any amount" if count < 0 else f"{count >> 10} KiB"


def _said(result: Result) -> str:
    return last_words(result.stderr) or last_words(result.stdout) or f"exit code {result.exit_code}"
