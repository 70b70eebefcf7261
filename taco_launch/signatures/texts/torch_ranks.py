"""What torch.distributed says where ranks do not meet, or do not do the same (its store, Gloo, the desync report).

Sources of torch 1.10 to 2.13: torch/csrc/distributed/c10d (TCPStore.cpp, ProcessGroupGloo.cpp, ProcessGroupNCCL.cpp, ProcessGroupMPI.cpp,
reducer.cpp, TraceUtils.h), torch/distributed/distributed_c10d.py, fsdp/_flat_param.py, checkpoint/api.py, torch/nn/parallel/distributed.py,
and Gloo's transport/tcp.
"""

from taco_launch.signatures.entry import FailureText, Signature

TORCH_RANKS = (
    Signature(
        "torch-desync",
        ("lagging/dead/mismatched ranks", "Detected collective desync"),
        "The ranks are out of step: [[ranks?ranks {ranks} are behind, have ended, or do something else||some are behind, or have "
        "ended]].",
        "Read the lines below it: they name the collective of each rank at the point where the ranks diverge. Every "
        "rank has to call the same collectives in the same order, even if only one rank saves, validates or runs out of data.",
        r"lagging/dead/mismatched ranks[^\r\n\[]*\[(?P<ranks>[\d, ]+)\]|Detected collective desync",
    ),
    Signature(
        "torch-ranks-too-many",
        ("in store based barrier on rank",),
        "More processes reached the rendezvous of torch.distributed than WORLD_SIZE allows: {came} of {all}. [[again?torchrun restarted its group, and the processes of the previous attempt "
        "still count||The job was started twice (for example, srun starts it in each task, and each of these starts more ranks), or an older job's store or MASTER_PORT is in use]].",
        "[[again?This is a consequence: read what failed first, above the first 'will restart worker group'. --max-restarts 0 shows only that failure.||"
        "Start it with one launcher only, and set WORLD_SIZE to the number of all processes. Use a new MASTER_PORT, and do not reuse an older job's file for init_method=file://.]]",
        r"world_size=(?P<all>\d{1,7}), worker_count=(?P<came>\d{1,7})(?=(?:[\s\S]{0,1500}?(?P<again>will restart worker group))?)",
        lines=6,
        more=("came", "all"),
    ),
    Signature(
        "torch-first-rank-missing",
        ("] is setting up NCCL communicator and retrieving ncclUniqueId from [",),
        "Rank {rank} waited in its first collective for rank {other}, which did not reach it. The rendezvous itself worked.",
        "Look at rank {other}: it ended, hangs, or still prepares data. If work before the first collective takes "
        "longer: init_process_group(timeout=...).",
        r"\[(?P<rank>\d+)\] is setting up NCCL communicator and retrieving ncclUniqueId from \[(?P<other>\d+)\]",
    ),
    Signature(
        "torch-rank-missing",
        (
            "in store based barrier on rank",
            "seconds waiting for clients",
            "wait timeout after ",
            "Timeout waiting for key",
            "failed to pass monitoredBarrier",
        ),
        "[[came?Only {came} of {all} ranks reached||Not all ranks reached]] the torch.distributed rendezvous in time"
        "[[who?: rank {who} is missing]].",
        "See that every host has started its part, that all have the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and look for "
        "the rank that ended first. nc -vz MASTER_ADDR MASTER_PORT from each host shows whether it is reached.",
        r"world_size=(?P<all>\d+), worker_count=(?P<came>\d+)"
        r"|Rank (?P<who>\d+) failed to pass monitoredBarrier"
        r"|seconds waiting for clients(?:\. (?P<came2>\d+)/(?P<all2>\d+) clients)?|wait timeout after \d+ ?ms|Timeout waiting for key",
        unless=("torch-master-unreachable", "port-in-use", "torch-ranks-too-many", "torch-first-rank-missing"),
    ),
    Signature(
        "torch-master-unknown",
        ("host not found: ", "getaddrinfo failed", "hostname of the client socket cannot be retrieved"),
        "{host} cannot resolve the name in MASTER_ADDR.",
        "Check getent hosts $MASTER_ADDR there. Set an address instead, or wait until the name can be resolved (in Kubernetes, until the first "
        "pod runs).",
        r"ValueError: host not found: (?:Name or service not known|Temporary failure|No address)",
    ),
    Signature(
        "torch-name-unknown",
        ("cannot be retrieved (gai error",),
        "The name {name}, which MASTER_ADDR or --rdzv_endpoint gives, cannot be resolved on {host} ({why}).",
        "Check getent hosts {name} there. Set an address instead, or wait until the name can be resolved (in Kubernetes, until the first pod runs).",
        r"network addresses of \(?(?P<name>[^\s,)]+), [^)\r\n]*\) cannot be retrieved \(gai error: -?\d+ - (?P<why>[^)\r\n]+)\)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "gloo-loopback",
        ("Using the loopback address as fallback",),
        "The name of {host} does not resolve to one of its own addresses, so Gloo used the loopback, which no other host can reach.",
        "Fix /etc/hosts of {host}, or name the network in every rank: -x GLOO_SOCKET_IFNAME=bond0.",
        r"Unable to resolve hostname to a \(local\) address",
        only_with=("gloo-connect", "peer-gone", "torch-rank-missing", "gloo-waited"),
    ),
    Signature(
        "gloo-name-unknown",
        ("rp != nullptr",),
        "The name of {host} itself ({name}) cannot be resolved there; Gloo uses it to find the address to listen on.",
        "Name the network instead: -x GLOO_SOCKET_IFNAME=eth0 (ip -br addr shows the names); or add {name} with the address of the network that the hosts share to /etc/hosts there.",
        r"rp != nullptr\. Unable to find address for: (?P<name>[\w.-]*\w)",
    ),
    Signature(
        "gloo-no-interface",
        ("Unable to find address for: ", "Unable to find interface for"),
        "{host} has no network interface that GLOO_SOCKET_IFNAME allows[[name?: {name}]].",
        "List its interfaces: ip -br addr. The name has to exist on every host. Without the variable, Gloo uses the "
        "interface to which the host's own name resolves.",
        r"Unable to find (?:address|interface) for:? ?\[?(?P<name>[\w.:@-]*\w)?",
        unless=("gloo-name-unknown",),
    ),
    Signature(
        "gloo-connect",
        ("connectFullMesh failed", "timed out connecting: ", "gloo/transport/tcp/"),
        "Gloo on {host} cannot connect to another rank[[peer? at {peer}]][[why? ({why})]].",
        "[[loop?The name of its host resolves to 127.0.x.x there: fix /etc/hosts, or name the network: -x GLOO_SOCKET_IFNAME=bond0.||Name the "
        "network that the hosts share: -x GLOO_SOCKET_IFNAME=bond0. All ports from 1024 on have to be open between them; or that "
        "rank never started.]]",
        r"(?:connectFullMesh failed|timed out connecting|connect(?:ion)? (?:to )?\S* ?(?:failed|timed out)"
        r"|gloo/transport/tcp/[\w.]+:\d+\] connect \[(?P<peer2>[^\]\s]+)\]:\d+: (?P<why2>[A-Z][\w ]+\w))"
        r"(?=(?:[^\r\n]*(?P<loop>127\.0\.))?)(?=(?:[^\r\n]*SO_ERROR: (?P<why>[A-Z][\w ]+\w))?)"
        r"(?=(?:[^\r\n]*remote=\[(?P<peer>[^\]\s]+)\])?)",
        unless=("gloo-loopback",),
    ),
    Signature(
        "gloo-waited",
        ("Timed out waiting ", "Application timeout caused pair closure"),
        "A rank of {host} waited for another one in Gloo until its timeout: that rank was not there, or is far behind.",
        "Look for the rank that ended first, or does something else. If one rank alone has longer work: init_process_group(timeout=...).",
        r"Timed out waiting \d+ms for (?:recv|send) operation|Application timeout caused pair closure",
        kind=FailureText.ECHO,
    ),
    Signature(
        "torch-timed-out-elsewhere",
        ("Some NCCL operations have failed or timed out", "dump signal due to a collective timeout from"),
        "A rank of {host} ends because a collective failed or timed out[[rank?, on rank {rank}||, there or elsewhere]].",
        "Look for the rank that came last, or not at all: the others waited for it.",
        r"Some NCCL operations have failed or timed out|collective timeout from (?:rank )?(?P<rank>\d+)?",
        kind=FailureText.ECHO,
    ),
    Signature(
        "torch-group-missing",
        ("Default process group has not been initialized",),
        "The program used torch.distributed before init_process_group, or after destroy_process_group.",
        "Call torch.distributed.init_process_group first in every rank.",
        unless=("torch-rank-missing",),
    ),
    Signature(
        "torch-group-twice",
        ("trying to initialize the default process group twice",),
        "The program called torch.distributed.init_process_group again in one process, or a library that it uses had already called it.",
        "Call it once: if not torch.distributed.is_initialized(): ...; accelerate, Lightning, DeepSpeed and their like call it themselves. "
        "After a failure, call destroy_process_group first.",
    ),
    Signature(
        "gloo-sizes-differ",
        ("op.preamble.length <= op.nbytes",),
        "Two ranks disagree in a collective of Gloo: one sends {one} bytes, the other expects {other}.",
        "See that every rank calls the same collectives in the same order, with tensors of the same shape and type: -x "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL.",
        r"op\.preamble\.length <= op\.nbytes\. (?P<one>\d+) vs (?P<other>\d+)",
    ),
    Signature(
        "horovod-process-exited",
        ("The first process to do so was:",),
        "horovodrun reports that process {name}[[host? on {host}]] was the first to fail: it [[killed?was killed (exit code 137), most often because "
        "memory ran out||ended with exit code {code}]].",
        "Read that process's own lines before this point.[[killed? dmesg -T | grep -i kill on {host}. Use fewer data loader workers or smaller batches.]]",
        r"The first process to do so was:\s+Process name: (?P<name>(?:(?P<host>[^\s\[]+)\[)?\d*\]?)\s+Exit code: (?P<code>(?P<killed>137|-9)?-?\d*)",
        kind=FailureText.OUTCOME,
        lines=3,
    ),
    Signature(
        "torch-rank-number",
        ("rank < size. ",),
        "Rank {rank} tries to join a process group of only {size} ranks: WORLD_SIZE, or what the program uses instead, is too small.",
        "Lightning: num_nodes= the number of hosts, devices= the ranks of each. Else see what the program passes as world_size: WORLD_SIZE counts the ranks "
        "of all hosts.",
        r"rank < size\. (?P<rank>\d+) vs (?P<size>\d+)",
    ),
    Signature(
        "torch-store-shut-down",
        (
            'Failed to check the "should dump" flag on TCPStore',
            *("sendBytes failed on SocketImpl(", "recvValue failed on SocketImpl(", "recvVector failed on SocketImpl("),
        ),
        "A rank of {host} lost the store of torch.distributed: rank 0, or its launcher, ended first. After a job that ended well this is harmless.",
        "Look at rank 0's own last lines; the lines of this rank do not show the reason.",
        kind=FailureText.ECHO,
        at_end=r"SocketImpl|TCPStore|lib\w+\.so\)|^frame #",
    ),
    Signature(
        "torch-connect-timeout",
        ("connect() timed out. Original timeout was ",),
        "A rank of {host} could not reach the store of rank 0 within {seconds} ms: rank 0 has not started, the name "
        "of its host resolves to another address there, or a firewall is in between. Under torchrun, perhaps no host recognizes --rdzv_endpoint as its own address.",
        "Check getent hosts $MASTER_ADDR and nc -vz MASTER_ADDR MASTER_PORT on each host. For torchrun, use --rdzv_conf is_host=1 on the first host.",
        r"Original timeout was (?P<seconds>\d+) ms",
        unless=("torch-master-unreachable",),
    ),
    Signature(
        "torch-first-collective",
        ("Watchdog caught collective operation timeout",),
        "The first collective of the job never ended on {host}: {what} (elements: {count}). The data is not the reason: a rank is missing, or "
        "the GPUs or hosts do not reach each other.",
        "Run it with -x NCCL_DEBUG=INFO. On one host try -x NCCL_P2P_DISABLE=1: if that helps, turn off the IOMMU and PCI ACS. Between hosts name the "
        "network: -x NCCL_SOCKET_IFNAME==bond0.",
        r"SeqNum=1, OpType=(?P<what>\w+), NumelIn=(?P<count>\d{1,3}),",
        kind=FailureText.ECHO,
        unless=("torch-collectives-differ", "torch-ranks-apart"),
    ),
    Signature(
        "torch-init-file",
        ("file:///",),
        "The ranks find each other through the file {file}. If an earlier run left this file, it contains that run's addresses.",
        "Delete {file} before each start, or use init_method='env://'.",
        r"init\w{0,20}[\"']?[:= ]{1,4}[\"']?file://(?P<file>/[^\s\"',]+)",
        only_with=("nccl-connect", "nccl-retries"),
    ),
    Signature(
        "gloo-families-differ",
        ("address family mismatch",),
        "Gloo's ranks use IPv6 on one host and IPv4 on another: the hosts' own names resolve to addresses of different kinds.",
        "Name the network in every rank: -x GLOO_SOCKET_IFNAME=bond0. Or give each host an IPv4 address in /etc/hosts (getent ahosts $(hostname)).",
        r"gloo/transport/tcp/\w+\.cc:\d+\] address family mismatch",
    ),
    Signature(
        "torch-ready-twice",
        ("Expected to mark a variable ready only once", "has been marked as ready twice"),
        "DistributedDataParallel got the gradient of one parameter twice in a step: a layer is run again (activation checkpointing), or a parameter is used in "
        "several backward passes.",
        "Use torch.utils.checkpoint.checkpoint(..., use_reentrant=False), or DistributedDataParallel(..., static_graph=True). Wrap each parameter once.",
    ),
    Signature(
        "torch-parameters-differ",
        ("of the same param in process 0",),
        "Parameter {number} of the model does not have the same {what} on all ranks (here its shape is {sizes}).",
        "[[strides?Make the parameter contiguous before DistributedDataParallel: p.data = p.data.contiguous(). Channels-last on some ranks only, or another "
        "version of torch, causes it||Every rank must build the same model: the same arguments, number of classes and, where it is chosen at random, the same "
        "seed]].",
        r"params\[(?P<number>\d+)\] in this process with sizes (?P<sizes>\[[\d, ]{0,100}\]) appears not to match (?P<what>(?P<strides>strides)|sizes) of the same",
    ),
    Signature(
        "torch-tensor-not-cuda",
        ("Tensors must be CUDA and dense",),
        "torch gave NCCL a tensor on the CPU or a sparse one, and NCCL can use neither.",
        "Move the model to the GPU before DistributedDataParallel wraps it: model.to(local_rank), with its buffers. Sparse gradients come from "
        "nn.Embedding(sparse=True). For tensors on the CPU: init_process_group('cpu:gloo,cuda:nccl').",
    ),
    Signature(
        "torch-mpi-backend",
        ("MPI process group does not support multi-GPU collectives", "MPI used doesn't have CUDA-aware MPI support"),
        "The program uses torch's MPI backend with GPU memory, which this torch and this MPI do not support.",
        "init_process_group('nccl') for GPUs, 'gloo' for CPUs. mpirun can still start the ranks.",
    ),
    Signature(
        "fsdp-mixed",
        (
            "Must flatten tensors with uniform ",
            "`FlatParameter` requires uniform ",
            "FSDP expects uniform original parameter dtype",
        ),
        "FSDP cannot put parameters with different {what} into one block[[one?: {one} and {other}]].",
        "[[grad?FullyShardedDataParallel(..., use_orig_params=True) (accelerate: fsdp_use_orig_params: true), or wrap the trained parameters apart from the "
        "frozen ones||Convert the model to one dtype before FSDP wraps it: model.to(torch.bfloat16). With quantized weights (QLoRA), use the same dtype for "
        "torch_dtype and bnb_4bit_quant_storage]].",
        r"(?:flatten tensors with|requires|expects) uniform (?:original parameter )?`?(?P<what>(?P<grad>requires_grad)|\w+)`?(?: but got (?P<one>torch\.\w+) and (?P<other>torch\.\w+))?",
    ),
    Signature(
        "fsdp-integers",
        ("Cannot flatten integer dtype tensors",),
        "FSDP cannot shard the integer weights of a quantized model.",
        "Load the model without 8-bit quantization (load_in_8bit), or load 4-bit weights with bnb_4bit_quant_storage=torch.bfloat16.",
    ),
    Signature(
        "fsdp-writeback",
        ("Cannot writeback when the parameter shape changes",),
        "A parameter no longer has the shape that FSDP gave it: the program replaced it after FSDP had wrapped the model, it shares its memory with another "
        "one, or there is only one rank (FSDP then does not shard).",
        "Change and tie weights before FSDP wraps the model, and use FullyShardedDataParallel.summon_full_params to access them later. With one rank: no FSDP, "
        "or use_orig_params=False.",
    ),
    Signature(
        "torch-checkpoint",
        ("CheckpointException ranks:",),
        "A distributed checkpoint could not be saved or loaded; it failed on the ranks {ranks}.",
        "Read the traceback of each of these ranks below that line. To load one, every host must see all of its files (.metadata and the shards): use a shared "
        "file system. To save one, every host needs room and write access: df -h; ls -ld.",
        r"CheckpointException ranks:(?:dict_keys\()?\[(?P<ranks>[\d, ]{1,300})\]",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "torch-devices-mixed",
        ("Expected all tensors to be on the same device, but found at least two devices",),
        "One operation of the program on {host} was given tensors of different devices[[one?: {one} and {other}]].",
        "Choose the rank's GPU first: torch.cuda.set_device(local_rank). Then move the model and every batch there, and load checkpoints with "
        "map_location. device_map='auto' does not work with one rank per GPU.",
        r"at least two devices(?:, (?P<one>[a-z]+(?::\d+)?) and (?P<other>[a-z]+(?::\d+)?))?",
    ),
    Signature(
        "ddp-devices",
        ("device_ids and output_device arguments only work with single-device",),
        "DistributedDataParallel got device_ids for one GPU, but the model's parameters are on other devices[[where?: {where}]].",
        "Move the whole model to the rank's GPU (model.to(local_rank)) and pass device_ids=[local_rank]. Do not use "
        "device_map='auto', which spreads a model over GPUs, or omit device_ids for such a model.",
        r"only work with single-device(?:[^\r\n]{0,300}?module parameters \{(?P<where>[^}\r\n]{1,100})\})?",
    ),
    Signature(
        "torch-ranks-waited-for",
        ("Waiting in store based barrier to initialize process group",),
        "Rank {rank} waits at the rendezvous of torch.distributed: when the log ends, {came} of {all} ranks have arrived.",
        "See whether the others have started (their logs, their hosts), and that all have the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT.",
        r"for rank: (?P<rank>\d+), [^\r\n]{0,200}world_size=(?P<all>\d{1,7}), worker_count=(?P<came>\d{1,7})",
        kind=FailureText.FALLBACK,
        more=("all", "came"),
        at_end=r"Waiting in store based barrier",
    ),
    Signature(
        "lightning-first-collective",
        ("processes registered. Starting ",),
        "All {count} ranks of Lightning reached the rendezvous, and the log ends there: their first collective does not finish.",
        "-x NCCL_DEBUG=INFO shows how far NCCL gets. -x NCCL_P2P_DISABLE=1 helps if the path between GPUs is the cause (ACS, IOMMU), -x NCCL_SOCKET_IFNAME=eth0 if it is the network between hosts. While it hangs, taco-launch stacks JOB (or py-spy dump --pid PID) shows where.",
        r"processes registered\. Starting \w+ with (?P<count>\d+) processes",
        kind=FailureText.FALLBACK,
        at_end=r"processes registered\. Starting|^-+\s*$",
    ),
    Signature(
        "lightning-ranks-waited-for",
        ("GLOBAL_RANK: ",),
        "Lightning's ranks wait for each other when the log ends: rank {rank} of {all} was one of those that arrived.",
        "Compare the number of lines with GLOBAL_RANK with the second number of MEMBER. If ranks are missing, start them: the job needs as many tasks as num_nodes times devices (srun --ntasks-per-node, torchrun --nnodes). If all arrived, "
        "they cannot reach each other: check MASTER_ADDR, and set -x NCCL_SOCKET_IFNAME and -x GLOO_SOCKET_IFNAME.",
        r"(?i:initializing (?:ddp|distributed)): GLOBAL_RANK: (?P<rank>\d+), MEMBER: \d+/(?P<all>\d+)",
        kind=FailureText.FALLBACK,
        at_end=r"GLOBAL_RANK: \d+, MEMBER: \d+/\d+",
    ),
)
