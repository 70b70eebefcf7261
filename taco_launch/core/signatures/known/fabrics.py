"""Failure messages of UCX, libfabric and the kernel's RDMA drivers about networks and memory.

Sources: UCX's uct/ib, uct/tcp, uct/cuda, uct/sm, ucp and ucs; libfabric's prov/efa, psm2 and psm3.
"""

from taco_launch.core.signatures.known import FailureText, Signature

UCX = (
    Signature(
        "ucx-without-cuda",
        keys=("no copy across memory types transport",),
        cause="UCX on {host} was built without CUDA support, but the program uses the memory of a GPU.",
        next="Install a UCX that is built --with-cuda (NVIDIA's HPC-X has one), so that ucx_info -d | grep cuda lists cuda_copy. To leave UCX out: --mca pml ob1 "
        "--mca btl tcp,self,vader (5.0: sm instead of vader).",
        pattern=r"UCX +ERROR +no copy across memory types transport",
    ),
    Signature(
        "ucx-unreachable",
        keys=(" transport to ", "Failed to connect to proc:"),
        cause="UCX on {host} has no device that reaches another rank: the hosts' devices or subnets differ, or UCX_NET_DEVICES and UCX_TLS "
        "leave none.",
        next="Compare ucx_info -d on both hosts, and select a device that both have: -x UCX_NET_DEVICES=mlx5_0:1. To run without UCX: --mca pml ob1 --mca btl "
        "tcp,self.",
        pattern=r"UCX +ERROR +no (?!copy across)[\w -]{1,60} transport to|pml_ucx\.c:\d+ +Error: Failed to connect to proc",
        unless=("ucx-connect",),
    ),
    Signature(
        "ucx-cuda-context",
        keys=("invalid device context", "no cuda context bound to calling thread"),
        cause="UCX on {host} was given GPU memory by a thread that has no CUDA context for that GPU.",
        next="Use one GPU per rank (CUDA_VISIBLE_DEVICES, torch.cuda.set_device), the nccl backend of torch.distributed, or a newer UCX.",
        pattern=r"UCX +ERROR [^\r\n]*(?:invalid device context|no cuda context bound)",
    ),
    Signature(
        "ucx-memory-not-shared",
        keys=("Error returned from open in attach", "mm_posix.c:"),
        cause="Ranks on {host} cannot share memory: UCX cannot open the memory of another rank. The ranks run in separate "
        "containers, or the other rank has ended.",
        next="Run all ranks of a host in one container, or each with docker run --ipc=host --pid=host. -x "
        "UCX_POSIX_USE_PROC_LINK=n makes UCX use /dev/shm instead.",
        pattern=r"mm_posix\.c:\d+ +UCX +ERROR (?! *(?:Not enough memory|shared memory allocation))|UCX +ERROR[^\r\n]*open in attach",
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
        cause="An RDMA message that UCX sent over {device} got no answer: the other host is gone, or [[ib?a link or switch of the InfiniBand fabric fails||the GID index, the network or "
        "its lossless settings are wrong]].",
        next="[[ib?Check that the other host is alive, the port on both hosts (ibstat), and the errors that ports counted: perfquery -x, ibqueryerrors||Check the link (ibstat, show_gids), and set UCX_IB_GID_INDEX to "
        "the RoCE v2 IPv4 index]]; without RDMA: --mca pml ob1 --mca btl tcp,self.",
        pattern=r"Transport retry count exceeded on (?=(?:[^\s/]+/(?P<ib>IB)\b)?)(?P<device>\S+)",
    ),
    Signature(
        "ucx-no-path",
        keys=("ibv_create_ah(",),
        cause="UCX on {host} found no route to the other host's RDMA address[[peer? {peer}]] over [[device?{device}||its device]]: their networks are "
        "not connected, or the GID index[[index? ({index})]] belongs to the wrong network.",
        next="ping that address[[device? from the interface of {device}]] (ibdev2netdev shows its name), run show_gids, and set UCX_IB_GID_INDEX to the RoCE v2 "
        "index with the IPv4 address. To run without RDMA: --mca pml ob1 --mca btl tcp,self.",
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
        next="Run ip route get {peer} on {host}, and name the network: -x UCX_NET_DEVICES=mlx5_0:1 (or eth0). To run without UCX: --mca pml ob1 --mca btl "
        "tcp,self,vader (5.0: sm instead of vader).",
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
        next="Use a UCX built with CUDA (ucx_info -d | grep cuda shows its CUDA transports), and put the driver's libcuda.so.1 first in LD_LIBRARY_PATH. To run "
        "without UCX: --mca pml ob1.",
        pattern=r"UCX +WARN +transports? (?P<names>'?cuda_(?:copy|ipc)'?(?:,'?\w+'?)*) (?:is|are) not available",
    ),
    Signature(
        "ucx-register",
        keys=("reg_mr(address=",),
        cause="UCX on {host} could not register memory with the HCA ({why}): it is GPU memory, and either no peer-memory "
        "module is loaded or UCX has no support for these GPUs.",
        next="On {host}, check ucx_info -d | grep -E 'cuda|rocm' and, for NVIDIA, lsmod | grep peermem; AMD GPUs need the peer memory of amdgpu-dkms, or a kernel and UCX with dmabuf. -x UCX_IB_GPU_DIRECT_RDMA=n turns GPUDirect RDMA off.",
        pattern=r"UCX +ERROR +ibv_(?:exp_)?reg_mr\([^)]*\)\s+failed: (?P<why>Bad address|Invalid argument)",
        lines=2,
        unless=("ucx-no-cuda",),
    ),
    Signature(
        "ucx-memory-pool",
        keys=("Failed to allocate memory pool", "failed: Resource temporarily unavailable"),
        cause="UCX on {host} cannot register more memory for its HCA: the memlock limit is too low, or the HCA's table of registered memory is full.",
        next="Run ulimit -l through mpirun: it must show unlimited. For mlx4, set a larger log_num_mtt (/etc/modprobe.d/mlx4_core.conf); to see whether the rest "
        "works: -x UCX_TLS=tcp,sm,self.",
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
        next="Leave UCX_IB_GID_INDEX unset, or set it to the RoCE v2 index with the IPv4 address: show_gids {device} lists the indices in use. Name only devices "
        "that have an address: -x UCX_NET_DEVICES=mlx5_0:1 (set it on each host where names differ; ibdev2netdev shows the interfaces).",
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
        next="Check that ucx_info -v shows one version on all hosts and in all images. If it does, select one working device: -x UCX_NET_DEVICES=mlx5_0:1 (or "
        "eth0); ibstat and ethtool show the speed of each.",
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
        cause="UCX could not copy memory between two ranks of {host} (CMA): [[memory?the kernel cannot read that address, most often because it is GPU memory||the kernel or the container does not allow it]].",
        next="[[memory?Use a UCX with CUDA support (ucx_info -d | grep cuda) and a UCX_TLS that does not exclude cuda_copy, or turn cma off||In a container, add "
        "docker run --cap-add SYS_PTRACE, with all ranks of a host in one container; outside: sysctl kernel.yama.ptrace_scope=0. To do without, turn cma "
        "off]]: -x UCX_TLS=^cma.",
        pattern=r"process_vm_(?:readv|writev)\(pid=[^\r\n]{0,200}?returned -1: (?:Operation not permitted|(?P<memory>Bad address))",
    ),
    Signature(
        "ucx-registration",
        keys=("ibv_reg_mr(address=",),
        cause="The HCA of {host} could not register memory: it or the kernel has no room for more registrations, or the limit on locked memory is too low (newer versions of UCX report "
        "it if the limit is the cause).",
        next="Check where the ranks run that ulimit -l shows unlimited, and free memory with free -g on {host}. Make fewer registrations: -x "
        "UCX_IB_REG_METHODS=direct (no cache of them), fewer ranks on the host, or larger pages.",
        pattern=r"UCX +ERROR ibv_reg_mr\(address=[^)\r\n]*\)[^\r\n]*? failed: Cannot allocate memory\s*$",
    ),
    Signature(
        "rdma-gid-missing",
        keys=("Failed to query GID ",),
        cause="The HCA {device} of {host} has no GID {index} on the port in use ({why}), so nothing can be sent over it.",
        next="Run show_gids on {host} and choose the RoCE v2 index with an IPv4 address; ibv_devinfo -d {device} shows whether the port is active. If the interface "
        "has no address, assign one.",
        pattern=r"Failed to query GID (?P<index>\d+) on (?P<device>[\w.-]+?)/\S*: (?P<why>[A-Z][\w ]+)",
    ),
    Signature(
        "ucx-queue-pairs",
        keys=("mlx5dv_devx_obj_create(QP) failed",),
        cause="UCX on {host} could not create a connection (queue pair) on the HCA ({why}): the ranks need more reliable connections than the HCA or the kernel allows.",
        next="Use far fewer: -x UCX_TLS=dc_x,sm,self (or ud_x), or fewer ranks per host. Check where the ranks run that ulimit -l shows unlimited, and dmesg -T | "
        "grep mlx5 on {host}.",
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
    Signature(
        "ucx-no-transport",
        keys=(
            "no usable transports/devices",
            "No transports selected to",
            "The device lists are empty",
            "The TLs list is empty",
        ),
        cause="UCX on {host} has no transport left[[asked? of those that are allowed ({asked})]]: UCX_TLS and UCX_NET_DEVICES exclude all that the host has.",
        next="ucx_info -d lists the transports and devices of {host}. Unset UCX_TLS and UCX_NET_DEVICES, or name ones from that list: -x UCX_TLS=rc,sm,self -x UCX_NET_DEVICES=mlx5_0:1.",
        pattern=r"UCX +ERROR +(?:no usable transports/devices \(asked (?P<asked>[^)\r\n]{1,200})\)|No transports selected to|The (?:device lists are|TLs list is) empty)",
    ),
    Signature(
        "ucx-transport-name",
        keys=(" not available, please use one or more of: ",),
        cause="UCX on {host} has no transport or device {names}, which UCX_TLS or UCX_NET_DEVICES names.",
        next="Choose from those that {host} has: {choice}. If an RDMA one is missing, ibv_devinfo must show the HCA where the ranks run (docker run --device /dev/infiniband).",
        pattern=r"UCX +WARN +(?:\w{1,20} )?(?:transport|device)s? (?P<names>(?!'cuda_)'[^\r\n]{1,200}?) (?:is|are) not available, please use one or more of: (?P<choice>[^\r\n]{0,200}[^\s.])",
        unless=("ucx-no-cuda", "ucx-device-missing"),
        at_end=r"please use one or more of: ",
    ),
    Signature(
        "ucx-zero-copy",
        keys=("No zero-copy protocol found for ",),
        cause="UCX on {host} cannot transfer this memory directly: it has no GPU transport, or no HCA that reaches the memory of the GPU.",
        next="Check on {host} that ucx_info -d | grep -E 'cuda|mlx5' lists cuda_copy and an HCA, and lsmod | grep peermem a module. To continue with slower copies: "
        "-x UCX_PROTO_EMULATION_ENABLE=y.",
    ),
    Signature(
        "ucx-gpudirect",
        keys=("Couldn't enable GPUDirect RDMA", "dmabuf support requested but not found"),
        cause="UCX on {host} must use GPUDirect RDMA (a variable requires it), and {host} has neither a peer-memory module nor DMA-BUF for it.",
        next="modprobe nvidia-peermem on {host} (lsmod | grep peermem shows it). To continue without GPUDirect: -x UCX_IB_GPU_DIRECT_RDMA=try -x UCX_CUDA_COPY_DMABUF=try.",
        pattern=r"UCX +ERROR +(?:\S+: )?Couldn't enable GPUDirect RDMA|UCX +ERROR +dmabuf support requested",
    ),
    Signature(
        "ucx-backlog",
        keys=('try to increase "net.core.somaxconn"', "reached maximum number of connection retries"),
        cause="Another host did not accept a TCP connection of UCX on {host} in several attempts: too many ranks connect to it at the same time.",
        next="sysctl -w net.core.somaxconn=65535 net.ipv4.tcp_max_syn_backlog=65535 net.core.netdev_max_backlog=65535 on all hosts. Or -x UCX_TCP_MAX_CONN_RETRIES=255.",
    ),
    Signature(
        "ucx-shm-full",
        keys=("Not enough memory to write total of ",),
        cause="The folder /dev/shm of {host} (or UCX_POSIX_DIR) has no room for the {size} bytes through which UCX connects the ranks of that host.",
        next="df -h /dev/shm where the ranks run; remove files that an older job left there. In a container: docker run --shm-size=32g, or --ipc=host.",
        pattern=r"UCX +ERROR +Not enough memory to write total of (?P<size>\d+) bytes",
    ),
    Signature(
        "ucx-sysv",
        keys=("UCX  ERROR shmget(size=", "UCX ERROR shmget(size="),
        cause="UCX on {host} got no System V shared memory ({why}): a limit of the kernel or of the container is too low.",
        next="ipcs -l and sysctl kernel.shmmax kernel.shmall show the limits on {host}; for huge pages, the process requires CAP_IPC_LOCK. -x UCX_TLS=^sysv uses /dev/shm instead.",
        pattern=r"UCX +ERROR +shmget\(size=[^)\r\n]{1,80}\) for \S{1,80} failed: (?P<why>(?!No space left)[^\r\n,]{1,80})",
    ),
    Signature(
        "ucx-pkey",
        keys=("there is no valid pkey to use on ", "unable to find specified pkey "),
        cause="The InfiniBand port {device} of {host} has no partition key[[pkey? {pkey}]] that UCX can use: the subnet manager gave the port none, or not that one.",
        next="cat /sys/class/infiniband/*/ports/*/pkeys/0 on {host} shows the keys in use. Unset UCX_IB_PKEY, or have the subnet manager add {host} to the partition.",
        pattern=r"UCX +ERROR +(?:there is no valid pkey to use on|unable to find specified pkey (?P<pkey>0x[\da-f]{1,8}) on) (?P<device>[^\s,]{1,60})",
    ),
    Signature(
        "ucx-gid-subnet",
        keys=("failed to find a gid which matches/unmatches",),
        cause="No address of an RDMA device of {host} is in the subnets that UCX allows for RoCE ({subnets}).",
        next="show_gids on {host} lists the addresses. Correct the UCX_IB_ROCE_ variable that names the subnets (env | grep UCX_IB_ROCE), or unset it and set UCX_NET_DEVICES.",
        pattern=r"matches/unmatches the following subnet list: (?P<subnets>[^\r\n]{0,120}[^\s.])",
    ),
    Signature(
        "ucx-ud-timeout",
        keys=("unhandled timeout error",),
        cause="A message that UCX sent from {host} over UD got no answer from {peer}: the rank there has ended or hangs, or the network drops packets.",
        next="Look for the rank that ended first. If none did, check ibstat and the loss on that link (ethtool -S INTERFACE | grep -i discard), or use -x UCX_TLS=rc,sm,self.",
        pattern=r"UD endpoint \S{1,40} to (?P<peer>[^\r\n]{1,80}?): unhandled timeout error",
    ),
    Signature(
        "ucx-rdma-error",
        keys=("ib_mlx5_log.c:",),
        cause="An RDMA operation of UCX failed on {device} ({what}): the other rank has ended or frees memory that is still in use, or the two hosts run different versions of UCX.",
        next="Look for the rank that ended first. If none did, compare ucx_info -v and ofed_info -s on all hosts; -x UCX_TLS=tcp,sm,self shows whether the HCA is at fault.",
        pattern=r"ib_mlx5_log\.c:\d+ +(?:UCX +\w+ +)?(?P<what>(?:Local length|Local QP operation|Memory window bind|Remote operation|Remote side aborted|Receive-no-ready retry count exceeded|Invalid request|Bad response|Generic)(?: error)?) on (?P<device>\w{1,40})",
    ),
    Signature(
        "rdma-no-network",
        keys=("modify_qp", "odify QP"),
        cause="An RDMA device of {host}[[device? ({device})]] cannot make a connection ({why}): it is visible, but its network interface or GID is not in that container or pod.",
        next="Run show_gids there, which must list an address for the device. Give a pod the network of that port (hostNetwork: true, or Multus with macvlan or SR-IOV; docker run --network host), or choose another index or device (NCCL_IB_GID_INDEX, NCCL_IB_HCA; UCX_IB_GID_INDEX, UCX_NET_DEVICES).",
        pattern=r"^(?!.*NCCL )[^\r\n]*?(?:UCX +ERROR +(?P<device>[\w.-]+): )?ibv_(?:cmd_)?modify_qp\w*\b[^\r\n]*?(?:(?P<why>No such device|No data available|Cannot assign requested address)|failed with (?:error )?(?P<why2>19|61|99)\b)(?:[^\r\n]*?\bdev (?P<device2>[\w.-]+))?",
    ),
    Signature(
        "ucx-qp-state",
        keys=(
            "error modifying QP to RT",
            "Failed to modify UD QP to RT",
            "ibv_modify_qp(DCI, RT",
            "error modifying DCT to RTR",
        ),
        cause="UCX on {host} cannot bring up a connection on the HCA ({why}): the GID index, the MTU or the port is not valid for the other host.",
        next="Check that show_gids and ibstat show an active port and the same kind of GID on both hosts. Unset UCX_IB_GID_INDEX and UCX_IB_PATH_MTU, and name one "
        "device: -x UCX_NET_DEVICES=mlx5_0:1.",
        pattern=r"UCX +(?:ERROR|FATAL) +(?:error modifying (?:QP|DCT) to RT[RS]|Failed to modify UD QP to RT[RS]|ibv_modify_qp\(DCI, RT[RS]\) failed) ?: (?P<why>[^\r\n]{1,100}[^\s.])",
    ),
    Signature(
        "ucx-hosts-differ",
        keys=("endpoint reconfiguration not supported yet", "asymmetric endpoint configuration is not supported"),
        cause="Two ranks chose different transports of UCX for the same connection: their hosts have different devices, settings or versions of UCX.",
        next="Compare ucx_info -v, ucx_info -d and env | grep UCX_ on the hosts. Name what all have: -x UCX_TLS=rc,sm,self -x UCX_NET_DEVICES=mlx5_0:1.",
        pattern=r"(?:endpoint re|asymmetric endpoint )configuration (?:is )?not supported",
    ),
    Signature(
        "ucx-gpu-copy",
        keys=(
            "mem type unpack failed to uct_ep_put",
            "mem type pack failed to uct_ep_get",
            "failed to register buffer with mem type domain",
        ),
        cause="UCX on {host} could not copy between GPU memory and host memory.",
        next="Check that ucx_info -d | grep cuda lists cuda_copy where the ranks run, and that UCX_TLS contains cuda_copy. If both are right, choose the GPU before "
        "MPI_Init (CUDA_VISIBLE_DEVICES, torch.cuda.set_device).",
    ),
    Signature(
        "ucx-registered-type",
        keys=("failed to register address ",),
        cause="UCX on {host} could not register {kind} memory with {domain} ({why}), which supports {supports}.",
        next="[[gpu?Check on {host} that lsmod | grep peermem shows a module and ucx_info -d | grep cuda the CUDA transports; -x UCX_IB_GPU_DIRECT_RDMA=n turns GPUDirect RDMA off||Check where the ranks run that ulimit -l "
        "shows unlimited and free -g that memory is left on {host}]]. To see the attempts before it: -x UCX_LOG_LEVEL=info.",
        pattern=r"UCX +ERROR +failed to register address 0x[\da-f]{1,16} \((?P<kind>(?P<gpu>cuda|rocm)?[\w-]{0,20})\) length \d{1,20}(?: dmabuf_fd \d{1,9})? on md\[\d{1,3}\]=(?P<domain>[\w-]{1,40}): "
        r"(?P<why>[^(\r\n]{1,80}?) \(md supports: (?P<supports>[^)\r\n]{1,80})\)",
        unless=("memlock", "ucx-register", "ucx-registration"),
    ),
    Signature(
        "ucx-gdrcopy",
        keys=("UCX  ERROR gdr_", "UCX ERROR gdr_", "failed to open gdr copy", "could not open gdr copy"),
        cause="UCX on {host} cannot use GDRCopy: its kernel module gdrdrv is missing there, or has another version than the library.",
        next="Check that lsmod | grep gdrdrv shows the module on {host}; a container requires docker run --device /dev/gdrdrv. To continue without it: -x "
        "UCX_TLS=^gdr_copy.",
        at_end=r"gdr",
    ),
    Signature(
        "ucx-xpmem",
        keys=(
            "xpmem failed to register process address space",
            "failed to attach xpmem apid",
            "UCX  ERROR xpmem_get(",
            "UCX ERROR xpmem_get(",
        ),
        cause="UCX on {host} cannot use XPMEM, through which ranks of one host read each other's memory[[why? ({why})]]: in containers it is usually not allowed.",
        next="Continue without it: -x UCX_TLS=^xpmem. To use it, the module xpmem must be loaded on {host}, and all ranks of the host run in one container with --device /dev/xpmem.",
        pattern=r"UCX +ERROR +(?:xpmem failed to register process address space|failed to attach xpmem apid [^:\r\n]{1,100}|xpmem_get\([^)\r\n]{1,40}\) failed)(?:: (?P<why>[^\r\n]{0,80}[^\s.]))?",
    ),
    Signature(
        "ucx-knem",
        keys=(
            "Could not open the KNEM device file",
            "KNEM ABI mismatch",
            "KNEM inline copy ",
            "KNEM failed to create region",
        ),
        cause="UCX on {host} cannot use KNEM, the kernel module through which ranks of one host copy memory.",
        next="Continue without it: -x UCX_TLS=^knem. To use it, ls -l /dev/knem must show a device that the user may write, and the module must fit the kernel (dkms status).",
    ),
    Signature(
        "ucx-value",
        keys=("UCX  ERROR Invalid value for ", "UCX ERROR Invalid value for "),
        cause="UCX on {host} does not accept the value '{value}' of {name}; it expects {expected}.",
        next="env | grep UCX_ where the ranks run shows who sets it; ucx_info -cf describes each variable.",
        pattern=r"UCX +ERROR +Invalid value for (?P<name>\w{1,60}): '(?P<value>[^'\r\n]{0,100})'\. Expected: (?P<expected>[^\r\n]{0,160}[^\s.])",
    ),
    Signature(
        "ucx-variable-unused",
        keys=(
            "UCX  WARN  unused environment variable",
            "UCX WARN unused environment variable",
            "UCX  WARN unused environment variable",
        ),
        cause="UCX on {host} does not know the variable {name}[[like? (it has {like})]], so that setting does nothing.",
        next="ucx_info -cf | grep UCX_ lists the variables of that version: correct the name in the -x option or profile that sets it.",
        pattern=r"unused environment variables?: (?P<name>UCX_\w{1,60})(?:=\S{0,60})?(?: \(maybe: (?P<like>\w{1,60})\??\))?",
        kind=FailureText.NOTE,
    ),
    Signature(
        "ucx-fork",
        keys=("IB: ibv_fork_init() was disabled or failed",),
        cause="A rank of {host} started another process (fork) while UCX uses memory that does not allow this: its messages may be corrupted.",
        next="-x RDMAV_FORK_SAFE=1 -x UCX_IB_FORK_INIT=y before the ranks start. In torch, use num_workers=0 or multiprocessing_context='spawn' in the DataLoader.",
        at_end=r"fork|registered memory",
    ),
    Signature(
        "ucx-mnnvl",
        keys=("multi-node NVLINK support is requested but not supported",),
        cause="UCX_CUDA_IPC_ENABLE_MNNVL requests NVLink between hosts, and {host} does not offer it: the IMEX service does not run there, or the GPUs are not connected that way.",
        next="nvidia-imex-ctl -N on {host} shows the state of all hosts; ls /dev/nvidia-caps-imex-channels must show a channel where the ranks run. -x UCX_CUDA_IPC_ENABLE_MNNVL=n continues without it.",
    ),
    Signature(
        "ucx-dci",
        keys=("Can't allocate TX resources, try to decrease dcis number",),
        cause="The HCA of {host} has no room for {count} DC connections with send queues of {length} entries.",
        next="Set -x UCX_DC_MLX5_NUM_DCI=4, or start fewer ranks per host. -x UCX_TLS=rc,sm,self does not use DC.",
        pattern=r"try to decrease dcis number \((?P<count>\d{1,9})\) or tx qp length \((?P<length>\d{1,9})\)",
    ),
    Signature(
        "ucx-memory-events",
        keys=("VM_UNMAP",),
        cause="UCX on {host} does not notice that the program gives memory back (VM_UNMAP), so that its cache of registered memory may hold what is gone: messages may fail, or be slower.",
        next="Set -x UCX_MEM_EVENTS=n to do without that cache. If another library replaces malloc or munmap (tcmalloc, jemalloc, LD_PRELOAD), start the ranks without it.",
        pattern=r"UCX +(?P<level>ERROR|WARN) +[^\r\n]{0,200}VM_UNMAP",
        at_end=r"UCX +ERROR",
    ),
    Signature(
        "ucc-failed",
        keys=(
            "UCC  ERROR",
            "UCC ERROR",
            "UCC error: ",
            "TL_UCP",
            "TL_NCCL",
            "TL_CUDA",
            "TL_SHARP",
            "TL_MLX5",
            "CL_BASIC",
            "CL_HIER",
        ),
        cause="UCC, which does collective operations for Open MPI or torch, failed on {host}: {why}.",
        next="Run it without UCC: --mca coll ^ucc, or the nccl backend in torch. To find the reason: -x UCC_LOG_LEVEL=debug; -x UCC_TLS=ucp leaves its other transports out.",
        pattern=r"\b(?:UCC|TL_\w{2,20}|CL_\w{2,20}) +ERROR +(?P<why>[^\r\n]{1,300}[^\s.])|UCC error: (?P<why2>[^\r\n]{1,300}[^\s.])",
        survived=True,
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
        next="Check where the ranks run that ulimit -l shows unlimited: docker run --ulimit memlock=-1:-1, or LimitMEMLOCK of sshd or slurmd. If it does, try "
        "FI_EFA_USE_HUGE_PAGE=0, fewer processes on that host, or a newer EFA installer.",
        pattern=r"^(?:infiniband (?P<device>efa_\d+): )?(?:[^\r\n]*(?:Failure to post internal|RX packet pool|Unable to register MR: Cannot)|Failed to (?:process command (?:REG_MR|ALLOC_PD)"
        r"|register mr \[)[^\r\n]*-12)",
        unless=("nccl-ofi-memory",),
    ),
    Signature(
        "efa-no-device",
        keys=("provider efa output empty list",),
        cause="libfabric found no EFA device on {host}: the container was started without it, the instance has none, or the driver is not loaded.",
        next="Run ls /dev/infiniband and fi_info -p efa where the ranks run. If only the container lacks it, pass it on: docker run --device /dev/infiniband --ulimit memlock=-1:-1 (Kubernetes: request vpc.amazonaws.com/efa).",
        # libfabric warns of it on hosts without EFA too, where another network is used well.
        only_with=("nccl-libfabric", "nccl-ofi-no-provider", "efa-failed"),
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
    Signature(
        "cxi-map",
        keys=("cxil_map",),
        cause="libfabric's CXI provider (Slingshot) could not register memory with the network card of {host}[[why?: {why}]].",
        next="Run ulimit -l where the ranks run: it must show unlimited. If the memory is a GPU's: -x FI_MR_CACHE_MONITOR=userfaultfd (or memhooks), and -x MPICH_GPU_SUPPORT_ENABLED=1 for Cray MPICH.",
        pattern=r"cxil_map\w*(?:\(\))?[^\r\n:]{0,80}(?:: *(?:ret:? ?)?(?P<why>-?\d{0,4}:? ?[A-Z][^\r\n]{1,100}[^\s.]))?",
        survived=True,
    ),
    Signature(
        "cxi-queue-full",
        keys=("FI_CXI_DEFAULT_CQ_SIZE", "Event Queue overflow detected"),
        cause="The event queue of libfabric's CXI provider (Slingshot) overflowed on {host}: more messages arrived at once than it holds.",
        next="Set -x FI_CXI_DEFAULT_CQ_SIZE=131072 (or more) and -x FI_CXI_RX_MATCH_MODE=hybrid, or software for very many messages.",
        survived=True,
    ),
)
