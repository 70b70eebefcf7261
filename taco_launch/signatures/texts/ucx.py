"""What UCX prints of connections and of memory that it may not reach. Source: UCX's uct/ib/mlx5, uct/tcp and ucp/core."""

from taco_launch.signatures.entry import FailureText, Signature

UCX = (
    Signature(
        "ucx-unreachable",
        ("no active messages transport to", "Failed to connect to proc:"),
        "UCX on {host} has no device that reaches another rank: the hosts' devices or subnets differ, or UCX_NET_DEVICES and UCX_TLS "
        "leave none.",
        "Compare ucx_info -d on both hosts; -x UCX_NET_DEVICES=mlx5_0:1 names one that both have. Without UCX: --mca pml ob1 --mca btl "
        "tcp,self.",
        r"UCX +ERROR no active messages transport to|pml_ucx\.c:\d+ +Error: Failed to connect to proc",
        unless=("ucx-connect",),
    ),
    Signature(
        "ucx-cuda-context",
        ("invalid device context",),
        "UCX on {host} was given GPU memory by a thread that has no CUDA context of that GPU.",
        "One GPU for each rank (CUDA_VISIBLE_DEVICES, torch.cuda.set_device), backend nccl for torch.distributed, or a newer UCX.",
        r"UCX +ERROR [^\r\n]*invalid device context",
    ),
    Signature(
        "ucx-memory-not-shared",
        ("Error returned from open in attach", "mm_posix.c:"),
        "Ranks of {host} do not share their memory: UCX cannot open what another one offers. They run in containers of their own, "
        "or that rank has ended.",
        "Run all ranks of a host in one container, or each with docker run --ipc=host --pid=host. -x UCX_POSIX_USE_PROC_LINK=n "
        "continues by /dev/shm.",
        r"mm_posix\.c:\d+ +UCX +ERROR|UCX +ERROR[^\r\n]*open in attach",
    ),
    Signature(
        "ucx-device-missing",
        ("network device '",),
        "UCX has no device {device} on {host}.",
        "See what there is: ucx_info -d | grep Device. Correct UCX_NET_DEVICES (mlx5_0:1 for RDMA, eth0 for TCP).",
        r"network device '(?P<device>[^']+)' is not available",
    ),
    Signature(
        "ucx-retry-exceeded",
        ("Transport retry count exceeded",),
        "An RDMA message of UCX got no answer over {device}: the other host is gone, or the GID index, the network or "
        "its lossless settings are wrong.",
        "Check the link (ibstat, show_gids), and set UCX_IB_GID_INDEX to the RoCE v2 IPv4 index; without RDMA: --mca "
        "pml ob1 --mca btl tcp,self.",
        r"Transport retry count exceeded on (?P<device>\S+)",
    ),
    Signature(
        "ucx-no-path",
        ("ibv_create_ah(",),
        "UCX on {host} found no way to the other host's RDMA address[[peer? {peer}]] over [[device?{device}||its device]]: their networks are "
        "not connected, or the GID index[[index? ({index})]] is of the wrong network.",
        "ping that address[[device? from the interface of {device}]] (ibdev2netdev names it); show_gids, and "
        "UCX_IB_GID_INDEX= the index of RoCE v2 with the IPv4 address. Without RDMA: --mca pml ob1 --mca btl tcp,self.",
        # Each part by itself, as an assertion is not tried again: else a line made for it takes minutes.
        r"ibv_create_ah\((?=(?:[^)\r\n]{0,300}?dgid=(?P<peer>[^\s)]{1,64}))?)(?=(?:[^)\r\n]{0,300}?sgid_index=(?P<index>\d{1,4}))?)"
        r"[^)\r\n]{0,400}\)(?=(?:[^\r\n]{1,30}? on (?P<device>[^\s:]{1,32}(?::\d{1,3})?))?)(?=[^\r\n]{0,300}?(?:failed|timed out))",
    ),
    Signature(
        "ucx-docker-bridge",
        ("dest_addr=172.17.",),
        "UCX on {host} was given the address {peer} of Docker's bridge, which every host has, and called itself.",
        "Name the network that the hosts share: -x UCX_NET_DEVICES=mlx5_0:1 (or eth0); for Open MPI's own traffic --mca "
        "btl_tcp_if_include 10.0.0.0/24.",
        r"UCX +ERROR +connect\([^)\r\n]*dest_addr=(?P<peer>172\.17\.[\d.]+)",
    ),
    Signature(
        "ucx-connect",
        ("dest_addr=",),
        "UCX on {host} cannot connect to {peer} ({why}): a firewall, or an address of a network that the hosts do not share.",
        "ip route get {peer} on {host} shows which way it goes. Name the network: -x UCX_NET_DEVICES=mlx5_0:1 (or eth0); "
        "without UCX: --mca pml ob1 --mca btl tcp,self,vader (5.0: sm for vader).",
        r"UCX +ERROR +connect\([^)\r\n]*dest_addr=(?P<peer>[^\s:)]+)[^)\r\n]*\) failed: (?P<why>[^\r\n]*\S)",
        unless=("ucx-docker-bridge",),
    ),
    Signature(
        "ucx-endpoint",
        ("Failed to resolve UCX endpoint for rank",),
        "UCX has no connection to rank {rank}.",
        "Look at the UCX ERROR lines above it, and at the host of that rank; without UCX: --mca pml ob1 --mca btl "
        "tcp,self,vader (5.0: sm for vader).",
        r"Failed to resolve UCX endpoint for rank (?P<rank>\d+)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "ucx-memory-refused",
        ("ib_mlx5_log.c:",),
        "The HCA {device} of {host} may not reach the memory that UCX named ({what}): most often GPU memory, whose way over "
        "PCIe to the HCA is blocked.",
        "On {host}: lsmod | grep peermem; PCI ACS and the IOMMU have to be off (lspci -vvv | grep ACSCtl). -x "
        "UCX_IB_GPU_DIRECT_RDMA=n continues without GPUDirect RDMA.",
        r"ib_mlx5_log\.c:\d+ +(?:UCX +\w+ +)?(?P<what>Local protection|Local access|Remote access)[\w ]* on (?P<device>\w+)",
    ),
    Signature(
        "ucx-no-cuda",
        ("'cuda_copy'", "'cuda_ipc'", "cuda_copy is not available"),
        "The UCX of {host} has no CUDA ({names} not available), so it takes GPU memory for the host's.",
        "ucx_info -d | grep cuda shows what it has. Use a UCX built with CUDA, and have the driver's libcuda.so.1 first in "
        "LD_LIBRARY_PATH; without UCX: --mca pml ob1.",
        r"UCX +WARN +transports? (?P<names>'?cuda_(?:copy|ipc)'?(?:,'?\w+'?)*) (?:is|are) not available",
    ),
    Signature(
        "ucx-register",
        ("reg_mr(address=",),
        "UCX on {host} could not register memory with the HCA ({why}): GPU memory, and no peer-memory module is loaded or UCX "
        "has no CUDA.",
        "On {host}: lsmod | grep peermem; ucx_info -d | grep cuda. -x UCX_IB_GPU_DIRECT_RDMA=n continues without GPUDirect RDMA.",
        r"UCX +ERROR +ibv_(?:exp_)?reg_mr\([^)]*\)\s+failed: (?P<why>Bad address|Invalid argument)",
        lines=2,
        unless=("ucx-no-cuda",),
    ),
    Signature(
        "ucx-memory-pool",
        ("Failed to allocate memory pool", "failed: Resource temporarily unavailable"),
        "UCX on {host} gets no more memory that its HCA may use: the memlock limit is too low, or the HCA's table of registered memory is full.",
        "ulimit -l through mpirun (unlimited is right); mlx4: a larger log_num_mtt (/etc/modprobe.d/mlx4_core.conf). -x UCX_TLS=tcp,sm,self shows whether "
        "the rest works.",
        r"UCX +ERROR +(?:Failed to allocate memory pool \(name=\w+\) chunk: Input/output error"
        r"|ibv_(?:exp_)?reg_mr\([^\r\n]*\) failed: Resource temporarily unavailable)",
        unless=("memlock",),
    ),
)
