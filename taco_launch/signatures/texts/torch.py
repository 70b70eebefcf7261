"""What torch says in the ranks, 1.13 to 2.x: torch.distributed (c10d, ProcessGroupNCCL.cpp, DDP), torchrun, the DataLoader."""

from taco_launch.signatures.entry import FailureText, Signature

TORCH = (
    Signature(
        "no-cuda-in-torch",
        ("Torch not compiled with CUDA enabled",),
        "This torch is built for CPUs only.",
        "Install the CUDA build in that environment, or let the program use the CPU.",
    ),
    Signature(
        "port-in-use",
        ("EADDRINUSE", "ddress already in use", "port is already allocated", "but another process is utilizing it"),
        "A port that the job wants to listen on is taken on {host}.",
        "ss -ltnp on {host} shows which process uses it. A previous job may still run there; otherwise choose another MASTER_PORT (accelerate: "
        "--main_process_port).",
        # What torch warns of, one address of several, may come right with the next.
        r"^(?!.*\[W[\d: .]*socket\.cpp)",
        unless=("ssh-refused",),
        survived=True,
    ),
    Signature(
        "torch-store-port-in-use",
        ("failed to listen on any local network address",),
        "The port of rank 0's store (MASTER_PORT) is taken on {host}, at all of its addresses: by another job, or by another "
        "process with RANK=0.",
        "ss -ltnp on {host} shows which process uses it. A previous job may still run there; otherwise choose another MASTER_PORT. "
        "Under torchrun, do not set --rank, --local_rank or RANK yourself.",
        unless=("port-in-use",),
    ),
    Signature(
        "torch-master-unreachable",
        ("The client socket has", "TCP client failed to connect"),
        "A rank could not reach rank 0's port {port} at {host}: rank 0 has not started, the name of its host "
        "resolves to another address there, or a firewall is in between.",
        "MASTER_ADDR has to be an address that every host reaches: getent hosts {host} on each; nc -vz {host} {port}.",
        r"(?:failed to connect to any network address of|while trying to connect to|connect/validate to host)"
        r" \(?(?P<host>[^\s,:)]+)[,:]\s?(?P<port>\d+)",
        unless=("port-in-use",),
    ),
    Signature(
        "torch-rendezvous",
        ("RendezvousTimeoutError", "RendezvousConnectionError"),
        "[[lost?torchrun on {host} has no connection to its store on the first host: it was never reached, or the torchrun there has ended||The ranks did not find each "
        "other in time: one never started, or cannot reach the first host's port]].",
        "[[lost?If this comes before the first step, run nc -vz with the address and port of --rdzv_endpoint from "
        "each host. If it comes later, look for what ended torchrun on the first host (dmesg -T | grep -i kill there shows whether memory ran out)||See that every host has started its part, and nc -vz MASTER_ADDR MASTER_PORT from each]].",
        r"RendezvousTimeoutError|(?P<lost>RendezvousConnectionError)",
        unless=("torch-store-gone",),
    ),
    Signature(
        "torch-store-gone",
        ("due to an error of type RendezvousConnectionError",),
        "torchrun lost the store through which its hosts meet: the torchrun that served it has ended. That torchrun "
        "is the one on the first host, or one of another job that uses the same port.",
        "Look for what ended first on the first host. Two jobs on one host need different ports: --standalone, or another "
        "--rdzv_endpoint.",
        r"has failed to (?:shutdown|send a keep-alive heartbeat to) the rendezvous[^\r\n]*RendezvousConnectionError",
        kind=FailureText.ECHO,
    ),
    Signature(
        "torch-rendezvous-closed",
        ("RendezvousClosedError",),
        "The rendezvous was closed before a host of the job reached it: another host's torchrun has ended, because its ranks failed or were "
        "done.",
        "Look for the first failure on the other hosts. A job that is started again needs a new --rdzv_id.",
        kind=FailureText.ECHO,
    ),
    Signature(
        "torch-collective-timeout",
        ("Watchdog caught collective operation timeout",),
        "A collective of torch did not end in time on {host}: {what}. Another rank was missing, or the network is stuck.",
        "Compare the ranks' last lines: the one without this line did not arrive. -x TORCH_FR_BUFFER_SIZE=2000 -x "
        "TORCH_NCCL_DUMP_ON_TIMEOUT=1 keeps each rank's last collectives (an older PyTorch reads TORCH_NCCL_TRACE_BUFFER_SIZE), "
        "and torchfrtrace compares them.",
        r"collective operation timeout: (?P<what>\w+\((?:\([^()\r\n]*\)|[^()\r\n]){0,200}\)?)",
        kind=FailureText.ECHO,
        unless=("torch-collectives-differ", "torch-ranks-apart", "torch-first-collective"),
    ),
    Signature(
        "torch-watchdog-stuck",
        ("watchdog got stuck for", "Heartbeat monitor timed out", "that detected no heartbeat"),
        "A rank of {host} hangs in a call of NCCL or CUDA[[seconds? for {seconds} s]], so torch ends it.",
        "While it hangs, taco-launch stacks JOB (or py-spy dump --pid PID on every rank) shows which rank is at a different place in the program: that rank is the cause. If compilations or checkpoints take long: -x "
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800.",
        r"watchdog got stuck for (?P<seconds>\d+) seconds|Heartbeat monitor timed out|detected no heartbeat",
        kind=FailureText.ECHO,
        unless=("torch-collective-timeout",),
    ),
    Signature(
        "torch-ranks-apart",
        ("Watchdog caught collective operation timeout",),
        "The ranks are out of step: rank {rank} waits in collective number {number}, rank {other} in {theirs}.",
        "Every rank has to call the same collectives equally often: the same number of batches on each "
        "(drop_last=True, or join()), and no collective under if rank == 0. If only one rank does a checkpoint or an evaluation, look there first.",
        r"\[Rank (?P<rank>\d+)\] Watchdog caught[^\r\n]{0,200}SeqNum=(?P<number>(?P<head>\d{0,12}?)\d{1,3}),"
        r"[\s\S]{1,6000}?\[Rank (?!(?P=rank)\])(?P<other>\d+)\] Watchdog caught[^\r\n]{0,200}"
        r"SeqNum=(?!(?P=head)\d{1,3},)(?P<theirs>\d+),",
        lines=60,
    ),
    Signature(
        "torch-collectives-differ",
        ("Watchdog caught collective operation timeout",),
        "The ranks call different collectives: in collective number {number}, one rank calls {one} and another calls {other}.",
        "Every rank has to call the same collectives in the same order and with the same sizes: no collective under "
        "if rank == 0, and the same number of batches on each. -x TORCH_DISTRIBUTED_DEBUG=DETAIL shows the place.",
        r"SeqNum=(?P<number>\d+), OpType=(?P<one>\w+)\b[\s\S]{1,6000}?SeqNum=(?P=number), OpType=(?!(?P=one)\b)(?P<other>\w+)",
        lines=60,
    ),
    Signature(
        "data-worker-killed",
        ("DataLoader worker (pid",),
        "A data loader worker on {host} [[why?was killed ({why})]][[code?ended with exit code {code}]][[gone?ended]].",
        "For a bus error, use a larger /dev/shm (in a container: docker run --shm-size=32g). If the worker was "
        "killed, memory ran out: use fewer workers. An exit code comes from the data set's own code: num_workers=0 shows where it fails.",
        r"DataLoader worker \(pid(?:\(s\))?[^)]*\) (?:is killed by signal: (?P<why>[^.\r\n]+)"
        r"|exited unexpectedly with exit code (?P<code>-?\d+)|exited (?P<gone>unexpectedly))",
        unless=("shm-too-small",),
    ),
    Signature(
        "data-worker-gone",
        ("multiprocessing/resource_sharer.py",),
        "A data loader worker of this rank on {host} ended while it handed a tensor over: the broken connection is "
        "the one to that worker, not to another rank.",
        "num_workers=0 shows where it fails; dmesg -T | tail on {host} shows whether the kernel killed it.",
        r"resource_sharer\.py[\s\S]*?\n[^\n]*\b(?:ConnectionResetError|ConnectionRefusedError|EOFError|FileNotFoundError)\b",
        lines=30,
        unless=("data-worker-killed",),
    ),
    Signature(
        "compiler-missing",
        (
            *("c++: not found", "g++: not found", "gcc: not found"),
            *("c++: command not found", "g++: command not found", "gcc: command not found"),
            "Ninja is required to load C++ extensions",
        ),
        "A C++ extension (of torch or DeepSpeed) is built on {host} when it is first used, but "
        "[[what?{what} does not exist||ninja does not exist]].",
        "Install it in the image: on Debian, the packages are g++ and ninja-build. Or build the "
        "extension when the image is built (DeepSpeed: DS_BUILD_OPS=1).",
        r"\b(?P<what>(?:c\+\+|g\+\+|gcc)): (?:command )?not found|Ninja is required to load C\+\+ extensions",
    ),
    Signature(
        "torchrun-rank-killed",
        ("failed (exitcode: -9)", "(SIGKILL) received by PID"),
        "[[rank?Local rank {rank}||A rank]] of torchrun on {host} was killed (signal 9), most often because memory ran out.",
        "Check dmesg -T | grep -i kill on {host}, and the container's memory limit. Use fewer data loader workers or smaller batches.",
        r"failed \(exitcode: -9\) local_rank: (?P<rank>\d+)|\(SIGKILL\) received by PID",
        unless=("rank-killed",),
    ),
    Signature(
        "torchrun-rank-signal",
        ("failed (exitcode: -",),
        "Local rank {rank} of torchrun on {host} was ended by signal {number} (6: abort, 7: bus error, 11: crash, 15: "
        "termination).",
        "[[abort?An abort has its reason in the lines before it, from torch's watchdog (a collective that timed out) or after 'terminate called'||A bus error is most often a "
        "full /dev/shm. For a crash, read the lines before it; for signal 15, look for the rank that ended first]].",
        r"failed \(exitcode: -(?=(?P<abort>6\))?)(?P<number>(?!9\))\d+)\) local_rank: (?P<rank>\d+)",
        kind=FailureText.OUTCOME,
        unless=("rank-crashed", "rank-killed"),
    ),
    Signature(
        "torchrun-signal-summary",
        (" received by PID ",),
        "A rank of torchrun on {host} was ended by signal {number} ({name}).",
        "Read that rank's own lines before torchrun's summary; in Python, -x PYTHONFAULTHANDLER=1 shows where it crashed. A library built for another CUDA, torch or CPU can cause this.",
        r"traceback : Signal (?P<number>\d+) \((?P<name>SIG\w+)\) received by PID",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "torchrun-child-failed",
        ("ChildFailedError", "Root Cause (first observed failure):"),
        "torchrun ended because [[rank?rank {rank} failed with exit code {code}||one of its ranks failed]]; torchrun does not "
        "show why.",
        "[[refused?Exit code 2 comes from argparse if the script refuses its arguments, or from Python if it cannot open the script; the log shows which||Read that rank's own lines]] "
        "above this line. To get the traceback here, put @record from torch.distributed.elastic.multiprocessing.errors before main.",
        r"ChildFailedError(?=(?:[^:]{0,400}\nFailures:\s+(?:<NO|[\s\S]{0,300}?\n +exitcode +: (?P<refused>2) )|[\s\S]{0,400}?\n +exitcode +: (?P<refused2>2) )?)"
        r"(?:[\s\S]{0,6000}?\nRoot Cause [\s\S]{0,400}?\n +rank +: (?P<rank>\d+)[\s\S]{0,100}?\n +exitcode +: (?P<code>-?\d+))?"
        r"|^Root Cause \(first observed failure\):\s[\s\S]{0,400}?\n +rank +: (?P<rank2>\d+)[\s\S]{0,100}?\n +exitcode +: (?P<code2>\d+)",
        kind=FailureText.FALLBACK,
        lines=60,
    ),
    Signature(
        "torchrun-ended",
        ("death signal, shutting down workers", "SignalException: Process "),
        "torchrun on {host} was ended from outside by signal {number}, and ended its ranks.",
        "15 (TERM) comes from a scheduler, a time limit, a container that is stopped or a user: sacct -j JOBID, docker events, journalctl -n 100 on {host}. 1 (HUP): the terminal was closed; start it by taco-launch submit, nohup or tmux. "
        "2 (INT): Ctrl-C.",
        r"Received (?P<number>\d+) death signal|SignalException: Process \d+ got signal: (?P<number2>\d+)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "command-failed",
        ("CalledProcessError: Command ",),
        "The command that a launcher started ended [[code?with exit code {code}||by {signal}]], and the launcher does not report why: {command}.",
        "Read what the command itself wrote, above the launcher's traceback.[[signal? SIGKILL: most often memory ran out, dmesg -T | grep -i kill. SIGSEGV: -x PYTHONFAULTHANDLER=1.]]",
        r"^(?:subprocess\.)?CalledProcessError: Command (?P<command>[^\r\n]{1,2000}?) (?:returned non-zero exit status (?P<code>\d+)|died with <Signals\.(?P<signal>\w+))",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "torch-other-build",
        ("undefined symbol: _Z",),
        "{library} was built for another version of torch than the one on {host}.",
        "Build or install it again for that torch: python3 -c 'import torch; print(torch.__version__, torch.version.cuda)'; "
        "for flash-attn, use the wheel whose name contains this torch, CUDA and cxx11abi, or install it after torch with pip install --no-build-isolation --no-cache-dir.",
        r"(?P<library>[\w.+-]{1,120}\.so[\w.]{0,20}): undefined symbol: _Z\w{0,40}?(?:2at|3c10|5torch)",
        survived=True,
    ),
    Signature(
        "torch-without-nccl",
        ("Distributed package doesn't have NCCL built in",),
        "This torch is built without NCCL: it is the build for CPUs, or for another system.",
        "Install the CUDA build of torch where the ranks run; or, without GPUs: init_process_group('gloo').",
    ),
    Signature(
        "torch-variable-missing",
        ("expected, but not set", "but `MASTER_ADDR` env was not set"),
        "torch.distributed reads {name} from the environment, and it is not set in a rank.",
        "torchrun sets MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and LOCAL_RANK, and so does taco-launch run. Under plain "
        "mpirun: -x MASTER_ADDR=HOST -x MASTER_PORT=29500, and in the program, set RANK from OMPI_COMM_WORLD_RANK "
        "and WORLD_SIZE from OMPI_COMM_WORLD_SIZE.",
        r"environment variable (?P<name>\w+) expected, but not set|but `(?P<name2>MASTER_ADDR)` env was not set",
    ),
    Signature(
        "torch-unused-parameters",
        ("Expected to have finished reduction in the prior iteration",),
        "Some parameters of the model got no gradient in a step, and DistributedDataParallel waits for all of them.",
        "See which, with -x TORCH_DISTRIBUTED_DEBUG=DETAIL. Use all in the loss[[on?, including every output of "
        "forward; find_unused_parameters=True, which is set, does not help where an output is left out||, or "
        "DistributedDataParallel(..., find_unused_parameters=True)]].",
        r"Expected to have finished reduction in the prior iteration(?=(?:[^\r\n]*(?P<on>Since `find_unused_parameters=True` is enabled))?)",
    ),
    Signature(
        "torch-collective-mismatch",
        ("Detected mismatch between collectives on ranks",),
        "The ranks do not match in a collective: [[rank?rank {rank} runs {what}, another rank something else||one "
        "rank runs a different collective from the rest]].",
        "See that all ranks go through the same steps in the same order, with the same model and batch shapes: no "
        "collective under an 'if rank == 0'.",
        r"Detected mismatch between collectives on ranks\.?"
        r"(?: Rank (?P<rank>\d+) is running collective: (?P<what>\w+(?:\([^)\r\n]{0,120}\))?))?",
    ),
    Signature(
        "torch-models-differ",
        ("DDP expects same model across all ranks",),
        "Rank {rank} has {count} parameters and rank 0 {other}: the models differ. If one number is 0 or makes no "
        "sense, the ranks could not compare their models: rank 0 is late or has ended, or their first collective went wrong.",
        "Print sum(p.requires_grad for p in model.parameters()) on each rank before DDP. If the numbers are equal, make sure that no rank skips a "
        "collective before it, and try -x NCCL_P2P_DISABLE=1.",
        r"Rank (?P<rank>\d+) has (?P<count>\d+) params, while rank 0 has inconsistent (?P<other>\d+) params",
    ),
    Signature(
        "torch-device-backend",
        ("No backend type associated with device type",),
        "A collective got a tensor on device {device}, and its process group has no backend for that.",
        'Move the tensor to the GPU first, or give the group both backends: init_process_group("cpu:gloo,cuda:nccl").',
        r"No backend type associated with device type (?P<device>[a-z]+)",
    ),
    Signature(
        "torch-thread-at-exit",
        ("terminate called without an active exception",),
        "A C++ thread was still running on {host} when its program ended. Most often it is a thread of torch's gloo "
        "(as of 2.13) that releases a tensor after the last collective while Python exits. If nothing else is "
        "reported here, the rank's work was done; host names and addresses are not the cause.",
        "End the script with torch.distributed.destroy_process_group(), which waits for gloo's threads. "
        "With DistributedDataParallel, the threads remain even so: save and flush everything, then call "
        "os._exit(0). If the rank did not reach its end, this shows where it was: -x PYTHONFAULTHANDLER=1.",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "cuda-not-started",
        ("initialization error", "CUDA_ERROR_NOT_INITIALIZED"),
        "CUDA does not start in a process of {host} (initialization error): the process was forked from one that "
        "had already used CUDA, or there is a problem with the driver there.",
        "If only data loaders or child processes fail: torch.multiprocessing.set_start_method('spawn'). If all ranks of "
        "{host} fail, check nvidia-smi, dmesg -T | grep NVRM, and systemctl status nvidia-fabricmanager there.",
        r"(?:C[Uu][Dd][Aa][^\r\n]*?)(?<!driver )initialization error|CUDA_ERROR_NOT_INITIALIZED",
        unless=("no-gpu", "fabricmanager"),
    ),
    Signature(
        "cuda-forked",
        ("Cannot re-initialize CUDA in forked subprocess",),
        "A forked process uses CUDA, but its parent process had already used CUDA.",
        "Use torch.multiprocessing.set_start_method('spawn') (DataLoader: multiprocessing_context='spawn'), or do not use CUDA before the fork or in the "
        "data set.",
    ),
    Signature(
        "cuda-library-failed",
        ("cuDNN error: ", "CUDNN_STATUS_", "CUBLAS_STATUS_", "CUFFT_", "CUSOLVER_STATUS_"),
        "A CUDA library failed on a GPU of {host}: {why}.",
        "Most often the GPU's memory is nearly full, an earlier CUDA error is behind it (-x CUDA_LAUNCH_BLOCKING=1), "
        "or the cuDNN or cuBLAS that is found is not the one that the program was built with: remove CUDA's own from LD_LIBRARY_PATH.",
        r"(?P<why>(?:CUDNN|CUBLAS|CUSOLVER)_STATUS_(?!SUCCESS|NOT_INITIALIZED|ALLOC_FAILED)[A-Z_]+|CUFFT_(?:INTERNAL_ERROR|EXEC_FAILED|ALLOC_FAILED"
        r"|SETUP_FAILED))",
        unless=("cuda-out-of-memory", "cuda-library-start", "cuda-assert", "cuda-error"),
        survived=True,
    ),
    Signature(
        "deepspeed-ssh",
        ("was not reachable via ssh", "Command 'ssh -o PasswordAuthentication=no "),
        "DeepSpeed's launcher cannot log in to {host} by ssh without a password.",
        "Try it by hand from the machine on which the launcher runs: ssh -o PasswordAuthentication=no {host} hostname. ssh-copy-id {host} copies "
        "the key; set another port in ~/.ssh/config. Under taco-launch run, DeepSpeed's own launcher is not needed.",
        r"host=(?P<host>\S+) was not reachable via ssh|Command 'ssh -o PasswordAuthentication=no [^\r\n]{0,80}?(?P<host2>[^\s']+) hostname' returned non-zero",
    ),
    Signature(
        "deepspeed-pdsh",
        ("launcher 'pdsh' not installed",),
        "DeepSpeed's launcher needs pdsh for several hosts, and it is not installed.",
        "apt-get install pdsh; or --launcher openmpi. Under taco-launch run, DeepSpeed's own launcher is not needed.",
    ),
    Signature(
        "torch-internal",
        ("INTERNAL ASSERT FAILED at",),
        "torch itself reached a state that it considers impossible ({file}:{line}).",
        "[[trace?torch failed while it wrote its report on ranks that are out of step, so some ranks were: unset "
        "TORCH_NCCL_DESYNC_DEBUG (NCCL_DESYNC_DEBUG), and look for the rank that is behind||A newer torch may have fixed it: search for that file and line among its issues]].",
        r"INTERNAL ASSERT FAILED at \\?\"(?P<file>[^\"\\\r\n]*?(?P<trace>TraceUtils\.h)?)\\?\":(?P<line>\d+)",
        kind=FailureText.OUTCOME,
        survived=True,
    ),
    Signature(
        "deepspeed-ranks-differ",
        ("disagreement between rank",),
        "DeepSpeed (ZeRO 3) sees that rank {ranks} do not use the same parameters at the same step.",
        "Every rank has to go through the same layers. A mixture of experts, or branches that depend on the data, "
        "prevents this (use DeepSpeed's set_z3_leaf_modules). No rank may skip a batch or generate for longer than the others (synced_gpus=True).",
        r"disagreement between rank(?P<ranks>\d+ and rank\d+)",
    ),
)
