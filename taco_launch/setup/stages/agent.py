"""The agent on every host: its file, named by its content, the link to it, the newest few of other versions, and py-spy."""

import re
from collections.abc import Iterator

from taco_launch.core.facts import MADE
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import HostFacts, SetupFile, System
from taco_launch.core.model.host.hosts import Host
from taco_launch.setup import scripts
from taco_launch.setup.model.host_files import files_of, unread, with_files, with_made
from taco_launch.setup.model.ops import FileTarget, Op, PlanContext, Problem, StageRules

_PRIVATE = 0o700
_RELEASE = re.compile(r"agent-([0-9]{1,9}(?:\.[0-9]{1,9}){1,3})[^/-]*-[0-9a-f]{16}\.pyz")


def plan(_host: Host, facts: HostFacts, cluster: PlanContext) -> Iterator[Op | Problem]:
    """Put this version's agent there, and let the link name it.

    Jobs run on with the agent that they were submitted with: agent.sh keeps the newest eight others.
    """
    if cluster.agent is None or cluster.inventory.container is None:
        return
    there = files_of(facts)
    if there is None:
        yield unread(facts, "agent")
        return
    name, data = cluster.agent
    file = FileTarget(f"{paths.AGENT}/{name}", data, 0o600)
    # By its name alone: that is the hash of its sources, while its bytes are of the Python that packed it, too.
    wanted = (file, *_py_spy(facts, cluster))
    missing = tuple(each for each in wanted if each.path not in there)
    link, state = there.get(paths.AGENT_LINK), there.get(paths.STATE)
    newer = _version(link.link) if link is not None and link.link else ()
    if newer > _version(name):
        told = ".".join(map(str, newer))
        why = (
            f"this replaces a newer agent, {told}, which another controller installed: upgrade this controller instead"
        )
    elif missing:
        why = "it does not exist" if file in missing else f"{missing[0].path} does not exist"
    elif link is None or link.link not in (name, file.path):
        why = "the link points to another agent"
    elif state is None or state.mode != _PRIVATE:
        why = f"other users can read {paths.STATE}"
    else:
        return
    after = (SetupFile(paths.STATE, None, _PRIVATE), SetupFile(paths.AGENT_LINK, None, 0o777, name))
    yield Op(
        "agent",
        f"install {name}",
        why,
        scripts.text("agent.sh"),
        (paths.STATE, paths.AGENT, name),
        missing,
        expect=lambda facts: with_made(with_files(facts, wanted), after),
    )


def _version(name: str) -> tuple[int, ...]:
    """Return the release that an agent's name tells; empty for agents before 0.2, which tell none."""
    match = _RELEASE.search(name)
    return tuple(map(int, match[1].split("."))) if match else ()


def _py_spy(facts: HostFacts, cluster: PlanContext) -> Iterator[FileTarget]:
    """Yield the program that reads stacks, for hosts with a processor of the controller's kind."""
    if not isinstance(facts.system, System) or cluster.py_spy is None:
        return
    if cluster.py_spy[0].endswith(f"-{facts.system.architecture}"):
        yield FileTarget(f"{paths.AGENT}/{cluster.py_spy[0]}", cluster.py_spy[1], 0o600)


STAGE = StageRules(("system", MADE), plan, after=("ssh_mesh",), changes=(MADE,))
