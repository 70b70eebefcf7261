"""Jobs to plan in tests, and what a line made of them says."""

from typing import Any

from taco_launch.core.launch.command_line.env import TORCH_SOCKETS
from taco_launch.core.launch.command_line.overrides import Option
from taco_launch.core.launch.fabric_facts import between
from taco_launch.core.launch.launchers import open_mpi as mpirun
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Container, Host, Network
from taco_launch.core.model.job_facts import JobFacts, JobHost
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import FreeSlots, LaunchPlan, wanted_of
from taco_launch.core.placement.hosts import place
from taco_launch.hosts.inventory import profile
from tests.support.fleet import roce, with_hcas

LOCAL = Host("me", "127.0.0.1", slots=2, connection="local")
FAR = (Host("gpu1", "10.0.0.1", slots=8), Host("gpu2", "10.0.0.2", slots=8))
WRAPPER = ("/py", "-I", "-S", "/agent.pyz", "rank", "/job", "--")
BINDING = ("--bind-to", "none", "--map-by", "slot")
AUTO = profile.load("auto", "", {})
BOND = Network(interface="bond0")
RDMA = Network(interface="bond0", rdma="on")
LIGHTCC = Container("image", provides=("lightcc",))


def plan(facts: JobFacts | None = None, folder: str = "/job", **fields: Any) -> LaunchPlan:
    defaults = {"name": "j", "command": ("true",), "hosts": (LOCAL,), "head": "me", "profile": AUTO}
    spec = JobSpec(**{**defaults, **fields})
    placement = place(wanted_of(spec), [FreeSlots(host.name, host.slots or 0) for host in spec.hosts])
    return mpirun.plan(spec, "id1", placement, facts or JobFacts(root=False, openmpi="4.1.4"), WRAPPER, folder)


def settings(made: LaunchPlan) -> dict[str, str]:
    """Return what -x and MCA options of a line set."""
    words = made.argv
    env = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "-x"]
    mca = [
        (words[at + 1], words[at + 2]) for at, word in enumerate(words) if word in ("--mca", "--prtemca", "--pmixmca")
    ]
    return {**{name: value for name, _equals, value in env}, **dict(mca)}


def options_of(made: LaunchPlan) -> list[Option]:
    """Cut the line between mpirun and the command into its options."""
    tokens = [token for token in made.tokens if token.why != "the job's command"][1:]
    options, at = [], 0
    while at < len(tokens):
        word = tokens[at].text
        count = 1 if word == "--allow-run-as-root" else 3 if word.endswith("mca") else 2
        options.append(Option(tuple(tokens[at : at + count])))
        at += count
    return options


def missing(made: LaunchPlan) -> list[str]:
    """Return what was left out for want of a fact."""
    return [warning.partition(": left out, since ")[0] for warning in made.warnings if ": left out, since " in warning]


def told(*hosts: HostFacts, nccl: str | None = None, gpus: int = 8) -> JobFacts:
    """Return what is known where the hosts were looked at."""
    found = tuple(JobHost(host.host, gpus=gpus) for host in hosts)
    return JobFacts(False, openmpi="4.1.4", nccl=nccl, hosts=found, between=between(hosts, nccl))


def gids(nccl: str | None, *indexes: int, **network: Any) -> LaunchPlan:
    """Plan for two hosts whose RoCE ports have their GIDs at these indexes; without, nobody has looked at them."""
    hosts = [
        with_hcas(host.name, roce("mlx5_bond_0", "bond0", host.address, index - 1))
        for host, index in zip(FAR, indexes, strict=False)
    ]
    facts = told(*hosts, nccl=nccl) if hosts else JobFacts(False, openmpi="4.1.4", nccl=nccl)
    return plan(facts, hosts=FAR, network=Network("bond0", "on", **network))


PROFILES = [AUTO, *(profile.load(name, "", {}) for name in ("taco-bare-metal", "ack"))]


def own(found: LaunchPlan) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return what each host is given besides the interface of torch's own libraries, which all are."""
    hosts = {host: tuple(pair for pair in pairs if pair[0] not in TORCH_SOCKETS) for host, pairs in found.host_env}
    return {host: pairs for host, pairs in hosts.items() if pairs}
