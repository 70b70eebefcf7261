"""The knobs of Horovod, and the seven of LightCC."""

from taco_launch.core.launch.knobs.knob import Knob

_OPS = "Horovod 0.28, common/operations.cc"
_PARSER = "Horovod 0.28, common/utils/env_parser.cc"
_RUNNER = "Horovod 0.28, runner/common/util/config_parser.py"
_TUNER = "Horovod 0.28, common/parameter_manager.cc; horovodrun --help"
_NAMES = "Horovod 0.28, common/common.h"
_LIGHT = "the TACO bare-metal guide, table of LightCC's variables"
_NODES = "on more than one host; on a single one it is ignored"
_NCCL = "on more than one host, with a Horovod built for NCCL or DDL; elsewhere it is ignored"
_RUN = "to horovodrun itself, not to ranks"
_NOT_GIVEN = "nothing in taco-launch: it starts mpirun, not horovodrun"
_TUNING = "where HOROVOD_AUTOTUNE is 1"

# fmt: off
# a row is one knob
HOROVOD = (
    Knob("HOROVOD_FUSION_THRESHOLD", "integer", "134217728", "Gradients are collected up to this many bytes and then"
         " reduced together. 0 reduces each alone, as LightCC's per-tensor thresholds require. '64M' would be 64 bytes.", _OPS,
         unit="bytes", low=0, history="128 MiB; 64 MiB in older versions"),
    Knob("HOROVOD_CYCLE_TIME", "number", "1", "How long Horovod waits between two checks for gradients that are ready."
         " 0 checks without a pause and keeps a core per rank busy even when idle: for LightCC's images only.", _OPS,
         unit="ms", low=0, history="1; 0 with HOROVOD_ENABLE_XLA_OPS; 5 and 3.5 in older versions"),
    Knob("HOROVOD_CACHE_CAPACITY", "integer", "1024", "How many responses are remembered, so that ranks need not agree"
         " again on tensors they know; 0 turns it off.", _OPS, low=0),
    Knob("HOROVOD_HIERARCHICAL_ALLREDUCE", "switch", "0", "Reduces inside each host with NCCL, then between hosts with"
         " MPI. It requires the same number of ranks on every host.", _OPS, applies=_NCCL),
    Knob("HOROVOD_HIERARCHICAL_ALLGATHER", "switch", "0", "Gathers inside each host through shared memory first.", _OPS,
         applies=_NODES),
    Knob("HOROVOD_TORUS_ALLREDUCE", "switch", "0", "Reduces along the ranks of a host, then across hosts, both with"
         " NCCL. It does what LIGHT_2D_ALLREDUCE does in LightCC.", _OPS, since="0.26", applies=_NCCL),
    Knob("HOROVOD_AUTOTUNE", "switch", "0", "Tunes fusion threshold, cycle time and others while training runs. A knob"
         " that you set yourself is not tuned.", _OPS),
    Knob("HOROVOD_AUTOTUNE_LOG", "path", "", "Where rank 0 writes what autotune tried (CSV).", _OPS, applies=_TUNING),
    Knob("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "integer", "3", "How many samples autotune discards at the start.", _TUNER,
         low=0, applies=_TUNING),
    Knob("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "integer", "10", "How many steps make one sample.", _TUNER, low=0,
         applies=_TUNING),
    Knob("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "integer", "20", "After how many samples autotune settles.", _TUNER,
         low=0, applies=_TUNING),
    Knob("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "number", "0.8", "How noisy autotune assumes its samples to be.",
         _TUNER, low=0, high=1, applies=_TUNING),
    Knob("HOROVOD_TIMELINE", "path", "", "Where rank 0 writes a trace of every operation; DYNAMIC waits until the program starts one."
         " The file grows for as long as training runs.", _OPS, values="a file, or DYNAMIC"),
    Knob("HOROVOD_TIMELINE_MARK_CYCLES", "switch", "0", "Marks each cycle in the trace.", _OPS,
         applies="where HOROVOD_TIMELINE is set"),
    Knob("HOROVOD_STALL_CHECK_DISABLE", "switch", "0", "Silences the warning that some ranks wait for others.",
         _PARSER),
    Knob("HOROVOD_STALL_CHECK_TIME_SECONDS", "integer", "60",
         "After how long Horovod warns of a tensor that some ranks have not submitted.", _PARSER, unit="s", low=0),
    Knob("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "integer", "0", "After how long a tensor that some ranks have not submitted ends the job; 0 is never."
         " It has to be above HOROVOD_STALL_CHECK_TIME_SECONDS.", _PARSER, unit="s", low=0),
    Knob("HOROVOD_MPI_THREADS_DISABLE", "switch", "0", "Starts MPI without thread support, which can be faster. Programs that use mpi4py with"
         " Horovod need thread support.", "Horovod 0.28, horovodrun --help"),
    Knob("HOROVOD_NUM_NCCL_STREAMS", "integer", "1", "How many NCCL streams a rank uses in parallel.", _OPS, low=1),
    Knob("HOROVOD_THREAD_AFFINITY", "text", "", "Binds Horovod's own thread of each local rank to a core: one core per"
         " local rank.", "Horovod 0.28, common/common.cc", values="core numbers separated by commas, such as 0,8: one for each local rank",
         form=r"[0-9]{1,5}(?:,[0-9]{1,5})*"),
    Knob("HOROVOD_GLOO_TIMEOUT_SECONDS", "integer", "30", "How long Gloo waits for the other ranks.", _RUNNER, unit="s",
         low=0, applies="with the Gloo controller; under mpirun the controller is MPI"),
    Knob("HOROVOD_GLOO_IFACE", "text", "", "The interface that Gloo uses: one name, not a list.", _PARSER,
         values="an interface", form=r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,14}", applies="with the Gloo controller; under mpirun the controller is MPI"),
    Knob("HOROVOD_LOG_LEVEL", "word", "warning", "How much Horovod prints on stderr.", "Horovod 0.28, common/logging.cc",
         choices=("trace", "debug", "info", "warning", "error", "fatal")),
    Knob("HOROVOD_LOG_HIDE_TIME", "switch", "0", "Leaves the time out of Horovod's messages.",
         "Horovod 0.28, common/logging.cc"),
    Knob("HOROVOD_BATCH_D2D_MEMCOPIES", "switch", "1", "Copies gradients into the fusion buffer in one kernel.", _OPS,
         applies="on GPUs"),
    Knob("HOROVOD_DISABLE_GROUP_FUSION", "switch", "0", "Keeps explicit groups of tensors apart from other tensors.",
         _OPS),
    Knob("HOROVOD_ENABLE_ASYNC_COMPLETION", "switch", "0", "Reports an operation as done without waiting for the GPU.",
         _OPS, applies="on GPUs"),
    Knob("HOROVOD_DYNAMIC_PROCESS_SETS", "switch", "0", "Allows new process sets after hvd.init(), at the price"
         " of one more exchange per cycle.", _OPS),
    Knob("HOROVOD_ENABLE_XLA_OPS", "switch", "0", "Lets TensorFlow's XLA compile Horovod's operations.", _OPS,
         applies="with TensorFlow"),
    Knob("HOROVOD_ELASTIC", "switch", "0", "Elastic training; horovodrun sets it, and it needs horovodrun's driver.",
         _OPS, applies="under horovodrun"),
    Knob("HOROVOD_ELASTIC_TIMEOUT", "integer", "600", "How long an elastic job waits for enough hosts.",
         "Horovod 0.28, runner/elastic/driver.py", unit="s", low=0, applies=_RUN, given=_NOT_GIVEN),
    Knob("HOROVOD_START_TIMEOUT", "integer", "30", "How long horovodrun waits for all ranks to start.",
         "Horovod 0.28, runner/launch.py", unit="s", low=0, applies=_RUN, given=_NOT_GIVEN),
    Knob("HOROVOD_CPU_OPERATIONS", "word", "", "Which library reduces tensors in main memory.", _PARSER,
         choices=("MPI", "GLOO", "CCL"), history="MPI unless the build chose otherwise"),
    Knob("HOROVOD_CONTROLLER", "word", "", "How ranks agree on what to reduce next; under mpirun it is MPI.", _PARSER,
         choices=("MPI", "GLOO"), history="MPI where the build has it, else GLOO"),
    Knob("HOROVOD_CCL_CACHE", "switch", "", "Caches oneCCL's operations.", _NAMES,
         applies="where HOROVOD_CPU_OPERATIONS is CCL"),
    Knob("HOROVOD_ADASUM_MPI_CHUNK_SIZE", "integer", "1073741824", "Adasum sends in pieces of this size.", _OPS,
         unit="bytes", low=1, applies="to op=hvd.Adasum"),
    Knob("HOROVOD_DISABLE_NVTX_RANGES", "switch", "0", "Hides Horovod's ranges from NVIDIA's profilers.", _NAMES,
         applies="in builds with NVTX"),
)

