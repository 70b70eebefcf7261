"""What lines near a known text add to it: a more precise cause and next step in place of its own, by the name of its signature; pure."""

import re
from typing import Dict, Tuple

from taco_launch.core.frozen import dataclass
from taco_launch.core.signatures.filling import values_of
from taco_launch.core.signatures.known import FailureText, Qualifier, Signature
from taco_launch.core.signatures.known.containers import OF_APPTAINER
from taco_launch.core.signatures.known.cuda import OF_GPU_MEMORY
from taco_launch.core.signatures.known.frameworks import REFUSED_BY
from taco_launch.core.signatures.known.mpich import OF_RANKS_ALIKE
from taco_launch.core.signatures.known.nccl import OF_CANN
from taco_launch.core.signatures.known.slurm import OF_REQUEUE
from taco_launch.core.signatures.known.system import SHARED_MEMORY_GONE, SHARED_MEMORY_THERE
from taco_launch.core.signatures.known.torch import OF_LIBRARY_DEVICES
from taco_launch.core.signatures.known.training import OF_MISSING_COMMANDS


@dataclass(frozen=True)
class Words:
    """What is told of a text, and as what kind."""

    cause: str
    next: str
    kind: FailureText


# A line that names an error, right above a line that only tells that a task ended.
_ERROR_ABOVE = (
    r"^(?!srun: |slurmstepd)[^\n]*?\b(?:[Ee]rror|ERROR|FATAL|[Ff]atal)(?: \(\w+\))?: +(?P<why>[^\n]*[^\s.])\n"
    r"(?:[^\n]*\n)?srun: error: [^\n]*: Exited with exit code"
)
# A code of a shell, in a line that only tells that a task ended.
_NOT_FOUND = "a shell or its program did not find a command"
_TASK_ENDED = (
    Qualifier(
        _ERROR_ABOVE,
        "Task {task} on {host} ended with exit code {code}; the line above it reads: {why}.",
        "Correct what that line names; look for more of that task's own lines above it.",
    ),
    Qualifier(
        r"Exited with exit code 127\b",
        "Task {task} on {host} ended with exit code 127: " + _NOT_FOUND + " on that node.",
        "Compare the PATH there: srun -w {host} bash -c 'echo $PATH; command -v PROGRAM'. Load modules and activate "
        "environments in the batch script, and name the program by its full path.",
    ),
    Qualifier(
        r"Exited with exit code 126\b",
        "Task {task} on {host} ended with exit code 126: the program was found, but cannot be run.",
        "On that node, ls -l and file PROGRAM show whether it is marked as executable and built for that processor; "
        "findmnt -T PROGRAM shows whether its file system is mounted noexec.",
    ),
)
# A GPU's memory was given to an MPI that cannot read it: a copy by the CPU crashes below a function of MPI, in a program for GPUs.
_CUDA_AWARE = (
    "Use a CUDA-aware MPI (Open MPI: ompi_info --all | grep cuda_support; MVAPICH2-GDR: -x MV2_USE_CUDA=1; Cray MPICH: "
    "-x MPICH_GPU_SUPPORT_ENABLED=1). For Horovod, build it with HOROVOD_GPU_OPERATIONS=NCCL, and with no HOROVOD_GPU_BROADCAST=MPI or HOROVOD_GPU_ALLREDUCE=MPI."
)
_MPI_NOT_FOR_GPUS = Qualifier(
    r"\A(?=[\s\S]*?(?:[Ss]ignal 11\b|Segmentation))(?=[\s\S]*?(?:horovod|tensorflow|[Tt]orch|CUDA|cuda|cupy|\bGPU|NVIDIA))[\s\S]*?"
    r"(?:\bmem(?:cpy|move)|_mem(?:cpy|move)|libc\.so[^\n]*\(\+0x)[^\n]*(?:\n[^\n]*){0,3}?\n[^\n]*?"
    r"\b(?:P?MPID?I?_\w*|MPIR_\w*|mv2_\w+|mca_(?:pml|btl|coll)_\w+|ompi_\w+|opal_convertor\w*|uc[pt]_\w+|mxm_proto\w+)\b",
    "A rank on {host} crashed while MPI copied a buffer with the CPU (memcpy below a function of MPI): the buffer is most likely in the "
    "memory of a GPU, and this MPI is not CUDA-aware.",
    _CUDA_AWARE,
)
# The stack may be cut off before the function of MPI: that the page may not be touched is enough, in a program for GPUs.
_PAGE_OF_GPU = Qualifier(
    r"\A(?=[\s\S]*?(?:CUDA|cuda|\bGPU|NVIDIA|ROCm))[\s\S]*?invalid permissions for mapped object[^\n]*\n(?:[^\n]*\n){0,7}?[^\n]*(?:libc\.so|mem(?:cpy|move))",
    "A rank on {host} crashed because a copy by the CPU (memcpy) touched memory that it may not access: the buffer is most likely in the "
    "memory of a GPU, and MPI or UCX is not built for CUDA.",
    "Check ucx_info -d | grep cuda and ompi_info --all | grep cuda_support: both need CUDA. Otherwise copy the buffer to the host before it is given to MPI (AMReX: amrex.use_gpu_aware_mpi=0).",
)
_NO_GID = Qualifier(
    r"GID: *00(?::00){15}",
    "RDMA failed on {host}: the GID that this device uses is all zeros, so its port has no network interface with an "
    "address there.",
    "show_gids on that host lists the GIDs; choose one with an address (perftest: -x INDEX; NCCL: NCCL_IB_GID_INDEX). In a "
    "container or pod, give it the network of that port: --network host, hostNetwork: true, or a second network (Multus with macvlan or SR-IOV).",
)
# A rank was saving a checkpoint: a line of its own says so, or a frame.
_SAVING = r"^(?![^\n]*timeout)[^\n]*\b[Ss]aving\b[^\n]{0,60}\b(?:FSDP|model|checkpoint|optimizer|state)\b|\bin (?:_?save_(?:checkpoint|model|state)|save_fsdp\w*)[ \t]*$"
# A sentence of an error's message that tells what to do.
ADVICE = (
    r"(?:[.!?;]['\"`)]? +|: +|^(?=[Pp]lease )|=> |, (?=please |try |use |set |consider |you (?:need|must|should)))(?:[Pp]lease,? (?:only )?|[Yy]ou may want to |[Tt]o (?:fix|resolve|solve) (?:this|it),? )?"
    r"(?P<advice>(?!(?:report|file|open|contact|see|refer|raise)\b)(?:try|make sure|ensure|you (?:need|must|should|have) to|consider|set|use|specify|pass|install|reinstall|upgrade|update|increase|reduce"
    r"|remove|rerun|run|call|choose|either|provide|add|change|check|disable|enable|switch|unset|correct|convert|verify|wrap|create|move|load|start|restart|downgrade|lower|avoid|rename|define|replace|keep|split)\b[^\n]{4,240}?)(?=[.!](?:\s|$)|\s*$)"
)
# An error that states what it does not accept: its message is the cause.
STATED = (
    r"^(?:[A-Za-z_]\w*\.)*(?:(?:Value|Assertion|Runtime|Import|NotImplemented|Config\w*|Validation|Argument)Error|\w*Exception): [^\n]{0,300}?"
    r"(?:\b(?:requires?|required|must (?:be|have|not|match|equal)|should (?:be|have|match|equal)|needs? to be|ha(?:s|ve) to be|only supports?|unsupported|cannot be (?:used|set|combined|changed|both)|exceeds?"
    r"|out of range|(?:larger|greater|less) than|but (?:only|found|got|there (?:is|are))|already been (?:initialized|set)|mismatch|(?:unknown|invalid) (?:choice|value|option|argument|config\w*))\b"
    r"|(?:\bnot |n't )(?:support(?:ed)?|installed|compatible|recognized|allowed|a valid|use same|use|train)\b|\bNo \w+ [^\n]{0,40}specified)"
)
QUALIFIERS: Dict[str, Tuple[Qualifier, ...]] = {
    "port-in-use": (
        Qualifier(
            r"inet_listen_socket_setup[^\n]*bind failed port (?P<port>\d+)",
            "Cray PMI on {host} cannot listen on its port {port} (PMI_CONTROL_PORT): another step of the job uses it, most often the launcher inside of which this program was started with a launcher of its own.",
            "Remove the outer launcher's variables for the inner start (env | grep PMI_ lists them): env -u PMI_CONTROL_PORT COMMAND. If two steps run on one host, give each a PMI_CONTROL_PORT of its own.",
        ),
        Qualifier(
            r"NCCL WARN (?:Net : )?(?:Call to )?[Bb]ind\b[^\n]*ddress already in use",
            "NCCL on {host} found no free port: it listens on any port that is free.",
            "Run ss -s on {host}: thousands of connections come from a loop that creates process groups or communicators and does not destroy them. sysctl net.ipv4.ip_local_port_range shows which ports there are.",
        ),
    ),
    "nccl-peer-gone": (
        Qualifier(
            r"Call to \w+ (?:from|to) (?P<peer>[^\s<]+)<\d+> failed : (?P<why>Connection timed out|No route to host)",
            "NCCL on {host} no longer reaches {peer}: {why}. Packets between the two are lost, or that host is down.",
            "Check from {host}: ping -c 5 {peer}; ip route get {peer}. If it answers, look between them for packet loss, another MTU, "
            "or a firewall or connection tracking that drops connections (in Kubernetes: the pod network).",
        ),
    ),
    "peer-gone": (
        Qualifier(
            r"^  File [^\n]*, in (?:init_process_group|_create_c10d_store|_env_rendezvous_handler|_tcp_rendezvous_handler)\n(?:[^\n]*\n){0,20}?\w*Error: [^\n]*onnection (?:reset|closed)",
            "The connection of a rank on {host} to MASTER_ADDR:MASTER_PORT was reset while the ranks were meeting: rank 0 was not ready or had ended, another program uses that port, or a proxy is between the two.",
            "Look for a rank that failed before; if none did, run ss -ltnp on the first host to see what listens there. In Kubernetes, keep the pods out of the service mesh (sidecar.istio.io/inject: 'false').",
        ),
    ),
    "torch-collective-mismatch": (
        Qualifier(
            r"OpType=_?(?:ALLGATHER|REDUCE_SCATTER)_BASE, ?TensorShape=\[[^\n]*but Rank \d+ is running collective:[^\n]*TensorShape=\[",
            "The ranks do not match in a collective of parameters or gradients, as ZeRO-3 and FSDP have them: rank {rank} runs {what} on {shape}, rank {peer} {theirs} on {other}.",
            "Make every rank run the same modules in each step: a batch without images, an expert of which only some ranks have tokens, or an if on the data skips a module on some ranks. Give the module a dummy input there, or use ZeRO-2.",
        ),
    ),
    "python-syntax": (
        Qualifier(
            r'^  File "(?P<file>[^"<\n]+)", line (?P<line>\d+)\n(?:    [^\n]*\n){0,3}(?=(?:Syntax|Indentation|Tab)Error: (?!source code (?:string )?cannot contain|\(unicode error\) .utf-8))',
            "Python cannot parse line {line} of {file}: {why}.",
            "Correct that line or the one above it. If the file is right, it was written for another version of Python: compare python3 --version.",
        ),
    ),
    "slurm-task-exited": _TASK_ENDED,
    "slurm-program-missing": (
        Qualifier(
            r"execve\(\): [^\n]*: Permission denied",
            "Slurm may not run {file} on {host}: it is not marked as executable, or its file system is mounted noexec.",
            "Run chmod +x {file}, or put its interpreter before it: srun bash {file}. On that node, ls -l {file} and findmnt -T {file} show the rest.",
        ),
        Qualifier(
            r"execve\(\): (?:ml|module|conda|mamba|micromamba|source|activate|export|cd|ulimit): ",
            "Slurm could not start {file} on {host}: it is a function or a built-in command of the shell, and no program that srun can start.",
            "Start a login shell that has it: srun bash -lc '{file} ...'; or run {file} in the batch script, before srun.",
        ),
    ),
    "rank-caught-signal": (_MPI_NOT_FOR_GPUS, _PAGE_OF_GPU),
    "process-crashed": (_MPI_NOT_FOR_GPUS,),
    "rdma-test-failed": (_NO_GID,),
    "torch-master-unreachable": (
        Qualifier(
            r"any network address of \(0*(?P<cut>\d{1,4}),",
            "A rank was given {cut} as the address of rank 0, which is read as the IP address 0.0.0.{cut}: it is a part of a name that was cut wrongly.",
            "Set MASTER_ADDR to the whole name of the first host. In a Slurm job: MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1); cutting $SLURM_NODELIST, as in node[05-06], gives such numbers.",
        ),
    ),
    "mpich-failed": (
        Qualifier(
            r"\bPMI2?_Init returned|\bPMI2? init failed",
            "The ranks of MPICH do not find the PMI of what started them, so they do not know each other: launcher and MPI are of different kinds or versions.",
            "Use the launcher of that MPI: its own mpiexec, srun --mpi=pmi2 or cray_shasta (srun --mpi=list shows the kinds), or flux with its PMI library first in LD_LIBRARY_PATH. In a container, MPI and PMI must fit those of the host.",
        ),
    ),
    "library-too-old": (
        Qualifier(
            r"`GLIBC_[\d.]+' not found \(required by /\.singularity\.d/libs/",
            "The libraries of {host} that apptainer --nv puts into the container need a newer glibc than the image has ({what} is missing).",
            "Use an image with a distribution as new as that of the host (ldd --version in both), or have the administrator list only the driver's own libraries in nvliblist.conf (no libGLdispatch, libEGL); --nvccli does so.",
        ),
    ),
    "ofi-no-network": (
        Qualifier(
            r"\A(?=[\s\S]*?(?:MPICH ERROR \[Rank|\b[Cc][Xx][Ii]\b|SLINGSHOT|flux-job))[\s\S]*?OFI (?:call )?(?:fi_)?(?:open )?domain\b[^\n]*failed",
            "MPI's libfabric has the Slingshot network of {host}, but may not open it ({what}[[why?: {why}]]): the launcher gave the processes no network credentials (VNI).",
            "Start the program with the site's own launcher (srun, or flux with its cxi plugin): env | grep SLINGSHOT in a rank must show a VNI; a "
            "container needs these variables and /dev/cxi*, too. FI_LOG_LEVEL=warn shows what the provider refuses.",
        ),
        Qualifier(
            r"(?P<psm>PSM[23]) can't open (?:nic|hfi) unit",
            "MPI's libfabric chose {psm} on {host}, which cannot open the network card ({what}[[why?: {why}]]).",
            "Choose another provider: -x FI_PROVIDER=tcp works on every network; fi_info -l lists the others. In a container, PSM also needs its device (--device /dev/hfi1_0) and a larger /dev/shm.",
        ),
        Qualifier(
            r"OFI (?:call )?(?:fi_)?(?:open )?domain\b[^\n]*failed",
            "MPI's libfabric has a network on {host}, but could not open its device ({what}[[why?: {why}]]).",
            "Set -x FI_LOG_LEVEL=warn, which shows the provider, the device and why: most often the right to open the device (ls -l "
            "/dev/infiniband /dev/cxi*), credentials that only the site's launcher gives, or ulimit -l. FI_PROVIDER=tcp shows whether the rest works.",
        ),
        Qualifier(
            r"OFI (?:call )?(?:fi_)?(?:open )?(?:endpoint|ep)\b[^\n]*failed|OFI (?:call )?(?:ep_enable|av_open|ep_bind|cq_open)\b[^\n]*failed",
            "MPI's libfabric opened the network device of {host}, but no endpoint on it ({what}[[why?: {why}]]): a resource of the device is used up or limited.",
            "Use fewer ranks on that host, and check ulimit -l and ulimit -n where they run; FI_LOG_LEVEL=warn shows which resource.",
        ),
    ),
    "ray-node-died": (
        Qualifier(
            r"\b[Pp]reempt(?:ed|ion)\b|\bnode (?:was|is|has been) (?:being )?drain|\b[Ss]pot (?:instance )?(?:interrupt|terminat)|node drain",
            "Ray lost [[host?{host}||a host of the cluster]]: the node was preempted or drained by who runs the cluster, so this is no failure of the program.",
            "Continue from the last checkpoint; with Ray Train, FailureConfig(max_failures=3) does so on its own. Use nodes that are not taken away (on-demand), or save checkpoints more often.",
        ),
        Qualifier(
            r"Raylet is terminated(?:: ip=|\.)[^\n]*Termination is unexpected",
            "Ray's raylet on {host} ended unexpectedly, and with it all that ran there: the kernel or a user killed it, or it crashed.",
            "Run dmesg -T | grep -i kill on that host, which shows whether memory ran out, and read the lines below it, which are the end of /tmp/ray/session_latest/logs/raylet.out.",
        ),
    ),
    "torch-collective-timeout": (
        Qualifier(
            _SAVING,
            "A collective of torch did not end in time on {host}[[rank?, for rank {rank}]] while the program saved a checkpoint: {what}. Sharded parameters (FSDP, ZeRO-3) are gathered "
            "for that on all ranks, and some of them did not take part.",
            "Call the saving function (save_state, save_model, save_checkpoint, state_dict) on every rank, outside any if rank == 0; only the writing of the file may be limited to one rank. If all "
            "call it and one writes for long, raise the timeout: init_process_group(timeout=timedelta(hours=1)).",
        ),
    ),
    "gloo-waited": (
        Qualifier(
            _SAVING,
            "A rank of {host} waited for another one in Gloo until its timeout while the program saved a checkpoint: that rank writes for longer, or takes no part.",
            "If one rank writes and the others wait for it in a barrier, raise the timeout: init_process_group(timeout=timedelta(hours=2)), and the same for new_group(). If all must take part "
            "(FSDP, ZeRO-3), call the saving function on every rank, outside any if rank == 0.",
        ),
    ),
    "torch-timed-out-elsewhere": (
        Qualifier(
            r"Last enqueued NCCL work: (?P<sent>\d+), last completed NCCL work: (?!(?P=sent)\b)(?P<done>\d+)",
            "A collective of torch timed out[[rank?, on rank {rank}]]: a rank of {host} started {sent} collectives and completed {done}, so it waits in the next one: another rank has not reached it, called something else, or is cut off.",
            "Compare this line of all ranks, and what each calls at that place: the rank whose last enqueued number is the lowest is the one that the others wait for, or it called something else. "
            "-x TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and -x TORCH_DISTRIBUTED_DEBUG=DETAIL name the collectives.",
        ),
    ),
    "file-server": (
        Qualifier(
            r"\b(?:read|write|pread|pwrite|fsync|close)\(\): fd \d+ failed with Stale file handle|^OSError: \[Errno 116\] Stale file handle$",
            "A file or folder that a process on {host} had open was replaced or removed on the file server, by another host or job.",
            "Write a file that others read (a checkpoint) under a new name, rename it when it is whole, and have the others wait for it in a barrier; no two jobs may write into one folder. If ls on that folder fails too, the mount is stale: umount -l PATH, mount PATH.",
        ),
    ),
    "mpi-session-folder": (
        Qualifier(
            r"\[INVALID\],INVALID\] ORTE_ERROR_LOG: Not found in file (?:\S*/)?ess_env_module\.c",
            "orted was started on {host} without what mpirun gives it (its number, and where mpirun listens): by hand, or by an agent that loses the arguments. Alone it cannot run, so its other lines tell nothing of {host}.",
            "To test one host, run mpirun -np 1 --host {host} hostname. If mpirun itself started orted, see that the agent of --mca plm_rsh_agent passes on all arguments.",
        ),
    ),
    "ray-head-not-started": (
        Qualifier(
            r"Could not establish connection to Redis (?P<peer>[\w.:\[\]-]*\w)",
            "Ray's head did not start on {host}: it has to keep its state in the Redis at {peer}, and cannot connect to it.",
            "If no Redis is meant, unset RAY_REDIS_ADDRESS (and ray start --address on a head). Otherwise start it, and check nc -vz with its host and port from {host}; --redis-password and TLS must fit.",
        ),
    ),
    "library-missing": (
        Qualifier(
            r"\A(?=[\s\S]*?\blibmpi(?:_cxx|_mpifh|_usempi\w*)?\.so\.(?:20|40|12\.\d+\.\d+ompi)\b)[\s\S]*?BAD TERMINATION OF ONE OF YOUR APPLICATION",
            "The program on {host} was built with Open MPI ({library} is not found), but the mpirun that started it is of MPICH or Intel MPI.",
            "Use the mpirun of the program's own Open MPI: which -a mpirun lists what is installed. Put its bin first in PATH and its lib in LD_LIBRARY_PATH (module load openmpi), and pass both: -x PATH -x LD_LIBRARY_PATH.",
        ),
    ),
    "ssh-unresolvable": (
        Qualifier(
            r"^[^\n]*\bhorovodrun [^\n]*-(?:hostfile|-?H)[^\n]*/etc/mpi/hostfile|(?s:-launcher[\w-]*:[^\n]*\bhorovodrun )",
            "horovodrun starts ranks by ssh, and the name {host} of a worker cannot be resolved ({why}): this MPI operator starts workers by kubectl exec, and gives them no names.",
            "Start the program in the launcher with mpirun, which reads the operator's own agent (env | grep rsh_agent) and /etc/mpi/hostfile; or use the operator v2beta1, whose workers have ssh and names.",
        ),
    ),
    "mpi-cuda-call-failed": (
        Qualifier(
            r"\bvalue:? +(?P<value>700|716|717|718|719|710)\b",
            "Open MPI met an earlier failure of a GPU kernel on {host} (cu{call} returned {value}, "
            "which every call returns after it): this is no failure of MPI.",
            "Find the kernel of the program that failed first: -x CUDA_LAUNCH_BLOCKING=1, or compute-sanitizer PROGRAM; and check dmesg -T | grep Xid on {host}.",
            FailureText.ECHO,
        ),
    ),
    "apptainer-failed": OF_APPTAINER,
    "python-exception": (
        Qualifier(
            r"^ +assert [^\n]*\b(?:num_nodes|nnodes|n_nodes|num_machines|MASTER_ADDR|MASTER_PORT|WORLD_SIZE|LOCAL_RANK|SLURM_PROCID)\b|^AssertionError: [^\n]*\b(?:MASTER_ADDR|MASTER_PORT|WORLD_SIZE|LOCAL_RANK)\b",
            "The program expects a launcher that sets MASTER_ADDR, MASTER_PORT and each rank's number, and was started without one: {error}[[file? (line {at} of {file}]][[inner?, in {inner} line {inner_at}]][[file?)]].",
            "Start it on all hosts with a launcher: taco-launch run, torchrun, or srun with one task per GPU. If it starts its own ranks, set MASTER_ADDR to the first host, MASTER_PORT to a free port and NODE_RANK on each host; on one host, ask for one node.",
        ),
        Qualifier(
            r"^KeyError: '(?P<name>LOCAL_WORLD_SIZE|SLURM_\w+|OMPI_COMM_WORLD_\w+|PMI_\w+)'$",
            "The program reads {name} from the environment, and no launcher has set it[[file? (line {at} of {file}]][[file?)]].",
            "Start it with the launcher that sets it: torchrun or taco-launch run for LOCAL_WORLD_SIZE; srun for SLURM_*; Open MPI's mpirun for OMPI_*.",
        ),
        Qualifier(
            r"^ +[^\n]*(?:state_?dict\w*|checkpoint\w*|\bckpt\w*|\bload\([^\n]*\))\[[^\]\n]+\][^\n]*\n(?: +[\^~]+[^\n]*\n)?(?P<raised>KeyError: [^\n]*[^\s.])",
            "The program raised {error}[[file? (line {at} of {file}]][[inner?, in {inner} line {inner_at}]][[file?)]]: the checkpoint that it reads has no such entry, as another program or version wrote that file, or it is only a part.",
            "Check which file the option for resuming (Megatron: latest_checkpointed_iteration.txt) points to, and which program wrote it; torch.load(FILE, map_location='cpu').keys() lists what it has. Load it with that program, or convert it.",
        ),
        Qualifier(
            rf"(?i)^(?=(?:[a-z_]\w*\.)*[a-z]\w*(?:error|exception)(?=: )[^\n]{{0,600}}?(?:(?:\n(?! *file )[^\n]{{1,300}}){{0,2}}\n(?=please ))?{ADVICE})(?P<raised>[^\n]*[^\s.])",
            "The program raised {raised}[[file? (line {at} of {file})]].",
            "Follow its message: {advice}. The traceback's last File line that names your own code shows the place.",
        ),
        *REFUSED_BY,
        Qualifier(
            rf"(?i)(?=(?P<raised>[^\n]*[^\s.])){STATED}",
            "The program does not accept what it was given or found: {error}[[file? (line {at} of {file}]][[inner?, in {inner} line {inner_at}]][[file?)]].",
            "Correct what the message names (an option, a size, a version or the data), the same on all hosts. The traceback's last File line that names your own code shows the place.",
        ),
    ),
    "python-crashed": (
        Qualifier(
            r"^[^\n]*\bF tensorflow/\S+\] (?:Non-OK-status: )?Stop\(\) status: [^\n]*",
            "TensorFlow ended a rank on {host} because its server cannot be stopped cleanly: it was to end after an earlier error.",
            "Read the lines above it for that earlier error, and the logs of the other tasks.",
            FailureText.ECHO,
        ),
        Qualifier(
            r"^(?:[^\n]*\bF \w[\w/-]*/[\w./-]+:\d+\]|F\d{4} [^\n]*?\w\.\w+:\d+\]) (?P<reason>[^\n]*[^\s.])",
            "A library of a rank on {host} ended it with a fatal error: {reason}.",
            "Look for that text among the issues of the library's project, and compare its version with a host on which it works; the stack below shows what the program was doing.",
        ),
    ),
    "tensorflow-collective-aborted": (
        Qualifier(
            r"\A(?=[\s\S]*?(?:DEADLINE_EXCEEDED|Deadline Exceeded))[\s\S]*?from remote target (?P<task>/job:\w+/replica:\d+/task:\d+)",
            "TensorFlow's {task} did not answer a worker on {host} in time: it has not started, has ended, or its address cannot be reached from there.",
            "Look for the first error in the log of {task}, and see whether it listens at its address in TF_CONFIG: nc -vz HOST PORT from each host. All tasks must have the same cluster in TF_CONFIG; unset http_proxy.",
        ),
    ),
    "torchrun-signal-summary": (
        Qualifier(
            r"^ +host +: (?P<node>[\w.-]+)\n +rank +: (?P<rank>\d+) \(local_rank: \d+\)\n(?: [^\n]*\n){1,4}? +traceback +: Signal",
            "Rank {rank} of torchrun on {node} was ended by signal {number} ({name}).",
            "Read that rank's own lines before torchrun's summary; in Python, -x PYTHONFAULTHANDLER=1 shows where it crashed. A library built for another CUDA, torch or CPU can cause this.",
        ),
    ),
    "rank-crashed": (
        Qualifier(
            r"exited\s+on\s+signal 4\b|\(SIGILL\)",
            "Rank {rank} on {host} used an instruction that its CPU does not have: the program, or a library of it, was built for a newer one.",
            "Compare lscpu there (Flags: avx2, avx512f) with the host on which it was built or works. Install a build for all CPUs, or build it there, without -march=native of another host.",
        ),
        Qualifier(
            r"Read -1, expected \d+, errno = 14\b",
            "Rank {rank} on {host} crashed ({why}) after MPI could not read a buffer of another rank (errno 14, bad address): it is most likely in the memory of a GPU, and this MPI is not CUDA-aware.",
            _CUDA_AWARE,
        ),
    ),
    "single-copy-denied": (
        Qualifier(
            r"Read -1, expected \d+, errno = 14\b",
            "MPI could not read a buffer of another rank on {host} (errno 14, bad address): it is most likely in the memory of a GPU, and this MPI is not CUDA-aware.",
            _CUDA_AWARE,
        ),
    ),
    "module-missing": (
        Qualifier(
            r"'conda (?:de)?activate'|EnvironmentNameNotFound|EnvironmentLocationNotFound|conda: command not found|modulefile for|module\(s\) are unknown|module: command not found",
            "The Python of a rank on {host} has no module {module}: the environment that has it was not activated, as the lines near it show.",
            "In the script, source /PATH/TO/conda/etc/profile.d/conda.sh before conda activate (modules: /etc/profile.d/modules.sh before module load), or name the environment's Python by its full path.",
        ),
    ),
    "pod-sandbox-failed": (
        Qualifier(
            r"VF pci addr is required",
            "The node cannot create a pod's network: the pod names an SR-IOV network, but has no device for it ({why}).",
            "Request the device under resources, as limits and requests: the resource's name is in the annotation k8s.v1.cni.cncf.io/resourceName of the NetworkAttachmentDefinition; kubectl describe node shows how many are free.",
        ),
    ),
    "command-not-found": OF_MISSING_COMMANDS,
    "cann-failed": OF_CANN,
    "cuda-out-of-memory": OF_GPU_MEMORY,
    "file-denied": SHARED_MEMORY_THERE,
    "file-missing": SHARED_MEMORY_GONE,
    "hydra-rank-ended": OF_RANKS_ALIKE,
    "slurm-preempted": OF_REQUEUE,
    "torch-devices-mixed": OF_LIBRARY_DEVICES,
}


def _is_of(match: "re.Match[str]", values: Dict[str, str]) -> bool:
    """Return whether an error that is read near a text is the one that the text itself has: near it may be others."""
    raised = match.groupdict().get("raised")
    return raised is None or values.get("error", "").startswith(" ".join(raised.split())[:80])


def qualified(entry: Signature, near: str, values: Dict[str, str]) -> Words:
    """Return the words for a text of `entry` with the lines near it; add to `values` what the lines near it give."""
    for one in QUALIFIERS.get(entry.name, ()):
        matches = (each for each in re.finditer(one.pattern, near, re.MULTILINE) if _is_of(each, values))
        match = next(matches, None)
        if match:
            values.update((name, value) for name, value in values_of(match).items() if name != "host")
            return Words(one.cause, one.next, entry.kind if one.kind is None else one.kind)
    return Words(entry.cause, entry.next, entry.kind)
