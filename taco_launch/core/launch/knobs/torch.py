"""The knobs of torch.distributed: of its NCCL backend, of the flight recorder, and of Gloo."""

from taco_launch.core.launch.knobs.knob import Knob

_NCCL = "PyTorch 2.13, ProcessGroupNCCL.hpp"
_RECORDER = "PyTorch 2.13, FlightRecorder.hpp"
_GLOO = "PyTorch 2.13, ProcessGroupGloo.cpp"
_TRACE = "/tmp/nccl_trace_rank_"  # noqa: S108 - torch's own default
_ON_NCCL = "in PyTorch 2.2 and newer, with the nccl backend"
_ON_GLOO = "in PyTorch, with the gloo backend"

# fmt: off
# a row is one knob
TORCH = (
    Knob("TORCH_NCCL_ASYNC_ERROR_HANDLING", "integer", "3", "What happens when a collective fails or takes too long: 0"
         " nothing, 1 aborts NCCL and the process, 2 NCCL alone, 3 the process alone.", _NCCL, low=0, high=3,
         applies=_ON_NCCL),
    Knob("TORCH_NCCL_BLOCKING_WAIT", "switch", "0", "wait() blocks until the collective ends, and raises an error after a timeout.", _NCCL,
         applies=_ON_NCCL),
    Knob("TORCH_NCCL_HIGH_PRIORITY", "switch", "0", "Always uses streams of high priority.", _NCCL, applies=_ON_NCCL),
    Knob("TORCH_NCCL_DESYNC_DEBUG", "switch", "0", "Reports at a timeout which ranks were out of step.", _NCCL,
         applies=_ON_NCCL),
    Knob("TORCH_NCCL_ENABLE_TIMING", "switch", "0", "Measures the time of each collective. It can make the watchdog hang.",
         _NCCL, applies=_ON_NCCL),
    Knob("TORCH_NCCL_ENABLE_MONITORING", "switch", "1", "Ends the process when its watchdog hangs.", _NCCL,
         applies=_ON_NCCL),
    Knob("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "integer", "480", "After how long a watchdog that hangs ends its process.",
         _NCCL, unit="s", low=1, applies=_ON_NCCL),
    Knob("TORCH_NCCL_DUMP_ON_TIMEOUT", "switch", "", "Writes the flight recorder into a file when a collective"
         " takes too long.", _NCCL, applies="where TORCH_FR_BUFFER_SIZE is above 0"),
    Knob("TORCH_NCCL_EXTRA_DUMP_ON_EXEC", "switch", "0", "Writes the flight recorder also when another rank fails.", _NCCL,
         applies=_ON_NCCL),
    Knob("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "integer", "", "How long a process waits for the flight recorder's file to be written before it exits.",
         _NCCL, unit="ms", low=0, applies=_ON_NCCL),
    Knob("TORCH_NCCL_COORD_CHECK_MILSEC", "integer", "1000", "How often a rank checks whether another one has failed.",
         _NCCL, unit="ms", low=1, applies=_ON_NCCL),
    Knob("TORCH_NCCL_PROPAGATE_ERROR", "switch", "0", "Reports one rank's error to all ranks through the store.", _NCCL,
         applies=_ON_NCCL),
    Knob("TORCH_NCCL_RETHROW_CUDA_ERRORS", "switch", "1", "The watchdog raises CUDA errors.", _NCCL,
         applies=_ON_NCCL),
    Knob("TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN", "switch", "1", "Writes the C++ stack when a process does not shut"
         " down cleanly.", _NCCL, applies=_ON_NCCL),
    Knob("TORCH_NCCL_CUDA_EVENT_CACHE", "switch", "1", "Keeps CUDA events for reuse, because destroying them can hang.",
         _NCCL, applies=_ON_NCCL),
    Knob("TORCH_NCCL_NAN_CHECK", "switch", "0", "Fails at the first input that holds a NaN.", _NCCL, applies=_ON_NCCL),
    Knob("TORCH_NCCL_RANKS_PER_ROOT", "integer", "", "How many ranks one root serves when NCCL starts.", _NCCL, low=1,
         applies=_ON_NCCL),
    Knob("TORCH_NCCL_AVOID_RECORD_STREAMS", "switch", "1", "Keeps tensors alive by references instead of by"
         " record_stream.", _NCCL, applies=_ON_NCCL),
    Knob("TORCH_NCCL_BCAST_UNIQUEID", "switch", "1", "Distributes NCCL's unique id to the ranks through the store.", _NCCL,
         applies=_ON_NCCL),
    Knob("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "switch", "0", "Registers tensors with NCCL as they are"
         " allocated.", _NCCL, applies=_ON_NCCL),
    Knob("TORCH_NCCL_USE_COMM_NONBLOCKING", "switch", "0", "Creates communicators without waiting for them (nonblocking).",
         "PyTorch 2.13, NCCLUtils.cpp", applies=_ON_NCCL),
    Knob("TORCH_NCCL_NONBLOCKING_TIMEOUT", "integer", "1800", "How long a nonblocking communicator may take.",
         "PyTorch 2.13, NCCLUtils.cpp", unit="s", low=1, applies=_ON_NCCL),
    Knob("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "switch", "1", "Warns where eager initialization makes send and"
         " receive wait for each other.", _NCCL, applies=_ON_NCCL),
    Knob("TORCH_NCCL_TRACE_BUFFER_SIZE", "integer", "2000", "The old name of TORCH_FR_BUFFER_SIZE.", _RECORDER, low=0),
    Knob("TORCH_NCCL_TRACE_CPP_STACK", "switch", "0", "The old name of TORCH_FR_CPP_STACK.", _RECORDER),
    Knob("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "path", _TRACE, "The old name of TORCH_FR_DUMP_TEMP_FILE.",
         _RECORDER, values="the start of a file's path, to which the rank is appended"),
    Knob("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "path", "", "A pipe for each rank: writing into it makes the rank write its flight"
         " recorder to a file.", _NCCL, values="the start of a pipe's path; the rank and .pipe are appended to it",
         applies=_ON_NCCL),
    Knob("TORCH_FR_BUFFER_SIZE", "integer", "2000", "How many collectives the flight recorder keeps, of NCCL and Gloo;"
         " 0 switches it off. torchfrtrace reads what it writes.", _RECORDER, low=0,
         history="TORCH_NCCL_TRACE_BUFFER_SIZE in older PyTorch"),
    Knob("TORCH_FR_CPP_STACK", "switch", "0", "The flight recorder keeps C++ stacks, too.", _RECORDER),
    Knob("TORCH_FR_DUMP_TEMP_FILE", "path", _TRACE, "Where the flight recorder is written: one file for"
         " each rank.", _RECORDER, values="the start of a file's path, to which the rank is appended"),
    Knob("TORCH_FR_DUMP_DYNAMIC_FILE_NAME", "switch", "0", "The name of the flight recorder's file may be changed while the job runs.",
         _RECORDER),
)
GLOO = (
    Knob("GLOO_SOCKET_IFNAME", "interfaces", "", "Which interfaces Gloo uses, by their whole names. taco-launch sets it"
         " where it knows the interface.", _GLOO, values="interfaces separated by commas", applies=_ON_GLOO),
    Knob("GLOO_DEVICE_TRANSPORT", "text", "TCP", "How Gloo's connections are made.", _GLOO,
         values="a transport such as TCP or TCP_TLS", applies=_ON_GLOO),
    Knob("GLOO_LOG_LEVEL", "text", "", "How much Gloo prints.", "PyTorch 2.13, its library",
         values="DEBUG, INFO, WARN or ERROR", choices=("DEBUG", "INFO", "WARN", "ERROR"), applies=_ON_GLOO),
    Knob("GLOO_DISABLE_CONNECTION_RETRIES", "switch", "0", "Fails at the first connection that is refused.",
         "PyTorch 2.13, its library", applies=_ON_GLOO),
    Knob("GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "switch", "0", "Numbers connections by rank.",
         "PyTorch 2.13, its library", applies=_ON_GLOO),
    Knob("TORCH_GLOO_LAZY_INIT", "switch", "0", "Connects two ranks only when they first communicate.", _GLOO,
         applies=_ON_GLOO),
)
# fmt: on
