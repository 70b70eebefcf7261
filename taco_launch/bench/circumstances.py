"""What a run was made on, as facts that can be kept and compared: of its hosts, its image, its line and its code."""

from collections.abc import Sequence

from taco_launch.bench.causes import CAUSES, MeasuredJob
from taco_launch.bench.runs import RunEnvironment
from taco_launch.model.host.facts import HostFacts
from taco_launch.model.host.hardware import Gpus
from taco_launch.model.jobs import JobRecord, JobSpec


def of_run(hosts: Sequence[HostFacts], spec: JobSpec, record: JobRecord, commit: str = "") -> RunEnvironment:
    """Return the circumstances of a job: all that its hosts' facts, its spec and its record tell.

    `hosts` are looked at as far as the job had ranks there, all of them where it never started. `commit` is that of the
    folder that its command ran in, "" where it is in none. What is not known is left out; what is known not to be there
    is `none`.
    """
    ran = tuple(one for one in hosts if not record.shares or one.host in {share.host for share in record.shares})
    job = MeasuredJob(ran, spec, record, commit)
    found = [
        (host, f"{cause.name} {part}" if part else cause.name, value)
        for cause in CAUSES
        if cause.read is not None
        for host, part, value in cause.read(job)
    ]
    return RunEnvironment(tuple(sorted(set(found))))


def gpu_model(hosts: Sequence[HostFacts]) -> str:
    """Return the one model of all GPUs of hosts, "" where there are none or several."""
    found = [host.gpu.gpus for host in hosts if isinstance(host.gpu, Gpus)]
    names = {gpu.name for gpus in found if isinstance(gpus, tuple) for gpu in gpus}
    return names.pop() if len(names) == 1 else ""
