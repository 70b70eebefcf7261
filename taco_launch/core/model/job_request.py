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

    # Its size, in one of three ways: ranks, ...
    np: Optional[int] = None
    # ... hosts, as a number or as the least and the most of them, ...
    hosts: Union[int, Tuple[int, int], None] = None
    # The most ranks on each host.
    slots_per_host: Optional[int] = None
    # ... or workers.
    workers: Optional[int] = None
    # GPUs of each worker, all on one host.
    gpus: Optional[int] = None
    # Slots of each worker, where they are not GPUs.
    slots_per_worker: Optional[int] = None
    # Ranks that an MPIJob's line of mpirun asks for; a size by hosts or workers must not make fewer.
    line_np: Optional[int] = None
    # Processes that share each slot.
    procs_per_gpu: Optional[int] = None
    # Whether CUDA's Multi-Process Service runs under the processes of a slot.
    mps: bool = False

    # What starts the ranks, a key of LAUNCHERS.
    launcher: Optional[str] = None
    # With the launcher env: one process on each host, which uses all slots of the job there.
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

    # The partition of Slurm; this field and the next ones are as sbatch has them.
    partition: Optional[str] = None
    # The account of Slurm that is charged.
    account: Optional[str] = None
    # The quality of service of Slurm.
    qos: Optional[str] = None
    # Features of nodes that Slurm has to find.
    constraint: Optional[str] = None
    # The reservation of Slurm.
    reservation: Optional[str] = None
    # Jobs of Slurm that come before it: afterok:4711.
    dependency: Optional[str] = None
    # The job array that the job belongs to; before its place is known, only with the limit.
    array: Optional[SlurmArray] = None

    # Environment variables of the ranks, (name, value); the value None takes the caller's.
    env: Tuple[Tuple[str, Optional[str]], ...] = ()
    # Knobs of a library, (name, value as people write it); None where the value is missing.
    knobs: Tuple[Tuple[str, Optional[str]], ...] = ()
    # Open MPI's MCA parameters, (name, value).
    mca: Tuple[Tuple[str, str], ...] = ()
    # Whether names that look like misspelled known ones are accepted.
    allow_unknown_knobs: bool = False
    # A profile's name or path.
    profile: Optional[str] = None

    # How hosts exchange data: auto, tcp or rdma.
    transport: Optional[str] = None
    # The network interface between hosts.
    interface: Optional[str] = None
    # Whether GPUDirect RDMA is used; None where the hosts decide.
    gdr: Optional[bool] = None
    # Whether fewer bytes of gradients are sent between hosts, which loses precision.
    light: Optional[bool] = None

    # The queue that it waits in; this field and the next ones are those of Policy.
    queue: Optional[str] = None
    # Of two jobs that wait in a queue the one with the higher number is first.
    priority: Optional[int] = None
    # How long it may wait for its slots.
    queue_timeout: Optional[float] = None
    # Whether it fails at once where its slots are taken.
    no_wait: bool = False
    # Whether it waits until it is resumed.
    suspend: bool = False
    # Seconds between TERM and KILL.
    grace: Optional[float] = None
    # How long it may run from its first start on, over all attempts.
    timeout: Optional[float] = None
    # How long it may hang, with no rank making progress, before it is ended.
    stall_timeout: Optional[float] = None
    # How long it may print nothing before it is ended.
    silence_timeout: Optional[float] = None
    # How long a host may be silent before it counts as lost.
    host_loss_timeout: Optional[float] = None
    # The most bytes kept of each rank's log; the oldest are dropped first.
    log_max_bytes: Optional[int] = None
    # A regular expression with groups step, total, epoch, loss, rate, by which progress is read.
    progress: Optional[str] = None
    # What is ended or removed on its hosts when it has ended.
    clean_up: Optional[CleanUp] = None
    # After which failures it is tried again.
    restart: Optional[Restart] = None
    # How many times it is tried again.
    backoff_limit: Optional[int] = None
    # Seconds before the first retry; each further one waits twice as long.
    backoff: Optional[float] = None
    # "any", or "same-host": the hosts of the attempt before, where its files are.
    retry_on: Optional[str] = None
    # "nan": a loss that is not a number fails it.
    fail_on: Optional[str] = None
    # How long its record is kept after its end; None until it is deleted.
    ttl: Optional[float] = None
    # Whether its supervisor and guards keep a log of their decisions.
    agent_log: bool = False
    # Whether it fails where what runs is not what was asked.
    strict: bool = False
    # The http or https URL that gets a message at its end, a hang or a lost host.
    notify: Optional[str] = None
    # Whether a job of the same name and owner that has ended makes room.
    replace: bool = False
    # A signal that the ranks get some time before they are ended: USR1, USR1@120, USR1@2m.
    signal: Optional[str] = None

    # Whether a TensorBoard runs beside the job.
    tensorboard: bool = False
    # The folder that TensorBoard reads; by default runs in the ranks' folder.
    logdir: Optional[str] = None
    # Seconds that TensorBoard outlives the job.
    tensorboard_grace: Optional[float] = None

    # The code that its hosts get before its ranks start: a folder, or git+URL[@REF].
    sync: Optional[str] = None
    # The most bytes of code.
    sync_max: Optional[int] = None
    # The path below `workdir` by which the code is found as well, as Arena has it: code/NAME.
    code_at: Optional[str] = None
    # Single files that its hosts get, SRC:DST.
    config_files: Tuple[str, ...] = ()
    # Files of lines NAME=VALUE or NAME; `env` overrides them.
    env_files: Tuple[str, ...] = ()

    # The image that the job runs in.
    image: Optional[str] = None
    # The image of its workers, which has to be the same.
    worker_image: Optional[str] = None
    # Where the image comes from: registry, controller, or a tar file of the controller.
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
