"""What UCX, libfabric and Hydra, the launcher of MPICH and Intel MPI, print of networks and of memory that they may not reach.

Sources: UCX's uct/ib/mlx5, uct/tcp, uct/cuda and ucp/core; libfabric's prov/efa; MPICH's src/pm/hydra and ch4/netmod/ofi.
"""

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
        "The HCA {device} of {host} may not reach the memory that UCX named ({what}): most often GPU memory, and its path over "
        "PCIe to the HCA is blocked.",
        "On {host}: lsmod | grep peermem; PCI ACS and the IOMMU have to be off (lspci -vvv | grep ACSCtl). -x "
        "UCX_IB_GPU_DIRECT_RDMA=n continues without GPUDirect RDMA.",
        r"ib_mlx5_log\.c:\d+ +(?:UCX +\w+ +)?(?P<what>Local protection|Local access|Remote access)[\w ]* on (?P<device>\w+)",
    ),
    Signature(
        "ucx-no-cuda",
        ("'cuda_copy'", "'cuda_ipc'", "cuda_copy is not available"),
        "The UCX of {host} has no CUDA ({names} not available), so it treats GPU memory as memory of the host.",
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
        "UCX on {host} cannot register more memory for its HCA: the memlock limit is too low, or the HCA's table of registered memory is full.",
        "ulimit -l through mpirun (unlimited is right); mlx4: a larger log_num_mtt (/etc/modprobe.d/mlx4_core.conf). -x UCX_TLS=tcp,sm,self shows whether "
        "the rest works.",
        r"UCX +ERROR +(?:Failed to allocate memory pool \(name=\w+\) chunk: Input/output error"
        r"|ibv_(?:exp_)?reg_mr\([^\r\n]*\) failed: Resource temporarily unavailable)",
        unless=("memlock",),
    ),
    Signature(
        "ucx-cuda-ipc",
        ("failed to open ipc mem handle",),
        "UCX on {host} cannot map the GPU memory of another rank (CUDA IPC)[[why?: {why}]].",
        "-x UCX_TLS=^cuda_ipc continues without. 'Element already exists' means that the program has opened that memory itself, which a newer UCX permits. "
        "Otherwise every rank must see all GPUs of its host, and containers on one host need --ipc=host.",
        r"failed to open ipc mem handle(?:[^\r\n(]{0,200}\((?P<why>[^)\r\n]{1,80})\))?",
    ),
    Signature(
        "ucx-gid",
        ("UCX  ERROR Invalid gid[", "UCX ERROR Invalid gid["),
        "UCX on {host} found no address at index {index} of the RDMA device {device}: the interface of that device has no IP address or is down, or the index is "
        "wrong.",
        "show_gids {device} lists the indices in use, ibdev2netdev the interface. Leave UCX_IB_GID_INDEX out or name the index of RoCE v2 with the IPv4 address, and "
        "name devices with an address only: -x UCX_NET_DEVICES=mlx5_0:1 (each host's own, where their names differ).",
        r"UCX +ERROR Invalid gid\[(?P<index>\d+)\] on (?P<device>\w+)",
    ),
    Signature(
        "ucx-out-of-memory",
        ("failed: Out of memory", "failed to allocate address list"),
        "UCX on {host} found no memory for its connections[[peer? (at the one to rank {peer})]]: each rank needs some for every other rank.",
        "free -h, ulimit -v and ulimit -l on {host}, where the ranks run; fewer ranks on a host. -x UCX_TLS=ud,sm,self (mlx5: dc) requires less for each connection than rc.",
        r"pml_ucx\.c:\d+ +Error: ucp_ep_create\(proc=(?P<peer>\d+)\) failed: Out of memory|UCX +ERROR +failed to allocate address list",
    ),
    Signature(
        "ucx-address",
        ("failed to unpack address",),
        "UCX on {host} cannot use the address that another rank gave it ({why}): the ranks have different versions of UCX, or one of a device whose speed is not known.",
        "ucx_info -v must show one version on all hosts and in all images. If it does: -x UCX_NET_DEVICES=mlx5_0:1 (or eth0) names one sound device; ibstat and ethtool show the "
        "speed of each.",
        r"UCX +ERROR +failed to unpack address[,:]? *(?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "ucx-fatal",
        ("  Fatal: ", "  Assertion `"),
        "UCX ended a rank on {host} itself, in {where}: {why}.",
        "Look for that text among the issues of UCX: a newer version may have fixed it. To see whether it is UCX: --mca pml ob1 --mca btl tcp,self,vader (5.0: sm "
        "for vader) continues without.",
        r"^\[(?P<host>[\w.-]+):\d+ *:\d+:\d+\] +(?P<where>[\w.]+:\d+) +(?:UCX +)?(?P<why>(?:Fatal: |Assertion `)[^\r\n]{0,200}[^\s.])",
        kind=FailureText.FALLBACK,
    ),
)

