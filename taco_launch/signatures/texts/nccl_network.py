"""What NCCL says of its networks: which it takes, what they refuse to register, and ranks that send what others do not expect.

Sources of 2.10 to 2.30: src/misc/socket.cc, misc/ibvwrap.cc, transport/net_ib; aws-ofi-nccl: nccl_ofi_ofiutils.cpp.
"""

from taco_launch.signatures.entry import FailureText, Signature

# ibv_event_type_str of libibverbs, of a queue or a device; not of a port, whose events are told elsewhere.
_EVENTS = (
    "local access violation work queue error|local work queue catastrophic error|invalid request local work queue error|"
    "local catastrophic error|SRQ catastrophic error|CQ error"
)

NCCL_NETWORK = (
    Signature(
        "nccl-networks-differ",
        ("wrong type ", "wrong socket type "),
        "The hosts do not use the same network: NCCL uses RDMA on one and TCP on another, so they do not understand each other.",
        "Compare the lines 'Using network' of all hosts (-x NCCL_DEBUG=INFO). Where it is Socket, RDMA is not to be had: ibv_devinfo "
        "there, and /dev/infiniband in the container. -x NCCL_IB_DISABLE=1 lets all use TCP.",
        # ncclSocketType: 3 is that of sockets' transport, 4 that of InfiniBand's
        r"socket\w*: wrong type (?:3 != 4|4 != 3)\b|wrong socket type \(peer (?:3 != expected 4|4 != expected 3)\b",
    ),
    Signature(
        "nccl-local-sockets",
        ("with family 1 is neither",),
        "Two ranks of {host} have no way to each other: P2P and shared memory are both turned off there.",
        "Leave NCCL_P2P_DISABLE or NCCL_SHM_DISABLE out. 2.29 fails so; other versions use the network.",
        r"connecting to address\s+with family 1 is neither",
    ),
    Signature(
        "nccl-libfabric",
        ("NET/OFI Couldn't ",),
        "NCCL's plugin for libfabric (EFA) cannot use a device of {host}: {what}.",
        "On {host}: fi_info -p efa, ulimit -l where the ranks run, dmesg -T | grep -i efa. -x NCCL_NET_PLUGIN=none continues over TCP.",
        r"NET/OFI (?P<what>Couldn't (?:create|allocate|bind|enable|open|get|register) [^\r\n]*[^\s.])",
    ),
    Signature(
        "nccl-sizes-differ",
        ("collective mismatch error", "Mismatched collective detected", "posted incorrect receive info"),
        "Two ranks do not do the same: what one sends is not what the other expects[[one?: {one} bytes here, {other} there]]"
        "[[peer? ({peer})]].",
        "The same NCCL and the same NCCL_* variables on all hosts; if they are, the ranks call different collectives: -x "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL.",
        r"(?:peer (?P<peer>[^\s<]+)\S* )?collective mismatch error,? local size (?P<one>\d+) remote (?:size )?(?P<other>\d+)"
        r"|Mismatched collective detected|posted incorrect receive info",
    ),
    Signature(
        "nccl-dmabuf",
        ("ibv_reg_dmabuf_mr",),
        "An RDMA device of {host} cannot use GPU memory by DMA-BUF: {why}.",
        "modprobe nvidia-peermem on {host} and -x NCCL_DMABUF_ENABLE=0; or a newer kernel and RDMA driver. Without GPUDirect: -x "
        "NCCL_NET_GDR_LEVEL=LOC.",
        r"ibv_reg_dmabuf_mr\w* failed(?: with error)?:? ?(?P<why>[^\r\n,]*[^\s,.])",
    ),
    Signature(
        "nccl-memory-not-registered",
        ("ibv_reg_mr",),
        "An RDMA device of {host} cannot register GPU memory ({why}): GPUDirect RDMA does not work there.",
        "On {host}: lsmod | grep peermem (modprobe nvidia-peermem), and dmesg -T | tail. -x NCCL_NET_GDR_LEVEL=LOC continues without "
        "GPUDirect.",
        r"ibv_reg_mr\w* failed(?: with error)?:? ?(?P<why>Bad address|Invalid argument)",
    ),
    Signature(
        "nccl-device-event",
        ("async event",),
        "An RDMA queue or device of {host}[[device? ({device})]] reported: {why}. What other hosts say of completions follows from it.",
        "An access violation is caused by memory that was freed or never registered: the same NCCL and driver on all hosts, and -x "
        "NCCL_NET_GDR_LEVEL=LOC to see whether GPUDirect is at fault. dmesg -T | grep -i mlx5 on {host}.",
        rf"NET/IB ?: (?:(?P<device>[\w.-]+:\d+) )?Got (?:non-fatal )?async event ?: (?P<why>{_EVENTS})",
    ),
    Signature(
        "nccl-too-many-peers",
        ("peer mapping resources exhausted", "CUDA_ERROR_TOO_MANY_PEERS"),
        "A GPU of {host} would have to reach more GPUs directly than CUDA lets it: more than 8 others.",
        "-x NCCL_P2P_LEVEL=PXB keeps to GPUs that are near each other; -x NCCL_P2P_DISABLE=1 continues over shared memory.",
    ),
    Signature(
        "nccl-retries",
        ("Call to connect returned", ", retrying"),
        "NCCL on {host} tries in vain to connect to [[peer?{peer}||another rank]] ({why}): the network that it has taken is none "
        "that the hosts share, or a firewall is between.",
        "Name the network: -x NCCL_SOCKET_IFNAME==bond0. Names like veth0, docker0 and virbr0, and addresses fe80:..., in its line "
        "'NET/Socket : Using' are none between hosts.",
        r"(?:Call to connect|onnect to (?P<peer>[^\s<]+)\S*) returned (?P<why>[^,\r\n]+), retrying",
        kind=FailureText.FALLBACK,
        at_end=", retrying",
    ),
)
