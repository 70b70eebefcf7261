"""What each option of each launcher is here: one table that the command line, manifests, Arena and `translate` read.

Sources: mpirun(1) of Open MPI 4.1 and prterun(1) of 5.0; `mpiexec.hydra -help` of MPICH 4 and 5 and Intel MPI 2021;
`horovodrun --help` of 0.28 with the variables of horovod/runner/common/util/config_parser.py; torch/distributed/run.py;
`deepspeed --help` of 0.14; `accelerate launch --help` of 1.0 with the variables of accelerate/utils/launch.py; srun(1) and
sbatch(1) of Slurm 23; qsub(1) of PBS and of Grid Engine 8; `composer --help`; `colossalai run --help`.
"""

import contextlib
import re
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from taco_launch.core.messages.address import check
from taco_launch.hosts.inventory.durations import parse_early_signal

# What becomes of an option. RANKS, EACH and NODES count; the value of LIST is several variables; FLAG has no value.
RANKS, EACH, NODES, HOSTS, HOSTFILE = "ranks", "each", "nodes", "hosts", "hostfile"
ENV, PAIR, LIST, BARE, MCA, OPTION, VARIABLE = "env", "pair", "list", "bare", "mca", "option", "variable"
MAP_BY, INCLUDE, MODULE, NO_PYTHON, OMITTED, REFUSED = "map-by", "include", "module", "no-python", "omitted", "refused"
SPAN = "span"  # LSF's string of requirements, which may say how many ranks a host has
SPREAD = "spread"  # gives each host a rank in turn
GPUS = "gpus"  # of a host, or of a rank where a host has one
ALL_GPUS = "all-gpus"  # of the job
PER_GPU = "per-gpu"  # ranks of each GPU
LEAST, MOST = "least", "most"  # ranks of an elastic job
TIMES = "times"  # ranks of each resource set of jsrun, which the other options count
OF_GPUS = (GPUS, ALL_GPUS, PER_GPU)
# By which option a size is set whose value only the script knows.
SET_BY = {RANKS: ": --np N", EACH: ": --slots-per-host N", NODES: ": --hosts N", GPUS: ": --slots-per-host N"}


class Meaning(NamedTuple):
    """One option: what becomes of it, and how many words it has with its values.

    `target` is the option or variable here, `why` the reason that the user reads, `convert` what the value is written as.
    """

    use: str
    words: int = 2
    target: str = ""
    why: str = ""
    convert: Callable[[str], str] = str


def _all(names: str, meaning: Meaning) -> dict[str, Meaning]:
    return dict.fromkeys(names.split(), meaning)


def _omitted(why: str, one: str = "", two: str = "", three: str = "") -> dict[str, Meaning]:
    """Return options that change nothing here: those of one word, of two and of three."""
    counted = enumerate((one, two, three), 1)
    return {name: Meaning(OMITTED, count, why=why) for count, names in counted for name in names.split()}


def _refused(why: str, one: str = "", two: str = "") -> dict[str, Meaning]:
    """Return options that a job cannot have: those of one word, and of two."""
    return {name: Meaning(REFUSED, count, why=why) for count, names in ((1, one), (2, two)) for name in names.split()}


def _bytes_of_mib(value: str) -> str:
    return str(int(float(value) * (1 << 20)))


def _seconds(value: str) -> str:
    if not _SECONDS.fullmatch(value):
        raise ValueError("is not a number of seconds")
    return f"{value}s"


def _one(_value: str) -> str:
    return "1"


def _flag(_value: str) -> str:
    """Return the value of an option here that has none."""
    return ""


def _if_true(value: str) -> str:
    """Return the value of an option here that has none, where the original's is true.

    Raises:
        ValueError: it is not.
    """
    if value.lower() not in ("true", "1"):
        raise ValueError("asks for no host of its own")
    return ""


def _if_exclusive(value: str) -> str:
    """Return the value of --exclusive, where a placement of pbs_resources(7) keeps other jobs from the hosts.

    Raises:
        ValueError: it does not.
    """
    if "excl" not in value:
        raise ValueError("taco-launch chooses the hosts")
    return ""


def _zero(_value: str) -> str:
    return "0"


def _true(_value: str) -> str:
    return "true"


def indices(value: str) -> str:
    """Return a list of GPUs by their numbers.

    Raises:
        ValueError: it is none.
    """
    if not _GPU_INDICES.fullmatch(value):
        raise ValueError("each slot of a host is one of its GPUs")
    return value


def _gpus(value: str) -> str:
    """Return the number of GPUs in 8, a100:8, gpu:a100:8, gpu:8(S:0-1), gres/gpu=8 and lists with one of them."""
    match = _GPU_COUNT.fullmatch(next((each for each in value.split(",") if "gpu" in each), value))
    return match[1] if match else "1"


_GPU_INDICES = re.compile(r"\d{1,3}(?:,\d{1,3})*", re.ASCII)
_GPU_COUNT = re.compile(r"(?:[^(]*[:=/])?([1-9][0-9]{0,5})(?:\(.*)?")
_SECONDS = re.compile("[1-9][0-9]{0,8}")
_FLUX_TIME = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([smhd]?)")
_SLURM_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,6})(?::(\d{1,4}))?(?::(\d{1,4}))?")