# libfabric's provider for EFA (prov/efa), and the kernel's driver for it
EFA = (
    Signature(
        "efa-memory",
        (
            *(
                "Failure to post internal receive buffers",
                "for EFA's RX packet pool",
                "Unable to register MR: Cannot allocate memory",
            ),
            *("Failed to process command REG_MR", "Failed to register mr [", "Failed to process command ALLOC_PD"),
        ),
        "EFA on {host} could not register memory: [[device?the device {device} has no room for more||the limit of locked memory is too low, or the device has no "
        "room for more]].",
        "ulimit -l must show unlimited where the ranks run: docker run --ulimit memlock=-1:-1, or LimitMEMLOCK of sshd or slurmd. If it does: "
        "FI_EFA_USE_HUGE_PAGE=0, fewer processes on that host, and a newer EFA installer.",
        r"^(?:infiniband (?P<device>efa_\d+): )?(?:[^\r\n]*(?:Failure to post internal|RX packet pool|Unable to register MR: Cannot)|Failed to (?:process command (?:REG_MR|ALLOC_PD)"
        r"|register mr \[)[^\r\n]*-12)",
        unless=("nccl-ofi-memory",),
    ),
    Signature(
        "efa-failed",
        ("Libfabric EFA provider has encountered an internal error",),
        "libfabric's EFA provider ended a process on {host}[[why?: {why}]].",
        "fi_info -p efa, and dmesg -T | grep -i efa on {host}. Use the same version of the EFA installer on all hosts and in the image.",
        r"encountered an internal error:(?:[\s\S]{0,120}?EFA internal error: (?P<why>[^\r\n]{0,200}[^\s.]))?",
        kind=FailureText.FALLBACK,
        lines=4,
    ),
)

