"""A batch of operations on one host: sent, followed, and kept in a log on the controller that holds no secrets."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from taco_launch.agent.store.folders import make_private, private
from taco_launch.core.errors import HostError, last_line
from taco_launch.core.frozen import dataclass
from taco_launch.hosts.remote.reply_errors import lines, understood
from taco_launch.hosts.remote.transport import Transport
from taco_launch.setup.model.ops import Op, Stage
from taco_launch.setup.plan import batch

_MASK = b"********"


@dataclass(frozen=True)
class SetupEvent:
    """What happens on a host: an operation `begins`, is `done`, `failed` or `interrupted`; or another set-up there is waited for.

    One that is interrupted is finished by the host, and nobody looks how.
    An operation that tells how far it is begins again each time, and `what` has that at its end.
    """

    host: str
    stage: Stage
    what: str
    kind: Literal["begins", "done", "failed", "interrupted", "waits"]


class Changes:
    """How many operations were done on each host; `report` is told of every step, of one host at a time."""

    def __init__(self, report: Callable[[SetupEvent], None]) -> None:
        """Start with none."""
        self._report = report
        self._lock = threading.Lock()
        self._done: dict[str, int] = {}

    def take(self, step: SetupEvent) -> None:
        """Count a step, and hand it on."""
        with self._lock:
            self._done[step.host] = self.of(step.host) + (step.kind == "done")
            self._report(step)

    def of(self, host: str) -> int:
        """Return how many were done on a host."""
        return self._done.get(host, 0)


class SetupLog:
    """The folder of one call: `SETUP_FOLDER/TIME`."""

    def __init__(self, parent: Path, secrets: Sequence[str]) -> None:
        """Nothing is made before something is to be written; what is in `secrets` never is."""
        self.folder = parent / time.strftime("%Y%m%d-%H%M%S")
        self._secrets = [secret.encode("utf-8", "surrogateescape") for secret in secrets if secret]
        self.written = False

    def file(self, host: str) -> str:
        """Place the log of a host."""
        return str(self.folder / f"{host}.log")

    def write(self, host: str, ops: Sequence[Op], outcome: batch.BatchOutcome) -> str:
        """Add what a batch did on a host, and give the file.

        Raises:
            OSError: it cannot be written.
        """
        parts = []
        for ran in outcome.ran:
            op = ops[ran.number]
            parts += [self._title(op, f"exit code {ran.code}"), ran.output, b"\n" if ran.output else b""]
        if not outcome.whole and outcome.begun is not None and not outcome.failed:
            parts += [self._title(ops[outcome.begun], "broken off"), outcome.said]
        text = b"".join(parts)
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        make_private(self.folder)
        self.written = True
        with open(self.file(host), "ab", opener=private) as log:
            log.write(text)
        return self.file(host)

    @staticmethod
    def _title(op: Op, ending: str) -> bytes:
        now = time.strftime("%H:%M:%S")
        return f"--- {now} {op.stage}: {op.name} ({op.why}): {ending}\n".encode("utf-8", "surrogateescape")


def apply(
    transport: Transport,
    ops: Sequence[Op],
    log: SetupLog,
    tell: Callable[[SetupEvent], None],
    typed: str = "taco-launch",
) -> bool:
    """Have a host do these operations; `tell` is called from this thread as they start and end.

    `typed` is what the user types for taco-launch with this inventory.
    False: nothing was done, as another set-up worked there until now; what is to be done has to be planned anew.

    Raises:
        HostError: one of them failed, and those after it were not started; or the answer broke off, or did not end in time;
            or the log cannot be written.
    """
    host, stage = transport.name, ops[0].stage
    for large in batch.apart(ops):
        transport.put(large.data, large.path, large.mode, sudo=True)
    begun: list[Op] = []

    def end(kind: Literal["done", "failed", "interrupted"]) -> None:
        if begun:
            tell(SetupEvent(host, begun[-1].stage, begun[-1].name, kind))

    def begin(number: int) -> None:
        end("done")
        begun.append(ops[number])
        tell(SetupEvent(host, ops[number].stage, ops[number].name, "begins"))

    def progress(text: str) -> None:
        if begun:
            tell(SetupEvent(host, begun[-1].stage, f"{begun[-1].name}: {text}", "begins"))

    marker = f"taco-{secrets.token_hex(8)}"
    command = batch.command(ops, marker, typed)
    seconds = command.timeout or 0.0
    until = time.monotonic() + seconds  # the transport's own starts later
    with transport.tail(command) as stream, understood(host, "set-up"):
        said = _until(until, lines(stream, host, "set-up"))
        outcome = batch.read(said, marker, begin, lambda: tell(SetupEvent(host, stage, "", "waits")), progress)
    if outcome.stale:
        return False
    late = seconds if time.monotonic() >= until else None
    try:
        error = _error(host, ops, outcome, log.write(host, ops, outcome), late)
    except OSError as problem:  # of this machine, which is not a reason to leave the other hosts half-done
        error = _unlogged(host, ops, outcome, f"{problem.filename or log.file(host)}: {problem.strerror}")
    is_cut = not outcome.whole and late is None and not outcome.failed
    end("interrupted" if is_cut else "failed" if outcome.failed or not outcome.whole else "done")
    if error is not None:
        raise error
    return True


def _until(until: float, said: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of an answer; one that the transport gave up as it took too long ends there."""
    try:
        yield from said
    except HostError:
        if time.monotonic() < until:
            raise


def _error(
    host: str, ops: Sequence[Op], outcome: batch.BatchOutcome, log: str, late: float | None = None
) -> HostError | None:
    """Return what went wrong with a batch; None where nothing did. `late` is how long it was waited for in vain."""
    failed = outcome.failed
    if failed is not None:
        step = batch.hint(failed)
        return HostError(
            f"{host}: {batch.failure_reason(ops[failed.number], failed)}",
            hint=f"{step}{'; ' if step else ''}full output: {log}",
        )
    if outcome.busy:
        return HostError(
            f"{host}: another set-up is still running there", hint=f"to see it, on the host: fuser -v {batch.LOCK}"
        )
    if outcome.whole:
        return None
    if late is not None:
        what = f"; last operation: {ops[outcome.begun].name}" if outcome.begun is not None else ""
        return HostError(
            f"{host}: set-up did not finish within {late:.0f} s{what}",
            hint=f"see what hangs, on the host: fuser -v {batch.LOCK}; then run setup again; its output so far: {log}",
        )
    if outcome.begun is None:
        return HostError(
            f"{host}: set-up sent its commands, but the host did not start them: {last_line(outcome.said) or 'no output'}",
            hint="check that the host answers and has free disk space (df -h /tmp there), then run setup again",
        )
    return HostError(
        f"{host}: the output ended during: {ops[outcome.begun].name}",
        hint=f"check the host and the network. If both are up, the host finishes this step by itself. Its output so far: {log}",
    )


def _unlogged(host: str, ops: Sequence[Op], outcome: batch.BatchOutcome, problem: str) -> HostError:
    """Return the error that the log cannot be written, which stops the host's next batch; and first what went wrong there."""
    failed = outcome.failed
    why = f"{batch.failure_reason(ops[failed.number], failed)}; and " if failed is not None else ""
    return HostError(
        f"{host}: {why}its log cannot be written on this machine: {problem}",
        hint="free some space there, or use another state folder: TACO_LAUNCH_STATE=FOLDER",
    )
