"""What NCCL says, 2.4 to 2.30 (src/misc/ibvwrap.cc, misc/socket.cc, transport/net_ib, bootstrap.cc, init.cc)."""

from taco_launch.signatures.entry import FailureText, Signature

_COMPLETION = r"Got completion (?:from peer (?P<peer>[^\s<]+)\S* )?with (?:error |status=)(?:\w+\()?"

NCCL = (
    Signature(
        "nccl-ib-no-answer",
        ("Got completion ",),
        "An RDMA message of {host}[[peer? to {peer}]] got no answer (status 12, retries exceeded). An error at the "
        "start means a wrong GID index or no route; a later one means a link, cable or lossless-Ethernet (PFC) fault, or the other rank is gone.",
        "[[link?The GID that was used is link-local (fe80:): -x NCCL_IB_ADDR_FAMILY=AF_INET6, or -x "
        "NCCL_IB_GID_INDEX=INDEX with the RoCE v2 index of a network address (run show_gids on both hosts)||Run "
        "show_gids on both hosts, and set -x NCCL_IB_GID_INDEX=INDEX, the RoCE v2 index with the IPv4 address (leave it unset from NCCL 2.21 on)]]. Test the pair: ib_write_bw -d mlx5_0 -x INDEX. If the error came later: -x NCCL_IB_TIMEOUT=22.",
        _COMPLETION + r"12\b(?=(?:[^\r\n]*localGid (?P<link>fe80))?)",
    ),
    Signature(
        "nccl-ib-flushed",
        ("Got completion ",),
        "An RDMA queue of {host} was emptied (status 5, flushed), which is the result of another error.",
        "Look for what happened before it, on any host.",
        _COMPLETION + r"5\b",
        kind=FailureText.ECHO,
    ),
    Signature(
        "nccl-ib-protection",
        ("Got completion ",),
        "An RDMA operation of {host} failed with status 4 (local protection): the HCA was not allowed to access the memory. With GPUDirect RDMA the most common cause "
        "is PCI access control (ACS) or the IOMMU, which redirect the traffic between GPU and HCA.",
        "-x NCCL_NET_GDR_LEVEL=LOC shows whether it is GPUDirect. If so, on {host}: lspci -vvv | grep ACSCtl must show SrcValid- (switch ACS off on the bridges), the IOMMU must be off or in passthrough mode (iommu=pt), and "
        "nvidia_peermem must have the driver's version (lsmod, modinfo).",
        _COMPLETION + r"4\b",
        unless=("nccl-device-event",),
    ),
    Signature(
        "nccl-ib-error",
        ("Got completion ",),
        "An RDMA operation of {host} failed with status {status} (1: length, 2: queue, 9: the other side "
        "refused the request, 10: remote access, 11: the other side failed, 13: receiver not ready).",
        "Update firmware and MLNX_OFED to the same version on all hosts, and try without GPUDirect: "
        "-x NCCL_NET_GDR_LEVEL=LOC.",
        _COMPLETION + r"(?P<status>(?!(?:4|5|12)\b)\d+)",
        unless=("nccl-device-event",),
    ),
    Signature(
        "nccl-hca-unusable",
        ("ibv_modify_qp",),
        "{host} cannot use one of its HCAs for RDMA (No such device): its port has no network device or GID that this container or process sees, or its driver does not match.",
        "NCCL_DEBUG=INFO names the HCAs in use (NET/IB : Using): leave the wrong one out, -x NCCL_IB_HCA=^mlx5_3. ibv_devinfo and show_gids where the ranks run show which HCAs work; -x NCCL_IB_DISABLE=1 shows whether the rest works.",
        r"ibv_modify_qp failed(?: with(?: error)?(?: \d+)?)?:? No such device",
    ),
    Signature(
        "nccl-gid-index",
        ("ibv_modify_qp",),
        "{host} could not set up an RDMA connection ({why}): the GID index does not fit, or the hosts' networks are not "
        "connected.",
        "Run show_gids on every host, and set -x NCCL_IB_GID_INDEX=INDEX, the RoCE v2 index with the IPv4 address, "
        "often 3. From NCCL 2.21 on, leave it unset, or where the index differs between hosts: -x NCCL_IB_ADDR_RANGE=10.0.0.0/24. On rail networks: -x "
        "NCCL_CROSS_NIC=0.",
        r"ibv_modify_qp failed(?: with(?: error)?(?: \d+)?)?:? ?(?P<why>[^\r\n,]*)",
        unless=("nccl-hca-unusable",),
    ),
    Signature(
        "memlock",
        ("ibv_reg_mr", "ibv_exp_reg_mr", "ibv_create_qp", "ibv_create_cq", "locked memory"),
        "{host} could not lock memory for RDMA: the memlock limit of that process is too low.",
        "docker run --ulimit memlock=-1:-1 --cap-add IPC_LOCK; without a container, limits.conf or LimitMEMLOCK of sshd. "
        "Check through mpirun, not in a login shell: mpirun ... bash -c 'ulimit -l'.",
        r"(?!ibv_reg_mr\(address=[^)\r\n]*\)[^\r\n]*? failed: Cannot allocate memory\s*$)ibv_(?:exp_reg_mr|reg_mr|create_qp|create_cq)\w{0,20}(?!\w|[^\r\n]{0,160}(?:Bad address|Invalid argument|Resource temporarily))[^\r\n]{0,80}?"
        r"(?:failed|Cannot allocate memory)"
        r"|to allocate some locked memory|set max locked memory",
    ),
    Signature(
        "nccl-port-error",
        ("Got async event : port error",),
        "The RDMA port[[device? {device}]] of {host} reported an error: its link went down, at the cable, the switch or the NIC.",
        "On {host}: ibstat; ip -s link; dmesg -T | grep -i mlx5. Leave {host} out with --exclude {host} until the link stays up.",
        r"(?:NET/IB : (?P<device>[\w.-]+:\d+) )?Got async event : port error",
    ),
    Signature(
        "nccl-version-mismatch",
        ("Mismatched NCCL version detected",),
        "The ranks have different versions of NCCL: their images or Python environments differ.",
        "Use the same version on every host. To compare images: docker image inspect --format '{{{{.Id}}}}' IMAGE on each host; otherwise python3 -c "
        "'import torch; print(torch.cuda.nccl.version())'.",
    ),
    Signature(
        "nccl-gpu-shared",
        ("Duplicate GPU detected", "Multiple Ranks are using the same GPU"),
        "Two ranks use the same GPU[[ranks?: {ranks}]].",
        "Use one rank per GPU: in the program, call torch.cuda.set_device(local_rank), and give each host no more "
        "slots than GPUs. Host names must be unique.",
        r"Duplicate GPU detected ?: (?P<ranks>[^\r\n]*\S)|Multiple Ranks are using the same GPU",
    ),
    Signature(
        "nccl-no-interface",
        ("no socket interface found", "No socket interface found", "No interface found", "is neither AF_INET"),
        "{host} has no network interface that NCCL_SOCKET_IFNAME allows.",
        "List its interfaces: ip -br addr. The name must exist on every host: -x NCCL_SOCKET_IFNAME==bond0 (the second = "
        "requests exactly that name).",
        r"(?i:NCCL.*no (?:socket )?interface found)|connecting to address .*(?!family 1 )family \d+ is neither AF_INET",
    ),
    Signature(
        "nccl-connect",
        ("onnect to ", "socketPollConnect", "WARN Call to connect failed"),
        "{host} cannot connect to [[peer?{peer}||another rank]] when NCCL starts[[why? ({why})]]: the address is on a "
        "network that the hosts do not share, a firewall blocks it, or a rank never started[[dropped? or gets more connections than it accepts]].",
        "Name the network: -x NCCL_SOCKET_IFNAME==bond0. If that is set: [[peer?ip route get {peer} on {host} shows "
        "the route, and ]]all ports from 1024 on have to be open between the hosts (NCCL uses any free one).[[dropped? With hundreds "
        "of ranks: sysctl net.core.somaxconn net.ipv4.tcp_max_syn_backlog.]]",
        r"onnect to (?P<peer>[^\s<]+)<\d+> (?:failed|returned|timed out)(?!.*retrying)\s*:? ?"
        r"(?P<why>Connection refused|No route to host|Connection timed out|Network is unreachable|[^\r\n]*[^\s])?"
        r"|(?P<dropped>NCCL WARN socketPollConnect)[ :]+(?![ :]|Connect to)(?P<why2>[^\r\n]*\S)"
        r"|WARN Call to connect failed ?: (?P<why3>[^\r\n]*\S)",  # NCCL 2.0 to 2.2
    ),
    Signature(
        "nccl-network-unknown",
        ("Error: network ",),
        "NCCL has no network {name}, which NCCL_NET requests.",
        "NCCL_NET is IB, Socket or the name of a plugin that is in the image. IB is available only with libibverbs and "
        "/dev/infiniband where the ranks run (docker run --device /dev/infiniband).",
        r"Error: network (?P<name>\S+) not found",
    ),
    Signature(
        "shm-denied",
        ("shm_open failed : Permission denied", "shm_open to", "creating shared memory segment"),
        "The user of the ranks may not write to /dev/shm on {host}.",
        "ls -ld /dev/shm there: it has to be drwxrwxrwt (chmod 1777 /dev/shm).",
        r"shm_open (?:failed ?|to \S+ failed)[^\r\n]*Permission denied"
        r"|creating shared memory segment [^\r\n]*error: Permission denied",
    ),
    Signature(
        "shm-too-small",
        (
            "dev/shm",
            "fallocate failed",
            "insufficient shared memory (shm)",
            "out of shared memory",
        ),
        "Shared memory (/dev/shm) of {host} is too small.",
        "df -h /dev/shm where the ranks run. In a container: docker run --shm-size=32g (shm_size in the inventory; 64 MB is "
        "docker's default), or --ipc=host. On the host: mount -o remount,size=32g /dev/shm, and remove leftover files "
        "from it. If you cannot enlarge it, use fewer data loader workers.",
        r"Error while creating shared memory segment (?:/dev/shm/)?\S+ \(size \d+\)(?!, error: (?!No space left))"
        r"|shm\w*\.(?:h|cc):\d+ [^\r\n]*fallocate failed|failed to extend /dev/shm|(?:posix_)?fallocate[^\r\n]*/dev/shm|/dev/shm[^\r\n]*No space left"
        r"|No space left[^\r\n]*/dev/shm|insufficient shared memory|out of shared memory",
        unless=("shm-denied",),
    ),
    Signature(
        "cuda-driver-old",
        (
            "CUDA driver version is insufficient",
            "driver on your system is too old",
            "PTX was compiled with an unsupported toolchain",
        ),
        "The NVIDIA driver of {host} is older than the program's CUDA needs.",
        "Update the driver, or use an image or build for an older CUDA: nvidia-smi shows the newest CUDA that the driver can run.",
        r"^(?!.*UserWarning: ).*(?:CUDA driver version is insufficient|driver on your system is too old|PTX was compiled with an unsupported toolchain)",
    ),
    Signature(
        "torch-without-gpu",
        ("UserWarning: CUDA initialization: The NVIDIA driver",),
        "torch on {host} uses no GPU: it was built for a newer CUDA than the driver supports (up to {version}; 12080 is CUDA "
        "12.8).",
        "Update the driver, or install torch for an older CUDA: nvidia-smi shows the newest CUDA that the driver can run.",
        r"The NVIDIA driver on your system is too old \(found version (?P<version>\d+)\)",
        kind=FailureText.FALLBACK,
        at_end="driver on your system is too old|_cuda_getDeviceCount|your version of the CUDA driver",
    ),
    Signature(
        "fabricmanager",
        ("system not yet initialized", "System not yet initialized", "cudaErrorSystemNotReady"),
        "The NVSwitch fabric of {host} is not ready: nvidia-fabricmanager does not run, or is of another version than the "
        "driver.",
        "systemctl status nvidia-fabricmanager; install exactly the driver's version, then systemctl restart it.",
    ),
    Signature(
        "nccl-cuda-failure",
        ("Cuda failure ", "CUDA failure "),
        "A CUDA call of NCCL failed on {host}: {why}.",
        "[[argument?NCCL, CUDA and torch may not match: run python3 -c 'import torch; print(torch.version.cuda, "
        "torch.cuda.nccl.version())', and keep only one libnccl in LD_LIBRARY_PATH. Otherwise two ranks are on one GPU: torch.cuda.set_device(local_rank)||Run "
        "nvidia-smi on {host}: is the GPU there, free, and without Xid errors (dmesg -T | grep Xid)?]]"
        "[[unknown? If nvidia-smi works but CUDA does not: nvidia-modprobe -u -c=0 on the host, then start the container again; with NVSwitch, systemctl status "
        "nvidia-fabricmanager.]]",
        # Its own line under "Last error:", those of NCCL's WARN, and of nccl-tests
        r"(?:NCCL WARN |^|Test )(?:Cuda|CUDA) failure (?:[\w./]+:\d+ )?(?:\d+ )?'?(?=(?P<argument>invalid)?)"
        r"(?=(?P<unknown>unknown error)?)(?P<why>[^'\r\n]*[^'\s])",
        unless=(
            "cuda-driver-old",
            "fabricmanager",
            "cuda-out-of-memory",
            "shm-too-small",
            "nccl-nvls",
            "cuda-stub",
            "nccl-too-many-peers",
            "cuda-not-started",
            "cuda-device-number",
            "nccl-gpu-code",
        ),
    ),
    Signature(
        "shm-not-shared",
        ("Error while attaching to shared memory segment",),
        "A rank of {host} does not find the shared memory of another rank there: they run in containers that do not share "
        "/dev/shm, or that other rank has ended.",
        "Start all ranks of a host in one container, or each with docker run --ipc=host. Else look for the rank that ended "
        "first.",
        r"attaching to shared memory segment \S+ [^\r\n]*No such file",
    ),
    Signature(
        "nccl-invalid-usage",
        ("invalid usage", "ncclInvalidUsage"),
        "NCCL refuses a call of a rank (invalid usage): most often two ranks use the same GPU.",
        "Use one rank per GPU: in the program, call torch.cuda.set_device(hvd.local_rank()) before anything else, and "
        "give each host no more slots than GPUs. -x NCCL_DEBUG=WARN shows which call it was.",
        r"(?i:nccl)[^\r\n]*invalid usage|ncclInvalidUsage",
        unless=("nccl-gpu-shared",),
    ),
    Signature(
        "nccl-not-ready",
        ("Attempt to use communicator before the previous operation returned",),
        "The program on {host} used an NCCL communicator although an earlier call on it had failed or had not finished.",
        "Look for the first NCCL WARN or NCCL error before it, on every rank. Without one: the program was built for another NCCL than the one "
        "that it has loaded (strings libnccl.so.2 | grep 'NCCL version').",
        kind=FailureText.ECHO,
    ),
    Signature(
        "nccl-aborted",
        ("communicator was aborted", "communicator is aborted"),
        "torch ended NCCL's work in this rank[[rank? ({rank})]]: a collective took too long, or another rank failed[[why?. It gives the reason: {why}]].",
        "Look for the rank that failed or fell silent first; its lines before this point show why.",
        r"NCCL communicator (?:was|is) aborted(?: on rank (?P<rank>\d+))?(?:[^\r\n]*?reason for failure was: (?P<why>[^\r\n]*[^\s.]))?",
        kind=FailureText.ECHO,
        unless=("torch-collective-timeout", "torch-collectives-differ", "torch-ranks-apart", "nccl-peer-gone"),
    ),
    Signature(
        "nccl-invalid-argument",
        (", invalid argument, NCCL version", "ncclInvalidArgument"),
        "NCCL refuses an argument that a rank gives it: most often a rank's number that is not below the number of ranks, two ranks on one GPU, or a "
        "tensor that is not on the rank's own GPU.",
        "-x NCCL_DEBUG=WARN shows which argument. Start as many processes as WORLD_SIZE, and call "
        "torch.cuda.set_device(local_rank) before anything else.",
        r"(?i:nccl)[^\r\n]*, invalid argument\b|ncclInvalidArgument",
        unless=("nccl-gpu-shared", "nccl-invalid-usage", "nccl-ranks-differ"),
    ),
    Signature(
        "nccl-peer-gone",
        (
            "remote process exited or there was a network error",
            "onnection closed by remote peer",
            "NCCL WARN Net : Call to ",
            "ncclRemoteError",
            "Socket recv failed while polling for opId",
        ),
        "NCCL on {host} lost another rank[[peer?, at {peer}]].",
        "Look for the rank that ended first, and at its host.[[peer? Where {peer} is no host of the job, something "
        "else connected to one of NCCL's ports and left: NCCL 2.27.3 and newer tolerates that.]]",
        r"^(?!.*NCCL INFO ).*(?:remote process exited|closed by remote peer(?: (?P<peer>[\w.:-]+)<)?|NCCL WARN Net : Call to "
        r"(?:\w+ from (?P<peer2>[^\s<]+)<)?|ncclRemoteError|Socket recv failed while polling for opId)",
        kind=FailureText.ECHO,
    ),
    Signature(
        "nccl-failed",
        (
            *(
                "unhandled system error",
                "unhandled cuda error",
                "ncclSystemError",
                "ncclInternalError",
                "ncclUnhandledCuda",
            ),
            *(
                "Test NCCL failure",
                "NCCL error in: ",
                "NCCL error: ",
                "NCCL Error ",
                "NCCL failure ",
                "Failed, NCCL error",
            ),
        ),
        "NCCL failed, and this log shows no known reason.",
        "The reason is in the NCCL WARN lines before the error; without any, run it again with -x NCCL_DEBUG=INFO.",
        kind=FailureText.FALLBACK,
        unless=("nccl-warned", "nccl-start-failed", "nccl-invalid-argument", "nccl-not-ready"),
    ),
    Signature(
        "nccl-foreign-connection",
        ("wrong type", "wrong magic"),
        "Something other than NCCL connected to a port of NCCL: a port scanner, or a rank left over from another job.",
        "Check that no rank of an older job is alive on the hosts: nvidia-smi, ps. Scanners do no harm.",
        r"socket\w*: wrong (?:type|magic)",
        kind=FailureText.NOTE,
        unless=("nccl-networks-differ",),
    ),
    Signature(
        "nccl-no-verbs",
        ("Failed to open libibverbs.so",),
        "There is no libibverbs where the ranks of {host} run, so NCCL uses TCP.",
        "For RDMA, install the user-space drivers there or in the image, in the same MLNX_OFED version as on the host: apt-get install libibverbs1 "
        "ibverbs-providers.",
        kind=FailureText.NOTE,
        unless=("nccl-ofi-no-provider",),
    ),
    Signature(
        "nccl-no-ib-device",
        ("NET/IB : No device found",),
        "NCCL found no RDMA device on {host}, so it uses TCP.",
        "For RDMA, check ls /sys/class/infiniband on the host, and ls /dev/infiniband where the ranks run (a "
        "container needs docker run --device /dev/infiniband). NCCL_IB_HCA may name a device that does not exist.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "nccl-on-tcp",
        ("NCCL_IB_DISABLE set by environment to 1",),
        "RDMA is turned off by NCCL_IB_DISABLE=1, so NCCL uses TCP.",
        "If the hosts have RDMA, unset NCCL_IB_DISABLE.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "nccl-gdr-off",
        ("GPU Direct RDMA Disabled for HCA",),
        "GPUDirect RDMA is off for {hca} on {host}: data goes through the host's memory.",
        "On the host, check lsmod | grep peermem. If the module is missing, run modprobe nvidia-peermem, and add "
        "its name to a file in /etc/modules-load.d/ so that it is loaded at boot. All hosts need it.",
        r"GPU Direct RDMA Disabled for HCA \d+ '(?P<hca>[^']+)'",
        kind=FailureText.NOTE,
    ),
)
