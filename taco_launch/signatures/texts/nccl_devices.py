"""What NCCL says of HCAs, GPUs, NVLink, its networks and the processes of one host, and of ranks that do not agree.

Sources of 2.10 to 2.30: src/transport/net_ib, transport/net_socket.cc, transport/nvls.cc, transport/p2p.cc, misc/socket.cc,
misc/ibvwrap.cc, misc/ipcsocket.cc, bootstrap.cc, graph, init.cc; aws-ofi-nccl: nccl_ofi_ofiutils.cpp.
"""

from taco_launch.signatures.entry import FailureText, Signature

# ibv_event_type_str of libibverbs, of a queue or a device; not of a port, whose events are told elsewhere.
_EVENTS = (
    "local access violation work queue error|local work queue catastrophic error|invalid request local work queue error|"
    "local catastrophic error|SRQ catastrophic error|CQ error"
)

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
        "Where the ranks run: ls -l /dev/infiniband, and ibv_devinfo. A container needs --device /dev/infiniband; "
        "the user must be able to read and write /dev/infiniband/uverbs*.",
        r"NET/IB : (?P<what>Unable to (?:open|query) [^\r\n]*[^\s.])",
    ),
    Signature(
        "nccl-ib-fatal",
        ("async fatal event",),
        "The RDMA device[[device? {device}]] of {host} reported a fatal error: {why}.",
        "On {host}: dmesg -T | grep -i mlx5; ibstat. Look for a reset or outdated firmware. Leave {host} out with --exclude {host} until it "
        "is fixed.",
        r"NET/IB : (?P<device>[\w.-]+:\d+)? ?async fatal event(?: on \w+)?[^\r\n:(]{0,80}[:(]?\s{0,8}"
        r"(?P<why>[^\s.](?:[^\r\n]*[^\s.])?)",
    ),
    Signature(
        "nccl-truncated",
        ("essage truncated",),
        "The ranks disagree: one of them sends a message whose size differs from the one that {host} expects to receive.",
        "See that every rank calls the same collectives in the same order and with the same sizes (-x "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL), and that all have the same versions of NCCL and of the network plugin.",
        r"(?:NET/\w+ ?:|NCCL|^)[^\r\n]*[Mm]essage truncated ?: receiv(?:ed|ing) \d",
    ),
    Signature(
        "nccl-handles",
        ("UDS: ",),
        "Two ranks of {host} cannot share GPU memory with each other: NCCL's Unix socket failed ({why}). Either "
        "they run in containers with separate networks, or one of them has ended.",
        "Run all ranks of a host in one container, or each with --network host. -x NCCL_CUMEM_ENABLE=0 makes NCCL work without such "
        "sockets.",
        r"UDS: (?P<why>(?:Sending data over|Receiving data over|Binding to|Socket creation|Cannot (?:bind|connect))[^\r\n]*\S)",
    ),
    Signature(
        "nccl-nvls",
        ("Failed to bind NVLink SHARP (NVLS)", "nvls.cc:"),
        "NVLink SHARP (NVLS) cannot be set up on {host}: {why}. There is a problem with the fabric manager or an NVSwitch.",
        "Check systemctl status nvidia-fabricmanager on {host}: its version must be exactly that of the driver. "
        "Restart it when no job is running. -x NCCL_NVLS_ENABLE=0 runs the job without NVLS.",
        r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory of size \d+ ?: (?P<why>CUDA error (?!2 )\d+ '[^'\r\n]*')"
        r"|nvls\.cc:\d+ NCCL WARN (?P<why2>Cuda failure [^\r\n]*\S)",
        unless=("nccl-nvls-full", "cuda-not-started", "cuda-out-of-memory", "cuda-driver-old"),
    ),
    Signature(
        "nccl-nvls-full",
        ("Failed to bind NVLink SHARP (NVLS)",),
        "The NVSwitches of {host} have no room for another multicast group: each NCCL communicator uses some of the groups.",
        "Use fewer communicators (process groups) at a time, another version of NCCL, or -x NCCL_NVLS_ENABLE=0.",
        r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory of size \d+ ?: CUDA error 2 ",
    ),
    Signature(
        "nccl-peer-access",
        ("failed to peer with device", "failed to open CUDA IPC handle", "IpcGetMemHandle failed"),
        "Two GPUs of {host} cannot reach each other's memory: {why}.",
        "nvidia-smi topo -p2p r shows which GPUs can. They cannot in a virtual machine, with an IOMMU and ACS on, "
        "or if the ranks run in separate containers without --ipc=host. With -x NCCL_P2P_DISABLE=1, NCCL uses shared memory instead.",
        r"(?P<why>failed to (?:peer with device|open CUDA IPC handle) [^\r\n]*\S|(?:cuda|hip)IpcGetMemHandle failed[^\r\n]*\S)",
    ),
    Signature(
        "nccl-ranks-differ",
        ("Bootstrap Root : mismatch in ", "has already checked in"),
        "The ranks do not agree on their rank numbers or on the number of ranks: {what}.",
        "Each rank needs a different number in RANK, and all ranks need the same WORLD_SIZE. Two jobs that use the "
        "same MASTER_PORT also cause this error: make sure that no rank of an older job is still running.",
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
        "[[net?All ranks must use the same network devices: the same NCCL_IB_HCA, NCCL_NET and NCCL_SOCKET_IFNAME in each, and the same image on all hosts. ]]Unset "
        "NCCL_TOPO_FILE and NCCL_GRAPH_FILE. A container needs the host's /sys. -x NCCL_DEBUG=INFO -x NCCL_DEBUG_SUBSYS=GRAPH shows what NCCL sees.",
        r"NCCL WARN (?P<what>[^\r\n]*(?:local path|(?P<net>NET with id)|CPU close|XML|real path)[^\r\n]*[^\s.])"
        r"|(?P<what2>Attribute \w+ of node \w+ not found)",
        unless=("nccl-usb-interface",),
    ),
    Signature(
        "nccl-no-transport",
        ("has no transport for ", "No transport found for rank"),
        "NCCL on {host} found no way from one rank to another: {what}.",
        "Unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE if ranks share a host; between hosts, read the NET/ lines "
        "before this message: no interface and no RDMA device could be used.",
        r"(?P<what>Rank \d+ has no transport for [^\r\n]*\S|No transport found for rank [^\r\n]*\S)",
    ),
    Signature(
        "nccl-socket",
        ("Socket creation failed",),
        "NCCL on {host} cannot open a socket: {why}.",
        "Run ip -br addr where the ranks run: an interface must have an address. A container needs docker run "
        "--network host. Name the interface: -x NCCL_SOCKET_IFNAME==NAME.",
        r"WARN (?:NCCL )?(?:Net : )?Socket creation failed ?: (?P<why>[^\r\n]*\S)",
    ),
    Signature(
        "nccl-start-failed",
        ("socket.cc:", "socket.h:", "bootstrap.cc:"),
        "A TCP connection failed on {host} while NCCL was starting; NCCL does not report why.",
        "Name the network that the hosts share: -x NCCL_SOCKET_IFNAME==bond0. All ports from 1024 on have to be "
        "open between them. Another possible cause is a rank that never started. -x NCCL_DEBUG=WARN shows more.",
        r"NCCL INFO (?:\w+/)?(?:socket|bootstrap)\.(?:cc|h):\d+ -> [1-9][\s\S]{0,900}?NCCL INFO (?:init|group)\.cc:\d+ -> [1-9]",
        kind=FailureText.FALLBACK,
        lines=8,
        unless=("nccl-warned",),
    ),
    Signature(
        "nccl-gpu-hidden",
        ("nvmlDeviceGetHandleByPciBusId", "invalid device ordinal"),
        "NCCL on {host} does not see the GPU of another rank of that host: Slurm (--gpu-bind, --gpus-per-task), a container "
        "or a cgroup shows each rank its own GPU only.",
        "Show every rank all GPUs of the host, and choose one by the local rank: srun --gpus-per-node=8 without "
        "--gpus-per-task and --gpu-bind; one container for all ranks of a host. With -x NCCL_P2P_DISABLE=1 or -x "
        "NCCL_CUMEM_ENABLE=0, NCCL does not need to see them.",
        r"NCCL WARN nvmlDeviceGetHandleByPciBusId\([^)\r\n]*\) failed: Not Found|p2p\.cc:\d+ NCCL WARN Cuda failure (?:\d+ )?'invalid device",
    ),
    Signature(
        "nccl-warned",
        ("NCCL WARN ", "Last error:"),
        "NCCL failed on {host}: {what}.",
        "Run it again with -x NCCL_DEBUG=INFO and read the lines before that one, on every host.",
        r"NCCL WARN (?!Missing |MSCCL)(?P<what>[^\r\n]*[^\s.])|Last error:[ \t]*\r?\n(?:[\w.-]+: )?[^\r\n]*?(?P<what2>\w[^\r\n]*[^\s.])",
        lines=2,
        kind=FailureText.FALLBACK,
        only_with=("nccl-failed",),
    ),
    Signature(
        "nccl-networks-differ",
        ("wrong type ", "wrong socket type "),
        "The hosts do not use the same network: NCCL uses RDMA on one and TCP on another, so they cannot communicate.",
        "Compare the 'Using network' lines of all hosts (-x NCCL_DEBUG=INFO shows them). On a host that uses "
        "Socket, RDMA is not available: run ibv_devinfo there, and check that the container has /dev/infiniband. -x NCCL_IB_DISABLE=1 makes all hosts use TCP.",
        # ncclSocketType: 3 is that of sockets' transport, 4 that of InfiniBand's
        r"socket\w*: wrong type (?:3 != 4|4 != 3)\b|wrong socket type \(peer (?:3 != expected 4|4 != expected 3)\b",
    ),
    Signature(
        "nccl-local-sockets",
        ("with family 1 is neither",),
        "Two ranks of {host} cannot connect to each other: P2P and shared memory are both turned off there.",
        "Unset NCCL_P2P_DISABLE or NCCL_SHM_DISABLE. NCCL 2.29 fails in this case; other versions use the network instead.",
        r"connecting to address\s+with family 1 is neither",
    ),
    Signature(
        "nccl-libfabric",
        ("NET/OFI Couldn't ", "NET/OFI Creating new endpoint"),
        "NCCL's plugin for libfabric (on AWS: EFA) cannot use a device of {host}: {what}.",
        "On {host}: fi_info -p efa (or the provider that the log names), ulimit -l where the ranks run, dmesg -T | grep -i efa. -x NCCL_NET_PLUGIN=none continues over TCP.",
        r"NET/OFI (?P<what>(?:Couldn't (?:create|allocate|bind|enable|open|get|register) |Creating new endpoint [^\r\n]{0,80}failed: )[^\r\n]*[^\s.])",
        unless=("slingshot-no-vni",),
    ),
    Signature(
        "nccl-sizes-differ",
        ("collective mismatch error", "Mismatched collective detected", "posted incorrect receive info"),
        "Two ranks disagree: what one sends is not what the other expects[[one?: {one} bytes here, {other} there]]"
        "[[peer? ({peer})]].",
        "Use the same NCCL and the same NCCL_* variables on all hosts. If they are the same already, the ranks call "
        "different collectives: -x TORCH_DISTRIBUTED_DEBUG=DETAIL shows where.",
        r"(?:peer (?P<peer>[^\s<]+)\S* )?collective mismatch error,? local size (?P<one>\d+) remote (?:size )?(?P<other>\d+)"
        r"|Mismatched collective detected|posted incorrect receive info",
    ),
    Signature(
        "nccl-dmabuf",
        ("ibv_reg_dmabuf_mr",),
        "An RDMA device of {host} cannot use GPU memory by DMA-BUF: {why}.",
        "Run modprobe nvidia-peermem on {host} and set -x NCCL_DMABUF_ENABLE=0, or install a newer kernel and RDMA driver. To run without GPUDirect: -x "
        "NCCL_NET_GDR_LEVEL=LOC.",
        r"ibv_reg_dmabuf_mr\w* failed(?: with error)?:? ?(?P<why>[^\r\n,]*[^\s,.])",
    ),
    Signature(
        "nccl-memory-not-registered",
        ("ibv_reg_mr",),
        "An RDMA device of {host} cannot register GPU memory ({why}): GPUDirect RDMA does not work there.",
        "On {host}: lsmod | grep peermem (if it is not loaded: modprobe nvidia-peermem), and dmesg -T | tail. -x NCCL_NET_GDR_LEVEL=LOC continues without "
        "GPUDirect.",
        r"ibv_reg_mr\w* failed(?: with error)?:? ?(?P<why>Bad address|Invalid argument)",
    ),
    Signature(
        "nccl-device-event",
        ("async event",),
        "An RDMA queue or device of {host}[[device? ({device})]] reported: {why}. Errors about completions on other hosts are a consequence of this.",
        "[[hardware?The HCA itself failed: dmesg -T | grep -i mlx on {host}. Reset it or update its firmware, and leave {host} out with "
        "--exclude {host} until then||An access violation means memory that was freed or never registered: use the same NCCL and driver on "
        "all hosts, and -x NCCL_NET_GDR_LEVEL=LOC to see whether GPUDirect is at fault. dmesg -T | grep -i mlx5 on {host}]].",
        rf"NET/IB ?: (?:(?P<device>[\w.-]+:\d+) )?Got (?:non-fatal )?async event ?: (?=(?P<hardware>local cata)?)(?P<why>{_EVENTS})",
    ),
    Signature(
        "nccl-too-many-peers",
        ("peer mapping resources exhausted", "CUDA_ERROR_TOO_MANY_PEERS"),
        "A GPU of {host} requires direct access to more than 8 other GPUs, the limit of CUDA.",
        "[[one?One process uses all of them, as nccl-tests does with -g: start one process per GPU (mpirun -np N, -g 1)||-x "
        "NCCL_P2P_LEVEL=PXB limits direct access to GPUs that are near each other; with -x NCCL_P2P_DISABLE=1, NCCL uses shared memory instead]].",
        r"(?:(?P<one>allocator\.cc):\d+ NCCL WARN Cuda failure [\d ']{0,20})?(?:peer mapping resources exhausted|CUDA_ERROR_TOO_MANY_PEERS)",
    ),
    Signature(
        "nccl-retries",
        ("Call to connect returned", ", retrying"),
        "NCCL on {host} cannot connect to [[peer?{peer}||another rank]] and keeps trying ({why}): the hosts do not share the network that "
        "it chose, or a firewall is in between.",
        "Name the network: -x NCCL_SOCKET_IFNAME==bond0. If NCCL's line 'NET/Socket : Using' shows names like "
        "veth0, docker0 or virbr0, or addresses like fe80:..., it chose a network that does not connect hosts.",
        r"(?:Call to connect|onnect to (?P<peer>[^\s<]+)\S*) returned (?P<why>[^,\r\n]+), retrying",
        kind=FailureText.FALLBACK,
        at_end=", retrying",
    ),
    Signature(
        "nccl-gid-unreadable",
        ("ncclIbRoceGetVersionNum",),
        "NCCL on {host} cannot read the type of a GID of an HCA. This happens in a container that sees HCAs of other network namespaces.",
        "Set -x NCCL_IB_GID_INDEX=N to the index that show_gids lists in the container (RoCE v2 with the IPv4 "
        "address), or use NCCL 2.26 or newer. With NCCL_IB_HCA, limit NCCL to the container's own HCAs.",
        r"(?:open|read) failed in ncclIbRoceGetVersionNum",
    ),
    Signature(
        "nccl-last-words",
        ("NCCL WARN ",),
        "NCCL's last message on {host}: {what}.",
        "Run it again with -x NCCL_DEBUG=INFO and read the lines before that one, on every host.",
        r"NCCL WARN (?!Missing |MSCCL|Failed to open libibverbs|\S+ set by environment|NET/IB ?: No device)(?P<what>[^\r\n]*[^\s.])",
        kind=FailureText.FALLBACK,
        unless=("nccl-proxy-failed", "nccl-failed", "nccl-start-failed", "nccl-retries", "nccl-foreign-connection"),
        at_end=r"NCCL WARN ",
    ),
    Signature(
        "nccl-tests-gpus",
        ("invalid device ordinal",),
        "nccl-tests on {host} requests more GPUs than it sees there: -g counts the GPUs of each process.",
        "-g 1 with one process per GPU (mpirun -np N), or one process per host with -g 8.",
        r"Test CUDA failure [\w.]+:\d+ 'invalid device ordinal'",
    ),
    Signature(
        "nccl-gpu-code",
        ("named symbol not found",),
        "The NCCL of {host} has no code that runs on this GPU with this driver (named symbol not found).",
        "Use an NCCL that is built for the driver's CUDA version and supports the GPU: nvidia-smi shows both, and "
        "-x NCCL_DEBUG=VERSION shows the NCCL that is loaded. If torch brings its own NCCL (pip list | grep nccl), remove any other from LD_LIBRARY_PATH.",
        r"(?:NCCL WARN |^|Test )(?:Cuda|CUDA) failure (?:[\w./]+:\d+ )?(?:\d+ )?'?named symbol not found",
    ),
    Signature(
        "nccl-proxy-failed",
        ("NCCL WARN Proxy Call to rank ",),
        "A request ({what}) from NCCL on {host} to rank {rank} on the same host failed.",
        "Read the NCCL WARN lines of rank {rank}: they show the reason. If there are no such lines, set -x NCCL_DEBUG=INFO for all ranks. If NCCL_HOSTID is set, it must differ between hosts.",
        r"Proxy Call to rank (?P<rank>\d+) failed \((?P<what>\w+)\)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "nccl-ofi-no-provider",
        (
            *(
                "Could not find any optimal provider",
                "No eligible providers were found",
                "Only EFA provider is supported",
            ),
        ),
        "NCCL's plugin for libfabric (on AWS: EFA) found no network on {host} that it can use.",
        "Run fi_info -p efa where the ranks run. A container needs docker run --device /dev/infiniband and the EFA software "
        "in its image; unset FI_PROVIDER. -x NCCL_NET_PLUGIN=none continues over TCP.",
        r"NET/OFI (?:Could not find any optimal provider|No eligible providers were found|Only EFA provider is supported)",
    ),
    Signature(
        "slingshot-no-vni",
        ("Failed to find valid default rgroup and vni",),
        "The processes of {host} have no right to use the Slingshot network: no network identifier (VNI) was given to them for {device}.",
        "Start the job through the scheduler (srun), which gives a VNI to its steps (env | grep SLINGSHOT shows it); a container needs those variables, too. Use a "
        "newer aws-ofi-nccl and libfabric.",
        r"valid default rgroup and vni for (?P<device>\w+)",
    ),
    Signature(
        "nccl-ofi-request",
        ("completed with error. RC: ",),
        "A message of {host} failed in libfabric (on AWS: EFA): code {code} ({why}). Another rank has ended, or cannot be reached.",
        "Look for the rank that ended first. If none did: the EFA security group needs rules that allow all traffic to and from itself. "
        "Compare the versions of EFA and aws-ofi-nccl on all hosts.",
        r"NET/OFI Request[^\r\n]{0,40} completed with error\. RC: (?P<code>\d+)\. Error: (?P<why>[^\r\n]{0,160}[^\s.])",
    ),
    Signature(
        "nccl-graph-file",
        ("XML Import Channel",),
        "NCCL on {host} reads a graph file that was made for another set of GPUs: the host has no device {device}.",
        "Remove NCCL_GRAPH_FILE: from the environment, /etc/nccl.conf and ~/.nccl.conf.",
        r"XML Import Channel ?: dev (?P<device>\d+) not found",
    ),
    Signature(
        "nccl-ring-broken",
        ("does not loop back to start", " does not contain rank "),
        "NCCL mixes up hosts: {what}. Several hosts have the same identity, or the ranks see different topologies.",
        "Unset NCCL_HOSTID and NCCL_TOPO_FILE. Compare hostname and cat /proc/sys/kernel/random/boot_id on all hosts: both must differ.",
        r"NCCL WARN Error ?: (?P<what>ring \d+ does not [^\r\n]*\S)",
    ),
    Signature(
        "nccl-usb-interface",
        ("is not a PCI device (usb)",),
        "NCCL on {host} includes a network interface on USB in its topology, which this version does not support.",
        "Name the network: -x NCCL_SOCKET_IFNAME==bond0, without the USB interface (ip -br addr); or use a newer NCCL.",
        only_with=("nccl-topology",),
    ),
    Signature(
        "nccl-ras-differ",
        ("operation counts",),
        "NCCL's RAS reports that the ranks are out of step: they have started different numbers of {what}[[at?: {most} ranks are at {at}, {few} "
        "at {other}]][[rank?, including rank {rank}]].",
        "While they hang, taco-launch stacks JOB (or py-spy dump --pid PID on ranks of both groups) shows where they are. Every rank has to call the same collectives in the same order.",
        r"Communicator ranks have different (?P<what>\w+) operation counts(?:\s{1,9}(?P<most>\d+) ranks? ha\w+ launched up to operation (?P<at>\d+)"
        r"\s{1,9}(?P<few>\d+) ranks? ha\w+ launched up to operation (?P<other>\d+)(?:\s{1,9}Rank (?P<rank>\d+) -- GPU \S+ managed by process \d+ on node "
        r"(?P<host>\S+))?)?",
        lines=4,
    ),
    Signature(
        "nccl-ofi-memory",
        ("NET/OFI Unable to register memory",),
        "NCCL's plugin for libfabric (on AWS: EFA) cannot register memory with device {device} of {host} ({why}).",
        "[[argument?To register GPU memory, NCCL 2.19 and newer needs EFA installer 1.29.1 or newer, or -x FI_EFA_SET_CUDA_SYNC_MEMOPS=0||ulimit -l must show unlimited where the "
        "ranks run (docker run --ulimit memlock=-1:-1)]]. Use the same EFA installer on all hosts and in the image.",
        r"Unable to register memory(?: \(type = \w+\))? for device (?P<device>\d+)\. RC: (?P<code>-?\d+),? E\w+: (?=(?P<argument>Invalid argument)?)(?P<why>[^\r\n]{0,120}[^\s.])",
    ),
)