# Variables that only MPICH, Intel MPI and their Hydra have.
_OF_HYDRA = re.compile(r"\b(?:PMI_RANK|PMI_SIZE|I_MPI_[A-Z]\w*|MPICH_[A-Z]\w*|MPIR_CVAR_\w+)\b")
# The folders that they are installed in, and their modules.
_PATH_OF_HYDRA = re.compile(
    r"/(?:mpich|mvapich|impi|intel[-_]?mpi|(?:intel|oneapi)/(?:[^/]+/)*?mpi\b)[^/]*/", re.IGNORECASE
)
_MODULE_OF_HYDRA = re.compile(r"(?:^|[/_-])(?:mpich|mvapich|impi|intel[-_]?mpi|oneapi[-_/]mpi)", re.IGNORECASE)
_MODULE_OF_MPI = re.compile(r"mpi|mvapich|hpcx", re.IGNORECASE)
_OF_OPEN_MPI = ("-x", "-mca", "--mca", "--map-by", "-map-by", "--bind-to", "-bind-to", "-npernode", "--npernode")


def names_hydra(words: Sequence[str], env: Iterable[str], modules: Sequence[str] = ()) -> bool:
    """Return whether the words of an mpirun, its path, the variables that it is given, or the last module of an MPI that was loaded, are those of MPICH or Intel MPI."""
    loaded = [name for name in modules if _MODULE_OF_MPI.search(name)][-1:]
    is_theirs = any(map(_OF_HYDRA.search, (*words, *env))) or any(map(_MODULE_OF_HYDRA.search, loaded))
    return not set(words) & {*_OF_OPEN_MPI} and (is_theirs or _PATH_OF_HYDRA.search(words[0]) is not None)


def _without_elements(value: str) -> str:
    """Return the name of an array of jobs of LSF, NAME[1-5], without its elements."""
    return value.partition("[")[0]


def slurm_seconds(value: str) -> str:
    """Return a time of sbatch(1) in seconds: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]].

    Raises:
        ValueError: it is none.
    """
    found = _SLURM_TIME.fullmatch(value)
    if found is None:
        raise ValueError("is not a time of Slurm, such as 90 (minutes), 2:30:00 or 1-12")
    days, *numbers = (int(part) if part else None for part in found.groups())
    first, second, third = numbers
    assert first is not None
    if days is not None:
        hours, minutes, seconds = 24 * days + first, second or 0, third or 0
    elif third is not None:
        hours, minutes, seconds = first, second or 0, third
    else:
        hours, minutes, seconds = 0, first, second or 0
    return _limit(3600 * hours + 60 * minutes + seconds)


def flux_seconds(value: str) -> str:
    """Return a time of flux(1) in seconds: minutes, or a number with its unit (30m, 1.5h).

    Raises:
        ValueError: it is none.
    """
    found = _FLUX_TIME.fullmatch(value)
    if found is None:
        raise ValueError("is not a time of Flux, such as 90 (minutes), 30s or 1.5h")
    return _limit(int(float(found[1]) * {"s": 1, "h": 3600, "d": 86400}.get(found[2], 60)))


def clock_seconds(value: str) -> str:
    """Return a time of PBS or Grid Engine in seconds: seconds, or minutes, hours and days before them (60:00:00).

    Raises:
        ValueError: it is none.
    """
    if not _CLOCK.fullmatch(value):
        raise ValueError("is not a time, such as 5400 (seconds) or 1:30:00")
    units = (1, 60, 3600, 86400)
    return _limit(sum(int(part or "0") * unit for part, unit in zip(reversed(value.split(":")), units, strict=False)))


def early_signal(value: str) -> str:
    """Return a signal of sbatch(1) before the end of a job, [B:]SIGNAL[@SECONDS], as --signal has it.

    Raises:
        ValueError: a job cannot have it.
    """
    name, at, seconds = value.rpartition(":")[2].partition("@")
    if name.isdecimal():
        with contextlib.suppress(ValueError):
            name = signal.Signals(int(name)).name
    return f"{parse_early_signal(f'{name}{at}{seconds}').name}{at}{seconds}"


def mail_address(value: str) -> str:
    """Return the address of mail to people, separated by commas.

    Raises:
        ValueError: it is not NAME@HOST: a user of the submitting machine, or a variable.
    """
    address = f"mailto:{value}"
    try:
        return check(address)
    except ValueError:
        raise ValueError("is not NAME@HOST: --notify mailto:NAME@HOST sends the end of a job") from None


def _limit(seconds: int) -> str:
    if not seconds:
        raise ValueError("0 is no limit, and so is none")
    return f"{seconds}s"


