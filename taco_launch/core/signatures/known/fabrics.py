"""Failure messages of UCX, libfabric and the kernel's RDMA drivers about networks and memory.

Sources: UCX's uct/ib/mlx5, uct/tcp, uct/cuda, uct/sm/scopy/cma and ucp/core; libfabric's prov/efa, psm2 and psm3.
"""

from taco_launch.core.signatures.known import FailureText, Signature

UCX = (
    Signature(
        "ucx-without-cuda",
        keys=("no copy across memory types transport",),
        cause="UCX on {host} was built without CUDA support, but the program uses the memory of a GPU.",
        next="ucx_info -d | grep cuda must list cuda_copy. Install a UCX that is built --with-cuda (NVIDIA's HPC-X has one), or leave UCX "
        "out: --mca pml ob1 --mca btl tcp,self,vader (5.0: sm instead of vader).",
        pattern=r"UCX +ERROR +no copy across memory types transport",
    ),
    Signature(
        "ucx-unreachable",
        keys=("no active messages transport to", "Failed to connect to proc:"),
        cause="UCX on {host} has no device that reaches another rank: the hosts' devices or subnets differ, or UCX_NET_DEVICES and UCX_TLS "
        "leave none.",
        next="Compare ucx_info -d on both hosts, and select a device that both have: -x UCX_NET_DEVICES=mlx5_0:1. To run without UCX: --mca pml ob1 --mca btl "
        "tcp,self.",
        pattern=r"UCX +ERROR no active messages transport to|pml_ucx\.c:\d+ +Error: Failed to connect to proc",
        unless=("ucx-connect",),
    ),
    Signature(
        "ucx-cuda-context",
        keys=("invalid device context",),
        cause="UCX on {host} was given GPU memory by a thread that has no CUDA context for that GPU.",
        next="Use one GPU per rank (CUDA_VISIBLE_DEVICES, torch.cuda.set_device), the nccl backend of torch.distributed, or a newer UCX.",
        pattern=r"UCX +ERROR [^\r\n]*invalid device context",
    ),
    Signature(
        "ucx-memory-not-shared",
        keys=("Error returned from open in attach", "mm_posix.c:"),
        cause="Ranks on {host} cannot share memory: UCX cannot open the memory of another rank. The ranks run in separate "
        "containers, or the other rank has ended.",
        next="Run all ranks of a host in one container, or each with docker run --ipc=host --pid=host. -x "
        "UCX_POSIX_USE_PROC_LINK=n makes UCX use /dev/shm instead.",
        pattern=r"mm_posix\.c:\d+ +UCX +ERROR|UCX +ERROR[^\r\n]*open in attach",
    ),
    Signature(
        "ucx-device-missing",
        keys=("network device '",),
        cause="UCX has no device {device} on {host}.",
        next="List its devices: ucx_info -d | grep Device. Correct UCX_NET_DEVICES (mlx5_0:1 for RDMA, eth0 for TCP).",
        pattern=r"network device '(?P<device>[^']+)' is not available",
    ),
    Signature(
        "ucx-retry-exceeded",
        keys=("Transport retry count exceeded",),
        cause="An RDMA message that UCX sent over {device} got no answer: the other host is gone, or the GID index, the network or "
        "its lossless settings are wrong.",
        next="Check the link (ibstat, show_gids), and set UCX_IB_GID_INDEX to the RoCE v2 IPv4 index; without RDMA: --mca "
        "pml ob1 --mca btl tcp,self.",
        pattern=r"Transport retry count exceeded on (?P<device>\S+)",
    ),
    Signature(
        "ucx-no-path",
        keys=("ibv_create_ah(",),
        cause="UCX on {host} found no route to the other host's RDMA address[[peer? {peer}]] over [[device?{device}||its device]]: their networks are "
        "not connected, or the GID index[[index? ({index})]] belongs to the wrong network.",
        next="ping that address[[device? from the interface of {device}]] (ibdev2netdev shows its name). Run show_gids, and "
        "set UCX_IB_GID_INDEX to the RoCE v2 index with the IPv4 address. Without RDMA: --mca pml ob1 --mca btl tcp,self.",
        # Each part by itself, as an assertion is not tried again: else a line made for it takes minutes.
        pattern=r"ibv_create_ah\((?=(?:[^)\r\n]{0,300}?dgid=(?P<peer>[^\s)]{1,64}))?)(?=(?:[^)\r\n]{0,300}?sgid_index=(?P<index>\d{1,4}))?)"
        r"[^)\r\n]{0,400}\)(?=(?:[^\r\n]{1,30}? on (?P<device>[^\s:]{1,32}(?::\d{1,3})?))?)(?=[^\r\n]{0,300}?(?:failed|timed out))",
    ),
    Signature(
        "ucx-docker-bridge",
        keys=("dest_addr=172.17.",),
        cause="UCX on {host} was given {peer}, the address of Docker's bridge on every host, and so connected to itself.",
        next="Name the network that the hosts share: -x UCX_NET_DEVICES=mlx5_0:1 (or eth0); for Open MPI's own traffic, add "
        "--mca btl_tcp_if_include 10.0.0.0/24.",
        pattern=r"UCX +ERROR +connect\([^)\r\n]*dest_addr=(?P<peer>172\.17\.[\d.]+)",
    ),
    Signature(
        "ucx-connect",
        keys=("dest_addr=",),
        cause="UCX on {host} cannot connect to {peer} ({why}): a firewall blocks it, or the address is on a network that the hosts do not share.",
        next="ip route get {peer} on {host} shows the route. Name the network: -x UCX_NET_DEVICES=mlx5_0:1 (or eth0). To "
        "run without UCX: --mca pml ob1 --mca btl tcp,self,vader (5.0: sm instead of vader).",
        pattern=r"UCX +ERROR +connect\([^)\r\n]*dest_addr=(?P<peer>[^\s:)]+)[^)\r\n]*\) failed: (?P<why>[^\r\n]*\S)",
        unless=("ucx-docker-bridge",),
    ),
    Signature(
        "ucx-endpoint",
        keys=("Failed to resolve UCX endpoint for rank",),
        cause="UCX has no connection to rank {rank}.",
        next="Look at the UCX ERROR lines above this one, and at the host of that rank. To run without UCX: --mca pml ob1 "
        "--mca btl tcp,self,vader (5.0: sm instead of vader).",
        pattern=r"Failed to resolve UCX endpoint for rank (?P<rank>\d+)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "ucx-memory-refused",
        keys=("ib_mlx5_log.c:",),
        cause="The HCA {device} of {host} was denied access to memory that UCX gave it ({what}). Most often it is GPU memory "
        "whose PCIe path to the HCA is blocked.",
        next="On {host}, lsmod | grep peermem must show a module, and PCI ACS and the IOMMU must be off (lspci -vvv | grep "
        "ACSCtl). -x UCX_IB_GPU_DIRECT_RDMA=n turns GPUDirect RDMA off.",
        pattern=r"ib_mlx5_log\.c:\d+ +(?:UCX +\w+ +)?(?P<what>Local protection|Local access|Remote access)[\w ]* on (?P<device>\w+)",
    ),
    Signature(
        "ucx-no-cuda",
        keys=("'cuda_copy'", "'cuda_ipc'", "cuda_copy is not available"),
        cause="UCX on {host} has no CUDA support ({names} not available), so it treats GPU memory as host memory.",
        next="ucx_info -d | grep cuda shows its CUDA transports. Use a UCX built with CUDA, and put the driver's "
        "libcuda.so.1 first in LD_LIBRARY_PATH. To run without UCX: --mca pml ob1.",
        pattern=r"UCX +WARN +transports? (?P<names>'?cuda_(?:copy|ipc)'?(?:,'?\w+'?)*) (?:is|are) not available",
    ),
    Signature(
        "ucx-register",
        keys=("reg_mr(address=",),
        cause="UCX on {host} could not register memory with the HCA ({why}): it is GPU memory, and either no peer-memory "
        "module is loaded or UCX has no CUDA support.",
        next="On {host}, check lsmod | grep peermem and ucx_info -d | grep cuda. -x UCX_IB_GPU_DIRECT_RDMA=n turns GPUDirect RDMA off.",
        pattern=r"UCX +ERROR +ibv_(?:exp_)?reg_mr\([^)]*\)\s+failed: (?P<why>Bad address|Invalid argument)",
        lines=2,
        unless=("ucx-no-cuda",),
    ),
    Signature(
        "ucx-memory-pool",
        keys=("Failed to allocate memory pool", "failed: Resource temporarily unavailable"),
        cause="UCX on {host} cannot register more memory for its HCA: the memlock limit is too low, or the HCA's table of registered memory is full.",
        next="Run ulimit -l through mpirun: it must show unlimited. For mlx4, set a larger log_num_mtt (/etc/modprobe.d/mlx4_core.conf). -x UCX_TLS=tcp,sm,self shows whether "
        "the rest works.",
        pattern=r"UCX +ERROR +(?:Failed to allocate memory pool \(name=\w+\) chunk: Input/output error"
        r"|ibv_(?:exp_)?reg_mr\([^\r\n]*\) failed: Resource temporarily unavailable)",
        unless=("memlock",),
    ),
    Signature(
        "ucx-cuda-ipc",
        keys=("failed to open ipc mem handle",),
        cause="UCX on {host} cannot map the GPU memory of another rank (CUDA IPC)[[why?: {why}]].",
        next="To continue without CUDA IPC: -x UCX_TLS=^cuda_ipc. 'Element already exists' means that the program has already opened that memory itself; newer UCX versions allow this. "
        "Otherwise every rank must see all GPUs of its host, and containers on one host require --ipc=host.",
        pattern=r"failed to open ipc mem handle(?:[^\r\n(]{0,200}\((?P<why>[^)\r\n]{1,80})\))?",
    ),
    Signature(
        "ucx-gid",
        keys=("UCX  ERROR Invalid gid[", "UCX ERROR Invalid gid[", "ERROR ibv_query_gid(dev="),
        cause="UCX on {host} found no address at index {index} of the RDMA device {device}: the interface of that device has no IP address or is down, or the index is "
        "wrong.",
        next="show_gids {device} lists the indices in use, and ibdev2netdev shows the interface. Leave UCX_IB_GID_INDEX "
        "unset, or set it to the RoCE v2 index with the IPv4 address. Name only devices that have an address: -x UCX_NET_DEVICES=mlx5_0:1 (set it on each host where names differ).",
        pattern=r"UCX +ERROR Invalid gid\[(?P<index>\d+)\] on (?P<device>\w+)"
        r"|UCX +ERROR ibv_query_gid\(dev=(?P<device2>\w+) port=\d+ index=(?P<index2>\d+)\) failed",
    ),
    Signature(
        "ucx-out-of-memory",
        keys=("failed: Out of memory", "failed to allocate address list"),
        cause="UCX on {host} ran out of memory for its connections[[peer? (when connecting to rank {peer})]]: each rank needs some memory for every other rank.",
        next="Check free -h, ulimit -v and ulimit -l on {host} where the ranks run, or use fewer ranks per host. -x UCX_TLS=ud,sm,self (mlx5: dc instead of ud) needs less memory per connection than rc.",
        pattern=r"pml_ucx\.c:\d+ +Error: ucp_ep_create\(proc=(?P<peer>\d+)\) failed: Out of memory|UCX +ERROR +failed to allocate address list",
    ),
    Signature(
        "ucx-address",
        keys=("failed to unpack address",),
        cause="UCX on {host} cannot use the address that another rank gave it ({why}): the ranks have different versions of UCX, or the speed of a device is not known.",
        next="ucx_info -v must show one version on all hosts and in all images. If it does: -x UCX_NET_DEVICES=mlx5_0:1 (or eth0) selects one working device; ibstat and ethtool show the speed of each "
        "device.",
        pattern=r"UCX +ERROR +failed to unpack address[,:]? *(?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "ucx-fatal",
        keys=("  Fatal: ", "  Assertion `"),
        cause="UCX itself ended a rank on {host}, in {where}: {why}.",
        next="Search UCX's issue tracker for that text: a newer version may have fixed it. To see whether UCX is the cause, "
        "run without it: --mca pml ob1 --mca btl tcp,self,vader (5.0: sm instead of vader).",
        pattern=r"^\[(?P<host>[\w.-]+):\d+ *:\d+:\d+\] +(?P<where>[\w.]+:\d+) +(?:UCX +)?(?P<why>(?:Fatal: |Assertion `)[^\r\n]{0,200}[^\s.])",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "ucx-cma-denied",
        keys=("returned -1: Operation not permitted", "returned -1: Bad address"),
        cause="A rank of {host} could not read another rank's memory directly (UCX's cma): [[memory?the kernel cannot read that address, most often because it is GPU memory||the "
        "kernel or the container does not allow it]].",
        next="[[memory?UCX needs CUDA support for that (ucx_info -d | grep cuda), and UCX_TLS must not exclude cuda_copy. Or turn cma off||In a container: docker run --cap-add SYS_PTRACE, and all "
        "ranks of a host in one container. Outside a container: sysctl kernel.yama.ptrace_scope=0. Or turn cma off]]: -x UCX_TLS=^cma.",
        pattern=r"process_vm_(?:readv|writev)\(pid=[^\r\n]{0,200}?returned -1: (?:Operation not permitted|(?P<memory>Bad address))",
    ),
    Signature(
        "ucx-registration",
        keys=("ibv_reg_mr(address=",),
        cause="The HCA of {host} could not register memory: it or the kernel has no room for more registrations, or the limit on locked memory is too low (newer versions of UCX report "
        "it if the limit is the cause).",
        next="ulimit -l must show unlimited where the ranks run. Check free memory with free -g on {host}. -x UCX_IB_REG_METHODS=direct turns off UCX's registration cache. Fewer ranks on the host, or larger pages, need fewer registrations.",
        pattern=r"UCX +ERROR ibv_reg_mr\(address=[^)\r\n]*\)[^\r\n]*? failed: Cannot allocate memory\s*$",
    ),
    Signature(
        "rdma-gid-missing",
        keys=("Failed to query GID ",),
        cause="The HCA {device} of {host} has no GID {index} on the port in use ({why}), so nothing can be sent over it.",
        next="On {host}, show_gids lists the GIDs, and ibv_devinfo -d {device} shows whether the port is active. Choose the RoCE v2 index with an IPv4 address. If the interface has no address, assign one.",
        pattern=r"Failed to query GID (?P<index>\d+) on (?P<device>[\w.-]+?)/\S*: (?P<why>[A-Z][\w ]+)",
    ),
    Signature(
        "ucx-queue-pairs",
        keys=("mlx5dv_devx_obj_create(QP) failed",),
        cause="UCX on {host} could not create a connection (queue pair) on the HCA ({why}): the ranks need more reliable connections than the HCA or the kernel allows.",
        next="-x UCX_TLS=dc_x,sm,self (or ud_x) needs far fewer, as does a job with fewer ranks per host. ulimit -l must show unlimited where the ranks run. Check dmesg -T | grep mlx5 on {host}.",
        pattern=r"mlx5dv_devx_obj_create\(QP\) failed[^\r\n:]*: (?P<why>[A-Z][\w ]+)",
    ),
    Signature(
        "psm-shared-memory",
        keys=("PSM could not set up shared memory segment",),
        cause="PSM2 or PSM3 (Omni-Path) on {host} could not open the shared memory of another rank of that host: /dev/shm is full, the containers of the ranks do not share it, or that rank has ended.",
        next="Run df -h /dev/shm and ls -l /dev/shm/psm* on {host}, and remove files that an older job left there. In containers: docker run --shm-size=32g, with all ranks of a host in one container.",
    ),
    Signature(
        "psm-assertion",
        keys=("Assertion failure at psm",),
        cause="PSM2 or PSM3 (Omni-Path) on {host} could not start: its assertion {what} failed.",
        next="Continue without it: --mca mtl ^psm2,psm3 --mca pml ob1 (MPICH, Intel MPI: -x FI_PROVIDER=tcp). opainfo on {host} shows the link; update libpsm2 and Open MPI.",
        pattern=r"Assertion failure at psm\w*\.c:\d+: (?P<what>[^\r\n]*\S)",
    ),
)

