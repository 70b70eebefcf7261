"""When a job may begin, how it is ended and what happens then: the Policy that a request amounts to."""

from dataclasses import fields
from typing import Any

from taco_launch.core.errors import UsageError
from taco_launch.core.model.host.hosts import Notice
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import EarlySignal, Policy, Restart
from taco_launch.hosts.inventory.durations import parse_early_signal
from taco_launch.hosts.inventory.schema import names

# Kubernetes' Job, spec.backoffLimit.
RETRIES = 6
# Fields of a Policy that need more than to be copied.
_OTHERS = ("signal", "suspend", "restart", "backoff_limit", "notices", "typed")


def policy(
    request: JobRequest, host_loss_timeout: float | None, notices: tuple[Notice, ...] = (), typed: str = ""
) -> Policy:
    """Return the policy that is requested; `host_loss_timeout` and `notices` are the inventory's, `typed` how it is named.

    Raises:
        UsageError: fields contradict each other.
        SpecError: the queue's name is none.
    """
    copied = (each.name for each in fields(Policy) if each.name not in _OTHERS)
    same: dict[str, Any] = {
        name: value for name in copied if (value := getattr(request, name)) is not None and value is not False
    }
    if request.queue is not None:
        names.word(request.queue, "a queue name", request.called("queue"))
    if host_loss_timeout is not None:
        same.setdefault("host_loss_timeout", host_loss_timeout)
    if request.no_wait:
        _refuse_waiting(request)
        same["queue_timeout"] = 0.0
    if request.notify is not None:
        _check_address(request, request.notify)
    if request.progress is not None:
        _check_pattern(request, request.progress)
    restart, limit = _restart(request)
    if request.signal is not None:
        same["signal"] = _signal(request, request.signal)
    if notices or request.notify is not None:
        same["typed"] = typed
    return Policy(**same, suspend=request.suspend, restart=restart, backoff_limit=limit, notices=notices)


def _check_address(request: JobRequest, text: str) -> None:
    from taco_launch.core.messages import address  # noqa: PLC0415 - few jobs have one

    try:
        address.check(text)
    except ValueError as error:
        raise UsageError(f"{request.called('notify')}: {text!r} {error}", hint=address.FORMS) from None


def _check_pattern(request: JobRequest, text: str) -> None:
    from taco_launch.core.progress import pattern  # noqa: PLC0415 - few jobs have one

    try:
        pattern.compiled(text)
    except pattern.PatternError as error:
        called = request.called("progress")
        raise UsageError(
            f"{called}: {error}", hint=rf"write, for example: {called} 'step (?P<step>\d+)/(?P<total>\d+)'"
        ) from None


def _signal(request: JobRequest, text: str) -> EarlySignal:
    """Return the signal before the end, which has to come behind the beginning.

    Raises:
        UsageError: the text is no signal, or its time lies before the job's beginning.
    """
    called = request.called("signal")
    try:
        found = EarlySignal(*parse_early_signal(text))
    except ValueError as error:
        raise UsageError(f"{called}: {text!r}: {error}", hint=f"write it as {called} USR1@120: 120 s before") from None
    if request.timeout is not None and found.seconds >= request.timeout:
        raise UsageError(
            f"{called}: {found.seconds:g} s before the end of a job that may run for {request.timeout:g} s",
            hint=f"set a longer {request.called('timeout')}, or send the signal closer to the end",
        )
    return found


def _refuse_waiting(request: JobRequest) -> None:
    for name in ("queue_timeout", "suspend"):
        if getattr(request, name):
            both = f"{request.called('no_wait')} and {request.called(name)}"
            raise UsageError(f"{both}: a job either waits or does not", hint="leave one of them out")


def _restart(request: JobRequest) -> tuple[Restart, int]:
    """Return after which failures the job is tried again, and how many times.

    Raises:
        UsageError: an option for retries is given, and the job is never tried again.
    """
    limit, restart = request.backoff_limit, request.restart
    if restart is None:
        restart = Restart.ON_FAILURE if limit else Restart.NEVER
    if restart is not Restart.NEVER:
        return restart, RETRIES if limit is None else limit
    called = request.called("restart")
    for name in ("backoff_limit", "backoff", "retry_on"):
        if getattr(request, name) not in (None, 0, 0.0, "any"):
            never = f" and {called} never: " if request.restart is not None else ": "
            raise UsageError(
                f"{request.called(name)}{never}the job is never tried again",
                hint=f"add {called} on-failure, or {called} exit-code",
            )
    return restart, 0