_CLOCK = re.compile(r"\d{1,9}|(?:\d{0,6}:){1,3}\d{0,6}")
_PROFILE = "the profile decides it"
_ITS_MPIRUN = (
    "its mpirun is not started here: -x NAME=VALUE and --mca NAME VALUE are options here, and a profile has the others"
)
LOGS = _LOGS = "each rank's output is kept separately: taco-launch logs NAME --rank N"
_PRINTS = "it only changes what the launcher prints"
MEETS = _MEETS = "taco-launch sets it for every rank"
_SSH = "the inventory has it: ssh"
_ROOT = "taco-launch adds it where it is needed"
_OURS = "the hosts or the image have it"
STDIN = _STDIN = "the ranks read nothing from standard input: give them a file, or arguments"
ONE_GPU_EACH = _GPUS = "each slot of a host is one of its GPUs"
_PLACES = "places ranks within hosts, which a job cannot specify"
BY_DEFAULT = "PBS gives each chunk one rank where it does not say how many"  # pbs_resources(7), mpiprocs
ONE_TASK = "Slurm gives each node one task where nothing else counts them; mpirun starts one rank for each"  # sbatch(1), --nodes
SEVERAL = "may start several programs in the same job, and here a job has one"
BY_RANK = "give the job a script that chooses the program by $RANK, with the ranks of all of them; jobs of their own could not exchange messages"
# What deepspeed's --launcher starts: --launcher_args has its options.
STARTERS = {"openmpi": "mpirun", **dict.fromkeys(("mpich", "impi", "mvapich"), "hydra"), "slurm": "srun"}
BY_FILE = "chooses the host of each rank by a file, which is not read: -H HOST:SLOTS,HOST:SLOTS"
_MAIL_TYPE = "--notify sends the end of a job, a hang and a lost host"
ELASTIC = "the number of hosts changes only with --launcher horovod (or torchrun) --elastic --hosts MIN:MAX --slots-per-host N"
SEVERAL_KINDS = "requests several kinds of hosts: -H HOST:SLOTS,HOST:SLOTS"
AT_ONCE = "a job gets all of its slots at once, or waits"
# Where schedulers list the hosts of a job.
LISTS = re.compile(
    r"\b(?:PBS_NODEFILE|PJM_O_NODEINF|LSB_\w*HOST\w*|SGE_JOB_HOSTLIST|PE_HOSTFILE|SLURM_\w*NODELIST|NQSII_\w+)\b",
    re.ASCII,
)
LISTED = "lists the hosts of the scheduler's job: the inventory has the hosts here"
# Parameters of Open MPI that are something else here, too.
PARAMETERS = {"plm_rsh_args": "of ssh: a host's port is its key `port` in the inventory, which needs no such argument"}
_PARAMETERS = "parameters of the launcher itself go into a profile"
_NOT_AGAIN = "the job is not started again by itself: --backoff-limit N does that"
_RESTARTED = "each retry starts all ranks again: --restart on-failure"

_MPIRUN = {
    **_all("np n c", Meaning(RANKS)),
    **_all("N npernode", Meaning(EACH)),
    "pernode": Meaning(EACH, 1, convert=_one),
    **_all("H host", Meaning(HOSTS)),
    **_all("hostfile machinefile default-hostfile", Meaning(HOSTFILE)),
    "map-by": Meaning(MAP_BY, why=_PROFILE),
    **_all("bynode loadbalance", Meaning(SPREAD, 1)),
    "x": Meaning(ENV),
    **_all("mca gmca", Meaning(MCA, 3)),
    "timeout": Meaning(OPTION, target="--timeout", convert=_seconds),
    **_all("wdir wd", Meaning(OPTION, target="--workdir")),
    **_omitted(_ROOT, "allow-run-as-root"),
    **_omitted(
        _PROFILE,
        "report-bindings display-map display-allocation bind-to-core bind-to-none bycore byslot use-hwthread-cpus",
        "bind-to rank-by cpus-per-proc cpus-per-rank cpu-set cpu-list",
    ),
    **_omitted(
        _PRINTS,
        "verbose v quiet q show-progress report-state-on-timeout get-stack-traces display-topo display-devel-map"
        " d debug-devel debug-daemons leave-session-attached",
        "display report-pid report-uri",
    ),
    **_omitted(_LOGS, "tag-output timestamp-output merge-stderr-to-stdout", "output output-filename stream-buffering"),
    **_omitted(_STDIN, two="stdin"),
    **_omitted(
        "a host runs as many ranks as it has slots: -H HOST:SLOTS sets how many", "oversubscribe nooversubscribe"
    ),
    **_omitted(
        _OURS,
        "noprefix enable-recovery disable-recovery",
        "prefix path tmpdir launch-agent personality forward-signals",
    ),
    **_omitted(_PARAMETERS, two="tune am", three="prtemca pmixmca"),
    **_refused(_PLACES, two="npersocket"),
    **_refused(BY_FILE, two="rankfile rf"),
    **_refused(SEVERAL, two="app"),
    **_refused("use --exclude HOST for the host of mpirun", "nolocal"),
}
_HYDRA = {
    **_all("n np", Meaning(RANKS)),
    **_all("ppn perhost ppr", Meaning(EACH)),
    **_all("hosts host", Meaning(HOSTS)),
    **_all("f hostfile machinefile machine", Meaning(HOSTFILE)),
    **_all("genv env", Meaning(PAIR)),
    **_all("genvlist envlist", Meaning(LIST)),
    **_all("wdir wd", Meaning(OPTION, target="--workdir")),
    **_omitted("the ranks have the variables that -x names", "genvall envall genvnone envnone genvexcl"),
    **_omitted(_PROFILE, two="iface bind-to map-by membind order-nodes"),
    **_omitted(_OURS, "disable-hostname-propagation"),
    **_omitted("the hosts are reached by ssh", two="launcher bootstrap rmk launcher-exec"),
    **_omitted(_LOGS, "prepend-rank l", "prepend-pattern outfile-pattern errfile-pattern outfile errfile"),
    **_omitted(_PRINTS, "verbose v info print-all-exitcodes print-rank-map"),
    **_omitted(_STDIN, two="s"),
    **_refused(SEVERAL, two="configfile"),
}
# Only Hydra's mpiexec has these: a line that is called mpirun or mpiexec is one of Hydra.
ONLY_HYDRAS = frozenset(_HYDRA) - frozenset(_MPIRUN) - {"l", "s", "env", "info"}


