"""Prove that a cluster can train: every host reaches every other, mpirun starts a rank on each, and all are alike."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from taco_launch.core.command import Command, Result, shell
from taco_launch.core.errors import HostError, last_line
from taco_launch.core.model import codec
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Container, Inventory
from taco_launch.core.model.jobs import Profile
from taco_launch.hosts.fanout import Fanout
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.remote.reply_errors import understood
from taco_launch.hosts.remote.transport import Transport
from taco_launch.setup.model.ops import ProofFailure
from taco_launch.setup.proofs.mpirun_proof import train
from taco_launch.setup.proofs.proof import LOOK_SECONDS, ContainerProbe, ProofScope, silent
from taco_launch.setup.stage_parts.firewall import active
from taco_launch.setup.stages.ssh_mesh import address

# What a packet takes between two hosts at most, with a lost one sent again twice.
_SECONDS = 6
_AT_ONCE = 16  # as peers.py does it
_MOST_SAID = 1000
# $1 is the container, the others are for peers.py, which comes by the input.
_LOOK = """docker container inspect --format '{{.Image}} {{.State.Pid}}' "$1" || exit
docker container inspect --format '{{json .Config.Env}}' "$1" || exit
grep '^Max locked memory' "/proc/$(docker container inspect --format '{{.State.Pid}}' "$1")/limits" || exit
container=$1
shift
exec docker exec -i "$container" python3 -I -S - "$@"
"""


def verify(
    inventory: Inventory,
    fanout: Fanout,
    facts: Mapping[str, HostFacts],
    report: Callable[[str], None],
    profile: Profile,
) -> tuple[ProofFailure, ...]:
    """Prove it for the hosts that `facts` holds, all of them reached by `fanout`; give what is wrong.

    Every host's container goes to every other's by ssh, and to a port of the range that programs are given; then mpirun
    starts a rank on each from the head, with the options that `profile` gives a job. `report` is told what is being done.
    """
    if inventory.container is None:
        return ()
    cluster, flaws = _cluster(inventory, inventory.container, facts)
    if len(cluster.addresses) > 1:
        report(f"verify: checking that {len(cluster.addresses)} hosts reach each other")
    looked = fanout.only(cluster.addresses).each(lambda host: _probe_container(host, cluster))
    flaws += silent(looked)
    seen = {answer.host: answer.value for answer in looked if answer.value is not None}
    flaws += _images(cluster, seen)
    asked = fanout.only(seen).each(lambda host: _ask(host, cluster, seen))
    flaws += silent(asked)
    ways = {answer.host: answer.value for answer in asked if answer.value is not None}
    flaws += _blocked(cluster, seen, ways)
    # mpirun would only wait for hosts that do not reach one another
    if not flaws and inventory.head in seen:
        report(f"verify: checking that mpirun starts a rank on {fold(seen)}")
        head = next(each for each in fanout.transports if each.name == inventory.head)
        flaws += train(head, cluster, seen, profile)
    return tuple(flaws)


def _cluster(
    inventory: Inventory, container: Container, facts: Mapping[str, HostFacts]
) -> tuple[ProofScope, list[ProofFailure]]:
    found: dict[str, str] = {}
    flaws = []
    for host in inventory.hosts:
        if host.name in facts:
            where = address(host, facts[host.name], inventory.network.interface)
            if isinstance(where, str):
                found[host.name] = where
            else:
                flaws.append(ProofFailure((host.name,), "has no known address", where.reason))
    return ProofScope(inventory, container, facts, found), flaws


def _program() -> bytes:
    return files("taco_launch.setup.scripts").joinpath("peers.py").read_bytes()


# --- each host's container, and whom it reaches


def _probe_container(host: Transport, cluster: ProofScope) -> ContainerProbe:
    """Look at a container, and have it listen on a port of those that programs are given.

    Raises:
        HostError: the container cannot be inspected.
    """
    first, last = cluster.inventory.network.port_range or (0, 0)
    peers = [where for name, where in cluster.addresses.items() if name != host.name]
    wait = LOOK_SECONDS + _patience(len(peers))
    words = ("listen", cluster.addresses[host.name], str(first), str(last), str(wait), *peers)
    argv = ("/bin/sh", "-c", _LOOK, "look", cluster.name, *words)
    result = host.run(Command(argv, _program(), sudo=True, timeout=LOOK_SECONDS))
    lines = result.stdout.decode("utf-8", "replace").splitlines()
    if result.exit_code or len(lines) != 4:
        raise HostError(
            f"{host.name}: cannot inspect container {cluster.name}: {_said(result)}",
            f"on {host.name}: docker logs {cluster.name}",
        )
    with understood(host.name, f"container {cluster.name}"):
        env = dict(pair.split("=", 1) for pair in codec.load(lines[1]) or () if "=" in pair)
        limit, port = lines[2].split()[3], int(codec.load(lines[3])["port"])
        return ContainerProbe(lines[0].split()[0], env, -1 if limit == "unlimited" else int(limit), port)


def _ask(host: Transport, cluster: ProofScope, seen: Mapping[str, ContainerProbe]) -> list[dict[str, Any]]:
    """Send a container to all others, start with the next one: nobody is asked by all at once.

    Raises:
        HostError: the check cannot be run in the container.
    """
    names = list(seen)
    place = names.index(host.name)
    order = [*names[place + 1 :], *names[:place]]
    if not order:
        return []
    peers = (word for name in order for word in (name, cluster.addresses[name], str(seen[name].port)))
    argv = ("docker", "exec", "-i", cluster.name, "python3", "-I", "-S", "-", "ask", str(_SECONDS), *peers)
    limit = LOOK_SECONDS + _patience(len(order))
    result = host.run(Command(argv, _program(), sudo=True, timeout=limit))
    if result.exit_code:
        raise HostError(
            f"{host.name}: cannot check the other hosts from container {cluster.name}: {_said(result)}",
            f"on {host.name}: docker exec {cluster.name} ssh -v {order[0]} true",
        )
    with understood(host.name, f"container {cluster.name}, given the others"):
        return [_reached(codec.load(line), order) for line in result.stdout.splitlines()]


def _reached(answer: Mapping[str, Any], peers: Sequence[str]) -> dict[str, Any]:
    """Return what a container said of one of its peers, checked: a way that failed says why.

    Raises:
        ValueError: it is not that.
    """
    read = {"peer": str(answer["peer"]), "connected": answer["connected"] is True}
    if read["peer"] not in peers:
        raise ValueError(f"{read['peer']!r:.60} is not one of its peers")
    for way in ("ssh", "port"):
        read[way] = None if answer[way] is None else str(answer[way])[:_MOST_SAID]
    return read


def _patience(peers: int) -> float:
    """Return the seconds in which so many peers are asked, whatever they answer: three tries to connect, and ssh's."""
    return 5 * _SECONDS * -(-peers // _AT_ONCE)


def _blocked(
    cluster: ProofScope, seen: Mapping[str, ContainerProbe], ways: Mapping[str, list[dict[str, Any]]]
) -> Iterable[ProofFailure]:
    """Yield who does not reach whom, hosts in the same plight together."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for host, answers in ways.items():
        for answer in answers:
            for what, evidence, hint in _way(cluster, seen, answer):
                found.setdefault((answer["peer"], what, evidence, hint), []).append(host)
    for (peer, what, evidence, hint), hosts in found.items():
        # Where others reach the peer, the hosts that do not are at fault.
        others = ways.keys() - {peer, *hosts}
        is_at_peer = active(cluster.facts[peer]) is not None or not others
        yield ProofFailure(tuple(hosts), what, evidence, hint, (peer,) if is_at_peer else ())


def _way(
    cluster: ProofScope, seen: Mapping[str, ContainerProbe], answer: Mapping[str, Any]
) -> Iterable[tuple[str, str, str]]:
    """Yield what is wrong with the way to one peer: (what, evidence, next step)."""
    peer, ssh, port = answer["peer"], answer["ssh"], answer["port"]
    where = cluster.addresses[peer]
    ports = {cluster.container.ssh_port: None if answer["connected"] else ssh, seen[peer].port: port}
    for why in dict.fromkeys(filter(None, ports.values())):
        stopped = [f"{number}" for number, said in ports.items() if said == why]
        what = f"cannot reach {peer} at {where}:{' and :'.join(stopped)}"
        firewall = active(cluster.facts[peer])
        if firewall is None:
            hint = f"check the network, and that no firewall or security group blocks it: ping {where}"
            if why == "connection refused" and str(cluster.container.ssh_port) in stopped:
                hint = f"on {peer}: docker logs {cluster.name} shows why no sshd listens there"
            yield what, why, hint
            continue
        rule = firewall.detail.partition(": ")[2]
        if cluster.inventory.network.firewall == "manage":
            hint = f"see what else blocks it, on {peer}: nft list ruleset; iptables -S"
        else:
            hint = f"allow TCP from the cluster's hosts on {peer}, or let set-up do it: network: {{firewall: manage}}"
        yield what, f"{why}; firewall: {firewall.tool} on {peer} drops: {rule}", hint
    if answer["connected"] and ssh is not None:
        yield (
            f"cannot log in to the container of {peer} ({where}:{cluster.container.ssh_port})",
            ssh,
            f"try it there: docker exec {cluster.name} ssh -v {peer} true",
        )


def _images(cluster: ProofScope, seen: Mapping[str, ContainerProbe]) -> Iterable[ProofFailure]:
    """Yield the hosts whose container is of another image than the head's."""
    right = cluster.inventory.head if cluster.inventory.head in seen else next(iter(seen), "")
    odd: dict[str, list[str]] = {}
    for host, each in seen.items():
        if each.image != seen[right].image:
            odd.setdefault(each.image, []).append(host)
    for image, hosts in odd.items():
        yield ProofFailure(
            tuple(hosts),
            f"has a container with a different image than {right}",
            f"{_short(image)}, not {_short(seen[right].image)}",
            f"to use the same image everywhere: {shell(('taco-launch', '-i', cluster.inventory.source, 'setup'))}",
        )


def _short(image: str) -> str:
    return image.removeprefix("sha256:")[:12]


def _said(result: Result) -> str:
    return last_line(result.stderr) or last_line(result.stdout) or f"exit code {result.exit_code}"
