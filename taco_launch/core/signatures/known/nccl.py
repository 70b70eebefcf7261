"""Recognise what NCCL 2.4 to 2.30 prints: networks, HCAs, GPUs, NVLink, ranks that do not agree.

Sources: src/misc/ibvwrap.cc, misc/socket.cc, misc/ipcsocket.cc, transport/net_ib, transport/net_socket.cc, transport/nvls.cc,
transport/p2p.cc, bootstrap.cc, graph, plugin, init.cc, enqueue.cc, group.cc, proxy.cc, os/linux.cc; aws-ofi-nccl: nccl_ofi_ofiutils.cpp.
"""

from taco_launch.core.signatures.known import FailureText, Qualifier, Signature

_COMPLETION = r"Got completion (?:from peer (?P<peer>[^\s<]+)\S* )?with (?:error |status=)(?:\w+\()?"

NCCL = (
    Signature(
        "nccl-old-connect",
        keys=("Call to connect timeout : ",),
        cause="NCCL on {host} could not connect to another rank: {why}. This version uses every interface that it finds, lo and link-local addresses among them.",
        next="Choose the interface that all hosts share: -x NCCL_SOCKET_IFNAME=eth0 (ip -br address lists them). NCCL before 2.4 has no better message.",
        pattern=r"NCCL WARN Call to connect timeout : (?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "nccl-ib-no-answer",
        keys=("Got completion ",),
        cause="An RDMA message of {host}[[peer? to {peer}]] got no answer (status 12, retries exceeded). An error at the "
        "start means a wrong GID index or no route; a later one means a link, cable or lossless-Ethernet (PFC) fault, or the other rank is gone.",
        next="[[link?Use no link-local GID (fe80:), as this one was: -x NCCL_IB_ADDR_FAMILY=AF_INET6, or -x NCCL_IB_GID_INDEX=INDEX with the RoCE v2 index of a "
        "network address (run show_gids on both hosts)||Run show_gids on both hosts, and set -x NCCL_IB_GID_INDEX=INDEX, the RoCE v2 index with the IPv4 "
        "address (leave it unset from NCCL 2.21 on)]]. Test the pair: ib_write_bw -d mlx5_0 -x INDEX; if the error came later: -x NCCL_IB_TIMEOUT=22.",
        pattern=_COMPLETION + r"12\b(?=(?:[^\r\n]*localGid (?P<link>fe80))?)",
    ),
    Signature(
        "nccl-ib-flushed",
        keys=("Got completion ",),
        cause="An RDMA queue of {host} was emptied (status 5, flushed), which is the result of another error.",
        next="Look for what happened before it, on any host.",
        pattern=_COMPLETION + r"5\b",
        kind=FailureText.ECHO,
    ),
    Signature(
        "nccl-ib-protection",
        keys=("Got completion ",),
        cause="An RDMA operation of {host} failed with status 4 (local protection): the HCA was not allowed to access the memory. With GPUDirect RDMA the most common cause "
        "is PCI access control (ACS) or the IOMMU, which redirect the traffic between GPU and HCA.",
        next="See whether it is GPUDirect: -x NCCL_NET_GDR_LEVEL=LOC. If so, on {host}, switch ACS off on the bridges (lspci -vvv | grep ACSCtl shows SrcValid-) "
        "and the IOMMU off or to passthrough mode (iommu=pt), and check that nvidia_peermem has the driver's version (lsmod, modinfo).",
        pattern=_COMPLETION + r"4\b",
        unless=("nccl-device-event",),
    ),
    Signature(
        "nccl-ib-error",
        keys=("Got completion ",),
        cause="An RDMA operation of {host} failed with status {status} (1: length error, 2: queue pair error, 9: invalid request, 10: remote access denied, 11: remote operation failed, 13: receiver not ready).",
        next="Update firmware and MLNX_OFED to the same version on all hosts, and try without GPUDirect: "
        "-x NCCL_NET_GDR_LEVEL=LOC.",
        pattern=_COMPLETION + r"(?P<status>(?!(?:4|5|12)\b)\d+)",
        unless=("nccl-device-event",),
    ),
    Signature(
        "nccl-hca-unusable",
        keys=("ibv_modify_qp",),
        cause="{host} cannot use one of its HCAs for RDMA (No such device): its port has no network device or GID that this container or process sees, or its driver does not match.",
        next="See the HCAs in use with -x NCCL_DEBUG=INFO (NET/IB : Using), and leave the wrong one out: -x NCCL_IB_HCA=^mlx5_3. ibv_devinfo and show_gids where the ranks run show which HCAs work; -x NCCL_IB_DISABLE=1 shows whether the rest works.",
        pattern=r"ibv_modify_qp failed(?: with(?: error)?(?: \d+)?)?:? No such device",
    ),
    Signature(
        "nccl-gid-index",
        keys=("ibv_modify_qp",),
        cause="{host} could not set up an RDMA connection[[why? ({why})]]: the GID index does not fit, or the hosts' networks are not "
        "connected.",
        next="Run show_gids on every host, and set -x NCCL_IB_GID_INDEX=INDEX, the RoCE v2 index with the IPv4 address, often 3. From NCCL 2.21 on, leave it unset, "
        "or where the index differs between hosts: -x NCCL_IB_ADDR_RANGE=10.0.0.0/24 (on rail networks: -x NCCL_CROSS_NIC=0).",
        pattern=r"ibv_modify_qp failed(?: with(?: error)?(?: \d+)?)?:? ?(?P<why>[^\r\n,]*)",
        unless=("nccl-hca-unusable",),
    ),
    Signature(
        "memlock",
        keys=("ibv_reg_mr", "ibv_exp_reg_mr", "ibv_create_qp", "ibv_create_cq", "locked memory"),
        cause="{host} could not get memory for RDMA: most often the memlock limit of that process is too low[[queue?; with thousands of ranks, the HCA may also have no more queues]].",
        next="docker run --ulimit memlock=-1:-1 --cap-add IPC_LOCK; without a container, limits.conf or LimitMEMLOCK of sshd. "
        "Check through mpirun, not in a login shell: mpirun ... bash -c 'ulimit -l'[[queue? (if it is unlimited, use fewer connections: -x NCCL_IB_QPS_PER_CONNECTION=1, no all-to-all over all hosts)]].",
        pattern=r"(?!ibv_reg_mr\(address=[^)\r\n]*\)[^\r\n]*? failed: Cannot allocate memory\s*$)ibv_(?:exp_reg_mr|reg_mr|(?P<queue>create_qp|create_cq))\w{0,20}(?!\w|[^\r\n]{0,160}(?:Bad address|Invalid argument|Resource temporarily))[^\r\n]{0,80}?"
        r"(?:failed|Cannot allocate memory)"
        r"|to allocate some locked memory|set max locked memory",
    ),
    Signature(
        "nccl-port-error",
        keys=("Got async event : port error",),
        cause="The RDMA port[[device? {device}]] of {host} reported an error: its link went down, at the cable, the switch or the NIC.",
        next="On {host}: ibstat; ip -s link; dmesg -T | grep -i mlx5. Leave {host} out with --exclude {host} until the link stays up.",
        pattern=r"(?:NET/IB : (?P<device>[\w.-]+:\d+) )?Got async event : port error",
    ),
    Signature(
        "nccl-version-mismatch",
        keys=("Mismatched NCCL version detected",),
        cause="The ranks have different versions of NCCL: their images or Python environments differ.",
        next="Use the same version on every host. To compare images: docker image inspect --format '{{{{.Id}}}}' IMAGE on each host; otherwise python3 -c "
        "'import torch; print(torch.cuda.nccl.version())'.",
    ),
    Signature(
        "nccl-gpu-shared",
        keys=("Duplicate GPU detected", "Multiple Ranks are using the same GPU"),
        cause="Two ranks use the same GPU[[ranks?: {ranks}]].",
        next="Use one rank per GPU: in the program, call torch.cuda.set_device(local_rank), and give each host no more "
        "slots than GPUs. Host names must be unique.",
        pattern=r"Duplicate GPU detected ?: (?P<ranks>[^\r\n]*\S)|Multiple Ranks are using the same GPU",
    ),
    Signature(
        "nccl-no-interface",
        keys=(
            *("no socket interface found", "No socket interface found", "No interface found", "is neither AF_INET"),
            *("NET/Socket : no interface found", "No usable listening interface found"),
        ),
        cause="{host} has no network interface that NCCL_SOCKET_IFNAME allows.",
        next="List its interfaces: ip -br addr. The name must exist on every host: -x NCCL_SOCKET_IFNAME==bond0 (the second = "
        "requests exactly that name).",
        pattern=r"(?i:NCCL.*no (?:socket |usable listening )?interface found)|connecting to address .*(?!family 1 )family \d+ is neither AF_INET",
    ),
    Signature(
        "nccl-link-local",
        keys=("onnect to fe80:",),
        cause="NCCL on {host} chose a link-local IPv6 address ({peer}), which other hosts do not reach[[why? ({why})]].",
        next="Use IPv4: -x NCCL_SOCKET_FAMILY=AF_INET, with an interface that has such an address on all hosts: -x NCCL_SOCKET_IFNAME==bond0 (ip -br -4 address shows them).",
        pattern=r"onnect to (?P<peer>fe80:[^\s<]+)<\d+> (?:failed|returned|timed out)(?!.*retrying)\s*:? ?(?P<why>[^\r\n]*[^\s])?",
    ),
    Signature(
        "nccl-accept",
        keys=("Accept failed: ",),
        cause="NCCL on {host} stopped while it waited for other ranks ({why})[[closed?: another thread or rank had ended NCCL's start by then]].",
        next="Look for what failed first, in the lines before it and on the other ranks: -x NCCL_DEBUG=INFO shows them.",
        pattern=r"socket(?:Try)?Accept: Accept failed: (?=(?P<closed>Bad file descriptor|Invalid argument)?)(?P<why>[^\r\n']*[^\s.'])",
        kind=FailureText.ECHO,
    ),
    Signature(
        "nccl-connect",
        keys=("onnect to ", "socketPollConnect", "WARN Call to connect failed"),
        cause="{host} cannot connect to [[peer?{peer}||another rank]] when NCCL starts[[why? ({why})]]: the address is on a "
        "network that the hosts do not share, a firewall blocks it, or a rank never started[[dropped? or gets more connections than it accepts]].",
        next="Name the network: -x NCCL_SOCKET_IFNAME==bond0. If that is set: [[peer?ip route get {peer} on {host} shows the route, and ]]all ports from 1024 on "
        "have to be open between the hosts (NCCL uses any free one)[[dropped?; with hundreds of ranks: sysctl net.core.somaxconn "
        "net.ipv4.tcp_max_syn_backlog]].",
        pattern=r"onnect to (?P<peer>[^\s<]+)<\d+> (?:failed|returned|timed out)(?!.*retrying)\s*:? ?"
        r"(?P<why>Connection refused|No route to host|Connection timed out|Network is unreachable|[^\r\n]*[^\s])?"
        r"|(?P<dropped>NCCL WARN socketPollConnect)[ :]+(?![ :]|Connect to)(?P<why2>[^\r\n]*\S)"
        r"|WARN Call to connect failed ?: (?P<why3>[^\r\n]*\S)",  # NCCL 2.0 to 2.2
        unless=("nccl-link-local",),
    ),
    Signature(
        "nccl-network-unknown",
        keys=("Error: network ",),
        cause="NCCL has no network {name}, which NCCL_NET requests.",
        next="Set NCCL_NET to IB, Socket or the name of a plugin that is in the image. For IB, install libibverbs and pass /dev/infiniband where the ranks run "
        "(docker run --device /dev/infiniband).",
        pattern=r"Error: network (?P<name>\S+) not found",
    ),
    Signature(
        "oneccl-failed",
        keys=("|CCL_ERROR|", "oneCCL: "),
        cause="oneCCL failed on {host}: {why}.",
        next="[[advice?Set {advice}, as it says||Set -x CCL_LOG_LEVEL=info, which shows its choices. If a worker thread did not start, give it a CPU of the container: CCL_WORKER_AFFINITY]].",
        pattern=r"\|CCL_ERROR\| [\w.]+:\d+ \w+: (?P<why>[^\r\n]{1,200}[^\s.])(?:\s+[^\r\n]{0,200}?\bset (?P<advice>CCL_\w+=\w+) explicitly)?"
        r"|oneCCL: [^\r\n]{0,120}?EXCEPTION: (?P<why2>[^\r\n]{1,200}[^\s.])",
        lines=2,
    ),
    Signature(
        "cann-failed",
        keys=(" Reason: ", " Possible Cause: "),
        cause="CANN, the library of Ascend NPUs, failed on {host}[[code? ({code}): {what}]]: {why}.",
        next="Follow its own solution: {how}. The manual of CANN lists [[code?{code}||its code]] with its other causes.",
        pattern=r"\b(?P<code>E[A-Z]\d{4}): (?:[\d:.-]+ )?(?P<what>[^\r\n]{1,200}?)[.:]? Reason: (?P<why>[^\r\n]{1,200}?)\.?\s+(?:Possible Cause: [^\r\n]*\s+)?Solution: (?P<how>[^\r\n]{1,200}[^\s.])"
        r"|Possible Cause: (?P<why2>[^\r\n]{1,300}?)\.?\s+Solution: (?P<how2>[^\r\n]{1,300}[^\s.])",
        lines=3,
        unless=("hccl-timeout",),
    ),
    Signature(
        "hccl-timeout",
        keys=("EI0006", "EI0002", "EE1002", "107020", "507046"),
        cause="HCCL (Ascend NPUs): a rank on {host} waited too long [[code?({code}), most often in a collective for another rank||for another one to connect (EI0006)]]: that one has ended, is late, or is not reached.",
        next="Look for the rank that failed first, [[code?see whether all have as many samples and steps, ||]]and run hccn_tool -i 0 -ping -g address PEER between the hosts. If ranks are only late (a checkpoint, a compiler): -x [[code?HCCL_EXEC_TIMEOUT||HCCL_CONNECT_TIMEOUT]]=1800.",
        pattern=r"EI0006|\b(?P<code>EI0002|EE1002(?=: )(?=[^\r\n]*[Tt]imeout))|\berror code is (?P<code2>107020|507046)\b",
        kind=FailureText.ECHO,
    ),
    Signature(
        "shm-denied",
        keys=("shm_open failed : Permission denied", "shm_open to", "creating shared memory segment"),
        cause="The user of the ranks may not write to /dev/shm on {host}.",
        next="ls -ld /dev/shm there: it has to be drwxrwxrwt (chmod 1777 /dev/shm).",
        pattern=r"shm_open (?:failed ?|to \S+ failed)[^\r\n]*Permission denied"
        r"|creating shared memory segment [^\r\n]*error: Permission denied",
    ),
    Signature(
        "shm-too-small",
        keys=(
            "dev/shm",
            "fallocate failed",
            "insufficient shared memory (shm)",
            "out of shared memory",
        ),
        cause="Shared memory (/dev/shm) of {host} is too small.",
        next="Run df -h /dev/shm where the ranks run. In a container, start it with docker run --shm-size=32g (shm_size in the inventory; 64 MB is docker's "
        "default) or --ipc=host; on the host: mount -o remount,size=32g /dev/shm, and remove leftover files; otherwise use fewer data loader workers.",
        pattern=r"Error while creating shared memory segment (?:/dev/shm/)?\S+ \(size \d+\)(?!, error: (?!No space left))"
        r"|shm\w*\.(?:h|cc):\d+ [^\r\n]*fallocate failed|failed to extend /dev/shm|(?:posix_)?fallocate[^\r\n]*/dev/shm|/dev/shm[^\r\n]*No space left"
        r"|No space left[^\r\n]*/dev/shm|insufficient shared memory|out of shared memory",
        unless=("shm-denied",),
    ),
    Signature(
        "cuda-driver-old",
        keys=(
            "CUDA driver version is insufficient",
            "driver on your system is too old",
            "PTX was compiled with an unsupported toolchain",
        ),
        cause="The NVIDIA driver of {host} is older than the program's CUDA needs.",
        next="Update the driver, or use an image or build for an older CUDA: nvidia-smi shows the newest CUDA that the driver can run.",
        pattern=r"^(?!.*UserWarning: ).*(?:CUDA driver version is insufficient|driver on your system is too old|PTX was compiled with an unsupported toolchain)",
    ),
    Signature(
        "torch-without-gpu",
        keys=("UserWarning: CUDA initialization: The NVIDIA driver",),
        cause="torch on {host} uses no GPU: it was built for a newer CUDA than the driver supports (up to {version}; 12080 is CUDA "
        "12.8).",
        next="Update the driver, or install torch for an older CUDA: nvidia-smi shows the newest CUDA that the driver can run.",
        pattern=r"The NVIDIA driver on your system is too old \(found version (?P<version>\d+)\)",
        kind=FailureText.FALLBACK,
        at_end="driver on your system is too old|_cuda_getDeviceCount|your version of the CUDA driver",
    ),
    Signature(
        "fabricmanager",
        keys=("system not yet initialized", "System not yet initialized", "cudaErrorSystemNotReady"),
        cause="The NVSwitch fabric of {host} is not ready: nvidia-fabricmanager does not run, or is of another version than the "
        "driver.",
        next="systemctl status nvidia-fabricmanager; install exactly the driver's version, then systemctl restart it.",
    ),
    Signature(
        "nccl-after-exit",
        keys=("driver shutting down",),
        cause="The process on {host} ended while NCCL or another thread of it still used the GPU: this line is a consequence of that end.",
        next="Look for the first error of that process, above this line or in its own log. If it shows no error, wait for all collectives and destroy the communicators before the program ends: "
        "torch.cuda.synchronize(), then torch.distributed.destroy_process_group() (ncclCommDestroy).",
        pattern=r"(?:Cuda|CUDA) (?:failure|error)[^\r\n]{0,80}driver shutting down",
        kind=FailureText.ECHO,
    ),
    Signature(
        "nccl-cuda-failure",
        keys=("Cuda failure ", "CUDA failure "),
        cause="A CUDA call of NCCL failed on {host}: {why}.",
        next="[[argument?Run python3 -c 'import torch; print(torch.version.cuda, torch.cuda.nccl.version())' and keep only one libnccl in LD_LIBRARY_PATH: NCCL, "
        "CUDA and torch may not match. If they do, two ranks are on one GPU: torch.cuda.set_device(local_rank)||Run nvidia-smi on {host}: is the GPU there, "
        "free, and without Xid errors (dmesg -T | grep Xid)?]][[unknown? If nvidia-smi works but CUDA does not: nvidia-modprobe -u -c=0 on the host, then "
        "start the container again; with NVSwitch, systemctl status nvidia-fabricmanager.]]",
        # Its own line under "Last error:", those of NCCL's WARN, and of nccl-tests
        pattern=r"(?:NCCL WARN |^|Test )(?:Cuda|CUDA) failure (?:[\w./]+:\d+ )?(?:\d+ )?'?(?!driver shutting down)(?=(?P<argument>invalid)?)"
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
            "nccl-peer-access",
        ),
    ),
    Signature(
        "shm-not-shared",
        keys=("Error while attaching to shared memory segment",),
        cause="A rank of {host} does not find the shared memory of another rank there: they run in containers that do not share "
        "/dev/shm, or that other rank has ended.",
        next="Start all ranks of a host in one container, or each with docker run --ipc=host. Else look for the rank that ended "
        "first.",
        pattern=r"attaching to shared memory segment \S+ [^\r\n]*No such file",
    ),
    Signature(
        "nccl-invalid-usage",
        keys=("invalid usage", "ncclInvalidUsage"),
        cause="NCCL refuses a call of a rank (invalid usage): most often two ranks use the same GPU.",
        next="Use one rank per GPU: in the program, call torch.cuda.set_device(local_rank) (Horovod: hvd.local_rank()) before anything else, and "
        "give each host no more slots than GPUs. -x NCCL_DEBUG=WARN shows which call it was.",
        pattern=r"(?i:nccl)[^\r\n]*invalid usage|ncclInvalidUsage",
        unless=("nccl-gpu-shared",),
    ),
    Signature(
        "nccl-not-ready",
        keys=("Attempt to use communicator before the previous operation returned",),
        cause="The program on {host} used an NCCL communicator although an earlier call on it had failed or had not finished.",
        next="Look for the first NCCL WARN or NCCL error before it, on every rank. Without one: the program was built for another NCCL than the one "
        "that it has loaded (strings libnccl.so.2 | grep 'NCCL version').",
        kind=FailureText.ECHO,
    ),
    Signature(
        "nccl-aborted",
        keys=("communicator was aborted", "communicator is aborted"),
        cause="torch ended NCCL's work in this rank[[rank? ({rank})]]: a collective took too long, or another rank failed[[why?. It gives the reason: {why}]].",
        next="Look for the rank that failed or fell silent first; its lines before this point show why.",
        pattern=r"NCCL communicator (?:was|is) aborted(?: on rank (?P<rank>\d+))?(?:[^\r\n]*?reason for failure was: (?P<why>[^\r\n]*[^\s.]))?",
        kind=FailureText.ECHO,
        unless=("torch-collective-timeout", "torch-collectives-differ", "torch-ranks-apart", "nccl-peer-gone"),
    ),
    Signature(
        "nccl-invalid-argument",
        keys=(", invalid argument, NCCL version", "ncclInvalidArgument"),
        cause="NCCL refuses an argument that a rank gives it: most often a rank's number that is not below the number of ranks, two ranks on one GPU, or a "
        "tensor that is not on the rank's own GPU.",
        next="-x NCCL_DEBUG=WARN shows which argument. Start as many processes as WORLD_SIZE, and call "
        "torch.cuda.set_device(local_rank) before anything else.",
        pattern=r"(?i:nccl)[^\r\n]*, invalid argument\b|ncclInvalidArgument",
        unless=("nccl-gpu-shared", "nccl-invalid-usage", "nccl-ranks-differ"),
    ),
    Signature(
        "nccl-peer-gone",
        keys=(
            "remote process exited or there was a network error",
            "onnection closed by remote peer",
            "NCCL WARN Net : Call to ",
            "ocketProgressOpt: Call to ",
            "ncclRemoteError",
            "Socket recv failed while polling for opId",
        ),
        cause="NCCL on {host} lost another rank[[peer?, at {peer}]].",
        next="Look for the rank that ended first, and at its host.[[peer? Where {peer} is no host of the job, something "
        "else connected to one of NCCL's ports and left: NCCL 2.27.3 and newer tolerates that.]]",
        pattern=r"^(?!.*NCCL INFO ).*(?:remote process exited|closed by remote peer(?: (?P<peer>[\w.:-]+)<)?|NCCL WARN (?:Net :|\w*ocketProgressOpt:) Call to "
        r"(?:\w+ from (?P<peer2>[^\s<]+)<)?|ncclRemoteError|Socket recv failed while polling for opId)",
        kind=FailureText.ECHO,
    ),
    Signature(
        "nccl-failed",
        keys=(
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
        cause="NCCL failed[[host? on {host}]], and this log shows no known reason.",
        next="Read the NCCL WARN lines before the error, which give the reason; without any, run it again with -x NCCL_DEBUG=INFO.",
        kind=FailureText.FALLBACK,
        unless=("nccl-warned", "nccl-start-failed", "nccl-accept", "nccl-invalid-argument", "nccl-not-ready"),
    ),
    Signature(
        "nccl-foreign-connection",
        keys=("wrong type", "wrong magic"),
        cause="Something other than NCCL connected to a port of NCCL: a port scanner, or a rank left over from another job.",
        next="Check that no rank of an older job is alive on the hosts: nvidia-smi, ps. Scanners do no harm.",
        pattern=r"socket\w*: wrong (?:type|magic)",
        kind=FailureText.NOTE,
        unless=("nccl-networks-differ",),
    ),
    Signature(
        "rccl-setting-missing",
        keys=('NCCL WARN Missing "',),
        cause="RCCL on {host} does not find {what}, without which ranks can be slow or hang.",
        next="[[kernel?Add amd_iommu=on iommu=pt to the kernel's command line of every host (GRUB_CMDLINE_LINUX), and reboot||Give it to every rank: -x {what}]].",
        pattern=r'NCCL WARN Missing "(?P<what>\w+=\w+)" from (?P<kernel>kernel)?',
        kind=FailureText.NOTE,
    ),
    Signature(
        "nccl-no-verbs",
        keys=("Failed to open libibverbs.so",),
        cause="There is no libibverbs where the ranks of {host} run, so NCCL uses TCP.",
        next="For RDMA, install the user-space drivers there or in the image, in the same MLNX_OFED version as on the host: apt-get install libibverbs1 "
        "ibverbs-providers.",
        kind=FailureText.NOTE,
        unless=("nccl-ofi-no-provider",),
    ),
    Signature(
        "nccl-no-ib-device",
        keys=("NET/IB : No device found",),
        cause="NCCL found no RDMA device on {host}, so it uses TCP.",
        next="For RDMA, check ls /sys/class/infiniband on the host, and ls /dev/infiniband where the ranks run (a "
        "container needs docker run --device /dev/infiniband). NCCL_IB_HCA may name a device that does not exist.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "nccl-on-tcp",
        keys=("NCCL_IB_DISABLE set by environment to 1",),
        cause="RDMA is turned off by NCCL_IB_DISABLE=1, so NCCL uses TCP.",
        next="If the hosts have RDMA, unset NCCL_IB_DISABLE.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "nccl-gdr-off",
        keys=("GPU Direct RDMA Disabled for HCA",),
        cause="GPUDirect RDMA is off for {hca} on {host}: data goes through the host's memory.",
        next="On every host, check lsmod | grep peermem. If the module is missing, run modprobe nvidia-peermem, and add its name to a file in /etc/modules-load.d/ "
        "so that it is loaded at boot.",
        pattern=r"GPU Direct RDMA Disabled for HCA \d+ '(?P<hca>[^']+)'",
        kind=FailureText.NOTE,
    ),
)


