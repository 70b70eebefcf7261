"""bench run: one workload at several numbers of ranks, each a job of its own."""

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from taco_launch.bench.parse import NoSample, Sample, parse
from taco_launch.errors import FAILED, TacoLaunchError
from taco_launch.flows import jobs
from taco_launch.flows.follow import Follow, Job, Words
from taco_launch.model.jobs import JobSpec, JobState
from taco_launch.remote.head import Head

_EVIDENCE_LINES = 15
# A line of the merged log that is no rank's.
_OF_LAUNCHER = re.compile(r"\S+/[a-z]+ *\|")


@dataclass(frozen=True)
class Progress:
    """How far a benchmark is: `state` of the job of `np` ranks, the last line it wrote, and warnings about its line."""

    np: int
    job: str
    state: str
    line: str = ""
    warnings: tuple[str, ...] = ()


def run(
    head: Head,
    spec: JobSpec,
    sizes: Sequence[int],
    environ: Mapping[str, str],
    report: Callable[[Progress], None],
    say: Callable[[str], None],
) -> tuple[Sample, ...]:
    """Run the job of `spec` with each number of ranks, one after the other, and give what each measured.

    `say` is given what happens to the connection to the head.

    Raises:
        TacoLaunchError: a run failed, or its log holds no sample; the job is kept for a look at its log.
    """
    each = (replace(spec, name=f"{spec.name}-np{np}", np=np) for np in sizes)
    return tuple(_one(head, one, environ, report, say) for one in each)


def _one(
    head: Head,
    spec: JobSpec,
    environ: Mapping[str, str],
    report: Callable[[Progress], None],
    say: Callable[[str], None],
) -> Sample:
    assert spec.np is not None
    np, name = spec.np, spec.name
    pieces: list[bytes] = []

    def output(chunk: bytes) -> None:
        pieces.append(chunk)
        report(Progress(np, name, "RUNNING", chunk.rstrip().rpartition(b"\n")[2].decode("utf-8", "replace")))

    def started(job: Job) -> None:
        report(Progress(np, name, job.record.state.value, warnings=job.record.warnings))

    def waits(words: Words) -> None:
        report(Progress(np, name, "QUEUED", "; ".join(f"{host}: {why}" if host else why for host, why in words)))

    watch = jobs.Watch(lambda: None, started, lambda state: report(Progress(np, name, state)), waits, say)
    try:
        job = jobs.run(head, spec, environ, output, watch)
    except KeyboardInterrupt:
        jobs.stop(head, name, "Ctrl-C", signal.SIGINT)
        jobs.follow(head, Follow(name, tail=0), lambda _data: None)  # until nothing of it is left
        raise
    text = b"".join(pieces).decode("utf-8", "replace")
    if job.record.state is not JobState.SUCCEEDED:
        first = job.record.findings[:1]
        why = "\ncause: ".join([job.record.reason, *(finding.cause for finding in first)])
        steps = tuple(finding.next for finding in first)
        raise _failed(head, name, job.record.exit_code or FAILED, why, text, steps)
    sample = parse(text)
    if isinstance(sample, NoSample):
        raise _failed(head, name, FAILED, f"no sample: {sample.why}", text)
    if sample.ranks != np:
        raise _failed(head, name, FAILED, f"no sample: {np} ranks ran, but the log speaks of {sample.ranks}", text)
    report(Progress(np, name, job.record.state.value, f"{sample.img_per_sec:.1f} img/sec"))
    return sample


def _failed(head: Head, name: str, code: int, why: str, text: str, steps: tuple[str, ...] = ()) -> TacoLaunchError:
    lines = text.rstrip().splitlines()
    # What the launcher says of a rank's failure stands in the reason; where it alone has said something, that is the evidence.
    own = [line for line in lines if not _OF_LAUNCHER.match(line)] or lines
    evidence = "\n".join(f"  {line}" for line in own[-_EVIDENCE_LINES:])
    error = TacoLaunchError(
        f"job {name}: {why}\n{evidence}".rstrip(), hint=" Its log: ".join([*steps, f"{head.typed} logs {name}"])
    )
    error.exit_code = code
    return error
