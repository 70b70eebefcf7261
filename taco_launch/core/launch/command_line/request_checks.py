"""Refuses what is requested and cannot be: of the network what does not exist on every host of the job, a host twice."""

from typing import Dict

from taco_launch.core.errors import UnusableError, UsageError
from taco_launch.core.launch.command_line.decisions import gdr, has_gpus, reached, transport
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import Placement


def check_asked(spec: JobSpec, placement: Placement, facts: JobFacts) -> None:
    """Refuse RDMA, or GPUDirect RDMA, that the facts say does not exist; on one host neither is of use, and is let be.

    Raises:
        UnusableError: with the hosts that lack it, why, and what to type instead.
    """
    between = facts.between
    if between is None or len(placement.shares) == 1:
        return
    asked, direct = transport(spec), gdr(spec)
    if asked.text == "rdma" and between.rdma.able is False:
        raise UnusableError(
            f"RDMA is requested ({asked.why}), and it is not available on every host: {between.rdma.why}",
            hint=f"fix that (taco-launch facts --only rdma,network shows the cause), or run without RDMA: {_without_rdma(asked.source)}",
        )
    if direct.text != "on" or asked.text == "tcp":
        return
    if not has_gpus(facts):
        if direct.source == "user" and facts.hosts:
            raise UnusableError(
                f"GPUDirect RDMA is requested ({direct.why}), and no host of the job has a GPU", hint="omit --gdr"
            )
        return
    if asked.text != "rdma" and between.rdma.able is False:
        raise UnusableError(
            f"GPUDirect RDMA is requested ({direct.why}), and there is no RDMA between the hosts: {between.rdma.why}",
            hint=f"fix that (taco-launch facts --only rdma,network shows the cause), or run without GPUDirect RDMA: {_without_gdr(direct.source)}",
        )
    if between.gdr.able is False:
        raise UnusableError(
            f"GPUDirect RDMA is requested ({direct.why}), and it is not available on every host: {between.gdr.why}",
            hint=f"taco-launch -i FILE setup --only peermem loads the module, or shows why it does not load; or run without GPUDirect RDMA: {_without_gdr(direct.source)}",
        )


def check_once(spec: JobSpec, placement: Placement) -> None:
    """Refuse this machine under two names.

    Raises:
        UsageError: with both.
    """
    known: Dict[str, str] = {}
    for share, (name, _ranks) in zip(placement.shares, reached(spec, placement)):
        if name in known:
            raise UsageError(
                f"hosts {known[name]} and {share.host} are both this machine, which {spec.launcher} accepts only once",
                hint=f"name it once, with the slots of both: -H {known[name]}:SLOTS",
            )
        known[name] = share.host


def _without_rdma(source: str) -> str:
    return "--transport tcp" if source == "user" else "--transport tcp, or network: {rdma: auto} in the inventory"


def _without_gdr(source: str) -> str:
    return "omit --gdr" if source == "user" else "--no-gdr, or network: {gdr: auto} in the inventory"
