"""Recognise what torch 1.10 to 2.13 prints in the ranks: torch.distributed, torchrun, the DataLoader, ranks that do not meet.

Sources: torch/csrc/distributed/c10d (TCPStore.cpp, ProcessGroupGloo.cpp, ProcessGroupNCCL.cpp, ProcessGroupMPI.cpp, reducer.cpp,
TraceUtils.h), torch/distributed/distributed_c10d.py, elastic, run.py, rendezvous.py, device_mesh.py, fsdp/_flat_param.py, checkpoint/api.py, torch/nn/parallel/distributed.py,
and Gloo's transport/tcp.
"""

from taco_launch.core.signatures.known import FailureText, Qualifier, Signature

# A signal that ended a process, by its name or by what the system calls it.
_SIGNAL = (
    r"(?=(?P<kill>Killed)|(?P<bus>SIGBUS|Bus)|(?P<abort>SIGABRT|Aborted)"
    r"|(?P<crash>SIGSEGV|SIGILL|SIGFPE|Segmentation|Illegal|Floating)|(?P<other>\w))"
)
# What follows the exit code of the rank that failed first on a host; torchrun's report below it names host and rank.
_FAILED = (
    r"local_rank: (?:(?P<within>\d+) \(pid: (?P<pid>\d+)\)[\s\S]{0,6000}?\n +host +: (?P<host>[\w.-]+)\n +rank +: (?P<rank>\d+)"
    r" \(local_rank: (?P=within)\)\n +exitcode +: -?\d+ \(pid: (?P=pid)\)|(?P<local>\d+))"
)
_RANK = "[[rank?Rank {rank} (local rank {within})]][[local?Local rank {local}]]"
TORCH = (
    Signature(
        "torch-spawn-ended",
        keys=("ProcessExitedException: process ",),
        cause="Process {rank} of torch.multiprocessing on {host} [[why?was ended by {why}||ended with exit code {code}]], and torch ended the others.",
        next="[[abort?Read its reason in the lines above it: after 'terminate called', of an assertion, or from torch's watchdog (a collective that timed out)]]"
        "[[crash?Run it with -x PYTHONFAULTHANDLER=1, which shows where it crashed; a library built for another CUDA, torch or CPU can cause this]]"
        "[[bus?Run df -h /dev/shm where the ranks run; in a container: docker run --shm-size=32g, or --ipc=host]]"
        "[[other?Look for what ended it: a time limit, a user, or a process that failed before]]"
        "[[code?Read that process's own lines above it, for an error or for what called exit]].",
        pattern=rf"ProcessExitedException: process (?P<rank>\d+) terminated with (?:signal {_SIGNAL}(?P<why>SIG(?!KILL)\w+)|exit code (?P<code>\d+))",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "torch-spawn-killed",
        keys=("terminated with signal SIGKILL",),
        cause="Process {rank} of torch.multiprocessing was killed (SIGKILL), most likely because memory ran out.",
        next="Run dmesg -T | grep -i kill on its host. If memory ran out, use fewer data loader workers, load less in each process, or raise the container's or job's memory limit.",
        pattern=r"ProcessExitedException: process (?P<rank>\d+) terminated with signal SIGKILL",
        unless=("out-of-memory", "out-of-memory-asked", "slurm-out-of-memory"),
    ),
    Signature(
        "torch-shared-memory",
        keys=("from file </torch_", "shared memory object </torch_"),
        cause="A process on {host} cannot use the memory that torch's data loaders share (/dev/shm): {why}.",
        next="Run df -h /dev/shm and ulimit -n where the ranks run; in a container: docker run --shm-size=32g or --ipc=host. Use fewer data loader workers, or "
        "torch.multiprocessing.set_sharing_strategy('file_system').",
        pattern=r"(?:unable to (?:mmap|open|allocate|resize|map|write)[^\r\n]{0,80})</torch_\w+>[^\r\n:]{0,80}: (?P<why>(?!Too many open)[^\r\n]{1,80}[^\s.])",
        unless=("shm-too-small",),
    ),
    Signature(
        "no-cuda-in-torch",
        keys=("Torch not compiled with CUDA enabled", "module 'torch._C' has no attribute '_cuda_"),
        cause="The torch of a rank on {host} was built without CUDA.",
        next="Install a CUDA build of torch in that environment or image, or run on the CPU. Check it there: python3 -c 'import torch; print(torch.version.cuda)'.",
    ),
    Signature(
        "windows",
        keys=("(system error: 10", "[WinError "),
        cause="The program runs on Windows[[code? (socket error {code})]]. Neither NCCL nor taco-launch supports it.",
        next="Run it on Linux hosts, or in WSL 2 or a Linux container. If it has to run on Windows, use one process and no torchrun.",
        pattern=r"\(system error: (?P<code>10\d{3}) - |\[WinError (?P<code2>\d+)\]",
    ),
    Signature(
        "port-in-use",
        keys=(
            "EADDRINUSE",
            "ddress already in use",
            "port is already allocated",
            "but another process is utilizing it",
        ),
        cause="A port that the job wants to listen on is taken on {host}.",
        next="ss -ltnp on {host} shows which process uses it. A previous job may still run there; otherwise choose another port (torch: MASTER_PORT; accelerate: "
        "--main_process_port).",
        # What torch warns of, one address of several, may come right with the next. Gloo and Open MPI take any free port.
        pattern=r"^(?!.*(?:\[W[\d: .]*socket\.cpp|gloo/transport/\S+\] bind: |bind on local address \(\S+:0\) failed))",
        unless=("ssh-refused",),
        survived=True,
    ),
    Signature(
        "ports-used-up",
        keys=("] bind: Address already in use", ":0) failed: Address already in use"),
        cause="{host} has no free port left for a connection between ranks: each pair of ranks has one, and closed connections keep theirs for a minute.",
        next="ss -tanp on {host} shows whose connections there are: end what is left of older jobs. For more ports: sysctl net.ipv4.ip_local_port_range='1024 65535'.",
        pattern=r"gloo/transport/\S+\] bind: Address already in use|bind on local address \(\S+:0\) failed",
        survived=True,
    ),
    Signature(
        "torch-port-refused",
        keys=("errno: 13 - Permission denied", 'torch/distributed/rendezvous.py", line'),
        cause="A rank on {host} may not listen on the port of the store (MASTER_PORT): only root may use ports below 1024.",
        next="Choose another one: MASTER_PORT (torchrun --master-port, the port of tcp://) of 1024 or more, the same for all ranks.",
        pattern=r"failed to bind to [^\r\n]{1,120}errno: 13 - Permission denied"
        r"|rendezvous\.py\", line \d+, in _(?:tcp|env|create)\w*(?:\r?\n +[^\r\n]*){0,6}\r?\n(?P<error>RuntimeError: Permission denied)",
        lines=9,
    ),
    Signature(
        "torch-store-port-in-use",
        keys=("failed to listen on any local network address",),
        cause="The port of rank 0's store (MASTER_PORT) is taken on {host}, at all of its addresses: by another job, or by another "
        "process with RANK=0.",
        next="ss -ltnp on {host} shows which process uses it: end a previous job that still runs there, or choose another MASTER_PORT. Under torchrun, do not set "
        "--rank, --local_rank or RANK yourself.",
        unless=("port-in-use",),
    ),
    Signature(
        "torch-master-unreachable",
        keys=("The client socket has", "TCP client failed to connect"),
        cause="A rank could not reach rank 0's port {port} at {host}[[own?, which is the rank's own host: rank 0 did not start there or has ended, or it is on another host||: rank 0 has not started, the name of its host "
        "resolves to another address there, or a firewall is in between]].",
        next="[[own?Look at rank 0's own output on that host. If the ranks are on several hosts, set MASTER_ADDR to an address of the first host that all of them reach||Set MASTER_ADDR to an address that every host reaches: getent hosts {host} on each; nc -vz {host} {port}]].",
        pattern=r"(?:failed to connect to any network address of|while trying to connect to|connect/validate to host)"
        r" \(?(?=(?:(?P<own>(?:ip6-)?localhost\b|127\.))?)(?P<host>[^\s,:)]+)[,:]\s?(?P<port>\d+)",
        unless=("port-in-use",),
    ),
    Signature(
        "torch-address-family",
        keys=("The client socket ", "The server socket "),
        cause="A rank of {host} could not use one of the addresses of {name} ({why}): [[own?IPv6 is off for the host's own name, and torch continues with IPv4. This address is that of the host itself, so ranks of other hosts cannot reach it||torch tries the next address of that name]].",
        next="[[own?Set MASTER_ADDR (or --rdzv_endpoint) to the name or address of the first host that all hosts reach. On one host, ignore this warning||Ignore it if the job runs. Otherwise set MASTER_ADDR to an IPv4 address, or remove the name's IPv6 address from /etc/hosts]].",
        pattern=r"The (?:client|server) socket (?:has failed|cannot be initialized) (?:to (?:connect|listen|bind)|on)[^\r\n\[]*\[(?=(?:(?P<own>(?:ip6-)?localhost|127\.|::1\]))?)(?P<name>[^\]\r\n]+)\][^\r\n(]*\(errno: (?:22|97|99) - (?P<why>[\w ]+)\)",
        kind=FailureText.NOTE,
        at_end=r"\(errno: (?:22|97|99) ",
    ),
    Signature(
        "torch-rendezvous",
        keys=("RendezvousTimeoutError", "RendezvousConnectionError"),
        cause="[[lost?torchrun on {host} has no connection to its store on the first host: it was never reached, or the torchrun there has ended||The ranks did not find each "
        "other in time: one never started, or cannot reach the first host's port]].",
        next="[[lost?If this comes before the first step, run nc -vz with the address and port of --rdzv_endpoint from "
        "each host. If it comes later, look for what ended torchrun on the first host (dmesg -T | grep -i kill there shows whether memory ran out)||See that every host has started its part, and nc -vz MASTER_ADDR MASTER_PORT from each]].",
        pattern=r"RendezvousTimeoutError|(?P<lost>RendezvousConnectionError)",
        unless=("torch-store-gone",),
    ),
    Signature(
        "torch-store-gone",
        keys=("due to an error of type RendezvousConnectionError",),
        cause="torchrun lost the store through which its hosts meet, or never reached it: the torchrun that serves it, on the first host, has ended, or a firewall is between. "
        "With two jobs on one host it may be the other job's.",
        next="Look for what ended first on the first host, and whether the endpoint answers: nc -vz HOST PORT. Two jobs on one host need different ports: --standalone, or another "
        "--rdzv_endpoint.",
        pattern=r"has failed to (?:shutdown|send a keep-alive heartbeat to) the rendezvous[^\r\n]*RendezvousConnectionError",
        kind=FailureText.ECHO,
    ),
    Signature(
        "torch-rendezvous-closed",
        keys=("RendezvousClosedError",),
        cause="The rendezvous was closed before a host of the job reached it: another host's torchrun has ended, because its ranks failed or were "
        "done.",
        next="Look for the first failure on the other hosts. A job that is started again needs a new --rdzv_id.",
        kind=FailureText.ECHO,
    ),
    Signature(
        "torch-collective-timeout",
        keys=("Watchdog caught collective operation timeout", "Timeout at NCCL work: "),
        cause="A collective of torch did not end in time on {host}[[rank?, for rank {rank}]][[group? of the group {group}]]: {what}. Another rank was missing, or the network is stuck.",
        next="[[one?If a rank saves a checkpoint for longer than that, raise the timeout: init_process_group(timeout=timedelta(hours=1)). Otherwise "
        "compare||Compare]] the ranks' last lines: the one without this line did not arrive[[one?||. To keep each rank's last collectives: -x "
        "TORCH_FR_BUFFER_SIZE=2000 -x TORCH_NCCL_DUMP_ON_TIMEOUT=1 (an older PyTorch reads TORCH_NCCL_TRACE_BUFFER_SIZE), and torchfrtrace compares them]].",
        pattern=r"(?:Rank (?P<rank>\d+)\] Watchdog caught )?collective operation timeout: (?=(?:[^\r\n]{0,200}(?P<one>NumelIn=1,))?)(?P<what>\w+\((?:\([^()\r\n]*\)|[^()\r\n]){0,200}\)?)"
        r"|(?:PG GUID (?P<group>[^\s\]]{1,80}) )?Rank (?P<rank2>\d+)\] Timeout at (?P<what2>NCCL work: \d+, last enqueued NCCL work: -?\d+, last completed NCCL work: -?\d+)",
        kind=FailureText.ECHO,
        unless=(
            "torch-collectives-differ",
            "torch-ranks-apart",
            "torch-rank-behind",
            "torch-ranks-wait",
            "torch-first-collective",
        ),
    ),
    Signature(
        "torch-watchdog-stuck",
        keys=("watchdog got stuck for", "Heartbeat monitor timed out", "that detected no heartbeat"),
        cause="A rank of {host} hangs in a call of NCCL or CUDA[[seconds? for {seconds} s]], so torch ends it.",
        next="Look for the rank that is at a different place in the program, which is the cause: while it hangs, taco-launch stacks JOB (or py-spy dump --pid PID "
        "on every rank) shows it. If compilations or checkpoints take long: -x TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800.",
        pattern=r"watchdog got stuck for (?P<seconds>\d+) seconds|Heartbeat monitor timed out|detected no heartbeat",
        kind=FailureText.ECHO,
        unless=("torch-collective-timeout",),
    ),
    Signature(
        "torch-ranks-apart",
        keys=("Watchdog caught collective operation timeout", "ast enqueued NCCL work: "),
        cause="The ranks took different code paths: rank {rank} is in [[one?{one} number||collective number]] {number}, rank {peer} in [[other?{other} number ]]{theirs}.",
        next="Make every rank call the same collectives equally often: the same number of batches on each (drop_last=True, or join()), and no collective under if "
        "rank == 0. If only one rank does a checkpoint or an evaluation, look there first.",
        # ProcessGroupNCCL.cpp: the line with the operation, and those with a group's own numbers
        pattern=r"(?:\[PG (?:ID )?\d+ ?(?:PG GUID (?P<group>[^\s\]]{1,80}) )?|\[)Rank (?P<rank>\d+)\] (?:Watchdog caught[^\r\n]{0,200}?SeqNum=(?P<number>\d+), OpType=(?P<operation>\w+))"
        r"|\[PG (?:ID )?\d+ ?(?:PG GUID (?P<group2>[^\s\]]{1,80}) )?Rank (?P<rank2>\d+)\] (?:(?:Timeout at NCCL work|[^\r\n]{0,80}?detected by watchdog at work): (?P<at>\d+), last|Received a dump signal due to a collective timeout[^\r\n]{0,200}? Last)"
        r" enqueued NCCL work: (?P<started>-?\d+)",
        compared=True,
    ),
    Signature(
        "torch-collectives-differ",
        keys=(),
        cause="The ranks call different collectives: in collective number {number}, rank {rank} calls {one} and rank {peer} calls {other}.",
        next="Make every rank call the same collectives in the same order and with the same sizes: no collective under if rank == 0, and the same number of batches "
        "on each. To see the place: -x TORCH_DISTRIBUTED_DEBUG=DETAIL.",
        compared=True,
    ),
    Signature(
        "torch-rank-behind",
        keys=(),
        cause="Rank {missing} did not get to [[one?{one}||collective]] number {number}, in which rank {rank} waits: its last one was number {last}.",
        next="Look at rank {missing} first: its last lines and its host, and, while it hangs, taco-launch stacks JOB. If it has longer work of its own (data, a checkpoint, a compilation), let all ranks wait for it, or raise "
        "the timeout: init_process_group(timeout=timedelta(hours=1)).",
        compared=True,
    ),
    Signature(
        "torch-ranks-wait",
        keys=(),
        cause="The ranks {ranks} report that they wait in [[one?{one}||collective]] number {number}[[missing?; these do not: {missing}||, and no other does]].",
        next="[[missing?Look at rank {missing} first||If the job has more ranks, look at the others first]]: their last lines, their hosts, and, while they hang, taco-launch stacks JOB. If all ranks wait, "
        "the network or a GPU is stuck: -x NCCL_DEBUG=INFO, dmesg -T on the hosts.",
        kind=FailureText.ECHO,
        compared=True,
    ),
    Signature(
        "data-worker-killed",
        keys=("DataLoader worker (pid", "DataLoader worker exited unexpectedly"),
        cause="A data loader worker on {host} [[why?was ended by a signal ({why})]][[code?ended with exit code {code}]][[gone?ended]].",
        next="[[kill?Use fewer workers, as memory ran out: dmesg -T | grep -i kill on {host}]]"
        "[[bus?Use a larger /dev/shm (in a container: docker run --shm-size=32g, or --ipc=host), or fewer workers]]"
        "[[abort?Read the worker's own lines above it: an assertion or an uncaught exception of a library aborts. If CUDA or threads were in use before the worker was forked, DataLoader(multiprocessing_context='spawn') helps; num_workers=0 shows where it fails]]"
        "[[crash?Run it with -x PYTHONFAULTHANDLER=1 or num_workers=0, which show where a library crashed. If CUDA or threads were in use before the worker was forked, DataLoader(multiprocessing_context='spawn') helps]]"
        "[[other?Look for what ended it: a time limit, a user, or a rank that failed before]]"
        "[[code?Run it with num_workers=0, which shows where the data set's own code fails]]"
        "[[gone?Run it with num_workers=0, which shows an error of the data set's own code. Otherwise look at dmesg -T | grep -i kill and df -h /dev/shm: memory ran out]].",
        pattern=r"DataLoader worker (?:\(pid(?:\(s\))?[^)]*\) )?(?:is killed by signal: "
        + _SIGNAL
        + r"(?P<why>[^.\r\n]+)"
        r"|exited unexpectedly with exit code (?P<code>-?\d+)|exited (?P<gone>unexpectedly))",
        unless=("shm-too-small",),
    ),
    Signature(
        "data-loader-empty",
        keys=(", in _next_data",),
        cause="A data loader on {host} has no batch at all, or no further one where the program asks for it: this rank's part of the data is empty, or smaller than one batch with drop_last=True.",
        next="Print len(data_set) and len(data_loader) on each rank: check the path and the filters of the data set, and use smaller batches or fewer ranks. In a loop of your own, begin the loader again when it ends: iter(data_loader).",
        pattern=r", in _next_data\r?\n +raise StopIteration[^\r\n]*(?:\r?\n *\^+)?\r?\n(?P<error>StopIteration)",
        lines=4,
    ),
    Signature(
        "data-fewer-than-ranks",
        keys=("assert len(indices) == self.total_size", "assert len(indices) == self.num_samples"),
        cause="The data set has fewer samples than the job has ranks, so DistributedSampler cannot give each rank its part.",
        next="Use more data or fewer ranks, and check that the data set is complete on every host: print(len(data_set)). A torch from 1.7 on repeats samples instead.",
    ),
    Signature(
        "data-worker-gone",
        keys=("multiprocessing/resource_sharer.py",),
        cause="A data loader worker of this rank on {host} ended while it handed a tensor over: the broken connection is "
        "the one to that worker, not to another rank.",
        next="num_workers=0 shows where it fails; dmesg -T | tail on {host} shows whether the kernel killed it.",
        pattern=r"resource_sharer\.py[\s\S]*?\n[^\n]*\b(?:ConnectionResetError|ConnectionRefusedError|EOFError|FileNotFoundError)\b",
        lines=30,
        unless=("data-worker-killed",),
    ),
    Signature(
        "data-loader-slow",
        keys=("DataLoader timed out after ",),
        cause="The data loader on {host} gave no batch in {seconds} s: its workers hang, most often on a file server or in a lock that they have from the fork, or reading is too slow.",
        next="Run py-spy dump --pid PID of a worker while it hangs, which shows the place. Set DataLoader(multiprocessing_context='spawn'), or num_workers=0 to see whether the workers are the cause; timeout=0 waits without a limit.",
        pattern=r"DataLoader timed out after (?P<seconds>\d+) seconds",
    ),
    Signature(
        "compiler-missing",
        keys=(
            *("c++: not found", "g++: not found", "gcc: not found"),
            *("c++: command not found", "g++: command not found", "gcc: command not found"),
            "Ninja is required to load C++ extensions",
        ),
        cause="A C++ extension (of torch or DeepSpeed) is built on {host} when it is first used, but "
        "[[what?{what} does not exist||ninja does not exist]].",
        next="Install it in the image: on Debian, the packages are g++ and ninja-build. Or build the "
        "extension when the image is built (DeepSpeed: DS_BUILD_OPS=1).",
        pattern=r"\b(?P<what>(?:c\+\+|g\+\+|gcc)): (?:command )?not found|Ninja is required to load C\+\+ extensions",
    ),
    Signature(
        "torchrun-rank-killed",
        keys=("failed (exitcode: -9)", "(SIGKILL) received by PID"),
        cause=_RANK + "[[one?A rank]] of torchrun on {host} was killed (signal 9), most often because memory ran out.",
        next="Check dmesg -T | grep -i kill on {host}, and the container's memory limit. Use fewer data loader workers or smaller batches.",
        pattern=r"failed \(exitcode: -9\) " + _FAILED + r"|(?P<one>\(SIGKILL\)) received by PID",
        unless=("rank-killed",),
        lines=60,
    ),
    Signature(
        "torchrun-rank-signal",
        keys=("failed (exitcode: -",),
        cause=_RANK + " of torchrun on {host} was ended by signal {number} (6: abort, 7: bus error, 11: crash, 15: "
        "termination).",
        next="[[abort?Read its reason in the lines before it, from torch's watchdog (a collective that timed out) or after 'terminate called'||For a bus error, "
        "enlarge /dev/shm; for a crash, read the lines before it, or run it with -x PYTHONFAULTHANDLER=1 (most are of a library built for another CUDA or "
        "torch; gdb python3 CORE opens a core file). For signal 15, look for the rank that ended first]].",
        pattern=r"failed \(exitcode: -(?=(?P<abort>6\))?)(?P<number>(?!9\))\d+)\) " + _FAILED,
        kind=FailureText.OUTCOME,
        lines=60,
        unless=("rank-crashed", "rank-killed"),
    ),
    Signature(
        "torchrun-signal-summary",
        keys=(" received by PID ",),
        cause="A rank of torchrun on {host} was ended by signal {number} ({name}).",
        next="Read that rank's own lines before torchrun's summary; in Python, -x PYTHONFAULTHANDLER=1 shows where it crashed. A library built for another CUDA, torch or CPU can cause this.",
        pattern=r"traceback : Signal (?P<number>\d+) \((?P<name>SIG\w+)\) received by PID",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "torchrun-child-failed",
        keys=("ChildFailedError", "Root Cause (first observed failure):"),
        cause="torchrun ended because [[rank?rank {rank}||one of its ranks failed]][[node? on {node}]][[code? failed with exit code {code}]]; torchrun does not "
        "show why.",
        next="[[refused?Exit code 2 comes from argparse if the script refuses its arguments, or from Python if it cannot open the script; the log shows which||Read that rank's own lines]] "
        "above this line. To get the traceback here, put @record from torch.distributed.elastic.multiprocessing.errors before main.",
        pattern=r"ChildFailedError(?=(?:[^:]{0,400}\nFailures:\s+(?:<NO|[\s\S]{0,300}?\n +exitcode +: (?P<refused>2) )|[\s\S]{0,400}?\n +exitcode +: (?P<refused2>2) )?)"
        r"(?:[\s\S]{0,6000}?\nRoot Cause [\s\S]{0,400}?\n +(?:host +: (?P<node>[\w.-]+)\n +)?rank +: (?P<rank>\d+)[\s\S]{0,100}?\n +exitcode +: (?P<code>-?\d+))?"
        r"|^Root Cause \(first observed failure\):\s[\s\S]{0,400}?\n +(?:host +: (?P<node2>[\w.-]+)\n +)?rank +: (?P<rank2>\d+)[\s\S]{0,100}?\n +exitcode +: (?P<code2>\d+)",
        kind=FailureText.FALLBACK,
        lines=60,
    ),
    Signature(
        "torchelastic-failed",
        keys=("torchelastic.worker.status.FAILED",),
        cause="torchrun reports that rank {rank} on {host} failed[[why?: {why}||, and does not show why]].",
        next="Read that rank's own lines above this line. To get the traceback here, put @record from torch.distributed.elastic.multiprocessing.errors before main.",
        pattern=r'torchelastic\.worker\.status\.FAILED[^\r\n]{0,200}?"global_rank": (?P<rank>\d+)(?:[^\r\n]{0,200}?"hostname": "(?P<host>[\w.-]+)")?(?:[^\r\n]{0,200}?"raw_error": "\{\\"message\\": (?:\\"<NONE>|(?:\{\\+"message\\+": )?\\+"(?P<why>[^\\\r\n]{1,200})))?',
        kind=FailureText.FALLBACK,
        unless=("torchrun-child-failed", "torchrun-rank-failed"),
    ),
    Signature(
        "torchrun-rank-failed",
        keys=("failed (exitcode: ",),
        cause=_RANK + " of torchrun on {host} was the first to fail there: it exited with code {code}.",
        next="Read that rank's own lines above this line.",
        pattern=r"failed \(exitcode: (?P<code>[1-9]\d*)\) " + _FAILED,
        kind=FailureText.FALLBACK,
        lines=60,
        unless=("torchrun-child-failed",),
    ),
    Signature(
        "torchrun-ended",
        keys=("death signal, shutting down workers", "SignalException: Process "),
        cause="torchrun on {host} was ended from outside by signal {number}, and ended its ranks.",
        next="For 15 (TERM), look for the scheduler, time limit, container stop or user that sent it: sacct -j JOBID, docker events, journalctl -n 100 on {host}. "
        "For 1 (HUP), which a closed terminal sends, start it by taco-launch submit, nohup or tmux; 2 (INT) is Ctrl-C.",
        pattern=r"Received (?P<number>\d+) death signal|SignalException: Process \d+ got signal: (?P<number2>\d+)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "command-failed",
        keys=("CalledProcessError: Command ",),
        cause="The command that a launcher started ended [[code?with exit code {code}||by {signal}]], and the launcher does not report why: {command}.",
        next="Read what the command itself wrote, above the launcher's traceback.[[signal? For SIGKILL, check whether memory ran out: dmesg -T | grep -i kill; for "
        "SIGSEGV: -x PYTHONFAULTHANDLER=1.]]",
        pattern=r"^(?:subprocess\.)?CalledProcessError: Command (?P<command>[^\r\n]{1,2000}?) (?:returned non-zero exit status (?P<code>\d+)|died with <Signals\.(?P<signal>\w+))",
        kind=FailureText.FALLBACK,
        unless=("extension-build-failed", "extension-compiler-failed"),
    ),
    Signature(
        "torch-other-build",
        keys=("undefined symbol: _Z",),
        cause="{library} was built for another version of torch than the one on {host}.",
        next="[[cache?Remove the cache of extensions that another torch has built, and start again: rm -rf {cache}||Build or install it again for that torch: python3 -c 'import torch; print(torch.__version__, torch.version.cuda)'; "
        "for flash-attn, use the wheel whose name contains this torch, CUDA and cxx11abi, or install it after torch with pip install --no-build-isolation --no-cache-dir]].",
        pattern=r"(?:(?P<cache>/[\w./+-]*/torch_extensions)/[\w./+-]*/)?(?P<library>[\w.+-]{1,120}\.so[\w.]{0,20}): undefined symbol: _Z\w{0,40}?(?:2at|3c10|5torch)",
        unless=("horovod-other-build",),
        survived=True,
    ),
    Signature(
        "tensorflow-other-build",
        keys=("undefined symbol: _Z",),
        cause="{library} was built for another version of TensorFlow than the one on {host}.",
        next="Build or install it again where that TensorFlow is installed: python3 -c 'import tensorflow as tf; print(tf.__version__, tf.sysconfig.get_compile_flags())' shows its version and C++ ABI.",
        pattern=r"(?P<library>[\w.+-]{1,120}\.so[\w.]{0,20}): undefined symbol: _Z\w{0,40}?10tensorflow",
        unless=("horovod-other-build",),
        survived=True,
    ),
    Signature(
        "libstdcxx-too-old",
        keys=("undefined symbol: _Z", "version `GLIBCXX_", "version `CXXABI_"),
        cause="The C++ library (libstdc++) that the program loads on {host} is older than the compiler of {library}: {what} is missing in it.",
        next="ldd on {library} shows which one is loaded. In conda: conda install -c conda-forge 'libstdcxx-ng>=12'; otherwise put the folder of a newer libstdc++.so.6 first in LD_LIBRARY_PATH, or build {library} with the older compiler.",
        pattern=r"(?P<library>[\w.+-]{1,120}\.so[\w.]{0,20}): undefined symbol: (?P<what>_ZN?K?S\w+)|version `(?P<what2>(?:GLIBCXX|CXXABI)_[\d.]+)' not found \(required by (?:[^)\s]*/)?(?P<library2>[^)\s/]+)",
        survived=True,
    ),
    Signature(
        "torch-without-nccl",
        keys=("Distributed package doesn't have NCCL built in",),
        cause="This torch is built without NCCL: it is the build for CPUs, or for another system.",
        next="Install the CUDA build of torch where the ranks run; or, without GPUs: init_process_group('gloo').",
    ),
    Signature(
        "torch-variable-missing",
        keys=(
            *("expected, but not set", "but `MASTER_ADDR` env was not set"),
            *(
                "KeyError: 'RANK'",
                "KeyError: 'LOCAL_RANK'",
                "KeyError: 'WORLD_SIZE'",
                "KeyError: 'MASTER_",
                "KeyError: 'NODE_RANK'",
            ),
        ),
        cause="[[program?The program||torch.distributed]] reads {name} from the environment, and it is not set in a rank.",
        next="torchrun sets MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and LOCAL_RANK, and so does taco-launch run. Under plain "
        "mpirun: -x MASTER_ADDR=HOST -x MASTER_PORT=29500, and in the program, set RANK from OMPI_COMM_WORLD_RANK "
        "and WORLD_SIZE from OMPI_COMM_WORLD_SIZE.",
        pattern=r"environment variable (?P<name>\w+) expected, but not set|but `(?P<name2>MASTER_ADDR)` env was not set"
        r"|^(?P<program>KeyError): '(?P<name3>RANK|LOCAL_RANK|WORLD_SIZE|NODE_RANK|MASTER_ADDR|MASTER_PORT)'[ \t]*(?:\r?\n|$)(?!\s*(?:During handling of|The above exception))",
        lines=3,
    ),
    Signature(
        "torch-unused-parameters",
        keys=(
            "Expected to have finished reduction in the prior iteration",
            "parameters that were not used in producing the loss",
        ),
        cause="Some parameters of the model got no gradient in a step, and DistributedDataParallel waits for all of them.",
        next="See which, with -x TORCH_DISTRIBUTED_DEBUG=DETAIL. Use all in the loss[[on?, including every output of "
        "forward; find_unused_parameters=True, which is set, does not help where an output is left out||, or "
        "DistributedDataParallel(..., find_unused_parameters=True)]].",
        pattern=r"(?:Expected to have finished reduction in the prior iteration|parameters that were not used in producing the loss)(?=(?:[^\r\n]*(?P<on>Since `find_unused_parameters=True` is enabled))?)",
    ),
    Signature(
        "torch-collective-mismatch",
        keys=("Detected mismatch between collectives on ranks",),
        cause="The ranks do not match in a collective: [[rank?rank {rank}||one rank]] runs [[what?{what}||a collective]][[shape? on {shape}]][[order? (number {order})]], [[peer?rank {peer} {theirs}||another rank "
        "something else]][[other? on {other}]][[count? (number {count})]].",
        next="If only the shapes differ, make them equal on all ranks: pad, or DataLoader(drop_last=True). Otherwise see that all ranks go through the same steps in the same order, with the same model: no "
        "collective under an 'if rank == 0'.",
        pattern=r"Detected mismatch between collectives on ranks\.?(?: Rank (?P<rank>\d+) is running collective: "
        r"(?:CollectiveFingerPrint\((?:SequenceNumber=(?P<order>\d+), ?)?(?:OpType=)?)?(?P<what>\w+)(?:, ?TensorShape=(?P<shape>\[[^\]\r\n]{0,80}\]))?"
        r"(?:[^\r\n]{0,800}?but Rank (?P<peer>\d+) is running collective: "
        r"(?:CollectiveFingerPrint\((?:SequenceNumber=(?P<count>\d+), ?)?(?:OpType=)?)?(?P<theirs>\w+)(?:, ?TensorShape=(?P<other>\[[^\]\r\n]{0,80}\]))?)?)?",
    ),
    Signature(
        "torch-models-differ",
        keys=("DDP expects same model across all ranks",),
        cause="Rank {rank} has {count} parameters and rank {peer} {other}: the models differ. If one number is 0 or makes no "
        "sense, the ranks could not compare their models: rank 0 is late or has ended, or their first collective went wrong.",
        next="Print sum(p.requires_grad for p in model.parameters()) on each rank before DDP. If the numbers are equal, make sure that no rank skips a "
        "collective before it, and try -x NCCL_P2P_DISABLE=1.",
        pattern=r"Rank (?P<rank>\d+) has (?P<count>\d+) params, while rank (?P<peer>\d+) has inconsistent (?P<other>\d+) params",
    ),
    Signature(
        "torch-device-backend",
        keys=("No backend type associated with device type",),
        cause="A collective got a tensor on device {device}, and its process group has no backend for that.",
        next='Move the tensor to the GPU first, or give the group both backends: init_process_group("cpu:gloo,cuda:nccl").',
        pattern=r"No backend type associated with device type (?P<device>[a-z]+)",
    ),
    Signature(
        "torch-thread-at-exit",
        keys=("terminate called without an active exception",),
        cause="A C++ thread was still running on {host} when its program ended. Most often it is a thread of torch's gloo "
        "(as of 2.13) that releases a tensor after the last collective while Python exits. If nothing else is "
        "reported here, the rank's work was done; host names and addresses are not the cause.",
        next="End the script with torch.distributed.destroy_process_group(), which waits for gloo's threads; with DistributedDataParallel, they remain even so: "
        "save and flush everything, then call os._exit(0). If the rank did not reach its end, see where it was: -x PYTHONFAULTHANDLER=1.",
        kind=FailureText.OUTCOME,
        unless=("gpu-memory-fault", "cuda-assert", "cuda-error", "cuda-out-of-memory"),
    ),
    Signature(
        "cuda-not-started",
        keys=("initialization error", "CUDA_ERROR_NOT_INITIALIZED"),
        cause="CUDA does not start in a process of {host} (initialization error): the process was forked from one that "
        "had already used CUDA, or there is a problem with the driver there.",
        next="If only data loaders or child processes fail: torch.multiprocessing.set_start_method('spawn'). If all ranks of "
        "{host} fail, check nvidia-smi, dmesg -T | grep NVRM, and systemctl status nvidia-fabricmanager there.",
        pattern=r"(?:C[Uu][Dd][Aa][^\r\n]*?)(?<!driver )initialization error|CUDA_ERROR_NOT_INITIALIZED",
        unless=("no-gpu", "fabricmanager"),
    ),
    Signature(
        "cuda-forked",
        keys=("Cannot re-initialize CUDA in forked subprocess",),
        cause="A forked process uses CUDA, but its parent process had already used CUDA.",
        next="Use torch.multiprocessing.set_start_method('spawn') (DataLoader: multiprocessing_context='spawn'), or do not use CUDA before the fork or in the "
        "data set.",
    ),
    Signature(
        "cuda-library-failed",
        keys=(
            *("cuDNN error: ", "CUDNN_STATUS_", "CUBLAS_STATUS_", "CUFFT_", "CUSOLVER_STATUS_"),
            *("nable to find a valid cuDNN algorithm", "nable to find an engine to execute this computation"),
        ),
        cause="A CUDA library failed on a GPU of {host}: {why}.",
        next="Check GPU memory first (nvidia-smi), then whether an earlier CUDA error is behind it: -x CUDA_LAUNCH_BLOCKING=1. If neither is, the cuDNN or cuBLAS "
        "that is found is not the one that the program was built with: remove CUDA's own from LD_LIBRARY_PATH.",
        pattern=r"(?P<why>(?:CUDNN|CUBLAS|CUSOLVER)_STATUS_(?!SUCCESS|NOT_INITIALIZED|ALLOC_FAILED)[A-Z_]+|CUFFT_(?:INTERNAL_ERROR|EXEC_FAILED|ALLOC_FAILED"
        r"|SETUP_FAILED)|nable to find an? (?:valid cuDNN algorithm|engine to execute this computation))",
        unless=("cuda-out-of-memory", "cuda-library-start", "cuda-assert", "cuda-error", "cudnn-mixed"),
        survived=True,
    ),
    Signature(
        "deepspeed-ssh",
        keys=("was not reachable via ssh", "Command 'ssh -o PasswordAuthentication=no "),
        cause="DeepSpeed's launcher cannot log in to {host} by ssh without a password.",
        next="Try it by hand from the machine on which the launcher runs: ssh -o PasswordAuthentication=no {host} hostname. ssh-copy-id {host} copies "
        "the key; set another port in ~/.ssh/config. Under taco-launch run, DeepSpeed's own launcher is not needed.",
        pattern=r"host=(?P<host>\S+) was not reachable via ssh|Command 'ssh -o PasswordAuthentication=no [^\r\n]{0,80}?(?P<host2>[^\s']+) hostname' returned non-zero",
    ),
    Signature(
        "deepspeed-pdsh",
        keys=("launcher 'pdsh' not installed",),
        cause="DeepSpeed's launcher needs pdsh for several hosts, and it is not installed.",
        next="apt-get install pdsh; or --launcher openmpi. Under taco-launch run, DeepSpeed's own launcher is not needed.",
    ),
    Signature(
        "torch-internal",
        keys=("INTERNAL ASSERT FAILED at",),
        cause="torch itself reached a state that it considers impossible ({file}:{line}).",
        next="[[trace?Unset TORCH_NCCL_DESYNC_DEBUG (NCCL_DESYNC_DEBUG), with which torch failed while it wrote its report on ranks that are out of step, and look "
        "for the rank that is behind||Search for that file and line among torch's issues: a newer torch may have fixed it]].",
        pattern=r"INTERNAL ASSERT FAILED at \\?\"(?P<file>[^\"\\\r\n]*?(?P<trace>TraceUtils\.h)?)\\?\":(?P<line>\d+)",
        kind=FailureText.OUTCOME,
        survived=True,
    ),
    Signature(
        "deepspeed-ranks-differ",
        keys=("disagreement between rank",),
        cause="DeepSpeed (ZeRO 3) sees that rank {ranks} do not use the same parameters at the same step.",
        next="Make every rank go through the same layers; with a mixture of experts, or branches that depend on the data, use DeepSpeed's set_z3_leaf_modules. Let "
        "no rank skip a batch or generate for longer than the others (synced_gpus=True).",
        pattern=r"disagreement between rank(?P<ranks>\d+ and rank\d+)",
    ),
)


