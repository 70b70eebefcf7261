"""The call `facts`: what a plan has to know of this host."""

import os
from typing import Callable, Dict, Iterator, Type

from taco_launch.agent.host import facts
from taco_launch.agent.store.folders import Jobs, state_folder
from taco_launch.core.errors import HostError
from taco_launch.core.model.codec import to_json
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.calls.facts import FactsReply, GetFacts


def _facts(_jobs: Jobs, _agent: str, request: GetFacts) -> Iterator[Reply]:
    version, problem = None, ""
    try:
        version = facts.openmpi(request.mpirun, {**os.environ, "PATH": request.path})
    except HostError as error:
        problem = error.message
    known, links = facts.host(count_slots=request.count_slots), None
    if request.topology:
        from taco_launch.agent.host import gpu_topology  # noqa: PLC0415 - only where it is requested

        models, found = gpu_topology.read_topology(state_folder(os.environ, os.geteuid()))
        known, links = known.replace(models=models), to_json(found)
    yield FactsReply(known=known, openmpi=version, problem=problem, topology=links)


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {GetFacts: _facts}
