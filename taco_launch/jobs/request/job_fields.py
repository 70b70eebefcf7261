"""Name each field of a JobRequest in one table: its kind, its help, its option, its key in a job file, and what it may be.

The options of `run` (cli/options/job_field_options.py), the keys of a job file (jobs/documents/job_schema.py) and the checks of a
request made in Python are built from this table. To add a field: its type and comment in core/model/job_request.py, and its
row here. An option is called like its field (`stall_timeout`, `--stall-timeout`), and so is a key (`slotsPerHost`), unless the
row names another.
"""

import enum
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from taco_launch.core.model.jobs import MOST_PRIORITY, MOST_RETRIES, CleanUp, Restart
from taco_launch.core.model.launchers import LAUNCHERS, what_starts_ranks
from taco_launch.hosts.inventory.schema.names import MAX_SLOTS
from taco_launch.jobs.request.sizes import MOST_HOSTS

# Sections of a job file.
TOP, POLICY, SCHEDULING, SLURM = (), ("runPolicy",), ("runPolicy", "schedulingPolicy"), ("slurm",)
_SLOTS, _HOSTS = (1, MAX_SLOTS), (1, MOST_HOSTS)
_MOST_SECONDS = 1_000_000_000
_LIMIT, _LEAST_SECOND, _SPAN = (0.001, _MOST_SECONDS), (1, _MOST_SECONDS), (0, _MOST_SECONDS)


class Part(enum.Enum):
    """A part of the options: which verbs have it is told in cli/options/job_field_options.py."""

    JOB = enum.auto()
    SIZE = enum.auto()
    LAUNCHER = enum.auto()
    HOSTS = enum.auto()
    TUNING = enum.auto()
    QUEUE = enum.auto()
    SUSPEND = enum.auto()
    LIMITS = enum.auto()
    RETRIES = enum.auto()
    LOGS = enum.auto()
    RECORDS = enum.auto()
    CODE = enum.auto()
    CONTAINER = enum.auto()
    SLURM = enum.auto()


class JobField(NamedTuple):
    """How a field is called, what it does, and what it may be."""

    name: str
    # What its value is: a key of the tables of kinds in job_field_options.py and job_schema.py.
    kind: str
    part: Part
    # What it does, as --help and the schema show it. {name} is another field, written as an option or as a key.
    help: str
    # Its option, or all forms of it.
    option: tuple[str, ...] = ()
    metavar: str | None = None
    key: str = ""
    # The section of a job file that has it; None: no job file has it.
    section: tuple[str, ...] | None = TOP
    # The least and the most.
    limits: tuple[float, int] | None = None
    choices: Collection[str] = ()
    # The enumeration that has its choices.
    words: type[enum.Enum] | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """Return every form of its option."""
        return self.option or (f"--{self.name.replace('_', '-')}",)

    @property
    def bounds(self) -> tuple[Any, Any]:
        """Return the least and the most, None each where there is no limit."""
        return self.limits or (None, None)

    @property
    def written_option(self) -> str:
        """Return how people write its option."""
        return self.options[0]

    @property
    def written_key(self) -> str:
        """Return how people write its key in a job file."""
        first, *rest = self.name.split("_")
        return self.key or first + "".join(word.capitalize() for word in rest)


