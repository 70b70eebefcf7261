"""What NCCL says of HCAs, GPUs, NVLink and the processes of one host, and of ranks that do not agree.

Sources of 2.30: src/transport/net_ib, transport/net_socket.cc, transport/nvls.cc, transport/p2p.cc, misc/ipcsocket.cc,
bootstrap.cc, graph, init.cc.
"""

from taco_launch.signatures.entry import FailureText, Signature

NCCL_DEVICES = (
    Signature(
        "nccl-links-differ",
        ("incompatible devices", "device is incompatible with the local"),
        "NCCL on {host} would have to connect HCAs of different kinds[[what?: {what}]]. One is InfiniBand, another one Ethernet "
        "(RoCE), on this host or on another.",
        "Name HCAs of one kind that every host has: -x NCCL_IB_HCA==mlx5_0,mlx5_1. ibv_devinfo shows the link_layer of each.",
        r"NET/IB ?: (?:Attempted to (?:connect|merge) incompatible devices|Remote [^\r\n]* device is incompatible)"
        r"(?:[^\r\n\[]*(?P<what>\[[^\r\n]*?)(?=\. Try|\r|\n|$))?",
    ),
    Signature(
        "nccl-ib-device",
        ("NET/IB : Unable to open device", "NET/IB : Unable to query "),
        "NCCL on {host} cannot use an RDMA device: {what}.",
        "Where the ranks run: ls -l /dev/infiniband, and ibv_devinfo. A container needs --device /dev/infiniband; the user "
        "has to read and write uverbs*.",
        r"NET/IB : (?P<what>Unable to (?:open|query) [^\r\n]*[^\s.])",
    ),
    Signature(
        "nccl-ib-fatal",
        ("async fatal event",),
        "The RDMA device[[device? {device}]] of {host} reported a fatal error: {why}.",
        "On {host}: dmesg -T | grep -i mlx5; ibstat. Look for a reset or an old firmware. Leave {host} out with -H until it "
        "is fixed.",
        r"NET/IB : (?P<device>[\w.-]+:\d+)? ?async fatal event(?: on \w+)?[^\r\n:]*(?::|\()?\s*(?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "nccl-truncated",
        ("essage truncated",),
        "The ranks do not do the same: what one of them sends has another size than what {host} receives.",
        "See that every rank calls the same collectives in the same order and with the same sizes (-x "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL), and that all have the same NCCL and network plugin.",
        r"(?:NET/\w+ ?:|NCCL|^)[^\r\n]*[Mm]essage truncated ?: receiv(?:ed|ing) \d",
    ),
    Signature(
        "nccl-handles",
        ("UDS: ",),
        "Two ranks of {host} cannot hand GPU memory to each other: NCCL's Unix socket failed ({why}). They run in containers "
        "with networks of their own, or one of them has ended.",
        "Run all ranks of a host in one container, or each with --network host. -x NCCL_CUMEM_ENABLE=0 continues without such "
        "sockets.",
        r"UDS: (?P<why>(?:Sending data over|Receiving data over|Binding to|Socket creation|Cannot (?:bind|connect))[^\r\n]*\S)",
    ),
    Signature(
        "nccl-nvls",
        ("Failed to bind NVLink SHARP (NVLS)", "nvls.cc:"),
        "NVLink SHARP (NVLS) cannot be set up on {host}: {why}. The fabric manager or an NVSwitch is not in order.",
        "systemctl status nvidia-fabricmanager on {host}: its version is exactly the driver's; restart it when no job runs. -x "
        "NCCL_NVLS_ENABLE=0 continues without.",
        r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory of size \d+ ?: (?P<why>CUDA error (?!2 )\d+ '[^'\r\n]*')"
        r"|nvls\.cc:\d+ NCCL WARN (?P<why2>Cuda failure [^\r\n]*\S)",
        unless=("nccl-nvls-full",),
    ),
    Signature(
        "nccl-nvls-full",
        ("Failed to bind NVLink SHARP (NVLS)",),
        "The NVSwitches of {host} have no room for another multicast group: each communicator of NCCL takes some of them.",
        "Fewer communicators (process groups) at a time, an older or newer NCCL, or -x NCCL_NVLS_ENABLE=0.",
        r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory of size \d+ ?: CUDA error 2 ",
    ),
    Signature(
        "nccl-peer-access",
        ("failed to peer with device", "failed to open CUDA IPC handle"),
        "Two GPUs of {host} cannot reach each other's memory: {why}.",
        "nvidia-smi topo -p2p r shows which can. In a virtual machine, or with an IOMMU and ACS on, they cannot; nor can ranks in "
        "containers of their own without --ipc=host. -x NCCL_P2P_DISABLE=1 continues over shared memory.",
        r"(?P<why>failed to (?:peer with device|open CUDA IPC handle) [^\r\n]*\S)",
    ),
    Signature(
        "nccl-ranks-differ",
        ("Bootstrap Root : mismatch in ", "has already checked in"),
        "The ranks do not agree on who they are: {what}.",
        "Each rank needs a number of its own in RANK, and all the same WORLD_SIZE. Two jobs that meet at one MASTER_PORT look "
        "like this, too: see that no rank of an older job is alive.",
        r"Bootstrap Root : (?P<what>(?:mismatch in|rank \d+ of \d+)[^\r\n]*\S)",
    ),
    Signature(
        "nccl-address",
        ("Invalid NCCL_COMM_ID", "verify NCCL_OOB_NET_IFNAME"),
        "NCCL on {host} cannot use an address that it is given: {what}.",
        "NCCL_COMM_ID is HOST:PORT of rank 0, and NCCL_OOB_NET_IFNAME names interfaces that every host has. Both may be left "
        "out under mpirun and torchrun.",
        r"(?P<what>Invalid NCCL_COMM_ID|no device found [^\r\n]*verify NCCL_OOB_NET_IFNAME)",
    ),
    Signature(
        "nccl-topology",
        (
            "Could not find any local path from gpu",
            "Could not find NET with id",
            "could not find CPU close to GPU",
            "Could not open XML graph file",
            "XML Graph has wrong version",
            "Could not find real path of",
            " of node ",
        ),
        "NCCL does not understand how the devices of {host} are connected: {what}.",
        "Leave NCCL_TOPO_FILE and NCCL_GRAPH_FILE out, or make them anew on this host. A container needs the host's /sys. -x "
        "NCCL_DEBUG=INFO -x NCCL_DEBUG_SUBSYS=GRAPH shows what it sees.",
        r"NCCL WARN (?P<what>[^\r\n]*(?:local path|NET with id|CPU close|XML|real path)[^\r\n]*[^\s.])"
        r"|(?P<what2>Attribute \w+ of node \w+ not found)",
    ),
    Signature(
        "nccl-no-transport",
        ("has no transport for ", "No transport found for rank"),
        "NCCL on {host} found no way from one rank to another: {what}.",
        "Take NCCL_P2P_DISABLE and NCCL_SHM_DISABLE away where ranks share a host; between hosts see the lines NET/ before it: "
        "no interface and no RDMA device could be used.",
        r"(?P<what>Rank \d+ has no transport for [^\r\n]*\S|No transport found for rank [^\r\n]*\S)",
    ),
    Signature(
        "nccl-socket",
        ("Socket creation failed",),
        "NCCL on {host} cannot open a socket: {why}.",
        "ip -br addr where the ranks run: there has to be an address. A container: docker run --network host; and -x "
        "NCCL_SOCKET_IFNAME==NAME.",
        r"WARN (?:NCCL )?(?:Net : )?Socket creation failed ?: (?P<why>[^\r\n]*\S)",
    ),
    Signature(
        "nccl-start-failed",
        ("socket.cc:", "socket.h:", "bootstrap.cc:"),
        "A TCP connection of NCCL's start failed on {host}; NCCL does not say why.",
        "Name the network that the hosts share: -x NCCL_SOCKET_IFNAME==bond0. All ports from 1024 on have to be open between them; "
        "or a rank never started. -x NCCL_DEBUG=WARN says more.",
        r"NCCL INFO (?:\w+/)?(?:socket|bootstrap)\.(?:cc|h):\d+ -> [1-9][\s\S]{0,900}?NCCL INFO (?:init|group)\.cc:\d+ -> [1-9]",
        kind=FailureText.FALLBACK,
        lines=8,
        unless=("nccl-warned",),
    ),
    Signature(
        "nccl-gpu-hidden",
        ("nvmlDeviceGetHandleByPciBusId",),
        "NCCL on {host} does not see the GPU of another rank of that host: Slurm (--gpu-bind, --gpus-per-task), a container "
        "or a cgroup shows each rank its own GPU only.",
        "Show every rank all GPUs of the host, and choose one by the local rank: srun --gpus-per-node=8 without "
        "--gpus-per-task and --gpu-bind; one container for all ranks of a host.",
        r"NCCL WARN nvmlDeviceGetHandleByPciBusId\([^)\r\n]*\) failed: Not Found",
    ),
    Signature(
        "nccl-warned",
        ("NCCL WARN ", "Last error:"),
        "NCCL failed on {host}: {what}.",
        "Run it again with -x NCCL_DEBUG=INFO and read the lines before that one, on every host.",
        r"NCCL WARN (?!Missing |MSCCL)(?P<what>[^\r\n]*[^\s.])|Last error:[ \t]*\r?\n[^\r\n]*?(?P<what2>\w[^\r\n]*[^\s.])",
        lines=2,
        kind=FailureText.FALLBACK,
        only_with=("nccl-failed",),
    ),
)