# ibv_event_type_str of libibverbs, of a queue or a device; not of a port, whose events are told elsewhere.
_EVENTS = (
    "local access violation work queue error|local work queue catastrophic error|invalid request local work queue error|"
    "local catastrophic error|SRQ catastrophic error|CQ error"
)

NCCL_DEVICES = (
    Signature(
        "nccl-links-differ",
        keys=("incompatible devices", "device is incompatible with the local"),
        cause="NCCL on {host} would have to connect HCAs of different kinds[[what?: {what}]]. One is InfiniBand, another one Ethernet "
        "(RoCE), on this host or on another.",
        next="Name HCAs of one kind that every host has: -x NCCL_IB_HCA==mlx5_0,mlx5_1. ibv_devinfo shows the link_layer of each.",
        pattern=r"NET/IB ?: (?:Attempted to (?:connect|merge) incompatible devices|Remote [^\r\n]* device is incompatible)"
        r"(?:[^\r\n\[]*(?P<what>\[[^\r\n]*?)(?=\. Try|\r|\n|$))?",
    ),
    Signature(
        "nccl-ib-device",
        keys=("NET/IB : Unable to open device", "NET/IB : Unable to query "),
        cause="NCCL on {host} cannot use an RDMA device: {what}.",
        next="Run ls -l /dev/infiniband and ibv_devinfo where the ranks run. Start a container with --device /dev/infiniband; the user must be able to read and "
        "write /dev/infiniband/uverbs*.",
        pattern=r"NET/IB : (?P<what>Unable to (?:open|query) [^\r\n]*[^\s.])",
    ),
    Signature(
        "nccl-ib-fatal",
        keys=("async fatal event",),
        cause="The RDMA device[[device? {device}]] of {host} reported a fatal error: {why}.",
        next="On {host}, run dmesg -T | grep -i mlx5 and ibstat: look for a reset or outdated firmware. Leave {host} out with --exclude {host} until it is fixed.",
        pattern=r"NET/IB : (?P<device>[\w.-]+:\d+)? ?async fatal event(?: on \w+)?[^\r\n:(]{0,80}[:(]?\s{0,8}"
        r"(?P<why>[^\s.](?:[^\r\n]*[^\s.])?)",
    ),
    Signature(
        "nccl-truncated",
        keys=("essage truncated",),
        cause="The ranks disagree: one of them sends a message whose size differs from the one that {host} expects to receive.",
        next="See that every rank calls the same collectives in the same order and with the same sizes (-x "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL), and that all have the same versions of NCCL and of the network plugin.",
        pattern=r"(?:NET/\w+ ?:|NCCL|^)[^\r\n]*[Mm]essage truncated ?: receiv(?:ed|ing) \d",
    ),
    Signature(
        "nccl-handles",
        keys=("UDS: ",),
        cause="Two ranks of {host} cannot share GPU memory with each other: NCCL's Unix socket failed ({why}). Either "
        "they run in containers with separate networks, or one of them has ended.",
        next="Run all ranks of a host in one container, or each with --network host. -x NCCL_CUMEM_ENABLE=0 makes NCCL work without such "
        "sockets.",
        pattern=r"UDS: (?P<why>(?:Sending data over|Receiving data over|Binding to|Socket creation|Cannot (?:bind|connect))[^\r\n]*\S)",
    ),
    Signature(
        "nccl-nvls",
        keys=("Failed to bind NVLink SHARP (NVLS)", "nvls.cc:"),
        cause="NVLink SHARP (NVLS) cannot be set up on {host}: {why}. There is a problem with the fabric manager or an NVSwitch.",
        next="Check systemctl status nvidia-fabricmanager on {host}: its version must be exactly that of the driver; restart it when no job is running. To run the "
        "job without NVLS: -x NCCL_NVLS_ENABLE=0.",
        pattern=r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory of size \d+ ?: (?P<why>CUDA error (?!2 )\d+ '[^'\r\n]*')"
        r"|nvls\.cc:\d+ NCCL WARN (?P<why2>Cuda failure [^\r\n]*\S)",
        unless=("nccl-nvls-full", "cuda-not-started", "cuda-out-of-memory", "cuda-driver-old"),
    ),
    Signature(
        "nccl-nvls-full",
        keys=("Failed to bind NVLink SHARP (NVLS)",),
        cause="The NVSwitches of {host} have no room for another multicast group: each NCCL communicator uses some of the groups.",
        next="Use fewer communicators (process groups) at a time, another version of NCCL, or -x NCCL_NVLS_ENABLE=0.",
        pattern=r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory of size \d+ ?: CUDA error 2 ",
    ),
    Signature(
        "nccl-peer-access",
        keys=(
            *("failed to peer with device", "failed to open CUDA IPC handle", "IpcGetMemHandle failed"),
            "transport/p2p.cc:",
        ),
        cause="Two GPUs of {host} cannot reach each other's memory: {why}.",
        next="[[amd?rocm-smi --showtopoaccess||nvidia-smi topo -p2p r]] shows which GPUs can: none in a virtual machine, with an IOMMU[[amd? (unless the kernel has iommu=pt)]] and ACS on, or if the ranks run in separate containers without "
        "--ipc=host. To use shared memory instead: -x NCCL_P2P_DISABLE=1.",
        # In p2p.cc a CUDA call opens the memory of another GPU; RCCL's own is in a folder hipify.
        pattern=r"(?:(?P<amd>/hipify/)src/[\w/]{1,40}\.cc:\d+ NCCL WARN )?(?P<why>failed to (?:peer with device|open CUDA IPC handle) [^\r\n]*\S|(?:cuda|hip)IpcGetMemHandle failed[^\r\n]*\S)"
        r"|(?:(?P<amd2>/hipify/)src/)?transport/p2p\.cc:\d+ NCCL WARN (?:Cuda|HIP) failure (?:\d+ )?'(?P<why2>invalid (?:argument|resource handle|device context)|peer access is not supported[^'\r\n]*|operation not supported|mapping of buffer object failed)'",
    ),
    Signature(
        "nccl-ranks-differ",
        keys=("Bootstrap Root : mismatch in ", "has already checked in"),
        cause="The ranks do not agree on their rank numbers or on the number of ranks: {what}.",
        next="Give each rank a different number in RANK, and all ranks the same WORLD_SIZE. Make sure that no rank of an older job with the same MASTER_PORT is "
        "still running: this causes the error too.",
        pattern=r"Bootstrap Root : (?P<what>(?:mismatch in|rank \d+ of \d+)[^\r\n]*\S)",
    ),
    Signature(
        "nccl-address",
        keys=("Invalid NCCL_COMM_ID", "verify NCCL_OOB_NET_IFNAME"),
        cause="NCCL on {host} cannot use an address that it is given: {what}.",
        next="Leave NCCL_COMM_ID and NCCL_OOB_NET_IFNAME out under mpirun and torchrun. If you set them, write NCCL_COMM_ID as HOST:PORT of rank 0, and in "
        "NCCL_OOB_NET_IFNAME interfaces that every host has.",
        pattern=r"(?P<what>Invalid NCCL_COMM_ID|no device found [^\r\n]*verify NCCL_OOB_NET_IFNAME)",
    ),
    Signature(
        "nccl-topology",
        keys=(
            "Could not find any local path from gpu",
            "Could not find NET with id",
            "could not find CPU close to GPU",
            "Could not open XML graph file",
            "XML Graph has wrong version",
            "Could not find real path of",
            " of node ",
            "Failed to find reverse path from",
        ),
        cause="NCCL does not understand how the devices of {host} are connected: {what}.",
        next="Unset NCCL_TOPO_FILE and NCCL_GRAPH_FILE[[net?, and use the same network devices for all ranks (the same NCCL_IB_HCA, NCCL_NET and NCCL_SOCKET_IFNAME) and the same image on all hosts]]"
        "[[links?, compare the links of the GPUs in both directions (nvidia-smi topo -m, rocm-smi --showtopo; a virtual machine shows some in one only), and update NCCL or RCCL]]"
        "[[other?, and mount the host's /sys into the container]]. To see what NCCL sees: -x NCCL_DEBUG=INFO -x NCCL_DEBUG_SUBSYS=GRAPH.",
        # What torch quotes below "Last error:" has no mark of NCCL.
        pattern=r"NCCL WARN (?P<what>[^\r\n]*(?:(?P<other>local path|CPU close|XML|real path)|(?P<net>NET with id)|(?P<links>reverse path))[^\r\n]*[^\s.])"
        r"|^(?P<what2>Failed to find (?P<links2>reverse path) [^\r\n]*[^\s.])|(?P<what3>(?P<other2>Attribute) \w+ of node \w+ not found)",
        unless=("nccl-usb-interface",),
    ),
    Signature(
        "nccl-no-transport",
        keys=("has no transport for ", "No transport found for rank"),
        cause="NCCL on {host} found no way from one rank to another: {what}.",
        next="Unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE if ranks share a host; between hosts, read the NET/ lines "
        "before this message: no interface and no RDMA device could be used.",
        pattern=r"(?P<what>Rank \d+ has no transport for [^\r\n]*\S|No transport found for rank [^\r\n]*\S)",
    ),
    Signature(
        "nccl-socket",
        keys=("Socket creation failed",),
        cause="NCCL on {host} cannot open a socket: {why}.",
        next="Run ip -br addr where the ranks run: an interface must have an address (a container needs docker run --network host). Name the interface: -x "
        "NCCL_SOCKET_IFNAME==NAME.",
        pattern=r"WARN (?:NCCL )?(?:Net : )?Socket creation failed ?: (?P<why>[^\r\n]*\S)",
    ),
    Signature(
        "nccl-start-failed",
        keys=("socket.cc:", "socket.h:", "bootstrap.cc:"),
        cause="A TCP connection failed on {host} while NCCL was starting; NCCL does not report why.",
        next="Name the network that the hosts share: -x NCCL_SOCKET_IFNAME==bond0; all ports from 1024 on have to be open between them. If that is right, look for "
        "a rank that never started (-x NCCL_DEBUG=WARN shows more).",
        pattern=r"NCCL INFO (?:\w+/)?(?:socket|bootstrap)\.(?:cc|h):\d+ -> [1-9][\s\S]{0,900}?NCCL INFO (?:init|group)\.cc:\d+ -> [1-9]",
        kind=FailureText.FALLBACK,
        lines=8,
        unless=("nccl-warned", "nccl-accept"),
    ),
    Signature(
        "nccl-gpu-hidden",
        keys=("nvmlDeviceGetHandleByPciBusId", "invalid device ordinal"),
        cause="NCCL on {host} does not see the GPU of another rank of that host: Slurm (--gpu-bind, --gpus-per-task), a container "
        "or a cgroup shows each rank its own GPU only.",
        next="Show every rank all GPUs of the host, and choose one by the local rank: srun --gpus-per-node=8 without "
        "--gpus-per-task and --gpu-bind; one container for all ranks of a host. With -x NCCL_P2P_DISABLE=1 or -x "
        "NCCL_CUMEM_ENABLE=0, NCCL does not need to see them.",
        pattern=r"NCCL WARN nvmlDeviceGetHandleByPciBusId\([^)\r\n]*\) failed: Not Found|p2p\.cc:\d+ NCCL WARN Cuda failure (?:\d+ )?'invalid device",
    ),
    Signature(
        "nccl-warned",
        keys=("NCCL WARN ", "Last error:"),
        cause="NCCL failed on {host}: {what}.",
        next="Run it again with -x NCCL_DEBUG=INFO and read the lines before that one, on every host.",
        pattern=r"NCCL WARN (?!Missing |MSCCL)(?P<what>[^\r\n]*[^\s.])|Last error:[ \t]*\r?\n(?:[\w.-]+: )?[^\r\n]*?(?P<what2>\[?\w[^\r\n]*[^\s.])",
        lines=2,
        kind=FailureText.FALLBACK,
        only_with=("nccl-failed",),
    ),
    Signature(
        "nccl-networks-differ",
        keys=("wrong type ", "wrong socket type "),
        cause="The hosts do not use the same network: NCCL uses RDMA on one and TCP on another, so they cannot communicate.",
        next="Compare the 'Using network' lines of all hosts (-x NCCL_DEBUG=INFO shows them). On a host that uses Socket, run ibv_devinfo and check that the "
        "container has /dev/infiniband; to make all hosts use TCP: -x NCCL_IB_DISABLE=1.",
        # ncclSocketType: 3 is that of sockets' transport, 4 that of InfiniBand's
        pattern=r"socket\w*: wrong type (?:3 != 4|4 != 3)\b|wrong socket type \(peer (?:3 != expected 4|4 != expected 3)\b",
    ),
    Signature(
        "nccl-local-sockets",
        keys=("with family 1 is neither",),
        cause="Two ranks of {host} cannot connect to each other: P2P and shared memory are both turned off there.",
        next="Unset NCCL_P2P_DISABLE or NCCL_SHM_DISABLE. NCCL 2.29 fails in this case; other versions use the network instead.",
        pattern=r"connecting to address\s+with family 1 is neither",
    ),
    Signature(
        "nccl-libfabric",
        keys=("NET/OFI Couldn't ", "NET/OFI Creating new endpoint"),
        cause="NCCL's plugin for libfabric (on AWS: EFA) opened a device of {host}, which then refused [[av?the table of the other ranks' addresses]][[ep?an endpoint, the rank's end of its connections]][[other?a part of its setup]] ({why}). "
        "Most often too many processes use the device, too little memory may be locked, or libfabric, the plugin and the driver are of releases that do not fit.",
        next="Check on {host}: fi_info -p efa (or the provider that the log names), ulimit -l where the ranks run, dmesg -T | grep -i efa. Install one release of the EFA installer on all hosts and in the image; to continue over TCP: -x NCCL_NET_PLUGIN=none.",
        pattern=r"NET/OFI (?:Couldn't (?:create|allocate|bind|enable|open|get|register) (?:(?P<av>AV\b|address vector)|(?P<ep>(?:an? )?endpoint)|(?P<other>))[^\r\n]*?|Creating new (?P<ep2>endpoint) [^\r\n]{0,80}failed)"
        r"(?:(?:[.:] )?(?:RC: -?\d+, ERROR)?: +(?P<why>[^\r\n]*[^\s.]))?\s*$",
        unless=("slingshot-no-vni", "efa-no-device"),
    ),
    Signature(
        "nccl-sizes-differ",
        keys=(
            "collective mismatch error",
            "collective mismatch around rank ",
            "Mismatched collective detected",
            "posted incorrect receive info",
        ),
        cause="[[near?NCCL on {host} may hang, because the ranks around rank {near} call different collectives||Two ranks disagree: what one sends is not what the other expects]][[one?: {one} bytes here, {other} there]]"
        "[[peer? ({peer})]].",
        next="[[call?See that all ranks call the same collectives in the same order, with the same sizes and types: -x TORCH_DISTRIBUTED_DEBUG=DETAIL shows where they differ, -x NCCL_DEBUG_SUBSYS=COLL "
        "what each calls. If they do, compare NCCL and the NCCL_* variables of the hosts||Use the same NCCL and the same NCCL_* variables on all hosts. If they are the same already, the ranks call "
        "different collectives: -x TORCH_DISTRIBUTED_DEBUG=DETAIL shows where]].",
        pattern=r"(?:peer (?P<peer>[^\s<]+)\S* )?collective mismatch error,? local size (?P<one>\d+) remote (?:size )?(?P<other>\d+)"
        r"|(?P<call2>collective mismatch around rank) (?P<near>\d+)|(?P<call>Mismatched collective detected)|posted incorrect receive info",
    ),
    Signature(
        "nccl-dmabuf",
        keys=("ibv_reg_dmabuf_mr",),
        cause="An RDMA device of {host} cannot use GPU memory by DMA-BUF: {why}.",
        next="Run modprobe nvidia-peermem on {host} and set -x NCCL_DMABUF_ENABLE=0, or install a newer kernel and RDMA driver. To run without GPUDirect: -x "
        "NCCL_NET_GDR_LEVEL=LOC.",
        pattern=r"ibv_reg_dmabuf_mr\w* failed(?: with error)?:? ?(?P<why>[^\r\n,]*[^\s,.])",
    ),
    Signature(
        "nccl-memory-not-registered",
        keys=("ibv_reg_mr",),
        cause="An RDMA device of {host} cannot register GPU memory ({why}): GPUDirect RDMA does not work there.",
        next="On {host}: lsmod | grep peermem (if it is not loaded: modprobe nvidia-peermem), and dmesg -T | tail. -x NCCL_NET_GDR_LEVEL=LOC continues without "
        "GPUDirect.",
        pattern=r"ibv_reg_mr\w* failed(?: with error)?:? ?(?P<why>Bad address|Invalid argument)",
    ),
    Signature(
        "nccl-device-event",
        keys=("async event",),
        cause="An RDMA queue or device of {host}[[device? ({device})]] reported: {why}. Errors about completions on other hosts are a consequence of this.",
        next="[[hardware?Leave {host} out with --exclude {host} until its HCA, which failed, is reset or has newer firmware: dmesg -T | grep -i mlx on {host}||Use "
        "the same NCCL and driver on all hosts: an access violation means memory that was freed or never registered. To see whether GPUDirect is at fault: -x "
        "NCCL_NET_GDR_LEVEL=LOC, and dmesg -T | grep -i mlx5 on {host}]].",
        pattern=rf"NET/IB ?: (?:(?P<device>[\w.-]+:\d+) )?Got (?:non-fatal )?async event ?: (?=(?P<hardware>local cata)?)(?P<why>{_EVENTS})",
    ),
    Signature(
        "nccl-too-many-peers",
        keys=("peer mapping resources exhausted", "CUDA_ERROR_TOO_MANY_PEERS"),
        cause="A GPU of {host} requires direct access to more than 8 other GPUs, the limit of CUDA.",
        next="[[one?Start one process per GPU (mpirun -np N, -g 1): here one process uses all of them, as nccl-tests does with -g||Limit direct access to GPUs that "
        "are near each other: -x NCCL_P2P_LEVEL=PXB. To use shared memory instead: -x NCCL_P2P_DISABLE=1]].",
        pattern=r"(?:(?P<one>allocator\.cc):\d+ NCCL WARN Cuda failure [\d ']{0,20})?(?:peer mapping resources exhausted|CUDA_ERROR_TOO_MANY_PEERS)",
    ),
    Signature(
        "nccl-retries",
        keys=("Call to connect returned", ", retrying"),
        cause="NCCL on {host} cannot connect to [[peer?{peer}||another rank]] and keeps trying ({why}): the hosts do not share the network that "
        "it chose, or a firewall is in between.",
        next="Name the network: -x NCCL_SOCKET_IFNAME==bond0. If NCCL's line 'NET/Socket : Using' shows names like "
        "veth0, docker0 or virbr0, or addresses like fe80:..., it chose a network that does not connect hosts.",
        pattern=r"(?:Call to connect|onnect to (?P<peer>[^\s<]+)\S*) returned (?P<why>[^,\r\n]+), retrying",
        kind=FailureText.FALLBACK,
        at_end=", retrying",
    ),
    Signature(
        "nccl-gid-unreadable",
        keys=("ncclIbRoceGetVersionNum",),
        cause="NCCL on {host} cannot read the type of a GID of an HCA. This happens in a container that sees HCAs of other network namespaces.",
        next="Set -x NCCL_IB_GID_INDEX=N to the index that show_gids lists in the container (RoCE v2 with the IPv4 "
        "address), or use NCCL 2.26 or newer. With NCCL_IB_HCA, limit NCCL to the container's own HCAs.",
        pattern=r"(?:open|read) failed in ncclIbRoceGetVersionNum",
    ),
    Signature(
        "nccl-last-words",
        keys=("NCCL WARN ",),
        cause="NCCL's last message on {host}: {what}.",
        next="Run it again with -x NCCL_DEBUG=INFO and read the lines before that one, on every host.",
        pattern=r"NCCL WARN (?!Missing |MSCCL|Failed to open libibverbs|\S+ set by environment|NET/IB ?: No device)(?P<what>[^\r\n]*[^\s.])",
        kind=FailureText.FALLBACK,
        unless=("nccl-proxy-failed", "nccl-failed", "nccl-start-failed", "nccl-retries", "nccl-foreign-connection"),
        at_end=r"NCCL WARN |NCCL INFO \S+\.(?:cc|h):\d+ -> [1-9]",
    ),
    Signature(
        "nccl-tests-gpus",
        keys=("invalid device ordinal",),
        cause="nccl-tests on {host} requests more GPUs than it sees there: -g counts the GPUs of each process.",
        next="-g 1 with one process per GPU (mpirun -np N), or one process per host with -g 8.",
        pattern=r"Test CUDA failure [\w.]+:\d+ 'invalid device ordinal'",
    ),
    Signature(
        "nccl-gpu-code",
        keys=("named symbol not found",),
        cause="The NCCL of {host} has no code that runs on this GPU with this driver (named symbol not found).",
        next="Use an NCCL that is built for the driver's CUDA version and supports the GPU: nvidia-smi shows both, and "
        "-x NCCL_DEBUG=VERSION shows the NCCL that is loaded. If torch brings its own NCCL (pip list | grep nccl), remove any other from LD_LIBRARY_PATH.",
        pattern=r"(?:NCCL WARN |^|Test )(?:Cuda|CUDA) failure (?:[\w./]+:\d+ )?(?:\d+ )?'?named symbol not found",
    ),
    Signature(
        "nccl-proxy-failed",
        keys=("NCCL WARN Proxy Call to rank ", "Failed to execute operation "),
        cause="[[asked?A request ({asked}) from NCCL on {host} to rank {rank} on the same host failed||NCCL on {host} failed in {did} for rank {rank}]]"
        "[[code? (code {code}; 1: CUDA, 2: system or network, 3: internal, 6: another rank)]][[ib?, in its RDMA part ({ib})]][[socket?, in its TCP part ({socket})]][[local?, in its part for GPUs of one host ({local})]].",
        next="[[ib?Run ibv_devinfo and show_gids on {host} and its peer, and test the pair: ib_write_bw. -x NCCL_DEBUG=INFO shows the call that fails above this line; -x NCCL_IB_DISABLE=1 shows whether the rest works"
        "||Read the NCCL WARN lines of rank {rank}, which show the reason; without any, set -x NCCL_DEBUG=INFO for all ranks. If NCCL_HOSTID is set, give "
        "each host another one]].",
        # The lines below name the parts that returned the error, the innermost first.
        pattern=r"Proxy Call to rank (?P<rank>\d+) failed \((?P<asked>\w+)\)|Failed to execute operation (?P<did>\w+) from rank (?P<rank2>\d+), retcode (?P<code>\d+)"
        r"(?=(?:\s[^\r\n]*?NCCL INFO (?:\w+/)*(?:(?P<ib>net_ib\w*|ibvwrap)|(?P<socket>net_socket|socket)|(?P<local>p2p|shm|nvls))\.(?:cc|h):\d+ -> \d)?)",
        kind=FailureText.FALLBACK,
        lines=2,
    ),
    Signature(
        "nccl-ofi-no-provider",
        keys=(
            *(
                "Could not find any optimal provider",
                "Couldn't find any optimal provider",
                "No eligible providers were found",
                "Only EFA provider is supported",
                *("fi_getinfo() call failed", "Unable to find a protocol that worked"),
            ),
        ),
        cause="NCCL's plugin for libfabric (on AWS: EFA) found no network on {host} that it can use.",
        next="Run fi_info -p efa where the ranks run, unset FI_PROVIDER, and start a container with docker run --device /dev/infiniband and the EFA software in its "
        "image. To continue over TCP: -x NCCL_NET_PLUGIN=none.",
        pattern=r"NET/OFI (?:Could(?: not|n't) find any optimal provider|No eligible providers were found|Only EFA provider is supported|OFI fi_getinfo\(\) call failed: (?:No data|No such|Function not)|Unable to find a protocol that worked)",
    ),
    Signature(
        "slingshot-no-vni",
        keys=("Failed to find valid default rgroup and vni",),
        cause="The processes of {host} have no right to use the Slingshot network: no network identifier (VNI) was given to them for {device}.",
        next="Start the job through the scheduler (srun), which gives a VNI to its steps (env | grep SLINGSHOT shows it); a container needs those variables, too. Use a "
        "newer aws-ofi-nccl and libfabric.",
        pattern=r"valid default rgroup and vni for (?P<device>\w+)",
    ),
    Signature(
        "nccl-ofi-request",
        keys=("completed with error. RC: ",),
        cause="A message of {host} failed in libfabric (on AWS: EFA): code {code} ({why}). Another rank has ended, or cannot be reached.",
        next="Look for the rank that ended first. If none did, allow all traffic to and from the EFA security group itself, and compare the versions of EFA and "
        "aws-ofi-nccl on all hosts.",
        pattern=r"NET/OFI Request[^\r\n]{0,40} completed with error\. RC: (?P<code>\d+)\. Error: (?P<why>[^\r\n]{0,160}[^\s.])",
    ),
    Signature(
        "nccl-graph-file",
        keys=("XML Import Channel",),
        cause="NCCL on {host} reads a graph file that was made for another set of GPUs: the host has no device {device}.",
        next="Remove NCCL_GRAPH_FILE: from the environment, /etc/nccl.conf and ~/.nccl.conf.",
        pattern=r"XML Import Channel ?: dev (?P<device>\d+) not found",
    ),
    Signature(
        "nccl-ring-broken",
        keys=("does not loop back to start", " does not contain rank "),
        cause="NCCL mixes up hosts: {what}. Several hosts have the same identity, or the ranks see different topologies.",
        next="Unset NCCL_HOSTID and NCCL_TOPO_FILE. Compare hostname and cat /proc/sys/kernel/random/boot_id on all hosts: both must differ.",
        pattern=r"NCCL WARN Error ?: (?P<what>ring \d+ does not [^\r\n]*\S)",
    ),
    Signature(
        "nccl-usb-interface",
        keys=("is not a PCI device (usb)",),
        cause="NCCL on {host} includes a network interface on USB in its topology, which this version does not support.",
        next="Name the network: -x NCCL_SOCKET_IFNAME==bond0, without the USB interface (ip -br addr); or use a newer NCCL.",
        only_with=("nccl-topology",),
    ),
    Signature(
        "nccl-ras-differ",
        keys=("operation counts",),
        cause="NCCL's RAS reports that the ranks are out of step: they have started different numbers of {what}[[at?: {most} ranks are at {at}, {few} "
        "at {other}]][[rank?, including rank {rank}]].",
        next="Make every rank call the same collectives in the same order. To see where they are while they hang: taco-launch stacks JOB (or py-spy dump --pid PID "
        "on ranks of both groups).",
        pattern=r"Communicator ranks have different (?P<what>\w+) operation counts(?:\s{1,9}(?P<most>\d+) ranks? ha\w+ launched up to operation (?P<at>\d+)"
        r"\s{1,9}(?P<few>\d+) ranks? ha\w+ launched up to operation (?P<other>\d+)(?:\s{1,9}Rank (?P<rank>\d+) -- GPU \S+ managed by process \d+ on node "
        r"(?P<host>\S+))?)?",
        lines=4,
    ),
    Signature(
        "nccl-ofi-memory",
        keys=("NET/OFI Unable to register memory",),
        cause="NCCL's plugin for libfabric (on AWS: EFA) cannot register memory with device {device} of {host} ({why}).",
        next="Check where the ranks run that ulimit -l shows unlimited (docker run --ulimit memlock=-1:-1). Use the same EFA installer on all hosts and in the "
        "image.",
        pattern=r"Unable to register memory(?: \(type = \w+\))? for device (?P<device>\d+)\. RC: (?P<code>-?\d+),? E\w+: (?=(?P<argument>Invalid argument)?)(?P<why>[^\r\n]{0,120}[^\s.])",
    ),
    Signature(
        "nccl-imex",
        keys=("MNNVL (cliqueSize ",),
        cause="NVLink between hosts does not work on {host}: the IMEX service, or its channel in the container, is missing.",
        next="Check that nvidia-imex-ctl -N on {host} shows every host of the domain as READY, and ls /dev/nvidia-caps-imex-channels a channel where the ranks run. "
        "To continue without it: -x NCCL_MNNVL_ENABLE=0.",
        pattern=r"MNNVL \(cliqueSize \d+\) is available but not",
    ),
    Signature(
        "nccl-nics-differ",
        keys=("Detected mixed local ",),
        cause="The ranks see between {least} and {most} network devices for NCCL: a host has fewer HCAs than another, or a port of it is down.",
        next="Compare ibdev2netdev or ibstat on all hosts, and repair or exclude the host with fewer active ports. To use the same on all: -x NCCL_IB_HCA=mlx5_0,mlx5_1; -x NCCL_IGNORE_NET_MISMATCH=1 continues as it is.",
        pattern=r"Detected mixed local (?:Net|CollNet) device counts across ranks \(min (?P<least>\d+), max (?P<most>\d+)\)\. Set",
    ),
    Signature(
        "nccl-p2p-broken",
        keys=("P2P is disabled between NVLINK connected GPUs",),
        cause="The driver does not allow direct access between GPUs {one} and {other} of {host}, although NVLink connects them: most often NVLink or a GPU has a fault.",
        next="nvidia-smi topo -p2p r and nvidia-smi nvlink -s on {host} show the pair and its links; then dmesg -T | grep -E 'NVRM|Xid'. -x NCCL_IGNORE_DISABLED_P2P=1 continues without that path.",
        pattern=r"NVLINK connected GPUs (?P<one>\d+) and (?P<other>\d+)",
    ),
    Signature(
        "nccl-nvls-shared",
        keys=("communicator has multiple ranks using the same NVML device",),
        cause="NCCL_NVLS_ENABLE=1 requires a GPU of its own for each rank, and ranks of {host} share one (MIG, MPS, or the same CUDA_VISIBLE_DEVICES).",
        next="Unset NCCL_NVLS_ENABLE, or give each rank its own GPU.",
    ),
    Signature(
        "nccl-compiled-other",
        keys=(
            "NCCL library is too old.",
            "NCCL library is not backwards compatible.",
            "was compiled with too old version of NCCL",
        ),
        cause="The program was compiled with NCCL {built} and loads NCCL {loaded} on {host}, which does not fit.",
        next="ldd PROGRAM | grep nccl and echo $LD_LIBRARY_PATH show which library is loaded. Install NCCL {built} there, or compile the program with the NCCL that it loads.",
        pattern=r"compiled with NCCL version (?P<built>[\w.+]{1,40}), but is running with NCCL library version (?P<loaded>[\w.+]{0,40}\w)",
    ),
    Signature(
        "nccl-no-memory",
        keys=(
            "NCCL WARN Failed to malloc ",
            "NCCL WARN Unrecoverable error detected: malloc",
            "NCCL WARN Failed to CUDA host alloc ",
        ),
        cause="NCCL on {host} got no memory of the host ({size} bytes): memory is used up, or a limit of the container or of ulimit is reached.",
        next="free -h and dmesg -T | grep -i kill on {host}; ulimit -v and ulimit -l must show unlimited where the ranks run. Use fewer data loader workers or fewer ranks per host.",
        pattern=r"Failed to (?:malloc|CUDA host alloc) (?P<size>\d+) bytes|malloc\(size=(?P<size2>\d+)\) returned null",
    ),
    Signature(
        "nccl-gpu-memory",
        keys=("NCCL WARN Failed to CUDA malloc ", "NCCL WARN Failed to CUDA calloc "),
        cause="NCCL on {host} got no GPU memory for its buffers ({size} bytes): the program uses nearly all of it.",
        next="nvidia-smi on {host} shows who uses the memory. Leave some to NCCL: a smaller batch, -x PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or smaller buffers: -x NCCL_BUFFSIZE=1048576 -x NCCL_MAX_NCHANNELS=8.",
        pattern=r"Failed to CUDA [cm]alloc (?:async )?(?P<size>\d+) bytes",
        unless=("cuda-out-of-memory", "nccl-cuda-failure"),
    ),
    Signature(
        "nccl-pointer",
        keys=(" is not a valid pointer", " mismatchs with NCCL device "),
        cause="The program gave {call} a tensor that is not on the GPU of its rank[[device?: the tensor is on GPU {device}, the communicator on GPU {own}]].",
        next="Call torch.cuda.set_device(local_rank) first, and move every tensor to that device before the collective (a list of tensors and those of the optimizer's state included).",
        pattern=r"NCCL WARN (?P<call>\w{1,40}) : \w{1,40} (?:0x[\da-f]{1,16} is not a valid pointer|allocated on device (?P<device>\d+) mismatchs with NCCL device (?P<own>\d+))",
    ),
    Signature(
        "nccl-root",
        keys=(" (root should be in the ",),
        cause="The program asked {call} for the rank {root}, and that communicator has only the ranks {range}.",
        next="Use the rank within the group: torch.distributed.get_group_rank(group, rank), or src= with the rank in the whole job (not group_src=).",
        pattern=r"NCCL WARN (?P<call>\w{1,40}) : invalid root (?P<root>-?\d+) \(root should be in the (?P<range>[\d.]{1,20}) range",
    ),
    Signature(
        "nccl-plugin-missing",
        keys=("Failed to initialize any NET plugin",),
        cause="None of NCCL's networks works on {host}: NCCL_NET or NCCL_NET_PLUGIN names one that is not there or cannot start.",
        next="Unset NCCL_NET and NCCL_NET_PLUGIN (also in /etc/nccl.conf and ~/.nccl.conf), or check where the ranks run: ls libnccl-net*.so in the folders of LD_LIBRARY_PATH. -x NCCL_NET=Socket continues over TCP.",
    ),
    Signature(
        "nccl-fp8",
        keys=("FP8 reduction support ",),
        cause="The program adds FP8 tensors in a collective, which NCCL does only on Hopper (H100) or newer GPUs; {host} has older ones.",
        next="Communicate in bf16 on these GPUs: turn the option for FP8 communication off (torchao, Transformer Engine, FSDP).",
    ),
    Signature(
        "nccl-address-unknown",
        keys=("NCCL WARN Net : error encountered when getting address info", "NCCL WARN Net : No valid "),
        cause="NCCL on {host} cannot use the address in NCCL_COMM_ID[[why? ({why})]]: it must be HOST:PORT with a name that {host} knows.",
        next="Unset NCCL_COMM_ID under torchrun and mpirun, which need none. Else set it to an address of rank 0's host, and check it: getent hosts NAME.",
        pattern=r"Net : (?:error encountered when getting address info : (?P<why>[^\r\n]{0,100}[^\s.])|No valid (?:<IPv4|\[IPv6))",
    ),
    Signature(
        "nccl-ib-no-address",
        keys=("NET/IB : No IP interface found",),
        cause="NCCL on {host} found HCAs but no IP interface, which it uses to set up RDMA connections.",
        next="Check where the ranks run that ip -br addr shows an interface with an address (docker run --network host). If NCCL_SOCKET_IFNAME names another one, "
        "correct it.",
    ),
    Signature(
        "nccl-nvml",
        keys=("NCCL WARN nvml",),
        cause="NCCL on {host} cannot ask the driver about the GPUs: {what} failed ({why}).",
        next="Run nvidia-smi where the ranks run, and dmesg -T | grep NVRM on {host}. In a container that has run for long, restart it: a reload of systemd takes the GPUs away from it.",
        pattern=r"NCCL WARN (?P<what>nvml(?:Init|DeviceGet(?:Count|HandleByIndex|P2PStatus|CudaComputeCapability|FieldValues))\w{0,10})\([^)\r\n]{0,80}\) failed: (?P<why>(?!Not Found)[^\r\n]{1,100}[^\s.])",
        unless=("driver-mismatch", "gpu-access-lost", "gpu-lost", "nvml-refused", "nvidia-driver-not-loaded"),
    ),
    Signature(
        "nccl-no-driver-library",
        keys=("NCCL WARN Failed to open libnvidia-ml.so.1",),
        cause="NCCL does not find the driver's library libnvidia-ml.so.1 on {host}: the container was started without GPUs, or the driver is not installed.",
        next="Start the container with --gpus all (or --runtime=nvidia), with NVIDIA_DRIVER_CAPABILITIES=compute,utility. Outside a container: ldconfig -p | grep libnvidia-ml on {host}.",
    ),
    Signature(
        "nccl-graph-capture",
        keys=(
            "NCCL cannot be captured in a graph",
            "can be CUDA graph captured.",
            "Streams given to a communicator within a NCCL group must",
        ),
        cause="The program records NCCL's operations in a CUDA graph in a way that NCCL does not support: [[old?its CUDA or driver is too old||some operations of the group are recorded and others are not]].",
        next="[[old?Update the driver on {host} (R465 or newer) and NCCL||Put all collectives of a group on one stream while the graph is recorded, and start none from another thread]]. To continue: turn CUDA graphs off (torch.compile mode 'default', --enforce-eager in vLLM).",
        pattern=r"NCCL (?P<old>cannot be captured) in a graph|can be CUDA graph captured|NCCL group must either be all uncaptured",
    ),
    Signature(
        "nccl-destroyed",
        keys=("has already been destroyed", "NCCL WARN Error: corrupted comm object detected"),
        cause="The program uses an NCCL communicator on {host} after it was destroyed.",
        next="Look for a second destroy_process_group() or ncclCommDestroy(), or a collective in an atexit handler, a destructor or a data loader that outlives the training. Call destroy_process_group() once, as the last step.",
        pattern=r"NCCL WARN (?:comm 0x[\da-f]{1,16} has already been destroyed|Error: corrupted comm object)",
    ),
    Signature(
        "nccl-rank-number",
        keys=("NCCL WARN Invalid rank requested : ",),
        cause="A process started NCCL as rank {rank} of {all}, but ranks are 0 to {all} - 1: RANK and WORLD_SIZE do not match.",
        next="Start as many processes as WORLD_SIZE, and count from 0: RANK = node rank x ranks per host + LOCAL_RANK. Under mpirun, set both from OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE.",
        pattern=r"Invalid rank requested : (?P<rank>-?\d+)/(?P<all>\d+)",
    ),
    Signature(
        "nccl-no-algorithm",
        keys=(
            "No algorithm/protocol available for function",
            "NCCL WARN Unrecognized element token ",
            "NCCL WARN Unrecognized prefix token ",
        ),
        cause="NCCL_ALGO or NCCL_PROTO on {host} [[word?has the word {word}, which NCCL does not know||leaves nothing for {what} with this data type]].",
        next="Unset NCCL_ALGO and NCCL_PROTO (also in /etc/nccl.conf and ~/.nccl.conf). To exclude one: -x NCCL_ALGO=^NVLS.",
        pattern=r"No algorithm/protocol available for function (?P<what>\w{1,40})|Unrecognized (?:element|prefix) token \"(?P<word>[^\"\r\n]{1,60})\"",
    ),
    Signature(
        "nccl-nic-merge",
        keys=("Specified fused NIC ", "Could not force merge NICs ", "Fusing NET devices from different NUMA domains"),
        cause="NCCL on {host} cannot join its HCAs[[nics? ({nics})]] as NCCL_NET_FORCE_MERGE requests: a name is wrong, there are too many, or they are not near each other.",
        next="Unset NCCL_NET_FORCE_MERGE, or name HCAs of one NUMA node (cat /sys/class/infiniband/*/device/numa_node). -x NCCL_NET_MERGE_LEVEL=LOC disables merging.",
        pattern=r"Specified fused NIC (?P<nics>\S{1,100}) which|Could not force merge NICs (?P<nics2>\S{1,100}?)\. |Fusing NET devices",
    ),
    Signature(
        "nccl-topology-file",
        keys=(
            "NCCL WARN XML Parse",
            "NCCL WARN XML Topology has wrong version",
            "NCCL WARN XML Mismatch",
            "NCCL WARN Error : XML parser is limited",
        ),
        cause="NCCL on {host} cannot read its topology file: it is damaged or was written for another version of NCCL.",
        next="Unset NCCL_TOPO_FILE and NCCL_GRAPH_FILE (also in /etc/nccl.conf and ~/.nccl.conf), or copy the file of the image or cloud provider again. Ranks that write to one NCCL_TOPO_DUMP_FILE at the same time damage it.",
    ),
    Signature(
        "nccl-threads",
        keys=("NCCL WARN Thread creation failed",),
        cause="NCCL on {host} cannot start a thread ({why}): the limit on processes of the user or the container is reached.",
        next="ulimit -u where the ranks run, and docker run --pids-limit -1. Use fewer data loader workers, or -x OMP_NUM_THREADS=4.",
        pattern=r"Thread creation failed: (?P<why>[^\r\n]{1,100}[^\s.])",
        unless=("too-many-processes",),
    ),
    Signature(
        "nccl-ib-post",
        keys=(
            "NCCL WARN ibv_post_send() failed",
            "NCCL WARN ibv_post_recv() failed",
            "NCCL WARN Call to ibv_poll_cq() returned",
        ),
        cause="The HCA of {host} refuses work from NCCL[[why? ({why})]]: the device was reset or has failed, or its send queue is full.",
        next="dmesg -T | grep -i mlx and ibv_devinfo on {host} show whether the HCA was reset. If it is well, update NCCL, and unset NCCL_IB_QPS_PER_CONNECTION and NCCL_IB_SPLIT_DATA_ON_QPS.",
        pattern=r"ibv_post_(?:send|recv)\(\) failed with error (?P<why>[A-Z][\w ]{0,60}\w)|Call to ibv_poll_cq\(\) returned",
    ),
    Signature(
        "nccl-ib-port-failed",
        keys=("NET/IB: Fatal error. Detected ",),
        cause="{failed} of the {all} RDMA devices that a connection of {host} uses have failed, which is more than NCCL can replace.",
        next="ibstat and dmesg -T | grep -i mlx on {host} show the ports and why they went down. Leave {host} out with --exclude {host} until they are repaired.",
        pattern=r"Fatal error\. Detected (?P<failed>\d+) failed devices out of (?P<all>\d+) devices",
    ),
    Signature(
        "nccl-send-to-self",
        keys=("NCCL WARN Trying to send to self without", "NCCL WARN Trying to recv to self without"),
        cause="A rank sends to itself without receiving, or receives from itself without sending, in one group of NCCL.",
        next="Put both operations into one torch.distributed.batch_isend_irecv (or ncclGroupStart and ncclGroupEnd), or copy the tensor instead. In pipeline parallelism, check the number of the next stage.",
    ),
    Signature(
        "nccl-windows-differ",
        keys=("symmetric registration check failed on rank",),
        cause="Rank {rank} registered its buffers for symmetric memory in another way than rank 0, and both use them in one collective.",
        next="Register the same buffers in the same order on all ranks, and use the same offsets. To continue: -x NCCL_WIN_ENABLE=0.",
        pattern=r"registration check failed on rank (?P<rank>\d+)",
    ),
    Signature(
        "nccl-gdrcopy",
        keys=("NCCL WARN GDRCOPY failure ", "NCCL WARN gdr_"),
        cause="NCCL on {host} cannot use GDRCopy: its kernel module gdrdrv is missing or does not fit the library.",
        next="Unset NCCL_GDRCOPY_ENABLE, or load the module on {host}: modprobe gdrdrv (in a container: docker run --device /dev/gdrdrv).",
    ),
    Signature(
        "nccl-group-mixed",
        keys=("Blocking and nonblocking communicators are not allowed",),
        cause="The program uses communicators of NCCL that block and others that do not in one group.",
        next="Set TORCH_NCCL_USE_COMM_NONBLOCKING to the same value for all ranks, or unset it. In a program of its own, give all communicators the same ncclConfig_t blocking.",
    ),
)
# The code stands above the cause that the message names.
OF_CANN = (
    Qualifier(
        r"\b(?P<code>E[A-Z]\d{4}): (?![^\n]* Reason: )(?:[\d:.-]+ )?(?P<what>[^\n]{0,200}[^\s.])\.?[ \t]*\n(?:(?![^\n]*Possible Cause)[^\n]*\n)?[ \t]*Possible Cause: ",
        "CANN, the library of Ascend NPUs, failed on {host} ({code}: {what}): {why}.",
        "Follow its own solution: {how}. The manual of CANN lists {code} with its other causes.",
    ),
)
