"""What torch.distributed says where ranks do not meet, or do not do the same (its store, Gloo, the desync report); and frameworks around it.

Sources of torch 1.10 to 2.13: torch/csrc/distributed/c10d (TCPStore.cpp, ProcessGroupGloo.cpp, ProcessGroupNCCL.cpp,
TraceUtils.h), torch/distributed/distributed_c10d.py, and Gloo's transport/tcp.
"""

from taco_launch.signatures.entry import FailureText, Signature

TORCH_RANKS = (
    Signature(
        "torch-desync",
        ("lagging/dead/mismatched ranks", "Detected collective desync"),
        "The ranks are out of step: [[ranks?ranks {ranks} are behind, have ended, or do something else||some are behind, or have "
        "ended]].",
        "Read the lines below it: they name the collective of each rank at which they part. Every rank has to call the same ones in "
        "the same order, also where only one of them saves, validates or finds no more data.",
        r"lagging/dead/mismatched ranks[^\r\n\[]*\[(?P<ranks>[\d, ]+)\]|Detected collective desync",
    ),
    Signature(
        "torch-ranks-too-many",
        ("in store based barrier on rank",),
        "More processes reached the rendezvous of torch.distributed than WORLD_SIZE says: {came} of {all}. The job was started twice "
        "(srun starts it on each task, and each starts ranks besides), or an older job's store or MASTER_PORT is in use.",
        "Start it by one launcher only, with WORLD_SIZE the number of all processes; a new MASTER_PORT, and no file of an older "
        "job for init_method=file://.",
        r"world_size=(?P<all>\d{1,7}), worker_count=(?P<came>\d{1,7})",
        more=("came", "all"),
    ),
    Signature(
        "torch-first-rank-missing",
        ("] is setting up NCCL communicator and retrieving ncclUniqueId from [",),
        "Rank {rank} waited in its first collective for rank {other}, which did not reach it. The rendezvous itself worked.",
        "Look at rank {other}: it ended, hangs, or still prepares data. Longer work before the first collective: "
        "init_process_group(timeout=...).",
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
        "[[came?Only {came} of {all} ranks came||Not all ranks came]] to the rendezvous of torch.distributed in time"
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
        "The name in MASTER_ADDR means nothing on {host}.",
        "getent hosts $MASTER_ADDR there: give an address instead, or wait until the name is known (in Kubernetes, until the first "
        "pod runs).",
        r"ValueError: host not found: (?:Name or service not known|Temporary failure|No address)",
    ),
    Signature(
        "torch-name-unknown",
        ("cannot be retrieved (gai error",),
        "The name {name}, which MASTER_ADDR or --rdzv_endpoint gives, means nothing on {host} ({why}).",
        "getent hosts {name} there: give an address instead, or wait until the name is known (in Kubernetes, until the first pod runs).",
        r"network addresses of \(?(?P<name>[^\s,)]+), [^)\r\n]*\) cannot be retrieved \(gai error: -?\d+ - (?P<why>[^)\r\n]+)\)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "gloo-loopback",
        ("Using the loopback address as fallback",),
        "The name of {host} itself does not mean one of its addresses, so Gloo took the loopback, which no other host reaches.",
        "Fix /etc/hosts of {host}, or name the network in every rank: -x GLOO_SOCKET_IFNAME=bond0.",
        r"Unable to resolve hostname to a \(local\) address",
        only_with=("gloo-connect", "peer-gone", "torch-rank-missing", "gloo-waited"),
    ),
    Signature(
        "gloo-no-interface",
        ("Unable to find address for: ", "Unable to find interface for"),
        "{host} has no network interface that GLOO_SOCKET_IFNAME allows[[name?: {name}]].",
        "See what it has: ip -br addr. The name has to exist on every host; without the variable Gloo takes the interface of the "
        "host's own name.",
        r"Unable to find (?:address|interface) for:? ?\[?(?P<name>[\w.:@-]*\w)?",
    ),
    Signature(
        "gloo-connect",
        ("connectFullMesh failed", "timed out connecting: ", "gloo/transport/tcp/"),
        "Gloo on {host} cannot connect to another rank[[peer? at {peer}]][[why? ({why})]].",
        "[[loop?Its host's name means 127.0.x.x there: fix /etc/hosts, or name the network: -x GLOO_SOCKET_IFNAME=bond0.||Name the "
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
        "A rank of {host} waited for another one in Gloo until its time was up: that rank was not there, or is far behind.",
        "Look for the rank that ended first, or does something else. Longer work on one rank alone: init_process_group(timeout=...).",
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
        "gloo-sizes-differ",
        ("op.preamble.length <= op.nbytes",),
        "Two ranks do not do the same in Gloo: one sends {one} bytes, the other expects {other}.",
        "See that every rank calls the same collectives in the same order, with tensors of the same shape and type: -x "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL.",
        r"op\.preamble\.length <= op\.nbytes\. (?P<one>\d+) vs (?P<other>\d+)",
    ),
    Signature(
        "horovod-process-exited",
        ("The first process to do so was:",),
        "horovodrun says that process {name}[[host? on {host}]] was the first to fail: it [[killed?was killed (exit code 137), most often for want of "
        "memory||ended with exit code {code}]].",
        "Read that process's own lines before this point.[[killed? dmesg -T | grep -i kill on {host}; fewer data loader workers, smaller batches.]]",
        r"The first process to do so was:\s+Process name: (?P<name>(?:(?P<host>[^\s\[]+)\[)?\d*\]?)\s+Exit code: (?P<code>(?P<killed>137|-9)?-?\d*)",
        kind=FailureText.OUTCOME,
        lines=3,
    ),
    Signature(
        "torch-rank-number",
        ("rank < size. ",),
        "Rank {rank} joins a process group of {size} ranks only: WORLD_SIZE, or what the program takes in its place, is too small.",
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
        "Look at rank 0's own last lines; these are not the reason.",
        kind=FailureText.ECHO,
        at_end=r"SocketImpl|TCPStore|lib\w+\.so\)|^frame #",
    ),
    Signature(
        "torch-connect-timeout",
        ("connect() timed out. Original timeout was ",),
        "A rank of {host} could not reach the store of rank 0 within {seconds} ms: that has not started, its name means another address there, or a firewall is "
        "between. Under torchrun it may be that no host takes itself for the one of --rdzv_endpoint.",
        "getent hosts $MASTER_ADDR on each host, and nc -vz MASTER_ADDR MASTER_PORT. torchrun: --rdzv_conf is_host=1 on the first host.",
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
        "The ranks meet by the file {file}. One that an earlier run has left hands out that run's addresses.",
        "Delete {file} before each start, or use init_method='env://'.",
        r"init\w{0,20}[\"']?[:= ]{1,4}[\"']?file://(?P<file>/[^\s\"',]+)",
        only_with=("nccl-connect", "nccl-retries"),
    ),
    Signature(
        "gloo-families-differ",
        ("address family mismatch",),
        "Gloo's ranks use IPv6 on one host and IPv4 on another: the hosts' own names mean addresses of different kinds.",
        "Name the network in every rank: -x GLOO_SOCKET_IFNAME=bond0. Or give each host an IPv4 address in /etc/hosts (getent ahosts $(hostname)).",
        r"gloo/transport/tcp/\w+\.cc:\d+\] address family mismatch",
    ),
    Signature(
        "torch-ready-twice",
        ("Expected to mark a variable ready only once", "has been marked as ready twice"),
        "DistributedDataParallel got the gradient of one parameter twice in a step: a layer is run again (activation checkpointing), or a parameter is used in "
        "several backward passes.",
        "torch.utils.checkpoint.checkpoint(..., use_reentrant=False), or DistributedDataParallel(..., static_graph=True). Wrap each parameter once.",
    ),
)

