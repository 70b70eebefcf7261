"""What the guards of a job said of their hosts, by their probes and with its slots, read for the job's line."""

import time
from dataclasses import replace
from typing import Any, Callable, Mapping, Sequence, Tuple

from taco_launch.agent.supervisor.guard_connection import GuardConnection
from taco_launch.model.host.hosts import Host
from taco_launch.model.job_facts import JobFacts, LocalHcas
from taco_launch.model.jobs import JobSpec


def parsers() -> Tuple[Callable[..., Any], Callable[..., JobFacts]]:
    """Load what reads the probe's answers: it takes longer than all else, and only several hosts are probed."""
    from taco_launch.facts.parse import parse  # noqa: PLC0415
    from taco_launch.launch.job_facts_from import job_facts_from  # noqa: PLC0415

    return parse, job_facts_from


def added(known: JobFacts, spec: JobSpec, told: Mapping[str, str]) -> JobFacts:
    """Add what is between the hosts, and the head's software, from what the probe said on each host."""
    parse, over_ssh = parsers()
    now = time.time()
    facts = tuple(parse(name, text.encode("utf-8", "surrogateescape"), now, now) for name, text in told.items())
    found = over_ssh(known, spec, facts)
    return replace(known, nccl=found.nccl, horovod=found.horovod, between=found.between)


def near(hosts: Sequence[Host], link: Callable[[str], GuardConnection]) -> Tuple[Tuple[str, LocalHcas], ...]:
    """Return by host the HCAs near the job's GPUs; nothing of hosts that have not told them with the slots."""
    told = ((host.name, link(host.name).answers.leased) for host in hosts)
    near_ = ((name, () if leased is None else leased.near) for name, leased in told)
    return tuple((name, tuple(tuple(tuple(hcas) for hcas in alike) for alike in gpus)) for name, gpus in near_ if gpus)
