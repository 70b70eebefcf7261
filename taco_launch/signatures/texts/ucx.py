"""What UCX prints of connections and of memory that it may not reach. Source: UCX's uct/ib/mlx5, uct/tcp and ucp/core."""

from taco_launch.signatures.entry import FailureText, Signature

UCX = (
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
)