# Lightning, accelerate, Ray, DeepSpeed's launcher, and the Python parts of Horovod and TensorFlow.
FRAMEWORKS = (
    Signature(
        "lightning-gpus",
        ("MisconfigurationException: You requested ",),
        "Lightning on {host} requests GPUs {asked}, and the process sees [[seen?{seen} only||fewer]].",
        "Show each task all GPUs of its host: in Slurm --gpus-per-node or --gres, without --gpus-per-task. Or Trainer(devices=...) no more than it sees.",
        r"You requested (?i:gpus?): (?P<asked>\[[\d, ]{0,200}\])(?:\s{1,9}But your machine only has: (?P<seen>\[[\d, ]{0,200}\]))?",
        lines=2,
    ),
    Signature(
        "accelerate-rtx",
        ("doesn't support faster communication broadband",),
        "accelerate refuses the GPUs of {host}, which cannot reach each other directly: NCCL_P2P_DISABLE and NCCL_IB_DISABLE are not set.",
        "-x NCCL_P2P_DISABLE=1 -x NCCL_IB_DISABLE=1 in every rank, or a newer accelerate and driver.",
    ),
    Signature(
        "ray-worker-died",
        ("Worker exit type: SYSTEM_ERROR",),
        "A worker of Ray[[host? on {host}]] was killed or crashed[[pid? (process {pid})]].",
        "On its host: dmesg -T | tail (was memory full?), and the worker's own file in /tmp/ray/session_latest/logs.",
        r"(?:Worker IP address: (?P<host>[\w.:]+) Worker port: \d+ Worker PID: (?P<pid>\d+) )?Worker exit type: SYSTEM_ERROR",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "deepspeed-ssh-port",
        ("KeyError: 'PDSH_SSH_ARGS_APPEND'",),
        "DeepSpeed's launcher (about 0.14.0) fails with --ssh_port where PDSH_SSH_ARGS_APPEND is not set.",
        'export PDSH_SSH_ARGS_APPEND="-p PORT", or a newer DeepSpeed.',
    ),
    Signature(
        "horovodrun-no-address",
        ("Horovod was unable to connect to ",),
        "horovodrun does not reach {name} on any of its addresses ({addresses}): the hosts share no network interface of one name, or a firewall is between.",
        "horovodrun --network-interface NAME --verbose; all ports have to be open between the hosts. Under taco-launch no such service is needed.",
        r"Horovod was unable to connect to (?P<name>[^\r\n]{1,120}) on any of the following addresses: (?P<addresses>[^\r\n]{0,300}[^\s.])",
    ),
    Signature(
        "horovod-tensor-in-flight",
        ("with the same name as another tensor that is currently being processed",),
        "Horovod was asked to reduce a tensor whose last reduction is not done yet: backward() was called again before optimizer.step().",
        "DistributedOptimizer(..., backward_passes_per_step=N); or optimizer.synchronize() after backward() and with optimizer.skip_synchronize(): "
        "optimizer.step(). Give tensors of your own names that differ.",
    ),
    Signature(
        "tensorflow-device-twice",
        ("is being mapped to multiple CUDA devices",),
        "Two sessions of TensorFlow in one process choose different GPUs.",
        "Give every session the same configuration: gpu_options.visible_device_list = str(hvd.local_rank()), from the first one on.",
    ),
)