TORCH_RANKS = (
    Signature(
        "torch-desync",
        keys=("lagging/dead/mismatched ranks", "Detected collective desync"),
        cause="The ranks are out of step: [[ranks?ranks {ranks} are behind, have ended, or do something else||some are behind, or have "
        "ended]].",
        next="Read the lines below it: they name the collective of each rank at the point where the ranks diverge. Every "
        "rank has to call the same collectives in the same order, even if only one rank saves, validates or runs out of data.",
        pattern=r"lagging/dead/mismatched ranks[^\r\n\[]*\[(?P<ranks>[\d, ]+)\]|Detected collective desync",
    ),
    Signature(
        "torch-ranks-too-many",
        keys=("in store based barrier on rank",),
        cause="More processes reached the rendezvous of torch.distributed than WORLD_SIZE allows: {came} of {all}. [[again?torchrun restarted its group, and the processes of the previous attempt "
        "still count||The job was started twice (for example, srun starts it in each task, and each of these starts more ranks), or an older job's store or MASTER_PORT is in use]].",
        next="[[again?Read what failed first, above the first 'will restart worker group': this is a consequence. To see only that failure: --max-restarts "
        "0.||Start it with one launcher only, and set WORLD_SIZE to the number of all processes. Use a new MASTER_PORT, and do not reuse an older job's file "
        "for init_method=file://.]]",
        pattern=r"world_size=(?P<all>\d{1,7}), worker_count=(?P<came>\d{1,7})(?=(?:[\s\S]{0,1500}?(?P<again>will restart worker group))?)",
        lines=6,
        more=("came", "all"),
    ),
    Signature(
        "torch-first-rank-missing",
        keys=("] is setting up NCCL communicator and retrieving ncclUniqueId from [",),
        cause="Rank {rank} waited in its first collective for rank {other}, which did not reach it. The rendezvous itself worked.",
        next="Look at rank {other}: it ended, hangs, or still prepares data. If work before the first collective takes "
        "longer: init_process_group(timeout=...).",
        pattern=r"\[(?P<rank>\d+)\] is setting up NCCL communicator and retrieving ncclUniqueId from \[(?P<other>\d+)\]",
    ),
    Signature(
        "torch-group-rank-missing",
        keys=("wait timeout after ",),
        cause="A rank of {host} waited {time} ms for rank {who} of the group {group} while a group for {what} was made: the rendezvous worked, but that rank did not come.",
        next="Look at the rank that is number {who} of that group: it has ended, hangs (taco-launch stacks JOB), or takes another path. Call new_group() on all ranks of the job in the same order, also on those that are not in the group.",
        # Gloo's contexts in ProcessGroupGloo.cpp: a prefix for each group and backend, the number of the device and of the rank
        pattern=r"wait timeout after (?P<time>\d+) ?ms, keys: /{0,2}default_pg/\d+/+(?P<group>\w{1,60})//(?P<what>cpu|cuda|xpu|gloo)//(?:pg_wrapper:\w+/)?(?:\d+/)(?:rank_?)?(?P<who>\d+)\b",
    ),
    Signature(
        "torch-store-silent",
        keys=("waitForInput: ", "Error: Socket Timeout"),
        cause="A rank of {host} waited [[time?{time} ms ]]for an answer of the store of torch.distributed[[peer? at {peer}]], which did not come: another rank never wrote what this one waits for, or the connection is cut.",
        next="Look for the rank that ended first, hangs (taco-launch stacks JOB) or takes another path; that store is rank 0's, so read its log first.[[peer? Check nc -vz {peer} {port} from here.]]",
        pattern=r"waitForInput: [^\r\n]{0,200}?remote=\[(?P<peer>[^\]\r\n]{1,100})\]:(?P<port>\d+)\) timed out after (?P<time>\d+) ?ms|^(?:[\w.]+\.)?\w*Error: Socket Timeout\s*$",
        kind=FailureText.FALLBACK,
        unless=("torch-connect-timeout", "torch-rank-missing"),
    ),
    Signature(
        "torch-rank-missing",
        keys=(
            "in store based barrier on rank",
            "seconds waiting for clients",
            "wait timeout after ",
            "Timeout waiting for key",
            "failed to pass monitoredBarrier",
            "RuntimeError: Wait timeout",
            "reached monitoredBarrier, but received errors",
        ),
        cause="[[came?Only {came} of {all} ranks reached||Not all ranks reached]] the torch.distributed rendezvous in time"
        "[[who?: rank {who} is missing]][[several?: ranks {several} are missing]].",
        next="See that every host has started its part, that all have the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and look for "
        "the rank that ended first. nc -vz MASTER_ADDR MASTER_PORT from each host shows whether it is reached.",
        pattern=r"world_size=(?P<all>\d+), worker_count=(?P<came>\d+)"
        r"|Rank (?P<who>\d+) failed to pass monitoredBarrier|Ranks (?P<several>\d+(?:, \d+)*) failed to pass monitoredBarrier|received errors while waiting for send/recv from rank (?P<who3>\d+)"
        r"|seconds waiting for clients(?:\. (?P<came2>\d+)/(?P<all2>\d+) clients)?|wait timeout after \d+ ?ms(?:, keys: /{0,2}default_pg/\d+/+(?:cpu|cuda|xpu|gloo)//(?:\d+/)(?:rank_?)?(?P<who2>\d+)\b)?|Timeout waiting for key|^RuntimeError: Wait timeout\s*$",
        unless=(
            "torch-master-unreachable",
            "port-in-use",
            "torch-ranks-too-many",
            "torch-first-rank-missing",
            "torch-group-rank-missing",
        ),
    ),
    Signature(
        "torch-master-unknown",
        keys=("host not found: ", "getaddrinfo failed", "hostname of the client socket cannot be retrieved"),
        cause="{host} cannot resolve the name in MASTER_ADDR.",
        next="Check getent hosts $MASTER_ADDR there. Set an address instead, or wait until the name can be resolved (in Kubernetes, until the first "
        "pod runs).",
        pattern=r"ValueError: host not found: (?:Name or service not known|Temporary failure|No address)",
    ),
    Signature(
        "torch-name-unknown",
        keys=("cannot be retrieved (gai error",),
        cause="The name {name}, which MASTER_ADDR or --rdzv_endpoint gives, cannot be resolved on {host} ({why}).",
        next="Check getent hosts {name} there. Set an address instead, or wait until the name can be resolved (in Kubernetes, until the first pod runs).",
        pattern=r"network addresses of \(?(?P<name>[^\s,)]+), [^)\r\n]*\) cannot be retrieved \(gai error: -?\d+ - (?P<why>[^)\r\n]+)\)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "gloo-loopback",
        keys=("Using the loopback address as fallback",),
        cause="The name of {host} does not resolve to one of its own addresses, so Gloo used the loopback, which no other host can reach.",
        next="Fix /etc/hosts of {host}, or name the network in every rank: -x GLOO_SOCKET_IFNAME=bond0.",
        pattern=r"Unable to resolve hostname to a \(local\) address",
        only_with=("gloo-connect", "peer-gone", "torch-rank-missing", "gloo-waited"),
    ),
    Signature(
        "gloo-name-unknown",
        keys=("rp != nullptr",),
        cause="The name of {host} itself ({name}) cannot be resolved there; Gloo uses it to find the address to listen on.",
        next="Name the network instead: -x GLOO_SOCKET_IFNAME=eth0 (ip -br addr shows the names); or add {name} with the address of the network that the hosts share to /etc/hosts there.",
        pattern=r"rp != nullptr\. Unable to find address for: (?P<name>[\w.-]*\w)",
    ),
    Signature(
        "gloo-no-interface",
        keys=("Unable to find address for: ", "Unable to find interface for"),
        cause="{host} has no network interface that GLOO_SOCKET_IFNAME allows[[name?: {name}]].",
        next="List its interfaces: ip -br addr; the name has to exist on every host. If it does not, unset the variable: Gloo then uses the interface to which the "
        "host's own name resolves.",
        pattern=r"Unable to find (?:address|interface) for:? ?\[?(?P<name>[\w.:@-]*\w)?",
        unless=("gloo-name-unknown",),
    ),
    Signature(
        "gloo-connect",
        keys=("connectFullMesh failed", "timed out connecting: ", "gloo/transport/tcp/"),
        cause="Gloo on {host} cannot connect to another rank[[peer? at {peer}]][[why? ({why})]].",
        next="[[loop?Correct /etc/hosts, where the name of its host resolves to 127.0.x.x, or name the network: -x GLOO_SOCKET_IFNAME=bond0.||Name the network that "
        "the hosts share: -x GLOO_SOCKET_IFNAME=bond0. Open all ports from 1024 on between them; or that rank never started.]]",
        pattern=r"(?:connectFullMesh failed|timed out connecting|connect(?:ion)? (?:to )?\S* ?(?:failed|timed out)"
        r"|gloo/transport/tcp/[\w.]+:\d+\] connect \[(?=(?P<loop2>127\.0\.)?)(?P<peer2>[^\]\s]+)\]:\d+: (?P<why2>[A-Z][\w ]+\w))"
        r"(?=(?:[^\r\n]*(?P<loop>127\.0\.))?)(?=(?:[^\r\n]*SO_ERROR: (?P<why>[A-Z][\w ]+\w))?)"
        r"(?=(?:[^\r\n]*remote=\[(?P<peer>[^\]\s]+)\])?)",
        unless=("gloo-loopback",),
    ),
    Signature(
        "gloo-waited",
        keys=("Timed out waiting ", "Application timeout caused pair closure"),
        cause="A rank of {host} waited for another one in Gloo until its timeout: that rank was not there, or is far behind.",
        next="Look for the rank that ended first, or does something else. If one rank alone has longer work: init_process_group(timeout=...).",
        pattern=r"Timed out waiting \d+ms for (?:recv|send) operation|Application timeout caused pair closure",
        kind=FailureText.ECHO,
    ),
    Signature(
        "torch-timed-out-elsewhere",
        keys=("Some NCCL operations have failed or timed out", "dump signal due to a collective timeout from"),
        cause="A rank of {host} ends because a collective failed or timed out[[rank?, on rank {rank}||, there or elsewhere]].",
        next="Look for the rank that came last, or not at all: the others waited for it.",
        pattern=r"Some NCCL operations have failed or timed out|collective timeout from (?:rank )?(?P<rank>\d+)?",
        kind=FailureText.ECHO,
        unless=(
            "torch-collective-timeout",
            "torch-ranks-apart",
            "torch-collectives-differ",
            "torch-rank-behind",
            "torch-ranks-wait",
        ),
    ),
    Signature(
        "torch-group-missing",
        keys=("Default process group has not been initialized",),
        cause="The program used torch.distributed before init_process_group, or after destroy_process_group.",
        next="Call torch.distributed.init_process_group first in every rank.",
        unless=("torch-rank-missing",),
    ),
    Signature(
        "torch-group-twice",
        keys=("trying to initialize the default process group twice",),
        cause="The program called torch.distributed.init_process_group again in one process, or a library that it uses had already called it.",
        next="Call it only if torch.distributed.is_initialized() is false: accelerate, Lightning, DeepSpeed and similar libraries call it themselves. After a failure, call destroy_process_group first.",
    ),
    Signature(
        "gloo-sizes-differ",
        keys=("op.preamble.length <= op.nbytes",),
        cause="Two ranks disagree in a collective of Gloo: one sends {one} bytes, the other expects {other}.",
        next="See that every rank calls the same collectives in the same order, with tensors of the same shape and type: -x "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL.",
        pattern=r"op\.preamble\.length <= op\.nbytes\. (?P<one>\d+) vs (?P<other>\d+)",
    ),
    Signature(
        "horovod-process-exited",
        keys=("The first process to do so was:",),
        cause="horovodrun reports that process {name}[[host? on {host}]] was the first to fail: it [[killed?was killed (exit code 137), most often because "
        "memory ran out||ended with exit code {code}]].",
        next="Read that process's own lines before this point.[[killed? dmesg -T | grep -i kill on {host}. Use fewer data loader workers or smaller batches.]]",
        pattern=r"The first process to do so was:\s+Process name: (?P<name>(?:(?P<host>[^\s\[]+)\[)?\d*\]?)\s+Exit code: (?P<code>(?P<killed>137|-9)?-?\d*)",
        kind=FailureText.OUTCOME,
        lines=3,
    ),
    Signature(
        "torch-rank-number",
        keys=("rank < size. ", "init_process_group("),
        cause="Rank {rank} tries to join a process group of size {size} (ranks count from 0): WORLD_SIZE, or what the program uses instead, is too small, or the rank too high.",
        next="See what the program passes as world_size: WORLD_SIZE counts the ranks of all hosts. In Lightning, set num_nodes= to the number of hosts and devices= "
        "to the ranks of each.",
        # The call as a traceback shows it: ranks count from 0.
        pattern=r"rank < size\. (?P<rank>\d+) vs (?P<size>\d+)|init_process_group\([^\r\n]{0,300}?\b(?:world_size=(?P<size2>\d+), ?rank=(?P<rank2>(?P=size2))\b|rank=(?P<rank3>\d+), ?world_size=(?P<size3>(?P=rank3))\b)",
    ),
    Signature(
        "torch-store-shut-down",
        keys=(
            'Failed to check the "should dump" flag on TCPStore',
            *("sendBytes failed on SocketImpl(", "recvValue failed on SocketImpl(", "recvVector failed on SocketImpl("),
            *(
                "ailed to recv, got 0 bytes",
                "Connection was likely closed. Did the remote server",
                "Failed to send, sent 0 bytes. Connection was likely closed",
            ),
        ),
        cause="A rank of {host} lost the store of torch.distributed: rank 0, or its launcher, ended first. After a job that ended well this is harmless.",
        next="Look at rank 0's own last lines; the lines of this rank do not show the reason.",
        kind=FailureText.ECHO,
        at_end=r"SocketImpl|TCPStore|lib\w+\.so\)|^frame #",
    ),
    Signature(
        "torch-connect-timeout",
        keys=("connect() timed out.", 'torch/distributed/rendezvous.py", line'),
        cause="A rank of {host} could not reach the store of rank 0[[seconds? within {seconds} ms]][[why? ({why})]]: rank 0 has not started, the name "
        "of its host resolves to another address there, or a firewall is in between. Under torchrun, perhaps no host recognizes --rdzv_endpoint as its own address.",
        next="Check getent hosts $MASTER_ADDR and nc -vz MASTER_ADDR MASTER_PORT on each host. For torchrun, use --rdzv_conf is_host=1 on the first host.",
        # What the constructor of TCPStore raised, in the words of any version
        pattern=r"connect\(\) timed out\. Original timeout was (?P<seconds>\d+) ms"
        r"|rendezvous\.py\", line \d+, in _(?:tcp|env|create)\w*(?:\r?\n +[^\r\n]*){0,6}\r?\n(?P<error>[\w.]{1,80}Error: (?P<why>connect\(\) timed out|(?:Connection|Operation) timed out|Connection (?:refused|reset by peer)|Socket Timeout|No route to host|Network is unreachable))",
        lines=9,
        unless=("torch-master-unreachable",),
    ),
    Signature(
        "torch-first-collective",
        keys=("Watchdog caught collective operation timeout",),
        cause="The first collective of the job never ended on {host}: {what} (elements: {count}). The data is not the reason: a rank is missing, or "
        "the GPUs or hosts do not reach each other.",
        next="Run it with -x NCCL_DEBUG=INFO. On one host, try -x NCCL_P2P_DISABLE=1 (if that helps, turn off the IOMMU and PCI ACS); between hosts, name the "
        "network: -x NCCL_SOCKET_IFNAME==bond0.",
        pattern=r"SeqNum=1, OpType=(?P<what>\w+), NumelIn=(?P<count>\d{1,3}),",
        kind=FailureText.ECHO,
        unless=("torch-collectives-differ", "torch-ranks-apart"),
    ),
    Signature(
        "torch-init-file",
        keys=("file:///",),
        cause="The ranks find each other through the file {file}. If an earlier run left this file, it contains that run's addresses.",
        next="Delete {file} before each start, or use init_method='env://'.",
        pattern=r"init\w{0,20}[\"']?[:= ]{1,4}[\"']?file://(?P<file>/[^\s\"',]+)",
        only_with=("nccl-connect", "nccl-retries", "torch-rank-missing"),
    ),
    Signature(
        "gloo-families-differ",
        keys=("address family mismatch", "ss1.ss_family == ss2.ss_family"),
        cause="Gloo's ranks use IPv6 on one host and IPv4 on another: the hosts' own names resolve to addresses of different kinds.",
        next="Name the network in every rank: -x GLOO_SOCKET_IFNAME=bond0. Or give each host an IPv4 address in /etc/hosts (getent ahosts $(hostname)).",
        pattern=r"gloo/transport/tcp/\w+\.cc:\d+\] address family mismatch|ss1\.ss_family == ss2\.ss_family",
    ),
    Signature(
        "torch-ready-twice",
        keys=("Expected to mark a variable ready only once", "has been marked as ready twice"),
        cause="DistributedDataParallel got the gradient of one parameter twice in a step: a layer is run again (activation checkpointing), or a parameter is used in "
        "several backward passes.",
        next="Use torch.utils.checkpoint.checkpoint(..., use_reentrant=False), or DistributedDataParallel(..., static_graph=True). Wrap each parameter once.",
    ),
    Signature(
        "torch-parameters-differ",
        keys=("of the same param in process 0",),
        cause="Parameter {number} of the model does not have the same {what} on all ranks (here its shape is {sizes}).",
        next="[[strides?Make the parameter contiguous before DistributedDataParallel: p.data = p.data.contiguous(). If only some ranks use channels-last or another "
        "version of torch, make them equal||Build the same model on every rank: the same arguments, number of classes and, where it is chosen at random, the "
        "same seed]].",
        pattern=r"params\[(?P<number>\d+)\] in this process with sizes (?P<sizes>\[[\d, ]{0,100}\]) appears not to match (?P<what>(?P<strides>strides)|sizes) of the same",
    ),
    Signature(
        "torch-tensor-not-cuda",
        keys=("Tensors must be CUDA and dense", "ProcessGroupNCCL only supports CUDA device"),
        cause="torch gave NCCL a tensor on the CPU or a sparse one, and NCCL can use neither.",
        next="Move the model with its buffers to the GPU before DistributedDataParallel wraps it: model.to(local_rank); leave out sparse gradients, as of "
        "nn.Embedding(sparse=True). For tensors on the CPU: init_process_group('cpu:gloo,cuda:nccl').",
    ),
    Signature(
        "torch-mpi-backend",
        keys=(
            "MPI process group does not support multi-GPU collectives",
            "MPI used doesn't have CUDA-aware MPI support",
        ),
        cause="The program uses torch's MPI backend with GPU memory, which this torch and this MPI do not support.",
        next="Use init_process_group('nccl') for GPUs and 'gloo' for CPUs; mpirun can still start the ranks.",
    ),
    Signature(
        "fsdp-inner-first",
        keys=("Non-root FSDP instance's `_is_root`", "FSDP state has already been lazily initialized"),
        cause="A submodule of an FSDP model on {host} was called before the model itself. FSDP treats the first module that is called as the root.",
        next="Call the outermost FSDP model first. Call generate() or a submodule only inside its forward or under FSDP.summon_full_params.",
    ),
    Signature(
        "dtensor-mixed",
        keys=("got mixed torch.Tensor and DTensor",),
        cause="An operation ({what}) on {host} got a DTensor and a plain tensor: a part of the model is sharded (tensor parallel, FSDP2), and what it is used with is not.",
        next="Find the tensor that was made by hand (a mask, a buffer, a loss, a gradient clip), and use distribute_tensor for it or .full_tensor() for the other. Call the sharded model itself, as its hooks gather the parameters.",
        pattern=r"(?P<what>[\w.]{1,80}): got mixed torch\.Tensor and DTensor",
    ),
    Signature(
        "triton-resources",
        keys=("out of resource: ",),
        cause="A Triton kernel requires more {what} than the GPU of {host} has: {need} instead of at most {most}.",
        next="Lower the kernel's block sizes or num_stages, or use a version of the library that knows this GPU. For torch.compile: -x TORCHINDUCTOR_MAX_AUTOTUNE=0.",
        pattern=r"out of resource: (?P<what>[\w ]{1,40}), Required: (?P<need>\d+), Hardware limit: (?P<most>\d+)",
        survived=True,
    ),
    Signature(
        "inductor-compiler-failed",
        keys=("CalledProcessError: Command ",),
        cause="torch.compile on {host} called {what}, which did not compile the code.",
        next="Read the compiler's own message below that line: most often Python.h (python3-dev) is missing, or the compiler is too old or another environment's. To continue without it: -x TORCH_COMPILE_DISABLE=1; rm -rf /tmp/torchinductor_$USER removes what is half built.",
        pattern=r"CalledProcessError: Command \W{0,3}(?P<what>[\w./+-]{0,200}?(?:g\+\+|gcc|c\+\+|clang(?:\+\+)?|icpx|cc)(?:-\d+)?)\W{1,4}[^\r\n]{0,600}torchinductor",
        unless=("compiler-missing", "header-missing"),
    ),
    Signature(
        "torch-compile-failed",
        keys=("InductorError: ", "BackendCompilerFailed: ", "backend='inductor' raised:"),
        cause="torch.compile could not compile the program on {host}[[why?: {why}]].",
        next="Read the compiler's own error further up: most often gcc, Python.h (python3-dev) or libcuda.so is missing in the image. To continue without it: -x TORCH_COMPILE_DISABLE=1; rm -rf /tmp/torchinductor_$USER removes what is half built.",
        pattern=r"(?:InductorError: |BackendCompilerFailed: |backend='inductor' raised:\s*)(?:backend='inductor' raised:\s*)?(?P<why>[A-Z][^\r\n]{1,200}[^\s.])?",
        lines=2,
        unless=("compiler-missing", "triton-missing", "triton-kernel-invalid", "inductor-compiler-failed"),
        survived=True,
    ),
    Signature(
        "gradient-nan",
        keys=("returned nan values in its",),
        cause="The gradient became NaN in {what} on {host} (torch's anomaly detection found it).",
        next="Read the traceback of the forward call above it, which shows the operation: look for a division by 0, log or sqrt of 0, or fp16 that overflows. Lower the learning rate or clip gradients if it comes after many steps.",
        pattern=r"Function '(?P<what>\w{1,80})' returned nan values",
    ),
    Signature(
        "fsdp-mixed",
        keys=(
            "Must flatten tensors with uniform ",
            "`FlatParameter` requires uniform ",
            "FSDP expects uniform original parameter dtype",
        ),
        cause="FSDP cannot put parameters with different {what} into one block[[one?: {one} and {other}]].",
        next="[[grad?Set FullyShardedDataParallel(..., use_orig_params=True) (accelerate: fsdp_use_orig_params: true), or wrap the trained parameters apart from "
        "the frozen ones||Convert the model to one dtype before FSDP wraps it: model.to(torch.bfloat16). With quantized weights (QLoRA), use the same dtype "
        "for torch_dtype and bnb_4bit_quant_storage]].",
        pattern=r"(?:flatten tensors with|requires|expects) uniform (?:original parameter )?`?(?P<what>(?P<grad>requires_grad)|\w+)`?(?: but got (?P<one>torch\.\w+) and (?P<other>torch\.\w+))?",
    ),
    Signature(
        "fsdp-integers",
        keys=("Cannot flatten integer dtype tensors",),
        cause="FSDP cannot shard the integer weights of a quantized model.",
        next="Load the model without 8-bit quantization (load_in_8bit), or load 4-bit weights with bnb_4bit_quant_storage=torch.bfloat16.",
    ),
    Signature(
        "fsdp-writeback",
        keys=("Cannot writeback when the parameter shape changes",),
        cause="A parameter no longer has the shape that FSDP gave it: the program replaced it after FSDP had wrapped the model, it shares its memory with another "
        "one, or there is only one rank (FSDP then does not shard).",
        next="Change and tie weights before FSDP wraps the model, and use FullyShardedDataParallel.summon_full_params to access them later. With one rank: no FSDP, "
        "or use_orig_params=False.",
    ),
    Signature(
        "torch-checkpoint",
        keys=("CheckpointException ranks:",),
        cause="A distributed checkpoint could not be saved or loaded; it failed on the ranks {ranks}.",
        next="Read the traceback of each of these ranks below that line. To load one, let every host see all of its files (.metadata and the shards) on a shared "
        "file system; to save one, check room and write access on every host: df -h; ls -ld.",
        pattern=r"CheckpointException ranks:(?:dict_keys\()?\[(?P<ranks>[\d, ]{1,300})\]",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "torch-devices-mixed",
        keys=(
            "Expected all tensors to be on the same device",
            *(
                "Expected object of backend ",
                "expected device ",
                "Expected object of type torch.",
                "Expected object of device type ",
            ),
            *(
                "must be on the current device",
                "arguments are located on different GPUs",
                "but expected it to be on GPU",
            ),
            *(
                "but expected them to be on GPU",
                "to have the same device as tensor for argument",
                "on the same device as the indexed tensor",
            ),
        ),
        cause="One operation of the program on {host} was given tensors of different devices[[one?: {one} and {other}]].",
        next="Choose the rank's GPU first: torch.cuda.set_device(local_rank). Then move the model and every batch there, and load checkpoints with "
        "map_location. device_map='auto' does not work with one rank per GPU.",
        # aten/src/ATen/TensorUtils.cpp and THTensor of torch 0.4 to 2.13
        pattern=r"at least two devices(?:, (?P<one>[a-z]+(?::\d+)?) and (?P<other>[a-z]+(?::\d+)?))?|Expected object of backend (?P<one2>\w+) but got backend (?P<other2>\w+)"
        r"|xpected (?:object of )?device (?:type )?(?P<one3>[a-z]+(?::\d+)?) but got device (?:type )?(?P<other3>[a-z]+(?::\d+)?)|on the same device, but got \w+ is on (?P<one4>[\w:]+\w), different from other tensors on (?P<other4>[\w:]+\w)"
        r"|Expected object of type (?=torch\.cuda\.\w+Tensor but found type torch\.[A-Z]|torch\.[A-Z]\w+ but found type torch\.cuda)(?P<one5>[\w.]{1,40}) but found type (?P<other5>[\w.]{1,40}\w)"
        r"|is on CPU, but expected (?:it|them) to be on GPU|must be on the current device|located on different GPUs|to have the same device as tensor for argument|same device as the indexed tensor",
    ),
    Signature(
        "loss-not-one-number",
        keys=("grad can be implicitly created only for scalar outputs",),
        cause="backward() was called on a tensor of several values: with DataParallel the model's own loss has one for each GPU, and reduction='none' gives one for each sample.",
        next="Make it one number: loss.mean().backward(). DistributedDataParallel, with one rank per GPU, does not change the loss.",
    ),
    Signature(
        "data-parallel-scalars",
        keys=("Was asked to gather along dimension 0, but all ",),
        cause="The model in DataParallel returns a single number, so its result is a vector with one value for each GPU.",
        next="Use loss.mean() before backward(). Ignore the warning if the program does that.",
        pattern=r"Was asked to gather along dimension 0, but all input tensors were scalars",
        kind=FailureText.NOTE,
    ),
    Signature(
        "torch-object-damaged",
        keys=("in _tensor_to_object",),
        cause="A rank on {host} received bytes in a collective of Python objects (all_gather_object, broadcast_object_list, recv_object_list) that are no object: the ranks are out of step, or use each other's GPU.",
        next="Call torch.cuda.set_device(local_rank) first, and the same object collectives in the same order on all ranks of the group. If the GPUs do not pass data on correctly, -x NCCL_P2P_DISABLE=1 helps; with gloo for objects (new_group(backend='gloo')) no GPU is used.",
        pattern=r", in _tensor_to_object\r?\n(?: +[^\r\n]*\r?\n){1,6}?(?P<error>(?:[\w.]*UnpicklingError|EOFError|ValueError|[\w.]*Error)[^\r\n]*)",
        lines=8,
    ),
    Signature(
        "torch-random-state",
        keys=("Invalid mt19937 state",),
        cause="The state of the random generator that rank 0 sent to the others did not arrive as it was sent: the GPUs do not pass data on correctly, or the ranks are out of step.",
        next="Run it with -x NCCL_P2P_DISABLE=1; if that helps, turn off the IOMMU and PCI ACS. Otherwise give all ranks the same number of batches, and update accelerate.",
        survived=True,
    ),
    Signature(
        "optimizer-tensors-mixed",
        keys=("Tensors of the same index must be on the same device and the same dtype",),
        cause="The optimizer on {host} has a parameter whose gradient or state is on another device, or of another type, than the parameter.",
        next="Move and wrap the model (FSDP, .to(local_rank), .to(dtype)) before the optimizer is made, and load the optimizer's state after that. With FSDP, load it by FSDP.optim_state_dict_to_load, and keep torch and accelerate up to date together.",
    ),
    Signature(
        "torch-view-changed",
        keys=(
            "is a view and its base or another view of its base has been modified inplace",
            "is a view and is being modified inplace",
        ),
        cause="An operation in place on {host} changes a part of a tensor that autograd needs whole: with FSDP, parameters are views of one block.",
        next="Replace the operation in place (x += y, .mul_(), ReLU(inplace=True)) in the model by one that makes a new tensor. With FSDP: use_orig_params=True, and wrap the blocks of the model (auto_wrap_policy).",
    ),
    Signature(
        "libuv-aborted",
        keys=(": uv_", ": uv__"),
        cause="libuv, which waits for the network in torch's store, Gloo, uvloop or Ray, ended a process of {host}: its check {what} failed ({where}). Most often a connection was closed twice, while the process ended or after a fork.",
        next="Look for a rank that failed before, and let the program end its process groups and workers itself. If it comes at the start, use torch's older store: -x USE_LIBUV=0; for vLLM and Ray, start processes by spawn.",
        pattern=r": (?P<where>uv__?\w+): Assertion [`'](?P<what>[^\r\n]{1,160}?)' failed",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "gloo-failed",
        keys=("instance of 'gloo::", "[enforce fail at "),
        cause="Gloo ended a rank of {host}: {why}.",
        next="Look for the rank that ended first, or that calls another collective: all ranks have to call the same ones, with the same sizes and types (-x TORCH_DISTRIBUTED_DEBUG=DETAIL). If none did, name the network: -x GLOO_SOCKET_IFNAME=eth0.",
        pattern=r"(?:gloo::(?:EnforceNotMet|IoException|InvalidOperationException|TimeoutException|Exception)'\s+what\(\): +|^\w*Error: )(?:\[[^\]\r\n]{0,200}/gloo/[^\]\r\n]{1,120}\] ?)(?P<why>[^\r\n]*[^\s.])",
        lines=2,
        kind=FailureText.FALLBACK,
        unless=(
            "peer-gone",
            "gloo-waited",
            "gloo-connect",
            "gloo-no-interface",
            "gloo-name-unknown",
            "gloo-sizes-differ",
        ),
    ),
    Signature(
        "checkpoint-metadata-missing",
        keys=("/.metadata'", "assert metadata is not None", "AssertionError: metadata is None"),
        cause="A distributed checkpoint (torch.distributed.checkpoint) has no file .metadata where a rank on {host} reads it[[path?: {path}]]. Rank 0 writes it when a save is complete.",
        next="Run ls -la [[path?{path}||on its folder]] on every host: if only the first one has .metadata, put the folder on storage that all hosts share. If none has it, the save was not completed: load an earlier checkpoint.",
        pattern=r"No such file or directory: '(?P<path>[^'\r\n]{1,300})/\.metadata'|assert metadata is not None[^\r\n]*\r?\n(?: [^\r\n]*\r?\n)?(?P<error>AssertionError)|(?P<error2>AssertionError): metadata is None",
        lines=3,
    ),
    Signature(
        "ddp-devices",
        keys=(
            "device_ids and output_device arguments only work with single-device",
            "input module must be on the same type of devices",
        ),
        cause="DistributedDataParallel requires all parameters of the model on one device, that of device_ids, but they are on others[[where?: {where}]].",
        next="Move the whole model to the rank's GPU (model.to(local_rank)) and pass device_ids=[local_rank]. Do not use "
        "device_map='auto', which spreads a model over GPUs, or omit device_ids for such a model.",
        pattern=r"(?:only work with single-device|on the same type of devices)(?:[^\r\n]{0,300}?module parameters (?:locate in )?\{(?P<where>[^}\r\n]{1,100})\})?",
    ),
    Signature(
        "torch-ranks-waited-for",
        keys=("Waiting in store based barrier to initialize process group",),
        cause="Rank {rank} waits at the rendezvous of torch.distributed: when the log ends, {came} of {all} ranks have arrived.",
        next="See whether the others have started (their logs, their hosts), and that all have the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
        pattern=r"for rank: (?P<rank>\d+), [^\r\n]{0,200}world_size=(?P<all>\d{1,7}), worker_count=(?P<came>\d{1,7})",
        kind=FailureText.FALLBACK,
        more=("all", "came"),
        at_end=r"Waiting in store based barrier",
    ),
    Signature(
        "lightning-first-collective",
        keys=("processes registered. Starting ",),
        cause="All {count} ranks of Lightning reached the rendezvous, and the log ends there: their first collective does not finish.",
        next="Run it with -x NCCL_DEBUG=INFO, and while it hangs, taco-launch stacks JOB (or py-spy dump --pid PID) shows where. If the path between GPUs is the "
        "cause (ACS, IOMMU), -x NCCL_P2P_DISABLE=1 helps; if it is the network between hosts, -x NCCL_SOCKET_IFNAME=eth0.",
        pattern=r"processes registered\. Starting \w+ with (?P<count>\d+) processes",
        kind=FailureText.FALLBACK,
        at_end=r"processes registered\. Starting|^-+\s*$",
    ),
    Signature(
        "torch-store-foreign",
        keys=(" response is expected", "_ready response expected"),
        cause="The store of torch.distributed received an answer that it does not know: at MASTER_ADDR:MASTER_PORT another program listens, or another version of torch.",
        next="Choose another port, and check that MASTER_ADDR and MASTER_PORT are set (--master_addr, --master_port) and all hosts have the same torch.",
        pattern=r"(?:Error: |^)(?:Stop_waiting|[Ww]ait|[Pp]ing|[Cc]heck|[Aa]ppend|ready or not_ready|wait_canceled) response (?:is )?expected$",
    ),
    Signature(
        "fsdp-not-sharded",
        keys=("can only be used when parameters are flatten and sharded",),
        cause="FSDP cannot save or load a sharded state: nothing is sharded, because the job has one rank or its strategy is NO_SHARD.",
        next="Use the full state (StateDictType.FULL_STATE_DICT; accelerate: fsdp_state_dict_type), or start more ranks.",
    ),
    Signature(
        "quantized-model-distributed",
        keys=("bit precision on multiple devices in any distributed mode",),
        cause="A quantized model that is spread over several GPUs cannot be trained by several ranks.",
        next="Load it on one GPU in each rank (device_map={{'': int(os.environ['LOCAL_RANK'])}}), or start a single rank.",
    ),
    Signature(
        "lightning-ranks-waited-for",
        keys=("GLOBAL_RANK: ",),
        cause="Lightning's ranks wait for each other when the log ends: rank {rank} of {all} was one of those that arrived.",
        next="Compare the lines with GLOBAL_RANK: a rank that comes twice means that tasks do not know their host, a missing one that too few were started (srun "
        "--ntasks-per-node must equal devices). If each arrived once, check MASTER_ADDR, and set -x NCCL_SOCKET_IFNAME and -x GLOO_SOCKET_IFNAME.",
        pattern=r"(?i:initializing (?:ddp|distributed)): GLOBAL_RANK: (?P<rank>\d+), MEMBER: \d+/(?P<all>\d+)",
        kind=FailureText.FALLBACK,
        at_end=r"GLOBAL_RANK: \d+, MEMBER: \d+/\d+",
    ),
    Signature(
        "torchrun-arguments-missing",
        keys=(
            "is absent in RendezvousParameters",
            "Port is absent in endpoint",
            "port is missing in endpoint: ",
            "Endpoint is missing in endpoint",
        ),
        cause="torchrun was started without {what}, which its static rendezvous requires.",
        next="torchrun --nnodes=N --node-rank=I --master-addr=HOST --master-port=29500 on each host, with I from 0; or --rdzv-backend=c10d --rdzv-endpoint=HOST:29500, which needs no --node-rank.",
        pattern=r"ValueError: (?P<what>rank|endpoint) is absent in RendezvousParameters|(?P<what2>Port|port|Endpoint) is (?:absent|missing) in endpoint",
    ),
    Signature(
        "torchrun-backend",
        keys=("' is not registered. Did you forget to call `",),
        cause="torchrun has no rendezvous backend {name}: the name is wrong, or its library (etcd) is not installed.",
        next="Use --rdzv-backend=c10d, which torch contains. For etcd-v2: pip install python-etcd on every host.",
        pattern=r"The rendezvous backend '(?P<name>[^'\r\n]{1,60})' is not registered",
    ),
    Signature(
        "torchrun-endpoint",
        keys=(
            " of the rendezvous endpoint '",
            "The rendezvous configuration string must be in format",
            "The rendezvous configuration option '",
        ),
        cause="torchrun cannot read [[endpoint?the endpoint {endpoint}||its settings for the rendezvous (--rdzv-conf)]].",
        next="[[endpoint?Write --rdzv-endpoint=HOST:PORT, with a name or address of the first host; check that the variable that holds it is set||Write --rdzv-conf as KEY=VALUE,KEY=VALUE, for example timeout=900,is_host=1]].",
        pattern=r"of the rendezvous endpoint '(?P<endpoint>[^'\r\n]{0,200})' must|The rendezvous configuration (?:string must be in format|option ')",
    ),
    Signature(
        "torchrun-run-id",
        keys=("The run id must be a non-empty string",),
        cause="torchrun was given an empty --rdzv-id.",
        next="Set --rdzv-id to a text that all hosts of the job share (the job's number), or leave it out; check that the variable that holds it is set.",
    ),
    Signature(
        "torchrun-nnodes",
        keys=(
            'is not in "MIN:MAX" format',
            "must be > 0 and <= max_nodes",
            "The minimum number of nodes (",
            "The maximum number of nodes (",
            "The minimum number of rendezvous nodes (",
            "The maximum number of rendezvous nodes (",
        ),
        cause="torchrun cannot use the number of hosts that it was given[[value? ({value})]].",
        next="Write --nnodes=2, or --nnodes=MIN:MAX with 1 <= MIN <= MAX for an elastic job; check that the variable that holds it is set.",
        pattern=r"nnodes=(?P<value>\S{0,60}) is not in|got min_nodes=(?P<value2>-?\d+, max_nodes=-?\d+)|The (?:minimum|maximum) number of (?:rendezvous )?nodes \((?P<value3>-?\d+)\)",
    ),
    Signature(
        "torchrun-nproc",
        keys=("Unsupported nproc_per_node value", "ValueError: Cuda is not available."),
        cause="torchrun on {host} cannot start [[value?{value} ranks per host||a rank for each GPU: torch finds no GPU there]].",
        next="[[value?Use --nproc-per-node=NUMBER, or gpu, cpu or auto||python3 -c 'import torch; print(torch.cuda.is_available(), torch.version.cuda)' on {host} shows whether torch or the driver is the reason; start a container with --gpus all]].",
        pattern=r"Unsupported nproc_per_node value: (?P<value>[^\r\n]{1,60})|ValueError: Cuda is not available",
    ),
    Signature(
        "torchrun-gpu-missing",
        keys=(" exceeds available GPUs in CUDA_VISIBLE_DEVICES=",),
        cause="torchrun on {host} starts more ranks than CUDA_VISIBLE_DEVICES ({devices}) has GPUs: local rank {rank} gets none.",
        next="Set --nproc-per-node to the number of GPUs in CUDA_VISIBLE_DEVICES, or unset that variable. Under Slurm, request as many GPUs per host as ranks: --gpus-per-node.",
        pattern=r"local_rank (?P<rank>\d+) exceeds available GPUs in CUDA_VISIBLE_DEVICES=(?P<devices>\S{0,100})",
    ),
    Signature(
        "torchrun-state-corrupt",
        keys=("The rendezvous state is corrupt", "The state object is corrupt"),
        cause="torchrun on {host} cannot read what the other hosts wrote into the store: they run another version of torch, or another job uses the same store and id.",
        next="python3 -c 'import torch, sys; print(torch.__version__, sys.version)' must be the same on all hosts. Give each job its own --rdzv-id and --rdzv-endpoint.",
    ),
    Signature(
        "torchrun-log-folder",
        keys=("NotADirectoryError: log_dir: ",),
        cause="torchrun cannot write its logs to {path}: that is a file.",
        next="rm {path}, or give --log-dir a folder.",
        pattern=r"log_dir: (?P<path>\S{1,200}) is a file",
    ),
    Signature(
        "torchrun-rank-stuck",
        keys=("stuck in uninterruptible sleep (D-state)", "Worker may be in uninterruptible kernel sleep"),
        cause="A rank of {host} (process {pid}) hangs in the kernel, where no signal ends it: a file server, the GPU's driver or an HCA does not answer.",
        next="cat /proc/{pid}/stack and dmesg -T | tail -50 on {host} show where it waits. If the process stays after the file server answers again, reboot {host}.",
        pattern=r"Worker pid=(?P<pid>\d+) stuck in uninterruptible sleep|Process (?P<pid2>\d+) did not exit after \w+ within",
    ),
    Signature(
        "torch-exit-barrier",
        keys=("Error waiting on exit barrier",),
        cause="torchrun on {host} waited {seconds} s for the other hosts to end, and lost them or the store.",
        next="Look for the torchrun that ended first, most often the one on the first host, and for errors above this line.",
        pattern=r"Error waiting on exit barrier\. Elapsed: (?P<seconds>[\d.]*\d)",
        kind=FailureText.FALLBACK,
        at_end=r"exit barrier|Error",
    ),
    Signature(
        "torch-barrier-missing",
        keys=("Timed out waiting on barrier on rank ", " failed -- missing ranks: "),
        cause="Not all ranks came to the same point in time[[missing?: {missing} did not]].",
        next="Read the last lines of the ranks that are missing, or start them: each host must start its part. While it waits, taco-launch stacks JOB shows where each rank is.",
        pattern=r"Timed out waiting on barrier on rank \d+[^\r\n]{0,200}?missing_ranks=(?P<missing>[^\r\n]{1,100}?), timeout|failed -- missing ranks: (?P<missing2>[\d, ]{1,100})",
    ),
    Signature(
        "torch-local-rank",
        keys=("LOCAL_RANK is not in the environment",),
        cause="The program asks for its local rank, and the launcher of {host} did not set LOCAL_RANK.",
        next="Start it with torchrun, or under mpirun set LOCAL_RANK from OMPI_COMM_WORLD_LOCAL_RANK (Slurm: SLURM_LOCALID) before torch.distributed is used.",
    ),
    Signature(
        "torch-backend-unknown",
        keys=(
            "Specify a 'device:backend' string or use one of: ",
            "Distributed package doesn't have ",
            "Unknown c10d backend type ",
        ),
        cause="This torch has no backend {name} for torch.distributed.",
        next="Use nccl for GPUs and gloo for CPUs: init_process_group('cpu:gloo,cuda:nccl'). The backends mpi and ucc require a torch that is built from source with them.",
        pattern=r"Unknown backend '(?P<name>[^'\r\n]{1,60})'|Distributed package doesn't have (?P<name2>(?!NCCL)\w{1,20}) built in|Unknown c10d backend type (?P<name3>\S{1,60})",
    ),
    Signature(
        "torch-not-in-group",
        keys=(" is not part of group ", " is not part of the parent group "),
        cause="A rank uses a process group that it is not in: {what}.",
        next="Use it only in ranks of the group: test dist.get_rank(group) >= 0 first, and call new_group() on all ranks. If the parallel sizes changed, check that "
        "their product is WORLD_SIZE.",
        pattern=r"Error: (?P<what>(?:Global|Group) rank \d+ is not part of (?:the parent )?group[^\r\n]{0,100})",
    ),
    Signature(
        "torch-group-destroyed",
        keys=("Invalid process group specified or has been destroyed",),
        cause="The program uses a process group that it destroyed before, or destroys one twice.",
        next="Call destroy_process_group() once, at the end of main, and nothing of torch.distributed after it (savers and loggers in an atexit handler included).",
    ),
    Signature(
        "torch-group-size",
        keys=(
            "the new group's world size should be",
            "the split group's size should be",
            "must not exceed the world size",
            "is out of range. Valid ranks are 0 to ",
        ),
        cause="A process group was requested with more ranks, or higher ones, than the job has.",
        next="Compare WORLD_SIZE with the parallel sizes of the program (tensor x pipeline x data): start that many ranks, or make the sizes smaller. Ranks count from 0.",
    ),
    Signature(
        "torch-monitored-barrier",
        keys=("monitored_barrier is only implemented for GLOO", "does not support monitoredBarrier, only GLOO"),
        cause="The program calls monitored_barrier(), which only the gloo backend has.",
        next="Call dist.barrier() instead, or create a group for it: dist.new_group(backend='gloo').",
    ),
    Signature(
        "torch-device-id",
        keys=(
            "device_id parameter must be an accelerator with an index",
            "is out of range. Please use a device index less than the number of accelerators",
            "Please use a device_id with index",
        ),
        cause="init_process_group got a device_id that is no GPU of {host}.",
        next="Write device_id=torch.device('cuda', local_rank). If the number is too high, the rank sees fewer GPUs than there are ranks: check CUDA_VISIBLE_DEVICES and LOCAL_RANK.",
    ),
    Signature(
        "torch-init-method",
        keys=(
            "No rendezvous handler for ",
            "rank parameter missing",
            "world size parameter missing",
            "rendezvous: port number missing",
        ),
        cause="init_process_group cannot use its init_method: [[scheme?torch does not support the scheme {scheme}||{what}]].",
        next="Write init_method='env://' (the default) and set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, which torchrun does. Or give tcp://HOST:PORT with rank= and world_size=.",
        pattern=r"No rendezvous handler for (?P<scheme>\S{0,60}://)|Error initializing torch\.distributed using \S{1,20} rendezvous: (?P<what>(?:rank parameter|world size parameter|port number) missing)",
    ),
    Signature(
        "torch-collective-sizes",
        keys=(
            *(
                "output tensor size must be equal to",
                "input tensor size must be equal to",
                "input tensor must be the same type as the output tensor",
                "output lists should be equal to world size",
            ),
            *(
                "invalid output tensor list at index",
                "Tensor's dim 0 does not divide equally across group size",
                "Split sizes doesn't match total dim 0 size",
                "Number of tensor splits not equal to group size",
            ),
            *(
                "input tensor must be the same size as output size times",
                "scatter/gather must match number of collective participants",
                "Tensors must have identical ",
                "invalid tensor type at index ",
                "invalid tensor size at index ",
                "requires non-empty ",
                "requires a single-element ",
                "list size should be ",
            ),
        ),
        cause="The tensors given to a collective do not fit each other or the number of ranks: {what}.",
        next="Print the shape and dtype of both tensors on each rank before that call. The gathered one is world_size times as large as the other, and both have one dtype; pad the last batch or use drop_last=True.",
        pattern=r"(?P<what>(?:output|input) tensor (?:size )?must be (?:equal to|the same type)[^\r\n]{0,80}[^\s.]|output lists should be equal to world size|invalid output tensor list at index \d*|Tensor's dim 0 does not divide equally across group size|Split sizes doesn't match total dim 0 size|Number of tensor splits not equal to group size|input tensor must be the same size as output size times[\w ]{0,20}|Tensor list input to scatter/gather must match number of collective participants|Tensors must have identical (?:type|size)"
        r"|ProcessGroup\w{1,20}::(?!gather:|scatter:)\w{1,30}: (?:(?:invalid tensor (?:type|size) at index|requires (?:non-empty|a single-element)|Incorrect (?:output|input) list size)[^\r\n]{1,160}[^\s.]))",
    ),
    Signature(
        "torch-not-contiguous",
        keys=("Tensors must be contiguous", "Tensors must be non-overlapping and dense"),
        cause="The program gave a collective a tensor whose memory is not contiguous (a slice, a transposed or expanded one).",
        next="Call tensor.contiguous() before the collective, and copy the result back if the original is to change.",
    ),
    Signature(
        "torch-gather-list",
        keys=(
            "Argument ``gather_list`` must",
            "Argument ``scatter_list`` must",
            "Must provide object_gather_list on dst rank",
            "must provide non-None scatter_object_input_list",
            "ProcessGroupGloo::gather: ",
            "ProcessGroupGloo::scatter: ",
        ),
        cause="gather() or scatter() got its list of tensors [[size?with a wrong length: it must have one tensor for each rank of the group||on the wrong rank: only the destination of gather, or the source of scatter, gives one]].",
        next="Write gather_list=[torch.empty_like(x) for _ in range(dist.get_world_size())] if dist.get_rank() == dst else None (scatter_list with src likewise).",
        pattern=r"Argument ``|[Mm]ust provide |ProcessGroupGloo::(?:gather|scatter): (?:Incorrect (?P<size>\w+) list size|requires a (?P<size2>single)-element|requires)",
    ),
    Signature(
        "torch-root-rank",
        keys=("invalid root rank: ", "Invalid root rank: "),
        cause="A collective was called with the rank {rank}, which its group does not have.",
        next="Give src or dst as the rank in the whole job, also within a group: dist.get_global_rank(group, 0).",
        pattern=r"nvalid root rank: (?P<rank>-?\d+)",
    ),
    Signature(
        "torch-libuv",
        keys=("use_libuv was requested but PyTorch was built without libuv support",),
        cause="The torch of {host} was built without libuv, which its store uses by default.",
        next="-x USE_LIBUV=0 for all ranks, or install a torch that has it.",
    ),
    Signature(
        "torch-static-graph",
        keys=("Your training graph has changed in this iteration",),
        cause="DDP runs with a static graph, and a parameter was used in one step and not in another.",
        next="Remove static_graph=True and _set_static_graph(), and use find_unused_parameters=True if parameters are left out in some steps.",
    ),
    Signature(
        "gloo-lost",
        keys=("pair.cc:",),
        cause="A rank of {host} lost its gloo connection to [[peer?the rank at {peer}||another rank]] ({what}): that rank has ended or does not answer.",
        next="Look for the rank that ended first, and at its host. If none did, raise the timeout: init_process_group(timeout=timedelta(hours=1)).",
        pattern=r"gloo/transport/\w{1,10}/\w{0,20}pair\.cc:\d+\] (?P<what>Socket closed|Socket unexpectedly closed|Read timeout|Write timeout)(?: \[(?P<peer>[\da-fA-F.:]{3,45})\])?",
        kind=FailureText.ECHO,
    ),
    Signature(
        "gloo-interface-empty",
        keys=("GlooDeviceFactory::makeTCPDevice(): interface or hostname can't be empty",),
        cause="GLOO_SOCKET_IFNAME on {host} is set but names no interface.",
        next="Unset it, or name an interface that ip -br addr lists on every host: -x GLOO_SOCKET_IFNAME=bond0.",
    ),
    Signature(
        "torch-data-type",
        keys=(
            "Input tensor data type is not supported for NCCL process group",
            "dtypes are not currenlty supported for NCCL reductions",
            "Unconvertible NCCL type",
        ),
        cause="NCCL has no collective for the data type of a tensor of the program[[type? ({type})]].",
        next="Convert the tensor before the collective: bool to torch.uint8, complex with torch.view_as_real, int16 to torch.int32, FP8 to torch.bfloat16.",
        pattern=r"not supported for NCCL process group(?:: (?P<type>\w{1,40}))?|(?P<type2>Float8) dtypes are not|Unconvertible NCCL type(?: (?P<type3>\w{1,40}))?",
    ),
    Signature(
        "mesh-uneven",
        keys=("DeviceMesh only support homogeneous hardware",),
        cause="A device mesh requires the same number of GPUs on each host: there are {ranks} ranks, which is no multiple of the {devices} that {host} sees.",
        next="nvidia-smi -L | wc -l on every host, and start that many ranks on each (--nproc-per-node=gpu). Leave out the host with fewer, or limit all with CUDA_VISIBLE_DEVICES.",
        pattern=r"homogeneous hardware, but found (?P<ranks>\d+) ranks and (?P<devices>\d+)",
    ),
    Signature(
        "torch-debug-value",
        keys=("The value of TORCH_DISTRIBUTED_DEBUG must be",),
        cause="TORCH_DISTRIBUTED_DEBUG has a value that torch does not know.",
        next="-x TORCH_DISTRIBUTED_DEBUG=DETAIL (or INFO, OFF), or unset it.",
    ),
    Signature(
        "torch-backend-lacks",
        keys=(
            " does not support al",
            " does not support reduce_scatter",
            " does not support _reduce_scatter",
            " does not support _allgather",
            " does not support recvAnysource",
            "Cannot use ReduceOp.",
        ),
        cause="The backend of torch.distributed in use does not have this operation: {what}.",
        next="Use nccl with tensors on GPUs, which has most of them. With gloo, replace the operation: all_gather instead of reduce_scatter or all_to_all, ReduceOp.SUM and a division instead of AVG.",
        pattern=r"(?P<what>Backend \w{1,20} does not support \w{1,60}|Cannot use ReduceOp\.\w{1,20} with [\w -]{1,40})",
    ),
    Signature(
        "torch-split-group",
        keys=("No device associated with the default pg, not safe to split", "its backend does not support splitting"),
        cause="split_group() requires an NCCL group that knows its GPU, and the program's has none.",
        next="Pass device_id=torch.device('cuda', local_rank) to init_process_group with the backend nccl; or use new_group() instead.",
    ),
    Signature(
        "torch-store-file",
        keys=("The file creation for C10d store has failed",),
        cause="torchrun on {host} cannot create the file of its store.",
        next="Give --rdzv-endpoint a path in a folder that exists and is writable on all hosts (shared storage), or use the TCP store: HOST:PORT.",
    ),
    Signature(
        "torchrun-etcd",
        keys=("Timed out waiting for etcd server to be ready", "Etcd server process exited with the code"),
        cause="The etcd server that torchrun started on {host} does not run: etcd is not installed, or its port is taken.",
        next="Use --rdzv-backend=c10d, which needs no etcd. To keep it: which etcd, and ss -ltnp on {host}.",
    ),
    Signature(
        "torch-timeout-type",
        keys=("Expected timeout argument to be of type datetime.timedelta",),
        cause="The program gave torch.distributed a timeout that is no timedelta.",
        next="Write timeout=datetime.timedelta(seconds=1800).",
    ),
    Signature(
        "torch-tensor-empty",
        keys=("The size of tensor a (",),
        cause="An operation on {host} got a tensor of size 0 and one of size {size}. With DeepSpeed ZeRO-3 it is a parameter that is used outside its own module, and so is not gathered; otherwise a batch is empty.",
        next="Read such a parameter (tied or frozen weights, weights used by hand) within deepspeed.zero.GatheredParameters, or pass use_reentrant=False to gradient checkpointing. Without ZeRO-3, print the sizes of the batch before that line.",
        pattern=r"The size of tensor a \((?:0\) must match the size of tensor b \((?P<size>\d+)\)|(?P<size2>\d+)\) must match the size of tensor b \(0\))",
    ),
    Signature(
        "torch-shapes-differ",
        keys=("shapes cannot be multiplied (", "The size of tensor a ("),
        cause="[[left?On {host} a layer received an input of another size than it was built for: {left} times {right}, where {inner} and {outer} must be equal||An operation on {host} got two tensors whose sizes do not fit: {one} and {two}]].",
        next="Compare the size of [[left?the layer with the output of the one before it||the two]]: print(x.shape) before that line. A checkpoint or tokenizer of another model is a usual reason[[one?, or an optimizer state that was saved with another number of ranks]].",
        # aten/src/ATen/native: mat1 and mat2 of addmm
        pattern=r"shapes cannot be multiplied \((?P<left>\d+x(?P<inner>\d+)) and (?P<right>(?P<outer>\d+)x\d+)\)|The size of tensor a \((?P<one>\d+)\) must match the size of tensor b \((?P<two>\d+)\)",
        unless=("torch-tensor-empty",),
    ),
)
# The innermost place of a traceback, in a library that places tensors itself.
OF_LIBRARY_DEVICES = (
    Qualifier(
        r'^  File "[^"\n]*/(?P<library>deepspeed/(?:runtime|ops)|torch/(?:optim|distributed/fsdp)|bitsandbytes)/[^"\n]*", line \d+[^\n]*\n(?: {4}[^\n]*\n){0,3}?\w*Error: [^\n]*\bdevices?\b',
        "The code of {library} itself on {host} used tensors of different devices[[one?: {one} and {other}]]: a part that it keeps on the CPU (offload), or that was moved after it was set up, met one on a GPU.",
        "Run it without offloading to the CPU (DeepSpeed: offload_optimizer, offload_param; FSDP: cpu_offload), and move or load nothing after the model and optimizer are set up. If that helps, try other versions of that library, torch and transformers: some do not fit together.",
    ),
)