def _tunes(name: str, convert: Callable[[str], str] = str, words: int = 2) -> Meaning:
    return Meaning(VARIABLE, words, f"HOROVOD_{name}", convert=convert)


_HOROVODRUN = {
    **_all("np n num-proc", Meaning(RANKS)),
    **_all("H hosts host", Meaning(HOSTS)),
    **_all("hostfile machinefile default-hostfile", Meaning(HOSTFILE)),
    **_all(
        "network-interface network-interfaces", Meaning(OPTION, target="--interface", convert=lambda v: v.split(",")[0])
    ),
    "slots-per-host": Meaning(EACH),
    "slots": Meaning(EACH),
    "fusion-threshold-mb": _tunes("FUSION_THRESHOLD", _bytes_of_mib),
    "cycle-time-ms": _tunes("CYCLE_TIME"),
    "cache-capacity": _tunes("CACHE_CAPACITY"),
    **{
        f"{no}{name}": _tunes(name.replace("-", "_").upper(), _zero if no else _one, 1)
        for name in ("hierarchical-allreduce", "hierarchical-allgather", "torus-allreduce")
        for no in ("", "no-")
    },
    "autotune": _tunes("AUTOTUNE", _one, 1),
    "autotune-log-file": _tunes("AUTOTUNE_LOG"),
    **{
        f"autotune-{name}": _tunes(f"AUTOTUNE_{name.replace('-', '_').upper()}")
        for name in ("warmup-samples", "steps-per-sample", "bayes-opt-max-samples", "gaussian-process-noise")
    },
    "timeline-filename": _tunes("TIMELINE"),
    "timeline-mark-cycles": _tunes("TIMELINE_MARK_CYCLES", _one, 1),
    "no-stall-check": _tunes("STALL_CHECK_DISABLE", _one, 1),
    "stall-check-warning-time-seconds": _tunes("STALL_CHECK_TIME_SECONDS"),
    "stall-check-shutdown-time-seconds": _tunes("STALL_SHUTDOWN_TIME_SECONDS"),
    "mpi-threads-disable": _tunes("MPI_THREADS_DISABLE", _one, 1),
    "num-nccl-streams": _tunes("NUM_NCCL_STREAMS"),
    "thread-affinity": _tunes("THREAD_AFFINITY"),
    "gloo-timeout-seconds": _tunes("GLOO_TIMEOUT_SECONDS"),
    "log-level": _tunes("LOG_LEVEL"),
    **_all("log-hide-timestamp log-without-timestamp", _tunes("LOG_HIDE_TIME", _one, 1)),
    "log-with-timestamp": _tunes("LOG_HIDE_TIME", _zero, 1),
    "tcp": Meaning(OPTION, 1, "--transport", convert=lambda _value: "tcp"),
    **_omitted(_SSH, two="p ssh-port i ssh-identity-file"),
    **_omitted(_PRINTS, "verbose"),
    **_omitted("--launcher decides how the ranks meet", "gloo mpi"),
    **_omitted("a job waits for its hosts: --queue-timeout", "disable-cache", "start-timeout"),
    **_omitted(_LOGS, "prefix-output-with-timestamp prefix-timestamp", "output-filename"),
    **_all("min-np min-num-proc", Meaning(LEAST)),
    **_all("max-np max-num-proc", Meaning(MOST)),
    "elastic-timeout": _tunes("ELASTIC_TIMEOUT"),
    **_omitted("the inventory has the hosts, and the queue finds which are free", two="host-discovery-script"),
    **_omitted("--backoff-limit N sets how often a rank that fails starts again", two="reset-limit"),
    **_omitted("a host that failed is tried again, after a pause that grows", three="blacklist-cooldown-range"),
    **_omitted(_ITS_MPIRUN, two="mpi-args"),
    **_omitted(_PROFILE, two="binding-args"),
    **_refused("its settings are not read: taco-launch translate FILE shows them as variables", two="config-file"),
    **_refused("jsrun is another system's launcher", "jsrun"),
}
_TORCH = {
    "nnodes": Meaning(NODES),
    "nproc-per-node": Meaning(EACH),
    "max-restarts": Meaning(OPTION, target="--backoff-limit", why=_RESTARTED),
    **_all("m module", Meaning(MODULE, 1)),
    "no-python": Meaning(NO_PYTHON, 1),
    **_omitted(
        _MEETS,
        "standalone use-env",
        "rdzv-backend rdzv-endpoint rdzv-id rdzv-conf node-rank master-addr master-port local-addr",
    ),
    **_omitted(_LOGS, two="log-dir r redirects t tee local-ranks-filter logs-specs"),
    **_omitted(_LOGS, two="duplicate-stdout-filters duplicate-stderr-filters"),
    **_omitted(
        "it is torchrun's own default here",
        "run-path virtual-local-rank",
        "monitor-interval start-method event-log-handler role numa-binding signals-to-handle shutdown-timeout",
    ),
}
_DEEPSPEED = {
    "num-gpus": Meaning(EACH),
    "num-nodes": Meaning(NODES),
    **_all("hostfile H", Meaning(HOSTFILE)),
    **_all("include i", Meaning(INCLUDE)),
    **_all("exclude e", Meaning(OPTION, target="--exclude")),
    "module": Meaning(MODULE, 1),
    "no-python": Meaning(NO_PYTHON, 1),
    **_omitted(_MEETS, "no-ssh no-ssh-check force-multi", "master-addr master-port node-rank"),
    **_omitted("--launcher decides how the ranks meet", two="launcher"),
    **_omitted("give what it sets here: -H HOST:SLOTS, -x NAME=VALUE, --mca NAME VALUE", two="launcher-args"),
    **_omitted(_SSH, two="ssh-port"),
    **_omitted(_LOGS, "save-pid", "enable-each-rank-log"),
    **_omitted(_PROFILE, "bind-cores-to-rank", "bind-core-list"),
    **_omitted("the program reads LOCAL_RANK", "no-local-rank"),
    **_omitted(ELASTIC, "elastic-training", "min-elastic-nodes max-elastic-nodes"),
    **_refused("deepspeed starts many jobs by it", two="autotuning"),
}