# libfabric's provider for EFA (prov/efa), and the kernel's driver for it
EFA = (
    Signature(
        "efa-memory",
        keys=(
            *(
                "Failure to post internal receive buffers",
                "for EFA's RX packet pool",
                "Unable to register MR: Cannot allocate memory",
            ),
            *("Failed to process command REG_MR", "Failed to register mr [", "Failed to process command ALLOC_PD"),
        ),
        cause="EFA on {host} could not register memory: [[device?the device {device} has no room for more registrations||the "
        "limit on locked memory is too low, or the device has no room for more registrations]].",
        next="ulimit -l must show unlimited where the ranks run: docker run --ulimit memlock=-1:-1, or LimitMEMLOCK of sshd or slurmd. If it does, try FI_EFA_USE_HUGE_PAGE=0, fewer processes on that host, or a newer "
        "EFA installer.",
        pattern=r"^(?:infiniband (?P<device>efa_\d+): )?(?:[^\r\n]*(?:Failure to post internal|RX packet pool|Unable to register MR: Cannot)|Failed to (?:process command (?:REG_MR|ALLOC_PD)"
        r"|register mr \[)[^\r\n]*-12)",
        unless=("nccl-ofi-memory",),
    ),
    Signature(
        "efa-failed",
        keys=("Libfabric EFA provider has encountered an internal error",),
        cause="libfabric's EFA provider ended a process on {host}[[why?: {why}]].",
        next="Run fi_info -p efa and dmesg -T | grep -i efa on {host}. Use the same version of the EFA installer on all hosts and in the image.",
        pattern=r"encountered an internal error:(?:[\s\S]{0,120}?EFA internal error: (?P<why>[^\r\n]{0,200}[^\s.]))?",
        kind=FailureText.FALLBACK,
        lines=4,
    ),
    Signature(
        "efa-peer-gone",
        keys=("efa_rdm_txe_handle_error", "efa_rdm_rxe_handle_error"),
        cause="An EFA operation failed: {why}[[peer? (peer: instance {peer})]]. Most often the process at the other end is gone.",
        next="Look for the rank that ended first[[peer?, on instance {peer}]]; if none did, set FI_LOG_LEVEL=warn on both sides, and use the same EFA installer and aws-ofi-nccl versions on all hosts.",
        pattern=r"efa_rdm_[tr]xe_handle_error[^\r\n]{0,40}err: \d+, message: (?P<why>[A-Z][\w ]*?\w)(?= My EFA| \(|\s*$)(?:[^\r\n]{0,400}?Peer host id: (?P<peer>[\w-]+))?",
        kind=FailureText.ECHO,
    ),
    Signature(
        "efa-fork",
        keys=("For the libfabric EFA provider to work safely when fork()",),
        cause="A rank started a process by fork while libfabric's EFA provider was in use, and the provider ended the rank, because fork is unsafe unless FI_EFA_FORK_SAFE is set.",
        next="Set -x FI_EFA_FORK_SAFE=1 -x RDMAV_FORK_SAFE=1 (some speed is lost), or do not fork after MPI or NCCL has started: use data loaders with multiprocessing_context='spawn' or num_workers=0.",
    ),
)
