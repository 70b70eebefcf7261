"""The keys of a job file, as pydantic models: a job and its policies, these by the MPI Operator's names (v2beta1)."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from taco_launch.core.model.launchers import LAUNCHERS, what_starts_ranks
from taco_launch.hosts.inventory.schema.section import SchemaSection
from taco_launch.hosts.inventory.schema.values import Image, ImageFrom, Interface, Label, Profile, Size
from taco_launch.jobs.documents.job_values import (
    Command,
    HostCount,
    Hosts,
    Indices,
    JobName,
    Knob,
    LeastSecond,
    LogBytes,
    NonEmpty,
    Priority,
    QueueName,
    Ranks,
    Retries,
    SignalTime,
    SlotCount,
    Time,
    Url,
    Variable,
    Workers,
    WorkingDir,
)

if TYPE_CHECKING:
    LauncherName = str
else:
    LauncherName = Literal[tuple(LAUNCHERS)]


class SchedulingPolicy(SchemaSection):
    """The order in which jobs get their slots."""

    queue: QueueName | None = Field(default=None, description="Queue that the job is counted in. Default: default.")
    priority: Priority | None = Field(
        default=None,
        description="Jobs with a higher number get their slots first; FIFO within a priority. Default: 0.",
    )
    scheduleTimeoutSeconds: Time | None = Field(  # noqa: N815 - the MPI Operator's name
        default=None, description="How long the job may wait for its slots; 0: not at all. Default: forever."
    )


class RunPolicy(SchemaSection):
    """How the job is ended, and what happens then. Times are seconds, or as 90s, 15m, 3h, 2d."""

    cleanPodPolicy: Literal["Running", "All", "None"] | None = Field(  # noqa: N815
        default=None,
        description="What to remove from hosts when the job ends: its processes (Running), also its files there (All), or "
        "nothing (None). Default: Running.",
    )
    ttlSecondsAfterFinished: Time | None = Field(  # noqa: N815
        default=None, description="How long after its end the job's record is deleted. Default: never."
    )
    activeDeadlineSeconds: LeastSecond | None = Field(  # noqa: N815
        default=None, description="How long the job may run, from its first start on, over all attempts."
    )
    restartPolicy: Literal["Never", "OnFailure", "ExitCode"] | None = Field(  # noqa: N815
        default=None,
        description="When the job is tried again: after each failure (OnFailure), or only after a signal or a lost host (ExitCode). "
        "Default: Never, or OnFailure with backoffLimit.",
    )
    backoffLimit: Retries | None = Field(  # noqa: N815
        default=None, description="Number of retries. Default: 6 with a restartPolicy."
    )
    backoffSeconds: Time | None = Field(  # noqa: N815
        default=None,
        description="Delay before the first retry; it doubles with each one. Default: 10.",
    )
    retryOn: Literal["any", "same-host"] | None = Field(  # noqa: N815
        default=None,
        description="same-host: a retry waits for the hosts of the attempt before, where the files are that it wrote. Default: any.",
    )
    failOn: Literal["nan"] | None = Field(  # noqa: N815
        default=None,
        description="nan: fail the job when the loss that its ranks print is not a number. Default: never.",
    )
    suspend: bool | None = Field(default=None, description="true: the job waits until it is resumed.")
    gracePeriodSeconds: Time | None = Field(  # noqa: N815
        default=None, description="Time between TERM and KILL when the job is ended. Default: 10."
    )
    signal: SignalTime | None = Field(
        default=None,
        description="A signal for the ranks some time before the deadline, a stop or a suspension, so that they save their "
        "state: USR1@120 is 120 s before.",
    )
    stallTimeoutSeconds: LeastSecond | None = Field(  # noqa: N815
        default=None,
        description="Fail the job when no rank has made progress for this long; polling while waiting is not progress. "
        "Default: never.",
    )
    silenceTimeoutSeconds: LeastSecond | None = Field(  # noqa: N815
        default=None, description="Fail the job when no rank has printed anything for this long. Default: never."
    )
    hostLossTimeoutSeconds: LeastSecond | None = Field(  # noqa: N815
        default=None,
        description="Time without an answer after which a host counts as lost. Default: the inventory's host_loss_timeout.",
    )
    schedulingPolicy: SchedulingPolicy = Field(  # noqa: N815
        default_factory=SchedulingPolicy, description="Queue and priority of the job, and how long it may wait."
    )


class JobDocument(SchemaSection):
    """A job of taco-launch, as `run -f` and `submit -f` read it."""

    name: JobName | None = Field(default=None, description="Name of the job. Default: made from its command.")
    command: Command | None = Field(
        default=None,
        description="The program and its arguments: a list, or text, which is split into words like in a shell but never "
        "run by a shell.",
    )
    np: Ranks | None = Field(default=None, description="Number of ranks. Default: every slot.")
    hosts: HostCount | None = Field(
        default=None,
        description="Number of hosts, instead of np. Without slotsPerHost, the job gets all their slots. MIN:MAX means as many as are free "
        "when the job starts.",
    )
    slotsPerHost: SlotCount | None = Field(  # noqa: N815
        default=None, description="Number of ranks on each host; with np, the maximum on each host."
    )
    workers: Workers | None = Field(
        default=None,
        description="Number of workers, including the master as in Arena, instead of np. Each runs as many ranks as gpus says, on one "
        "host; with perHost, each is a host. Default: 1 if only gpus is given.",
    )
    gpus: SlotCount | None = Field(default=None, description="GPUs of each worker. Default: 1 slot of any kind.")
    slotsPerWorker: SlotCount | None = Field(  # noqa: N815
        default=None, description="Slots of any kind of each worker, instead of gpus."
    )
    procsPerGpu: SlotCount | None = Field(  # noqa: N815
        default=None,
        description="With launcher env: how many processes share each slot; each gets --process_index and --process_num "
        "after its own arguments.",
    )
    mps: bool | None = Field(
        default=None,
        description="true, with procsPerGpu: run CUDA's Multi-Process Service (MPS) for the processes of each host.",
    )
    host: Hosts | None = Field(
        default=None,
        description="Which hosts of the inventory, and slots on each, as in -H: gpu1:8,gpu[3-4]:8, or a group.",
    )
    gpuIds: Indices | None = Field(  # noqa: N815
        default=None, description="Only these GPUs of each host, by nvidia-smi's index: 0,2,4-7."
    )
    gpuModel: tuple[str, ...] | None = Field(  # noqa: N815
        default=None,
        description="Only GPUs with one of these texts in their model's name. Default: GPUs of a single model.",
    )
    exclude: tuple[str, ...] | None = Field(
        default=None, description="Hosts to leave out, or some of a host's GPUs: gpu3:0,1."
    )
    selector: dict[Label, Label] | None = Field(
        default=None, description="Only hosts that have all of these labels in the inventory."
    )
    exclusive: bool | None = Field(
        default=None, description="true: the job has its hosts for itself, also the slots that it does not use."
    )
    gpuTopology: bool | None = Field(  # noqa: N815
        default=None,
        description="Whether the GPUs of a host are chosen by the links between them. Default: the inventory's topology.",
    )
    launcher: LauncherName | None = Field(default=None, description=what_starts_ranks())
    perHost: bool | None = Field(  # noqa: N815
        default=None,
        description="With launcher env, true starts one process per host for all of the job's slots there. RANK and "
        "WORLD_SIZE then count hosts, and MASTER_PORT is 23456.",
    )
    env: dict[str, Variable | None] = Field(
        default={}, description="Environment variables of the ranks; null passes on the caller's value."
    )
    knobs: dict[str, Knob] = Field(
        default={}, description="Knobs of NCCL, Horovod, LightCC, UCX or Open MPI, as `taco-launch knobs` shows them."
    )
    mca: dict[str, Knob] = Field(default={}, description="MCA parameters of Open MPI.")
    tensorboard: bool | None = Field(
        default=None,
        description="true: run TensorBoard beside the job, on the head; `taco-launch tensorboard NAME` opens it.",
    )
    progress: NonEmpty | None = Field(
        default=None,
        description="Regular expression with named groups (step, total, epoch, loss, rate), which finds the progress in "
        "the output. Default: formats of known programs.",
    )
    logdir: str | None = Field(
        default=None,
        description="Folder on the head that TensorBoard reads, relative to the folder that the ranks start in. Default: runs.",
    )
    tensorboardGraceSeconds: Time | None = Field(  # noqa: N815
        default=None, description="How long TensorBoard outlives the job. Default: 10m."
    )
    allowUnknownKnobs: bool | None = Field(  # noqa: N815
        default=None, description="true: accept names that look like misspelled names of known knobs."
    )
    profile: Profile | None = Field(
        default=None,
        description="Options of the mpirun line: a profile's name, or the path of a profile file, relative to this "
        "file. Default: the inventory's.",
    )
    sync: NonEmpty | None = Field(
        default=None,
        description="Code that every host gets before the ranks start; they start in it. A folder, relative to this file, "
        "or git+URL[@REF].",
    )
    syncMax: Size | None = Field(  # noqa: N815
        default=None, description="The largest size that sync copies, such as 500m. Default: 1g."
    )
    configFiles: tuple[NonEmpty, ...] | None = Field(  # noqa: N815
        default=None,
        description="Single files that every host gets, SRC:DST: SRC is relative to this file, DST is an absolute path or a path in "
        "the code.",
    )
    envFiles: tuple[NonEmpty, ...] | None = Field(  # noqa: N815
        default=None,
        description="Files with NAME=VALUE or NAME on each line, for environment variables; relative to this file. env overrides them.",
    )
    image: Image | None = Field(
        default=None,
        description="Image that the job runs in. If it is not the inventory's, containers of it are prepared before the job is "
        "queued.",
    )
    workerImage: Image | None = Field(  # noqa: N815
        default=None, description="Image of the workers. It must be the same as image: all ranks run in one image."
    )
    imageFrom: ImageFrom | None = Field(  # noqa: N815
        default=None,
        description="Where hosts get the image from: registry, controller (the Docker Engine of the machine that the job is "
        "submitted from), or a tar file there. Default: controller if `image build` has made it there, else as the "
        "inventory's image.",
    )
    data: tuple[str, ...] | None = Field(
        default=None,
        description="Folders of the hosts that the ranks see: HOST_PATH:PATH, below data_roots of the inventory, or NAME:PATH, NAME a data set "
        "of the inventory; with :ro to read only.",
    )
    shmSize: Size | None = Field(  # noqa: N815
        default=None, description="Size of /dev/shm, such as 64g. Default: the inventory's container.shm_size."
    )
    workingDir: WorkingDir | None = Field(  # noqa: N815
        default=None,
        description="Folder that the ranks start in: an absolute path, or with sync a folder of the code. Default: the code's, "
        "else the image's.",
    )
    transport: Literal["auto", "tcp", "rdma"] | None = Field(
        default=None, description="How hosts exchange data. Default: the inventory's network.rdma."
    )
    interface: Interface | None = Field(
        default=None, description="Network interface between hosts. Default: the inventory's."
    )
    gdr: bool | None = Field(default=None, description="GPUDirect RDMA. Default: the inventory's network.gdr.")
    light: bool | None = Field(
        default=None, description="LightCC's 2D all-reduce and top-k compression (lossy). Default: false."
    )
    logMaxBytes: LogBytes | None = Field(  # noqa: N815
        default=None,
        description="Keep at most this many bytes of each rank's log; the oldest bytes are removed first. Default: 1 GiB.",
    )
    agentLog: bool | None = Field(  # noqa: N815
        default=None,
        description="true: keep the decisions and the messages of the supervisor and the guards, for `logs --agent`.",
    )
    strict: bool | None = Field(
        default=None,
        description="true: fail the job with exit code 125 if it does not run as planned: ranks, hosts, variables, "
        "interface, what NCCL reports. Default: a warning in `get`.",
    )
    notify: Url | None = Field(
        default=None,
        description="The http or https URL that gets name, state, event, reason and hosts of the job as JSON, by POST, when it "
        "ends, hangs or loses a host.",
    )
    replace: bool | None = Field(
        default=None, description="true: a job of yours with this name that has ended is deleted first."
    )
    runPolicy: RunPolicy = Field(  # noqa: N815
        default_factory=RunPolicy, description="How the job is ended, and what happens then."
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a job file, for editors: every key with its description."""
    return JobDocument.model_json_schema() | {"$schema": "https://json-schema.org/draft/2020-12/schema"}
