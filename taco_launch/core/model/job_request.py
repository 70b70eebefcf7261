"""A job as a person asks for it, whichever way: options, a job file, an MPIJob, a cell of a matrix, or Python."""

from dataclasses import field
from typing import Mapping, Optional, Tuple, Union

from taco_launch.core.frozen import dataclass
from taco_launch.core.model.engines import SlurmArray
from taco_launch.core.model.jobs import CleanUp, Restart

# The fields by which a job gets a container of its own.
OF_CONTAINER = ("image", "worker_image", "image_from", "data", "shm_size")

# The fields that say something to Slurm.
OF_SLURM = ("partition", "account", "qos", "constraint", "reservation", "dependency")


@dataclass(frozen=True)
class JobRequest:
    """What a person asks for. None, (), False and "" say nothing: another request or the inventory decides.

    Nothing is resolved: no host has been looked up, no file read. Times are seconds.
    """

    # The program and its arguments.
    command: Tuple[str, ...] = ()
    # The job's name; without one it is made from the command.
    name: Optional[str] = None

    # Its size, in one of three ways: ranks (with at most `slots_per_host` on each host), ...
    np: Optional[int] = None
    # ... hosts, as a number or as the least and the most of them, with so many slots on each, ...
    hosts: Union[int, Tuple[int, int], None] = None
    slots_per_host: Optional[int] = None
    # ... or workers of so many GPUs, or slots of any kind, each.
    workers: Optional[int] = None
    gpus: Optional[int] = None
    slots_per_worker: Optional[int] = None
    # Ranks that an MPIJob's line of mpirun asks for; a size by hosts or workers must not make fewer.
    line_np: Optional[int] = None
    # Processes that share each slot, and whether CUDA's Multi-Process Service runs under them.
    procs_per_gpu: Optional[int] = None
    mps: bool = False

    # What starts the ranks, a key of LAUNCHERS; and whether env starts one process on each host.
    launcher: Optional[str] = None
    per_host: bool = False

    # Hosts and groups, with slots, as -H takes them: gpu1:8,gpu[3-4].
    host: Optional[str] = None
    # Indices of GPUs on each host: 0,2,4-7.
    gpu_ids: Optional[str] = None
    # Parts of the names of GPU models, one of which a GPU has to have.
    gpu_models: Tuple[str, ...] = ()
    # Hosts, or HOST:INDICES, to leave out.
    exclude: Tuple[str, ...] = ()
    # (label, value): hosts have to have all of them.
    selectors: Tuple[Tuple[str, str], ...] = ()
    # Whether no other job may be on its hosts.
    exclusive: bool = False
    # Whether it gains and loses hosts while it runs.
    elastic: bool = False
    # Whether GPUs are chosen by the links between them.
    gpu_topology: Optional[bool] = None

    # What is requested of Slurm, as sbatch has it.
    partition: Optional[str] = None
    account: Optional[str] = None
    qos: Optional[str] = None
    constraint: Optional[str] = None
    reservation: Optional[str] = None
    dependency: Optional[str] = None
    # The job array that the job belongs to; before its place is known, only with the limit.
    array: Optional[SlurmArray] = None

    # Environment variables of the ranks, (name, value); the value None takes the caller's.
    env: Tuple[Tuple[str, Optional[str]], ...] = ()
    # Knobs of a library, (name, value as people write it); None where the value is missing.
    knobs: Tuple[Tuple[str, Optional[str]], ...] = ()
    # Open MPI's MCA parameters, (name, value).
    mca: Tuple[Tuple[str, str], ...] = ()
    allow_unknown_knobs: bool = False
    # A profile's name or path.
    profile: Optional[str] = None

    # How hosts exchange data: auto, tcp or rdma; by which interface; with GPUDirect RDMA; with LightCC.
    transport: Optional[str] = None
    interface: Optional[str] = None
    gdr: Optional[bool] = None
    light: Optional[bool] = None

    # When it may start, how it is ended, and what happens then: see Policy.
    queue: Optional[str] = None
    priority: Optional[int] = None
    queue_timeout: Optional[float] = None
    no_wait: bool = False
    suspend: bool = False
    grace: Optional[float] = None
    timeout: Optional[float] = None
    stall_timeout: Optional[float] = None
    silence_timeout: Optional[float] = None
    host_loss_timeout: Optional[float] = None
    log_max_bytes: Optional[int] = None
    # A regular expression with groups step, total, epoch, loss, rate, by which progress is read.
    progress: Optional[str] = None
    clean_up: Optional[CleanUp] = None
    restart: Optional[Restart] = None
    backoff_limit: Optional[int] = None
    backoff: Optional[float] = None
    # "any", or "same-host": the hosts of the attempt before, where its files are.
    retry_on: Optional[str] = None
    # "nan": a loss that is not a number fails it.
    fail_on: Optional[str] = None
    ttl: Optional[float] = None
    agent_log: bool = False
    # Whether it fails where what runs is not what was asked.
    strict: bool = False
    # The http or https URL that gets a message at its end, a hang or a lost host.
    notify: Optional[str] = None
    # Whether a job of the same name and owner that has ended makes room.
    replace: bool = False
    # A signal that the ranks get some time before they are ended: USR1, USR1@120, USR1@2m.
    signal: Optional[str] = None

    # A TensorBoard beside the job: the folder that it reads ("runs" of the ranks' folder), and seconds that it outlives the job.
    tensorboard: bool = False
    logdir: Optional[str] = None
    tensorboard_grace: Optional[float] = None

    # The code that its hosts get before its ranks start: a folder, or git+URL[@REF]; at most so many bytes of it.
    sync: Optional[str] = None
    sync_max: Optional[int] = None
    # The path below `workdir` by which the code is found as well, as Arena has it: code/NAME.
    code_at: Optional[str] = None
    # Single files that its hosts get, SRC:DST, and files of lines NAME=VALUE that `env` goes before.
    config_files: Tuple[str, ...] = ()
    env_files: Tuple[str, ...] = ()

    # The image that the job runs in, that of its workers (the same), and where it comes from: registry, controller, or a
    # tar file of the controller.
    image: Optional[str] = None
    worker_image: Optional[str] = None
    image_from: Optional[str] = None
    # Folders of the hosts in the container: HOST_PATH:PATH[:ro], or NAME:PATH[:ro] of a data set of the inventory.
    data: Tuple[str, ...] = ()
    # Size of /dev/shm, as 32g.
    shm_size: Optional[str] = None
    # The folder that the ranks start in, an absolute path.
    workdir: Optional[str] = None

    # Where it was written: the file's name, "" for a command line or Python; and how a field is called there, by the field.
    source: str = ""
    written: Mapping[str, str] = field(default_factory=dict)

    def called(self, name: str) -> str:
        """Return what whoever asks calls a field: its option, its key in a file, or its name."""
        return self.written.get(name, name)
