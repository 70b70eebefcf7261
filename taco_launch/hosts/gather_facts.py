"""Look at hosts: the probe on all of them side by side."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files

from taco_launch.core import trace
from taco_launch.core.command import Command
from taco_launch.core.errors import HostError, last_line
from taco_launch.core.facts import SUBJECTS
from taco_launch.core.facts.parse import only, parse
from taco_launch.core.facts.text.sections import feed
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.fact_value import Absent, Unknown, was_requested
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Container, Host, Inventory
from taco_launch.hosts.fanout import Answer, Fanout, connect
from taco_launch.hosts.remote.credentials import Credentials
from taco_launch.hosts.remote.transport import CutShortError, Transport

# The slowest subject asks nvidia-smi, which may take 30 s on a host whose driver is not kept loaded.
_PROBE_SECONDS = 120.0
# What a job's line depends on.
_JOB_SUBJECTS = ("system", "network", "gpu", "rdma", "image")


def gather(
    fanout: Fanout,
    subjects: Sequence[str],
    report: Callable[[Answer[HostFacts]], None] = lambda _answer: None,
    *,
    sudo: bool = False,
    container: str | None = None,
    cluster: str | None = None,
    data_root: str | None = None,
) -> tuple[Answer[HostFacts], ...]:
    """Return the facts of every host, in inventory order; `report` is called as each has answered.

    A host whose answer was cut short has both: the facts that came, and the error. The subject `image` looks into
    `container` of each host's engine, or without one at the host itself; `made` looks for the set-up of `cluster`, and
    `system` also at the disk of `data_root`, where docker is to keep its images. With
    `sudo` the probe runs as root from the start; without it, what needs root is asked with `sudo -n` where that works.
    """
    script = feed(files("taco_launch.core.facts").joinpath("probe.sh").read_bytes(), container, cluster, data_root)
    # Unnamed, all are asked, and those that may hang last.
    named = () if set(subjects) == set(SUBJECTS) else subjects

    def probe(host: Transport) -> tuple[HostFacts, HostError | None]:
        marker = f"taco-{secrets.token_hex(8)}"
        command = Command(("/bin/sh", "-s", "--", marker, *named), script, sudo=sudo, timeout=_PROBE_SECONDS)
        sent = time.time()
        try:
            result = host.run(command)
        except CutShortError as error:
            if f"\n{marker} end ".encode() not in error.stdout:
                raise
            facts = only(parse(host.name, error.stdout, sent, time.time(), error.why), subjects)
            said = error.message.removeprefix(f"{host.name}: ")
            return facts, HostError(f"{host.name}: incomplete: {said}", error.hint)
        received = time.time()
        trace.decision("%s: facts of %s: from its probe, after %.2f s", host.name, "/".join(subjects), received - sent)
        if marker.encode() not in result.stdout:
            said = last_line(result.stderr) or last_line(result.stdout) or "nothing"
            raise HostError(
                f"{host.name}: the probe gave no answer (exit code {result.exit_code}); its output: {said}",
                hint="check that /bin/sh on the host is a POSIX shell",
            )
        return parse(host.name, result.stdout, received - result.seconds, received), None

    answers = fanout.each(probe, lambda answer: report(_with_probe_error(answer)))
    return tuple(map(_with_probe_error, answers))


def _with_probe_error(answer: Answer[tuple[HostFacts, HostError | None]]) -> Answer[HostFacts]:
    facts, cut_short = answer.value or (None, None)
    return Answer(answer.host, facts, answer.error or cut_short)


def with_declared_values(facts: HostFacts, host: Host) -> HostFacts:
    """Return what is known of a host where the inventory has the last word: a host without GPUs has none."""
    gone = host.gpus == "none" and was_requested(facts.gpu)
    return replace(facts, gpu=Absent("the inventory has gpus: none")) if gone else facts


def in_container(inventory: Inventory, container: Container) -> Inventory:
    """Return the inventory as of the cluster whose container a job runs in."""
    if not container.variant:
        return inventory
    return replace(inventory, cluster=paths.variant(inventory.cluster, container.variant), container=container)


def job_hosts(
    inventory: Inventory, hosts: tuple[Host, ...], access: Credentials, *, topology: bool = False
) -> tuple[tuple[HostFacts, ...], tuple[str, ...]]:
    """Return the facts of a job's hosts, as far as its line depends on them, and with `topology` how GPUs are linked.

    The second value says what is wrong with the hosts that are silent, or gave only a part.
    """
    container = paths.container(inventory.cluster) if inventory.container else None
    subjects = (*_JOB_SUBJECTS, "topology") if topology else _JOB_SUBJECTS
    with connect(inventory, hosts, access) as fanout:
        answers = gather(fanout, subjects, sudo=access.sudo_password is not None, container=container)
    by_name = {host.name: host for host in hosts}
    found = tuple(
        with_declared_values(answer.value, by_name[answer.host]) for answer in answers if answer.value is not None
    )
    wrong = [answer.error.message for answer in answers if answer.error is not None]
    if container:
        wrong += [f"{facts.host}: {facts.image.reason}" for facts in found if isinstance(facts.image, Unknown)]
    return found, tuple(wrong)
