"""The call `message`: send a message from this host."""

from typing import Callable, Dict, Iterator, Type

from taco_launch.agent.messages.deliver import post
from taco_launch.agent.store.folders import Jobs
from taco_launch.core.errors import UsageError
from taco_launch.core.messages import address
from taco_launch.core.protocol.calls import Reply, Request
from taco_launch.core.protocol.calls.jobs import MessageSent, SendMessage


def _send(_jobs: Jobs, _agent: str, request: SendMessage) -> Iterator[Reply]:
    try:
        to = address.check(request.to)
    except ValueError as error:
        raise UsageError(f"{request.to!r} {error}", hint=address.FORMS) from None
    yield MessageSent(problem=post(to, request.message))


OPERATIONS: Dict[Type[Request], Callable[..., Iterator[Reply]]] = {SendMessage: _send}