_P = Part
FIELDS = (
    JobField("name", "name", _P.JOB, "Name of the job. Default: from its command, with four random characters."),
    JobField(
        "np",
        "count",
        _P.SIZE,
        "Number of ranks. Default: one per slot.",
        option=("--np", "-np", "-n"),
        limits=(1, 1_000_000),
    ),
    JobField(
        "hosts",
        "host count",
        _P.SIZE,
        "Number of hosts. MIN:MAX uses as many as are free when the job starts. Default: all hosts, if {slots_per_host} is given.",
        metavar="N|MIN:MAX",
        limits=_HOSTS,
    ),
    JobField(
        "elastic",
        "flag",
        _P.SIZE,
        "While the job runs, continue without a host that is lost and use hosts that become free, between MIN and MAX of {hosts}. "
        "With {launcher} torchrun each change restarts all ranks from your last checkpoint; with {launcher} horovod a program that "
        "uses hvd.elastic continues from its last commit.",
    ),
    JobField(
        "slots_per_host",
        "count",
        _P.SIZE,
        "Ranks on each host; with {np} the maximum. Default: all slots of hosts without other jobs.",
        metavar="N",
        limits=_SLOTS,
    ),
    JobField(
        "workers",
        "count",
        _P.SIZE,
        "Number of workers as Arena counts them, master included: W x G ranks. One host may run several workers; no worker "
        "spans two hosts. With {per_host} each worker is a host. Default: 1, if {gpus} is given.",
        metavar="W",
        limits=_HOSTS,
    ),
    JobField(
        "gpus",
        "count",
        _P.SIZE,
        "GPUs per worker: G ranks on one host; with {per_host} one process that sees G GPUs. Default: 1 slot of any kind.",
        metavar="G",
        limits=_SLOTS,
    ),
    JobField(
        "slots_per_worker",
        "count",
        _P.SIZE,
        "Slots of any kind per worker, instead of {gpus}, as slotsPerWorker of an MPIJob.",
        metavar="N",
        limits=_SLOTS,
    ),
    JobField(
        "procs_per_gpu",
        "count",
        _P.SIZE,
        "With {launcher} env: start the command N times per slot. Each process sees only its GPU and gets --process_index I "
        "--process_num N after its own arguments (and PROCESS_INDEX, PROCESS_NUM). RANK and WORLD_SIZE then number the slots, not the processes.",
        metavar="N",
        limits=_SLOTS,
    ),
    JobField(
        "mps", "flag", _P.SIZE, "With {procs_per_gpu}: run a CUDA Multi-Process Service for this job on each host."
    ),
    JobField("launcher", "choice", _P.LAUNCHER, what_starts_ranks(), choices=LAUNCHERS),
    JobField(
        "per_host",
        "flag",
        _P.LAUNCHER,
        "With {launcher} env: start the command once per host for all of the job's slots there. RANK and WORLD_SIZE then count "
        "hosts, and MASTER_PORT is 23456.",
    ),
    JobField(
        "host",
        "hosts",
        _P.HOSTS,
        "Hosts and host groups to use, with slots per host: gpu1:8,gpu[3-4]:8.",
        option=("-H", "--host"),
        metavar="H1:8,H2:8",
    ),
    JobField(
        "gpu_ids",
        "indices",
        _P.HOSTS,
        "Use only these GPUs of each host, by nvidia-smi index: 0,2,4-7.",
        metavar="LIST",
    ),
    JobField(
        "gpu_models",
        "list",
        _P.HOSTS,
        "Use only GPUs whose model name contains this text, such as V100. By default a job gets GPUs of one model that are not "
        "in MIG mode; for those in MIG mode the text has to contain MIG.",
        option=("--gpu-model",),
        metavar="NAME",
        key="gpuModel",
    ),
    JobField("exclude", "list", _P.HOSTS, "Leave out hosts, or some GPUs of a host: gpu3:0,1.", metavar="HOST[:LIST]"),
    JobField(
        "selectors",
        "labels",
        _P.HOSTS,
        "Use only hosts with this inventory label, such as leaf=a; with several, all must match.",
        option=("--selector",),
        metavar="LABEL=VALUE",
        key="selector",
    ),
    JobField("exclusive", "flag", _P.HOSTS, "Run no other job on the job's hosts, even if it leaves slots unused."),
    JobField(
        "gpu_topology",
        "switch",
        _P.HOSTS,
        "Choose GPUs by the links between them, or by the lowest index. Default: topology in the inventory, else on.",
        option=("--gputopology",),
    ),
    JobField(
        "env",
        "variables",
        _P.JOB,
        "Environment variable for the ranks; without a value, the value in your environment.",
        option=("-x",),
        metavar="NAME[=VALUE]",
    ),
    JobField(
        "knobs",
        "knobs",
        _P.TUNING,
        "Tuning variable of NCCL, Horovod, LightCC, UCX or Open MPI with a value such as 64MiB or true; see "
        "`taco-launch knobs`.",
        option=("--knob",),
        metavar="NAME=VALUE",
    ),
    JobField(
        "mca",
        "parameters",
        _P.TUNING,
        "MCA parameter of Open MPI; replaces the one that taco-launch would set.",
        metavar="NAME VALUE",
    ),
    JobField(
        "allow_unknown_knobs",
        "flag",
        _P.TUNING,
        "Accept names of variables and parameters that look like misspelled known ones.",
    ),
    JobField(
        "profile",
        "profile",
        _P.LAUNCHER,
        "Profile with options of the mpirun command line: auto, taco-bare-metal, ack, or a file. Default: the inventory's.",
        metavar="NAME|FILE",
    ),
    JobField(
        "transport",
        "choice",
        _P.TUNING,
        "How hosts exchange data. Default: network.rdma in the inventory.",
        choices=("auto", "tcp", "rdma"),
    ),
    JobField(
        "interface",
        "interface",
        _P.TUNING,
        "Network interface between hosts. Default: the inventory's.",
        metavar="NAME",
    ),
    JobField("gdr", "switch", _P.TUNING, "Use GPUDirect RDMA between hosts. Default: network.gdr in the inventory."),
    JobField(
        "light",
        "switch",
        _P.TUNING,
        "Send fewer bytes of gradients between hosts (lossy): by LightCC where the image has it, otherwise in stock torch and Horovod.",
    ),
    JobField(
        "queue",
        "queue",
        _P.QUEUE,
        "Name of the queue: only a label to filter and count by. Default: default.",
        metavar="NAME",
        section=SCHEDULING,
    ),
    JobField(
        "priority",
        "count",
        _P.QUEUE,
        "Jobs with a higher number get their slots first; FIFO within a priority. Default: 0.",
        metavar="N",
        section=SCHEDULING,
        limits=(-MOST_PRIORITY, MOST_PRIORITY),
    ),
    JobField(
        "queue_timeout",
        "time",
        _P.QUEUE,
        "Fail (exit code 4, for `run` 125) if slots are not free within this time, such as 3h. Default: wait forever.",
        key="scheduleTimeoutSeconds",
        section=SCHEDULING,
        limits=_SPAN,
    ),
    JobField(
        "no_wait",
        "flag",
        _P.QUEUE,
        "Fail (exit code 4, for `run` 125) if slots are not free now.",
        section=None,
    ),
    JobField(
        "partition",
        "text",
        _P.SLURM,
        "Slurm: partition of the job. Default: the cluster's.",
        metavar="NAME",
        section=SLURM,
    ),
    JobField(
        "account",
        "text",
        _P.SLURM,
        "Slurm: account that the job is charged to. Default: yours.",
        metavar="NAME",
        section=SLURM,
    ),
    JobField("qos", "text", _P.SLURM, "Slurm: quality of service.", metavar="NAME", section=SLURM),
    JobField(
        "constraint",
        "text",
        _P.SLURM,
        "Slurm: features that the nodes must have, such as a100&ib.",
        metavar="LIST",
        section=SLURM,
    ),
    JobField("reservation", "text", _P.SLURM, "Slurm: reservation that the job uses.", metavar="NAME", section=SLURM),
    JobField(
        "dependency",
        "text",
        _P.SLURM,
        "Slurm: start only after other jobs of Slurm, such as afterok:123.",
        metavar="LIST",
        section=SLURM,
    ),
    JobField(
        "suspend",
        "flag",
        _P.SUSPEND,
        "Queue the job suspended: it starts after `taco-launch resume NAME`.",
        section=POLICY,
    ),
    JobField(
        "grace",
        "time",
        _P.LIMITS,
        "Time between TERM and KILL when the job is stopped. Default: 10s.",
        key="gracePeriodSeconds",
        section=POLICY,
        limits=_SPAN,
    ),
    JobField(
        "timeout",
        "time",
        _P.LIMITS,
        "Stop the job after this time, counted from its first start over all attempts, and again after suspend and resume: 90, 90s, 15m, 3h or 2d.",
        key="activeDeadlineSeconds",
        section=POLICY,
        limits=_LIMIT,
    ),
    JobField(
        "stall_timeout",
        "time",
        _P.LIMITS,
        "Fail the job when no rank has made progress for this long; waiting by polling is no progress. Default: never; "
        "`get` reports a hang after 10m.",
        key="stallTimeoutSeconds",
        section=POLICY,
        limits=_LEAST_SECOND,
    ),
    JobField(
        "silence_timeout",
        "time",
        _P.LIMITS,
        "Fail the job when no rank has printed anything for this long, however busy it is. Default: never.",
        key="silenceTimeoutSeconds",
        section=POLICY,
        limits=_LEAST_SECOND,
    ),
    JobField(
        "fail_on",
        "choice",
        _P.LIMITS,
        "Fail the job (exit code 1) when the last two losses that a rank prints are NaN or infinite (loss: nan, train_loss=inf). "
        "Checked every 20 s. Default: the job continues, and the line at its end shows it.",
        section=POLICY,
        choices=("nan",),
    ),
    JobField(
        "signal",
        "signal",
        _P.LIMITS,
        "Send the ranks a signal, and wait this long before {timeout}, stop or suspend ends them, so that they save a checkpoint: "
        "USR1@120, USR1@2m. Only processes that handle the signal get it. Default time: 60s.",
        metavar="NAME[@TIME]",
        section=POLICY,
    ),
    JobField(
        "host_loss_timeout",
        "time",
        _P.LIMITS,
        "Treat a host as lost, and end the job, after this long without an answer from it. Default: host_loss_timeout in the "
        "inventory, else 60s.",
        key="hostLossTimeoutSeconds",
        section=POLICY,
        limits=_LEAST_SECOND,
    ),
    JobField(
        "log_max_bytes",
        "count",
        _P.LOGS,
        "Keep at most this many bytes of each rank's log; the oldest are dropped first. Default: 1073741824 (1 GiB).",
        limits=(4096, 1 << 50),
    ),
    JobField(
        "progress",
        "text",
        _P.LOGS,
        "Regular expression that finds the progress for `get` and `list`, with named groups step, total, epoch, "
        "loss, rate. Default: formats of known programs.",
        metavar="REGEX",
    ),
    JobField(
        "clean_up",
        "words",
        _P.RECORDS,
        "What to remove from hosts when the job ends: its processes (running), its files there too (all), or none. "
        "Default: running.",
        key="cleanPodPolicy",
        section=POLICY,
        words=CleanUp,
    ),
    JobField(
        "restart",
        "words",
        _P.RETRIES,
        "Retry after a failure that is no fault of the program (on-failure), after any failure (always), or with exit-code only "
        "after a signal (exit code 128 or more) or the loss of a host. Default: never, or on-failure with {backoff_limit}.",
        key="restartPolicy",
        section=POLICY,
        words=Restart,
    ),
    JobField(
        "backoff_limit",
        "count",
        _P.RETRIES,
        "Number of retries. Default: 6 with {restart}.",
        metavar="N",
        section=POLICY,
        limits=(0, MOST_RETRIES),
    ),
    JobField(
        "backoff",
        "time",
        _P.RETRIES,
        "Delay before the first retry; it doubles with each one. Default: 10s.",
        key="backoffSeconds",
        section=POLICY,
        limits=_SPAN,
    ),
    JobField(
        "retry_on",
        "choice",
        _P.RETRIES,
        "same-host: a retry waits for the hosts of the attempt before, where the files are that it wrote. Default: any, "
        "hosts that failed last.",
        section=POLICY,
        choices=("any", "same-host"),
    ),
    JobField(
        "ttl",
        "time",
        _P.RECORDS,
        "Delete the job's record this long after it ends, such as 2d. Default: never.",
        key="ttlSecondsAfterFinished",
        section=POLICY,
        limits=_SPAN,
    ),
    JobField(
        "agent_log",
        "flag",
        _P.LOGS,
        "Log what taco-launch's own processes for this job (supervisor and guards) decide and send; print it with "
        "`logs --agent`.",
    ),
    JobField(
        "strict",
        "flag",
        _P.RETRIES,
        "A minute after the ranks start, compare ranks, hosts, variables, interface and what NCCL reports with the plan, "
        "and fail the job (exit code 125) if they differ. Default: only `get` warns.",
    ),
    JobField(
        "notify",
        "address",
        _P.RECORDS,
        "Send a message when the job ends, hangs or loses a host; the head sends it. ADDRESS is mailto:NAME@HOST, or a URL: webhooks "
        "of Slack, Teams, WeCom, DingTalk, Feishu and Discord get a text (`slack+URL` and the like for servers of your own), "
        "any other gets name, state, event, reason and hosts as JSON; `URL#SECRET` signs it. The inventory's `notify` has further "
        "forms. Try it out: `taco-launch notify test ADDRESS`.",
        metavar="ADDRESS",
    ),
    JobField("replace", "flag", _P.JOB, "Delete a job of yours with this name first, if it has ended."),
    JobField(
        "tensorboard",
        "flag",
        _P.RECORDS,
        "Start a TensorBoard beside the job, on the head; `taco-launch tensorboard NAME` opens it from here.",
    ),
    JobField(
        "logdir",
        "folder",
        _P.RECORDS,
        "Folder on the head that TensorBoard reads, relative to the folder that the ranks start in. Default: runs.",
        metavar="DIR",
    ),
    JobField(
        "tensorboard_grace",
        "time",
        _P.RECORDS,
        "How long TensorBoard keeps running after the job ends. Default: 10m.",
        key="tensorboardGraceSeconds",
        limits=_SPAN,
    ),
    JobField(
        "sync",
        "code",
        _P.CODE,
        "Copy a folder or a git repository to every host and start the ranks in it. .gitignore and .tacoignore are obeyed.",
        metavar="DIR|git+URL[@REF]",
    ),
    JobField(
        "sync_max",
        "size",
        _P.CODE,
        "Maximum size that {sync} copies, such as 500m or 2g. Default: 1g.",
        metavar="SIZE",
    ),
    JobField(
        "config_files",
        "files",
        _P.CODE,
        "Copy the file SRC to every host, to the absolute path DST or to DST in the code; at most 1 MiB.",
        option=("--config-file",),
        metavar="SRC:DST",
    ),
    JobField(
        "env_files",
        "files",
        _P.CODE,
        "Read environment variables for the ranks from FILE, with lines NAME=VALUE or NAME; {env} overrides them.",
        option=("--env-file",),
        metavar="FILE",
    ),
    JobField(
        "image",
        "image",
        _P.CONTAINER,
        "Image that the job runs in; its containers are prepared on the hosts first. Default: the inventory's.",
        metavar="NAME",
    ),
    JobField(
        "image_from",
        "image source",
        _P.CONTAINER,
        "Where hosts get {image} from: a registry, this machine's Docker Engine (controller), or a tar file here. Default: this "
        "machine, if `image build` made the image here, else as for the inventory's image.",
        metavar="registry|controller|FILE",
    ),
    JobField(
        "worker_image",
        "image",
        _P.CONTAINER,
        "Image of the workers; must be the same as {image}.",
        metavar="NAME",
    ),
    JobField(
        "data",
        "list",
        _P.CONTAINER,
        "Mount a folder of the hosts in the containers: HOST_PATH:CONTAINER_PATH, where HOST_PATH is below one of the "
        "inventory's data_roots, or NAME:CONTAINER_PATH for a data set (`taco-launch data list`); :ro makes it read-only.",
        metavar="PATH|NAME:PATH[:ro]",
    ),
    JobField(
        "shm_size",
        "shared memory",
        _P.CONTAINER,
        "Size of /dev/shm, such as 64g. Default: the inventory's.",
        metavar="SIZE",
    ),
    JobField(
        "workdir",
        "working folder",
        _P.CONTAINER,
        "Folder that the ranks start in: an absolute path, or with {sync} a folder in the code. Default: the code's folder, else the "
        "image's, or without a container your current folder.",
        option=("--workdir", "--working-dir"),
        metavar="PATH",
        key="workingDir",
    ),
)
BY_NAME: Mapping[str, JobField] = {each.name: each for each in FIELDS}
OPTIONS: Mapping[str, str] = {each.name: each.written_option for each in FIELDS}
KEYS: Mapping[str, str] = {each.name: each.written_key for each in FIELDS}


def operator_word(word: enum.Enum) -> str:
    """Return how the MPI Operator writes a choice: OnFailure for on-failure."""
    return "".join(part.capitalize() for part in str(word.value).split("-"))