HYDRA = (
    Signature(
        "hydra-program-missing",
        ("execvp error on file",),
        "Hydra cannot start {program} on {host}: {why}.",
        "Give its full path, or ./NAME for a program of the present folder. It has to be there on every host: ls -l "
        "{program} on {host}.",
        r"(?:\[proxy:[\d:]+@(?P<host>[^\]\s]+)\][^\r\n]*)?execvp error on file (?P<program>\S+) \((?P<why>[^)\r\n]+)\)",
    ),
    Signature(
        "hydra-bootstrap",
        ("Unable to run bstrap_proxy", "Error setting up the bootstrap proxies"),
        "Intel MPI's mpiexec could not start its proxy on {host}[[code? (exit code {code})]]. It uses ssh, or srun inside a "
        "Slurm job.",
        "Try by hand what it does: ssh {host} true. export I_MPI_HYDRA_BOOTSTRAP=ssh (or slurm) sets what it uses, "
        "I_MPI_HYDRA_DEBUG=1 shows the command.",
        r"Unable to run bstrap_proxy on (?P<host>[\w.-]+)(?: \(pid \d+, exit code (?P<code>\d+)\))?"
        r"|Error setting up the bootstrap proxies",
    ),
    Signature(
        "hydra-connect",
        ("unable to connect from",),
        "Hydra's proxy on {host} cannot connect back to mpiexec on {peer} ({why}): a firewall, or a name that means "
        "another address there.",
        "On {host}: getent hosts {peer}. Name the network: mpiexec -iface NAME; open ports: MPIEXEC_PORT_RANGE=20000:20100 "
        "(Intel MPI: I_MPI_PORT_RANGE).",
        r'unable to connect from "(?P<host>[^"\r\n]+)" to "(?P<peer>[^"\r\n]+)" \((?P<why>[^)\r\n]+)\)',
    ),
    Signature(
        "hydra-rank-ended",
        ("BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",),
        "[[rank?Rank {rank}||A process]] on {host} ended badly ([[why?{why}||exit code {code}]]).",
        "Read that rank's own lines before this point. Signal 9 (exit code 137) is a KILL, most often because memory ran out: "
        "dmesg -T on {host}; signal 11 (139) is a segmentation fault.",
        r"BAD TERMINATION OF ONE OF YOUR[^\r\n]*\s+=\s+(?:RANK (?P<rank>\d+) )?PID \d+ RUNNING AT (?P<host>\S+)\s+=\s+"
        r"(?:EXIT CODE|EXIT STATUS|KILLED BY SIGNAL): (?P<code>\d+)(?: \((?P<why>[^)\r\n]+)\))?",
        kind=FailureText.OUTCOME,
        lines=4,
    ),
    Signature(
        "intelmpi-no-pmi",
        ("PMI server not found",),
        "Intel MPI's ranks do not know each other: the program was started without mpiexec, or by an srun without "
        "the path of its PMI library.",
        "Start it with mpiexec.hydra; or under srun --mpi=pmi2: export I_MPI_PMI_LIBRARY= the path of Slurm's libpmi2.so.",
        r"PMI server not found",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "ofi-no-network",
        ("OFI ",),
        "MPI found no network on {host} that its libfabric can use ({what}[[why?: {why}]]).",
        "fi_info -l lists the providers of that host. FI_PROVIDER=tcp shows whether the rest works; FI_LOG_LEVEL=warn shows why "
        "another one, such as verbs or psm3, is not used.",
        r"OFI (?:call )?(?P<what>\w+(?: \w+)*)(?:\(\))? failed \((?:[^():\r\n]*:)+ *(?P<why>[^():\r\n]+)\)|OFI (?P<what2>fi_getinfo)\(\) failure",
    ),
    Signature(
        "ofi-mismatch",
        ("Mismatched address format: remote EP",),
        "The hosts use different networks of libfabric: the addresses of {host} have another format than those of the other host.",
        "The same provider on all hosts: -x FI_PROVIDER=verbs, or tcp. Without libfabric: --mca mtl ^ofi --mca pml ob1 (or ucx).",
        r"(?:(?P<host>[\w.-]+):rank\d+: +)?Mismatched address format: remote EP",
    ),
    Signature(
        "ofi-address-map",
        ("OFI get address vector map failed",),
        "MPI on {host} could not build its map of all ranks' addresses: libfabric ran out of resources (address handles, memory), or the addresses of some "
        "ranks are of another network.",
        "Try with fewer ranks. FI_LOG_LEVEL=warn names the provider and its error; FI_PROVIDER=tcp (Intel MPI: also psm3 or verbs) shows whether it is the "
        "provider's. Use the newest libfabric of that provider.",
    ),
    Signature(
        "mpich-without-launcher",
        ("Unable to write to PMI_fd", "PMI_Get_appnum returned -1"),
        "A rank on {host} found variables of a launcher (PMI_FD, PMI_RANK) that does not run or did not start it, so MPICH or Intel MPI could not start.",
        "Start it by the mpirun of that MPI, or under another launcher without them: env -u PMI_FD -u PMI_RANK -u PMI_SIZE COMMAND. oneCCL under torchrun: "
        "-x CCL_PROCESS_LAUNCHER=none.",
    ),
    Signature(
        "cray-mpich-nic",
        ("Unable to use a NIC_POLICY of ",),
        "Cray MPICH cannot give rank {rank} a NIC by the policy {policy}: the cores of that rank are in several NUMA nodes.",
        "Bind each rank to cores of one NUMA node: srun --cpus-per-task=N --cpu-bind=cores (or --gpus-per-task and --gpu-bind=closest); or MPICH_OFI_NIC_POLICY=BLOCK.",
        r"Unable to use a NIC_POLICY of '(?P<policy>\w+)'\. Rank (?P<rank>\d+) is not confined",
    ),
    Signature(
        "mpich-failed",
        ("Fatal error in ",),
        "[[rank?Rank {rank}||A rank]] of MPICH or Intel MPI ended in {call}: [[last?{last}||{why}]].",
        "The last line of its error stack is the reason. FI_PROVIDER=tcp (Intel MPI: I_MPI_FABRICS=shm:ofi) shows whether it is the network's.",
        r"(?:\(rank (?P<rank>\d+) in comm \w+\): )?Fatal error in (?P<call>\w+): (?P<why>[^\r\n]*?)(?:, error stack:?)?[ .:]*(?=\r?\n|$)"
        r"(?:\r?\n\w{1,80}\(\d{1,6}\)\.*: *(?P<last>[^\s][^\r\n]*)?)*",
        lines=20,
        kind=FailureText.FALLBACK,
    ),
)
