"""A call of the agent that runs something beside a rank: its input, its output, its exit code."""

from collections.abc import Iterable

from taco_launch.core.errors import HostError
from taco_launch.core.protocol.calls import Request, exec_command
from taco_launch.core.protocol.calls.caller_input import CallerInput, EndOfInput
from taco_launch.jobs.backend import Output
from taco_launch.jobs.backend.agent_client import AgentClient


def converse(head: AgentClient, request: Request, given: Iterable[CallerInput], out: Output, err: Output) -> int:
    """Send what is `given` while it comes; return what is written to `out` and `err`, and the exit code in the end.

    A thread reads `given`; behind the last of it the input of what runs there ends.

    Raises:
        HostError: the answer is not whole, or as `Head.call`.
    """
    code = None

    def frames() -> Iterable[CallerInput]:
        yield from given
        yield EndOfInput()

    with head.converse(request) as talk:
        talk.feed(frames())
        for reply in talk.replies:
            if isinstance(reply, exec_command.Output):
                (out if reply.stream == "out" else err)(reply.data)
            elif isinstance(reply, exec_command.Exited):
                code = reply.code
    if code is None:
        raise HostError(
            f"{head.name}: the connection ended before the exit code of {request.op} arrived", "run the command again"
        )
    return code