LIGHTCC = (
    Knob("LIGHT_2D_ALLREDUCE", "switch", "0", "Reduces inside groups of LIGHT_INTRA_SIZE GPUs, then between the"
         " groups. On a single host there is nothing to gain.", _LIGHT,
         applies="in images with LightCC, and with --light on torch and Horovod; pays on slow TCP links, not with RDMA"),
    Knob("LIGHT_INTRA_SIZE", "integer", "8", "How many GPUs make one inner group: use the number of GPUs per host. The"
         " number of ranks must be a multiple of it.", _LIGHT, low=1, applies="where LIGHT_2D_ALLREDUCE is 1"),
    Knob("LIGHT_HIERARCHICAL_THRESHOLD", "integer", "1073741824",
         "Only tensors of this size or smaller (<=) use the 2D all-reduce.", _LIGHT, unit="bytes", low=0,
         applies="where LIGHT_2D_ALLREDUCE is 1"),
    Knob("LIGHT_TOPK_ALLREDUCE", "switch", "0", "Sends only the largest values of a gradient. It is lossy: the result"
         " is not that of a plain all-reduce, and training may need more epochs.", _LIGHT,
         applies="in images with LightCC, and with --light on torch and Horovod; pays on slow TCP links, not with RDMA"),
    Knob("LIGHT_TOPK_RATIO", "number", "0.01", "Which share of the values is sent: 0.01 is one in a hundred.", _LIGHT,
         values="a number above 0, at most 1", low=0, high=1, positive=True, applies="where LIGHT_TOPK_ALLREDUCE is 1"),
    Knob("LIGHT_TOPK_THRESHOLD", "integer", "1048576", "Only tensors of this size or larger (>=) are compressed. The"
         " guide's own commands use 2097152.", _LIGHT, unit="bytes", low=0, applies="where LIGHT_TOPK_ALLREDUCE is 1"),
    Knob("LIGHT_TOPK_FP16", "switch", "0", "Sends the selected values as 16-bit numbers.", _LIGHT,
         applies="where LIGHT_TOPK_ALLREDUCE is 1"),
)
# fmt: on