def _accelerates(name: str, convert: Callable[[str], str] = str, words: int = 2) -> Meaning:
    return Meaning(VARIABLE, words, name, convert=convert)


_ACCELERATE = {
    "num-processes": Meaning(RANKS),
    "num-machines": Meaning(NODES),
    **_all("m module", Meaning(MODULE, 1)),
    "no-python": Meaning(NO_PYTHON, 1),
    "max-restarts": Meaning(OPTION, target="--backoff-limit", why=_RESTARTED),
    **{
        name.replace("_", "-"): _accelerates(f"ACCELERATE_{name.upper()}")
        for name in ("mixed_precision", "gradient_accumulation_steps", "dynamo_mode")
    },
    "dynamo-backend": _accelerates("ACCELERATE_DYNAMO_BACKEND", str.upper),
    "deepspeed-config-file": _accelerates("ACCELERATE_DEEPSPEED_CONFIG_FILE"),
    "zero-stage": _accelerates("ACCELERATE_DEEPSPEED_ZERO_STAGE"),
    "offload-optimizer-device": _accelerates("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"),
    "offload-param-device": _accelerates("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE"),
    "gradient-clipping": _accelerates("ACCELERATE_GRADIENT_CLIPPING"),
    "zero3-init-flag": _accelerates("ACCELERATE_DEEPSPEED_ZERO3_INIT"),
    "zero3-save-16bit-model": _accelerates("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"),
    "use-deepspeed": _accelerates("ACCELERATE_USE_DEEPSPEED", _true, 1),
    "use-fsdp": _accelerates("ACCELERATE_USE_FSDP", _true, 1),
    "use-megatron-lm": _accelerates("ACCELERATE_USE_MEGATRON_LM", _true, 1),
    "num-cpu-threads-per-process": _accelerates("OMP_NUM_THREADS"),
    **{
        f"fsdp-{name.replace('_', '-')}": _accelerates(f"FSDP_{name.upper()}")
        for name in (
            *("sharding_strategy", "offload_params", "auto_wrap_policy", "transformer_layer_cls_to_wrap"),
            *("backward_prefetch", "state_dict_type", "forward_prefetch", "use_orig_params", "sync_module_states"),
            *("cpu_ram_efficient_loading", "activation_checkpointing", "version", "reshard_after_forward"),
            "min_num_params",
        )
    },
    **_omitted(
        _MEETS,
        "multi-gpu same-network",  # a word behind --same_network is the script, whatever it looks like
        "machine-rank main-process-ip main-process-port rdzv-backend rdzv-conf monitor-interval"
        " deepspeed-hostfile deepspeed-multinode-launcher",
    ),
    **_omitted("with it, accelerate starts one process, whatever --num_processes is", "cpu"),
    "gpu-ids": Meaning(OPTION, target="--gpu-ids", convert=indices),
    **_omitted(_LOGS, "quiet q debug", "log-dir tee role"),
    **_refused(
        "its settings are not read: give the number of ranks with --np, and the rest as variables", two="config-file"
    ),
}
_COMPOSER = {
    **_all("n nproc", Meaning(EACH)),
    "world-size": Meaning(RANKS),
    **_all("m module-mode", Meaning(MODULE, 1)),
    **_all("c command-mode", Meaning(NO_PYTHON, 1)),
    **_omitted(_MEETS, two="node-rank base-rank master-addr master-port"),
    **_omitted(_LOGS, two="stdout stderr"),
    **_omitted(_PRINTS, "v verbose"),
}
_COLOSSALAI = {
    "nproc-per-node": Meaning(EACH),
    "num-nodes": Meaning(NODES),
    "hostfile": Meaning(HOSTFILE),
    **_all("H host include", Meaning(HOSTS)),
    "exclude": Meaning(OPTION, target="--exclude"),
    "m": Meaning(MODULE, 1),
    **_omitted(_MEETS, two="master-addr master-port extra-launch-args"),
    **_omitted(_SSH, two="ssh-port ssh-key"),
}
_QUEUE = "the queue of taco-launch has no such setting"
OF_HOSTS = "--gpu-model MODEL, or --selector LABEL=VALUE with labels of hosts in the inventory"
ONE_EACH = "one job for each element: submit --array, or --each NAME=VALUE,VALUE"
_LIMITS = "ranks have no limit of CPUs or memory of their own"
_REQUIRES = f"{_LIMITS}; for hosts of one kind: {OF_HOSTS}"
_SLURM = {
    **_all("n ntasks", Meaning(RANKS)),
    **_all("N nodes", Meaning(NODES)),
    **_all("ntasks-per-node tasks-per-node", Meaning(EACH)),
    **_all("w nodelist", Meaning(HOSTS)),
    **_all("x exclude", Meaning(OPTION, target="--exclude")),
    **_all("t time", Meaning(OPTION, target="--timeout", convert=slurm_seconds)),
    **_all("J job-name", Meaning(OPTION, target="--name")),
    **_all("D chdir", Meaning(OPTION, target="--workdir")),
    "container-workdir": Meaning(OPTION, target="--workdir"),
    "export": Meaning(LIST),
    **_all("gpus-per-node gpus-per-task gres tres-per-task tres-per-node", Meaning(GPUS, convert=_gpus)),
    **_all("G gpus", Meaning(ALL_GPUS, convert=_gpus)),
    "ntasks-per-gpu": Meaning(PER_GPU),
    "exclusive": Meaning(OPTION, 1, target="--exclusive", convert=_flag),
    **_omitted(_LIMITS, "overlap overcommit O", "c cpus-per-task mem mem-per-cpu mem-per-gpu cpus-per-gpu"),
    **_omitted(_LIMITS, two="threads-per-core cores-per-socket sockets-per-node ntasks-per-core ntasks-per-socket tmp"),
    **_omitted(_PROFILE, two="mpi cpu-bind cpu-freq distribution m hint mem-bind gpu-bind accel-bind network gpu-freq"),
    **_omitted(_LOGS, "label l unbuffered u", "output o error e open-mode input i"),
    **_omitted(_PRINTS, "verbose v quiet Q"),
    **_omitted(
        _QUEUE,
        "no-kill k no-requeue hold H spread-job contiguous use-min-nodes parsable nice",
        "partition p account A qos q reservation clusters M comment priority begin b deadline wckey"
        " dependency d export-file prolog epilog task-prolog task-epilog switches power profile jobid segment",
    ),
    "signal": Meaning(OPTION, target="--signal", convert=early_signal),
    **_refused(OF_HOSTS, two="constraint C"),
    "mail-user": Meaning(OPTION, target="--notify", convert=mail_address),
    **_omitted(_MAIL_TYPE, two="mail-type"),
    **_omitted("a rank that fails ends the job", "kill-on-bad-exit K", "wait W"),
    **_omitted(_NOT_AGAIN, "requeue"),
    **_omitted(
        _OURS,
        "container-writable container-readonly container-remap-root"
        " no-container-remap-root no-container-entrypoint container-entrypoint bcast",
        "container-name container-save container-env",
    ),
    **_omitted("the container of the ranks mounts what --data names", "container-mount-home no-container-mount-home"),
    **_omitted("`taco-launch shell NAME` opens a terminal", "pty"),
    **_refused(ONE_EACH, two="array a"),
    **_refused(SEVERAL, "multi-prog"),
    **_refused("starts a part of several: a job has only one", two="het-group"),
}
_PBS_RESOURCES = {
    "walltime": Meaning(OPTION, target="--timeout", convert=clock_seconds),
    **_all("nodes select", Meaning(NODES)),
    **_all("ppn mpiprocs ntasks-per-node", Meaning(EACH)),
    **_omitted(_LIMITS, two="ncpus mem pmem vmem pvmem procs cput file"),
    "ompthreads": Meaning(VARIABLE, target="OMP_NUM_THREADS"),  # pbs_resources(7)
    "place": Meaning(OPTION, target="--exclusive", convert=_if_exclusive),
    **_omitted(_GPUS, two="ngpus gpus"),
    **_omitted(_QUEUE, two="host arch qos feature filesystems storage"),
    **_refused(OF_HOSTS, two="model gpu-model gpu-type gpu-mem interconnect"),
}
_PBS = {
    "N": Meaning(OPTION, target="--name"),
    "v": Meaning(LIST),
    "b": Meaning(NODES),  # of NQSV, whose directives are these
    "elapstim-req": Meaning(OPTION, target="--timeout", convert=clock_seconds),
    **_omitted("-x NAME gives the ranks a variable of yours", "V"),
    **_omitted(_QUEUE, "h", "q A P p W S c r u a T"),
    **_omitted(_LOGS, two="o e j k"),
    "M": Meaning(OPTION, target="--notify", convert=mail_address),
    **_omitted(_MAIL_TYPE, two="m"),
    **_refused(ONE_EACH, two="J t"),
    **_PBS_RESOURCES,
}
_LSF = {
    "n": Meaning(RANKS),
    "nnodes": Meaning(NODES),
    "J": Meaning(OPTION, target="--name", convert=_without_elements),
    "W": Meaning(
        OPTION, target="--timeout", convert=lambda value: slurm_seconds(f"{value}:00" if ":" in value else value)
    ),
    "cwd": Meaning(OPTION, target="--workdir"),
    **_omitted(
        _QUEUE,
        "ar I Is Ip IS ISs K r rn XF ul tty",
        "q P app G sla w b Jd ext freq hl Lp mig outdir alloc-flags Ep sp We wt wa",
    ),
    "R": Meaning(SPAN, why=_REQUIRES),
    **_omitted("--launcher hydra if the program is built with MPICH, MVAPICH2 or Intel MPI", two="a"),
    "x": Meaning(OPTION, 1, target="--exclusive", convert=_flag),
    **_omitted(_LIMITS, two="M v c"),
    **_omitted(_GPUS, two="gpu"),
    **_omitted(_LOGS, two="o e oo eo i"),
    "u": Meaning(OPTION, target="--notify", convert=mail_address),
    **_omitted(_MAIL_TYPE, "N B"),
}
_SGE = {
    "N": Meaning(OPTION, target="--name"),
    "pe": Meaning(RANKS, 3),
    "v": Meaning(LIST),
    "wd": Meaning(OPTION, target="--workdir"),
    **_omitted("a job starts in the folder that it is submitted from", "cwd"),
    **_omitted("-x NAME gives the ranks a variable of yours", "V"),
    **_omitted(
        _QUEUE, "notify verify terse", "q P A p R pri hold-jid hold-jid-ad tc ac b dl js S shell sync w now ckpt"
    ),
    **_omitted(_LOGS, two="o e j i"),
    **_omitted(_NOT_AGAIN, two="r"),
    "M": Meaning(OPTION, target="--notify", convert=mail_address),
    **_omitted(_MAIL_TYPE, two="m"),
    **_refused(ONE_EACH, two="t"),
    **_all("h-rt s-rt", Meaning(OPTION, target="--timeout", convert=clock_seconds)),
    **_omitted(_GPUS, two="gpu gpus ngpus gpu-card gpu-type gputype cuda"),
    **_omitted(_LIMITS, two="h-vmem s-vmem mem-free mem vf virtual-free h-data h-cpu s-cpu h-fsize slots"),
    **_all("exclusive excl", Meaning(OPTION, target="--exclusive", convert=_if_true)),
    **_all("hostname h", Meaning(HOSTS)),
    **_omitted(_QUEUE, two="arch qname"),
}
# Fujitsu's pjsub(1).
_PJM = {
    "N": Meaning(OPTION, target="--name"),
    "x": Meaning(LIST),
    **_omitted(_QUEUE, "r norestart sparam step bulk", "g p P fs stripe llio appname"),
    **_omitted(_LOGS, "j", "o e s S spath"),
    **_omitted("-x NAME gives the ranks a variable of yours", "X"),
    **_omitted(_MAIL_TYPE, two="m"),
    "mail-list": Meaning(OPTION, target="--notify", convert=mail_address),
    "elapse": Meaning(OPTION, target="--timeout", convert=clock_seconds),
    "node": Meaning(NODES, convert=lambda value: value.partition(":")[0]),
    "proc": Meaning(RANKS),
    "max-proc-per-node": Meaning(EACH),
    **_omitted(_GPUS, two="gpu"),
    **_omitted(_LIMITS, two="vnode node-mem vnode-mem core-mem proc-core vnode-core"),
    **_omitted(_QUEUE, two="rscgrp rscunit jobenv freq eco-state retention-state"),
    **_omitted(_PROFILE, two="shape rank-map-bynode rank-map-bychip assign-online-node"),
}
# jsrun(1) and lrun of IBM's systems, aprun(1) of Cray's, ibrun of TACC's, flux-run(1).
_JSRUN = {
    **_all("n nrs", Meaning(RANKS)),
    **_all("p np", Meaning(RANKS)),
    **_all("r rs-per-host", Meaning(EACH)),
    **_all("a tasks-per-rs", Meaning(TIMES)),
    **_all("E env", Meaning(ENV)),
    **_all("h chdir", Meaning(OPTION, target="--workdir")),
    **_all("g gpu-per-rs", Meaning(GPUS)),
    **_omitted(_LIMITS, two="c cpu-per-rs m memory-per-rs"),
    **_omitted(_PROFILE, two="b bind d launch-distribution l latency-priority M smpiargs K rs-per-socket"),
    **_omitted(_LOGS, two="stdio-stdout stdio-stderr o k stdio-mode e"),
    **_omitted(_STDIN, two="t stdio-input"),
    **_refused(BY_FILE, two="U use-spec-file"),
    **_refused(SEVERAL, two="f appfile"),
}
_LRUN = {
    "n": Meaning(RANKS),
    "N": Meaning(NODES),
    "T": Meaning(EACH),
    "g": Meaning(GPUS),
    **_omitted(_LIMITS, two="c"),
    **_omitted(_PROFILE, "core-isolation", "M"),
    **_omitted(_PRINTS, "v vvv"),
}
_APRUN = {
    **_all("n pes", Meaning(RANKS)),
    **_all("N pes-per-node", Meaning(EACH)),
    **_all("e environment-override", Meaning(ENV)),
    **_omitted(_LIMITS, two="d cpus-per-pe m memory-per-pe j cpus-per-cu S"),
    **_omitted(_PROFILE, "ss", "cc cpu-binding r p"),
    **_omitted(_PRINTS, "q quiet b"),
    **_all("L node-list", Meaning(HOSTS)),
    "t": Meaning(OPTION, target="--timeout", convert=_seconds),
}
_IBRUN = {
    **_all("n np", Meaning(RANKS)),
    **_omitted(_PLACES, two="o"),
}
# mpirun_rsh of MVAPICH2 2.3; hosts and variables are words before its program.
_MPIRUN_RSH = {
    **_all("np n", Meaning(RANKS)),
    "hostfile": Meaning(HOSTFILE),
    **_all("hosts host", Meaning(HOSTS)),
    **_omitted(_SSH, "ssh rsh legacy fastssh"),
    **_omitted("-x NAME gives the ranks a variable of yours", "export export-all"),
    **_omitted(_PRINTS, "show v verbose debug"),
    **_omitted(_OURS, "tv xterm", "sg"),
    **_refused(SEVERAL, two="config spawnfile"),
}
# mpiexec_mpt of SGI's and HPE's MPT, and mpprun, which counts the tasks of Slurm where it has no number.
_MPT = {
    **_all("n np", Meaning(RANKS)),
    **_all("ppn perhost", Meaning(EACH)),
    **_omitted(_PRINTS, "v verbose stats"),
    **_omitted(_LOGS, two="p prefix"),
    **_omitted(_ITS_MPIRUN, two="pass"),
}
_FLUX = {
    **_all("n ntasks", Meaning(RANKS)),
    **_all("N nodes", Meaning(NODES)),
    "tasks-per-node": Meaning(EACH),
    **_all("t time-limit", Meaning(OPTION, target="--timeout", convert=flux_seconds)),
    "job-name": Meaning(OPTION, target="--name"),
    "cwd": Meaning(OPTION, target="--workdir"),
    "env": Meaning(ENV),
    **_all("g gpus-per-task", Meaning(GPUS)),
    **_omitted(_GPUS, two="gpus-per-node gpus-per-slot"),
    **_omitted(_LIMITS, two="c cores-per-task cores-per-slot cores cores-per-node nslots"),
    **_omitted(_PROFILE, two="o setopt"),
    **_omitted(_LOGS, "l label-io u unbuffered", "output error"),
    **_omitted(_STDIN, two="input"),
    **_all("x exclusive", Meaning(OPTION, 1, target="--exclusive", convert=_flag)),
    **_omitted(_QUEUE, two="q queue B bank urgency begin-time dependency requires flags setattr S"),
    **_omitted("the ranks have the variables that -x names", two="env-remove env-file"),
    **_omitted(_PRINTS, "v verbose quiet"),
}
# What a script's directives are.
DIRECTIVES: Mapping[str, Mapping[str, Meaning]] = {
    "Slurm": _SLURM,
    "PBS": _PBS,
    "LSF": _LSF,
    "SGE": _SGE,
    "PJM": _PJM,
    "Flux": _FLUX,
}
# Options of schedulers that ask for resources, NAME=VALUE,NAME=VALUE, each an option of its table; and what is between them.
OF_RESOURCES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "PBS": (("-l",), r"[:,](?=[a-z_]+=)"),
    "SGE": (("-l",), ","),
    "PJM": (("-L", "--rsc-list", "--mpi"), ","),
}
OPTIONS: Mapping[str, Mapping[str, Meaning]] = {
    "mpirun": _MPIRUN,
    "hydra": _HYDRA,
    "horovodrun": _HOROVODRUN,
    "torch": _TORCH,
    "deepspeed": _DEEPSPEED,
    "accelerate": _ACCELERATE,
    "composer": _COMPOSER,
    "colossalai": _COLOSSALAI,
    "srun": _SLURM,
    "jsrun": _JSRUN,
    "lrun": _LRUN,
    "aprun": _APRUN,
    "ibrun": _IBRUN,
    "mpirun_rsh": _MPIRUN_RSH,
    **dict.fromkeys(("mpiexec_mpt", "mpprun"), _MPT),
    "flux": _FLUX,
    **DIRECTIVES,
}
# The frameworks that are of the ranks alone (ompi/mca of Open MPI 4 and 5, and what of opal/mca they move data by): for
# these `-x OMPI_MCA_btl=...` and `--mca btl ...` are the same. Others are mpirun's own, which -x does not reach.
_OF_RANKS = re.compile(
    "OMPI_MCA_((?:accelerator|bml|btl|coll|fbtl|fcoll|fs|io|mpi|mtl|op|opal_cuda|osc|part|pml|sharedfp|smsc|topo|vprotocol)(?:_.*)?)"
)
# Launchers whose program is a script of Python, without `python` before it.
OF_PYTHON = frozenset(("torch", "deepspeed", "accelerate", "composer", "colossalai"))
# Launchers that use all GPUs of one host where nothing names more (deepspeed/launcher/runner.py, accelerate/commands/launch.py).
ON_ONE_HOST = frozenset(("deepspeed", "accelerate"))
# These read the start of a long option as that option, where only one starts so (argparse, allow_abbrev).
ABBREVIATES = frozenset(("torch", "deepspeed", "composer", "horovodrun"))
# Launchers whose ranks find each other as those of MPI.
OF_MPI = ("mpirun", "hydra", "horovodrun")
# These read `-N2` as `-N 2`, but for words that are options as a whole (`-gpu` of LSF).
GLUED = frozenset(("srun", "Slurm", "LSF", "PBS", "jsrun", "lrun", "aprun", "ibrun", "flux", "Flux"))


def parameter(name: str) -> str | None:
    """Return the parameter of Open MPI that a variable of the ranks sets, where `--mca` is the same; else None."""
    match = _OF_RANKS.fullmatch(name)
    return match[1] if match else None
