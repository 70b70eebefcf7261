"""Recognise what the NVIDIA driver, its modules and the Linux kernel print, and missing files, memory and processes of a host."""

from typing import Tuple

from taco_launch.core.signatures.known import FailureText, Qualifier, Signature

# What keeps GPUs in containers for good: systemd knows of CDI's devices, and manages no cgroup of the driver cgroupfs.
KEEPS_GPUS = (
    "To keep the GPUs, which each reload removes again, set in the inventory docker: { settings: { features: { cdi: true } } } with engine 25 or "
    'newer, else docker: { settings: { exec-opts: ["native.cgroupdriver=cgroupfs"] } }; then run taco-launch -i FILE setup --disrupt '
    "docker"
)

_XID = r"Xid \(PCI:(?P<gpu>[0-9a-fA-F:.]+)[^)]*\): "
_NVLINK, _HARDWARE = "74|14[4-9]|150", "48|62|64|79|92|95|140|143"
# Calls that take an entry of a table of the kernel, for which "No space left on device" means that the table is full. No part of a path.
_NAMESPACES = r"(?<![/\w.-])(?:unshare|CLONE_NEW\w+|clone3?|[Nn]amespaces?)(?![/\w.-])"
_TABLES = rf"(?:(?:shm|sem|msg)get|sem_open|mq_open|[Ii]notify|epoll_ctl|{_NAMESPACES})"

SYSTEM = (
    Signature(
        "nvidia-driver-not-loaded",
        keys=("driver not loaded", "couldn't communicate with the NVIDIA driver"),
        cause="The NVIDIA driver is not loaded on {host}.",
        next="modprobe nvidia; if that fails, dmesg -T | tail. After a kernel update the driver has to be built again (dkms "
        "autoinstall).",
    ),
    Signature(
        "gpu-access-lost",
        keys=("Failed to initialize NVML: Unknown Error",),
        cause="The container on {host} has lost its GPUs, as happens when systemd is reloaded on the host (daemon-reload).",
        next="Start the container again: docker restart NAME on {host} (if set-up created it: systemctl restart taco-launch-CLUSTER). "
        f"{KEEPS_GPUS.replace('{', '{{').replace('}', '}}')}.",
    ),
    Signature(
        "driver-mismatch",
        keys=(
            "Driver/library version mismatch",
            "driver/library version mismatch",
            "NVRM: API mismatch",
            "NVML/RM version mismatch",
            "system has unsupported display driver combination",
        ),
        cause="The loaded NVIDIA driver of {host} has a different version from its libraries: the driver was updated but not reloaded, or two versions are installed.",
        next="Stop everything that uses the GPUs, then reload the driver (rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe "
        "nvidia), or reboot {host}. If it remains, find the second version (find / -name 'libnvidia-ml.so.*'; cat /proc/driver/nvidia/version) and remove it.",
    ),
    Signature(
        "fabricmanager-not-needed",
        keys=("NV_WARN_NOTHING_TO_DO",),
        cause="The fabric manager of {host} ends at once, because the host has no NVSwitch: it is not needed there.",
        next="systemctl disable --now nvidia-fabricmanager on {host}, if its GPUs are joined by no NVSwitch (nvidia-smi topo -m).",
        pattern=r"NVSwitch driver failed with error:WARNING Nothing to do",
        kind=FailureText.NOTE,
    ),
    Signature(
        "cuda-driver-library",
        keys=("system has unsupported display driver / cuda driver combination",),
        cause="The libcuda that a program on {host} loads has a different version from the loaded driver.",
        next="Check ldconfig -p | grep libcuda, and remove any CUDA compat folder from LD_LIBRARY_PATH. If the driver "
        "was updated, load it again, or reboot {host}.",
    ),
    Signature(
        "gpu-lost",
        keys=("GPU is lost", "Unable to determine the device handle for", "fallen off the bus"),
        cause="A GPU of {host} no longer answers.",
        next="Leave {host} out with --exclude {host}; power it off and on (a reboot may not be enough), and have the GPU checked.",
        pattern=r"^(?!.*NVRM: Xid).*(?:GPU is lost|Unable to determine the device handle for|fallen off the bus)",
    ),
    # By their classes in NVIDIA's catalogue of Xids: docs.nvidia.com/deploy/xid-errors
    Signature(
        "gpu-xid-nvlink",
        keys=("NVRM: Xid",),
        cause="GPU {gpu} of {host} reports Xid {xid}, an error of its NVLinks[[follows?; Xid {follows} follows from it]].",
        next="Leave {host} out with --exclude {host}; run nvidia-smi nvlink -e and dmesg -T | grep Xid there, then reset all GPUs that NVLinks join (nvidia-smi "
        "-r), or reboot. If it recurs, have GPU, NVSwitch and board checked.",
        pattern=_XID
        + rf"(?:(?P<xid>{_NVLINK})\b|(?P<follows>\d+)\b[^\r\n]*caused by previous Xid (?P<xid2>{_NVLINK})\b)",
    ),
    Signature(
        "gpu-xid-fatal",
        keys=("NVRM: Xid",),
        cause="GPU {gpu} of {host} reports Xid {xid}, a fault of the hardware[[follows?; Xid {follows} follows from it]].",
        next="Leave {host} out with --exclude {host}; nvidia-smi -q, reset the GPU or reboot (Xid 79: power off and on), and dcgmi diag -r 3 "
        "before it is used again.",
        pattern=_XID
        + rf"(?:(?P<xid>{_HARDWARE})\b|(?P<follows>\d+)\b[^\r\n]*caused by previous Xid (?P<xid2>{_HARDWARE})\b)",
    ),
    Signature(
        "gpu-gsp",
        keys=("_kgspIsHeartbeatTimedOut", "_kgspLogRpcTimeout", "NVRM: Xid"),
        cause="The firmware (GSP) of GPU[[gpu? {gpu}]] of {host} no longer answers the driver[[xid? (Xid {xid})]], most often by a defect of the driver or its firmware.",
        next="Leave {host} out with --exclude {host}; reset the GPU or reboot, and update the driver, which brings the firmware. "
        "If it recurs on that GPU alone, check it: dcgmi diag -r 3.",
        pattern=rf"NVRM: (?:GPU(?P<gpu>\d+) )?_kgsp(?:IsHeartbeatTimedOut|LogRpcTimeout)|{_XID.replace('<gpu>', '<gpu2>')}(?P<xid>119|120)\b",
        unless=("gpu-xid-fatal",),
    ),
    Signature(
        "gpu-xid-contained",
        keys=("NVRM: Xid",),
        cause="GPU {gpu} of {host} reports Xid 94: a memory error (ECC) that ended only the program that used that memory.",
        next="Run the job again. Reset the GPU when nothing uses it, so that it stops using the bad memory; nvidia-smi "
        "-q -d ROW_REMAPPER shows the state.",
        pattern=_XID + r"94\b",
    ),
    Signature(
        "gpu-xid-cleanup",
        keys=("NVRM: Xid",),
        cause="GPU {gpu} of {host} reports Xid 45: the driver cleans up after a program that has ended, or after another error.",
        next="Look for what happened before it: another Xid (dmesg -T | grep Xid), or the rank that ended first.",
        pattern=_XID + r"45\b(?![^\r\n]*caused by previous Xid)",
        kind=FailureText.ECHO,
    ),
    Signature(
        "gpu-xid",
        keys=("NVRM: Xid",),
        cause="GPU {gpu} of {host} reports Xid {xid}[[push?: the driver's commands were damaged before it read them, by the driver or on the PCIe link|| (13, 31 and 43 are caused by the program most often)]].",
        next="[[push?Update the driver, and run||Run]] the job again. If the error recurs on the same GPU only, check that GPU: dcgmi diag -r 3.",
        pattern=_XID + rf"(?P<xid>(?!(?:{_NVLINK}|{_HARDWARE}|45|94|119|120)\b)(?=(?P<push>32\b)?)\d+)",
    ),
    Signature(
        "out-of-memory",
        keys=("ut of memory: Kill", "oom-kill:"),
        cause="The kernel of {host} killed [[what?{what}||a process]] because memory ran out.",
        next="Use smaller batches or fewer data loader workers; free -g shows the free memory. If the container has a --memory limit, raise it.",
        pattern=r"ut of memory: Kill(?:ed)? process \d+,? \((?P<what>[^)]+)\)|oom-kill:.*task=(?P<what2>[^,\s]+)",
    ),
    Signature(
        "out-of-memory-asked",
        keys=("invoked oom-killer",),
        cause="The kernel of {host} had no more memory[[group? in the limit of that container or job]] when {what} requested some, and killed a "
        "process for it.",
        next="Use smaller batches or fewer data loader workers; [[group?or raise the limit: docker run --memory, Slurm's "
        "--mem, or the pod's limits||free -g shows the free memory]].",
        pattern=r"(?P<what>\S+) invoked oom-killer(?:[\s\S]{0,6000}?(?P<group>mem_cgroup_out_of_memory|CONSTRAINT_MEMCG))?",
        lines=30,
        unless=("out-of-memory",),
    ),
    Signature(
        "memory-refused",
        keys=(
            *("MemoryError", "std::bad_alloc", "DefaultCPUAllocator", "OOM when allocating tensor"),
            "Cannot allocate memory",
        ),
        cause="A process on {host} requested more memory than it may have.",
        next="Check free -g and ulimit -v where the ranks run; if the container has a --memory limit, raise it. Use smaller batches or fewer data loader workers, "
        "or load less data at once.",
        pattern=r"^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b|std::bad_alloc|DefaultCPUAllocator: (?:can't|not enough)"
        r"|OOM when allocating tensor.*device:CPU"
        r"|(?:^(?!.*</torch_).*?\b(?:v?fork|clone|posix_spawn|mmap|mremap|malloc|brk|execve)\b(?!.*ibv_)[^\r\n]{0,120}|^OSError: \[Errno 12\] )Cannot allocate memory",
    ),
    Signature(
        "peermem-not-built",
        keys=("could not insert 'nv", "could not insert module nv"),
        cause="The GPUDirect module {module} cannot be loaded ({why}): the NVIDIA driver was built without the RDMA driver's "
        "symbols, or the RDMA driver was updated since.",
        next="Install MLNX_OFED first and the NVIDIA driver (or nv_peer_mem) again after it, so that the module is built "
        "against the RDMA driver; then modprobe nvidia-peermem.",
        pattern=r"could not insert '?(?:module )?(?P<module>nv[\w-]{0,20}?peer[\w-]{0,20})'?: (?P<why>Invalid argument|Unknown symbol[^(\r\n]*"
        r"[^(\s]|(?!Required key)[^\r\n]*\S)",
    ),
    Signature(
        "peermem-symbols",
        keys=("Unknown symbol ib_",),
        cause="The GPUDirect module {module} was built against another RDMA driver than the one that is loaded.",
        next="Build it again: dkms status names it, dkms install --force NAME/VERSION builds it (with the headers of the "
        "kernel that runs: ls /lib/modules/$(uname -r)/build), or reinstall the NVIDIA driver; then modprobe {module}.",
        pattern=r"(?<![\w-])(?P<module>nv[\w-]{0,20}?peer[\w-]{0,20}): Unknown symbol ib_(?:un)?register_peer_memory_client",
        unless=("peermem-not-built",),
    ),
    Signature(
        "peermem-nvidia-symbols",
        keys=("Unknown symbol nvidia_p2p_", "disagrees about version of symbol nvidia_p2p_"),
        cause="The GPUDirect module {module} was built against another NVIDIA driver than the one that is loaded.",
        next="Build it again: dkms status names it, dkms install --force NAME/VERSION builds it (with the headers of the "
        "kernel that runs: ls /lib/modules/$(uname -r)/build), or reinstall the NVIDIA driver; then modprobe {module}.",
        pattern=r"(?<![\w-])(?P<module>nv[\w-]{0,20}?peer[\w-]{0,20}): (?:Unknown symbol|disagrees about version of symbol) nvidia_p2p_",
    ),
    Signature(
        "peermem-missing",
        keys=("FATAL: Module nv",),
        cause="There is no kernel module {module} on {host}.",
        next="Install the driver from version 470 on, which has nvidia-peermem; for an older one, build nv_peer_mem.",
        pattern=r"Module (?P<module>nv[\w-]{0,20}?peer[\w-]{0,20}) not found",
    ),
    Signature(
        "peermem-in-use",
        keys=(" is in use",),
        cause="The GPUDirect module {module} cannot be unloaded on {host}: GPU memory is registered with it, or a module uses it.",
        next="End what uses it first: nvidia-smi and fuser -v /dev/infiniband/uverbs* name the processes; or reboot {host}.",
        pattern=r"(?i)module '?(?P<module>nv[\w-]{0,20}?peer[\w-]{0,20})'? is in use",
    ),
    Signature(
        "module-key",
        keys=("Required key not available",),
        cause="Secure Boot of {host} refuses the kernel module {module}: the module is not signed with a key that the machine trusts.",
        next="Enroll the key of dkms (mokutil --import /var/lib/dkms/mok.pub; on Ubuntu /var/lib/shim-signed/mok/MOK.der), reboot "
        "and confirm on the console; or turn Secure Boot off.",
        pattern=r"could not insert '?(?:module )?(?P<module>[\w-]+)'?: Required key not available",
    ),
    Signature(
        "kernel-headers",
        keys=("kernel headers for",),
        cause="The headers of the kernel {kernel}, which runs on {host}, are missing: dkms builds no module without them.",
        next="Install linux-headers-{kernel} (rpm systems: kernel-devel-{kernel}), then run set-up again, or dkms autoinstall for modules that are not from set-up. "
        "If no package source has it, add the distribution's archive of old packages (Debian's snapshots, CentOS's vault), or boot the distribution's current "
        "kernel and install its headers.",
        pattern=r"kernel headers for kernel (?P<kernel>\S+) cannot be found",
    ),
    Signature(
        "peermem-callback",
        keys=("nv_get_p2p_free_callback",),
        cause="nvidia-peermem found memory that was freed already. This message can appear without any harm.",
        next="Do nothing, unless ranks fail at that moment: then update the driver.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "cable-error",
        keys=("Cable error, ",),
        cause="The cable or transceiver in port module {port} of {host} reports: {why}.",
        next="Replace it, or for High Temperature improve the airflow; mlxlink -d DEVICE -m and ethtool -m INTERFACE show its state. Leave {host} out "
        "with --exclude {host} until then.",
        pattern=r"Port module event(?:\[error\])?: module (?P<port>\d+), Cable error, (?P<why>[^\r\n]*\S)",
    ),
    Signature(
        "link-down",
        keys=("Link down", "NIC Link is Down", "lost carrier"),
        cause="The network link {interface} of {host} went down.",
        next="Check cable and switch port: ip -s link show {interface}; ethtool {interface}. Leave {host} out with --exclude {host} until "
        "it stays up.",
        pattern=r"(?:mlx5_core \S+:? )?(?P<interface>[\w.-]+): (?:NIC )?(?:Link [Dd]own|Link is Down|[Ll]ost carrier)",
    ),
    Signature(
        "hardware-error",
        keys=("[Hardware Error]",),
        cause="The processor or memory of {host} reports a hardware error.",
        next="Leave {host} out with --exclude {host} and have it checked: journalctl -k | grep -i 'hardware error'; ipmitool sel list.",
    ),
    Signature(
        "file-server",
        keys=("nfs: server ", "Stale file handle", "in progress operations using this service will wait"),
        cause="[[server?The file server {server} does not answer {host}||A mount on {host} is stale: the server replaced or removed what was mounted]].",
        next="[[server?Check the server: ls and df on that mount hang until it answers||Run umount -l PATH and mount PATH again]].",
        pattern=r"nfs: server (?P<server>\S+) not responding|Stale file handle"
        r"|Connection to (?P<server2>\S+) \(at [^)\r\n]+\) was lost; in progress operations",
    ),
    Signature(
        "disk-full",
        keys=("No space left on device", "no space left on device"),
        cause="A disk of {host} is full.",
        next="Run df -h and df -i on the folder that the message names, on /tmp, and on the folder for checkpoints.",
        pattern=rf"^(?!.*pyxis: )(?!.*{_TABLES}.*[Nn]o space left).*[Nn]o space left on device",
        unless=("shm-too-small", "session-folder", "image-disk-full"),
    ),
    Signature(
        "disk-refused",
        keys=("Disk quota exceeded", "Read-only file system"),
        cause="A process on {host} may not write [[path?to {path}||there]]: [[quota?the user's quota is used up||the file system is mounted read-only]].",
        next="[[quota?quota -s (lfs quota -h -u $USER PATH on Lustre) shows what is used: remove old checkpoints, or write to another folder||findmnt -T PATH shows how it is mounted; "
        "dmesg -T | tail shows whether an error of the disk made it read-only. In a container, mount a folder that may be written]].",
        pattern=r"(?:(?P<quota>Disk quota exceeded)|Read-only file system)(?:: '(?P<path>[^'\r\n]{1,200})')?",
        unless=("session-folder",),
        survived=True,
    ),
    Signature(
        "sysv-memory-full",
        keys=("shmget(",),
        cause="System V shared memory of {host} is used up: by segments that ended jobs have left, or by the kernel's limits.",
        next="ipcs -m lists the shared memory segments, and ipcrm -m ID removes one; sysctl kernel.shmmni kernel.shmall. To run UCX without it: -x "
        "UCX_TLS=^sysv.",
        pattern=r"shmget\([^\r\n]*No space left on device",
    ),
    Signature(
        "kernel-limit",
        keys=(
            "o space left on device",
            *(
                "notify cannot",
                "notify watch",
                "notify instance",
                "upper limit on inotify",
                "instance of inotify",
                "notify_init",
            ),
            "Too many open files in system",
            "umber of file watchers",
        ),
        cause="A limit of the kernel of {host} is reached, which is not the space on a disk: [[namespaces?there may be no more namespaces]][[watches?there may be no more inotify watches or instances]]"
        "[[semaphores?there may be no more semaphores]][[messages?there may be no more message queues]][[epoll?there may be no more epoll watches]][[files?all processes together may open no more files]].",
        next="[[namespaces?sysctl user.max_user_namespaces (and user.max_mnt_namespaces, user.max_pid_namespaces) shows the limit, lsns those in use: raise it with sysctl -w user.max_user_namespaces=65536; 0 turns them off]]"
        "[[watches?sysctl -w fs.inotify.max_user_watches=1048576 fs.inotify.max_user_instances=8192 raises both]]"
        "[[semaphores?ipcs -s lists the semaphores that ended jobs have left, ipcrm -s ID removes one; sysctl kernel.sem shows the limits. POSIX ones are in /dev/shm: df -h /dev/shm]][[messages?ipcs -q lists the queues, ipcrm -q ID removes one; sysctl kernel.msgmni fs.mqueue.queues_max]]"
        "[[epoll?sysctl fs.epoll.max_user_watches shows the limit]][[files?sysctl fs.file-nr fs.file-max shows what is open and the limit; lsof -n | wc -l counts them]].",
        pattern=r"^(?!.*shmget)[^\r\n]*?(?:(?P<semaphores>semget|sem_open)|(?P<messages>msgget|mq_open)|(?P<epoll>epoll_ctl)|(?P<watches>[Ii]notify)"
        rf"|(?P<namespaces>{_NAMESPACES}))[^\r\n]*[Nn]o space left on device"
        r"|(?P<watches2>[Ii]notify[^\r\n]{0,80}(?:Too many open files|limit (?:was )?reached)|(?:limit for |maximum )number of file watchers|inotify watch(?:es)? limit|upper limit on inotify)"
        r"|(?P<files>Too many open files in system)",
        unless=("shm-too-small",),
    ),
    Signature(
        "namespace-refused",
        keys=("peration not permitted", "ermission denied", "nvalid argument", "unction not implemented"),
        cause="A process on {host} may not create a namespace, which containers without root need: {what}.",
        next="sysctl there: user.max_user_namespaces must be more than 0, kernel.unprivileged_userns_clone 1 (Debian) and kernel.apparmor_restrict_unprivileged_userns 0 (Ubuntu 24.04). Inside a container, it "
        "has to be started with --privileged, or with --cap-add SYS_ADMIN and --security-opt seccomp=unconfined.",
        pattern=r"(?P<what>(?:\bunshare\b|(?:create|creating|new|setup|setting up|enter) (?:a )?(?:new )?(?:user|mount|pid|network) ?namespaces?|CLONE_NEW\w+|\bnewuidmap\b|\bnewgidmap\b)[^\r\n]{0,120}?(?:[Oo]peration not permitted|[Pp]ermission denied|[Ii]nvalid argument|[Ff]unction not implemented))",
        unless=("apptainer-failed",),
    ),
    Signature(
        "binding-not-permitted",
        keys=("peration not permitted",),
        cause="A process on {host} may not choose its memory or CPUs ({what}), which costs some speed: a container is not allowed to do that.",
        next="docker run --cap-add SYS_NICE, or ignore it.",
        pattern=r"\b(?P<what>set_mempolicy|get_mempolicy|mbind|move_pages|sched_setaffinity|numa_\w+)\b[^\r\n]{0,60}[Oo]peration not permitted",
        kind=FailureText.NOTE,
    ),
    Signature(
        "threads-refused",
        keys=("peration not permitted",),
        cause="A process on {host} may not start threads: the container's filter of system calls (seccomp) is older than the libraries in the image, and refuses clone3.",
        next="Update Docker and libseccomp on {host} (Docker 20.10.10 or newer), or start the container with --security-opt seccomp=unconfined.",
        pattern=r"(?:pthread_create|\bclone3?\b|[Tt]hread creation)\b[^\r\n]{0,120}[Oo]peration not permitted",
    ),
    Signature(
        "limit-not-raised",
        keys=("annot modify limit", "not allowed to raise maximum limit", "setrlimit("),
        cause="A process on {host} may not raise its own limit[[what? ({what})]]: the hard limit of that shell or container is lower.",
        next="Raise the hard limit where the ranks are started: /etc/security/limits.conf, LimitNOFILE and LimitMEMLOCK of sshd or slurmd, docker run --ulimit nofile=65536:65536 --ulimit memlock=-1. ulimit -Ha shows it.",
        pattern=r"ulimit: (?P<what>[^:\r\n]{1,60}): cannot modify limit: |not allowed to raise maximum limit|setrlimit\((?P<what2>\w+)[^\r\n]*Operation not permitted",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "file-locks",
        keys=(
            "fcntl.flock(",
            "fcntl.lockf(",
            "fcntl.fcntl(",
            "No locks available",
            "unable to lock file",
            "nable to lock file",
        ),
        cause="[[held?Another process holds the lock of a file that a process on {host} opened||The file system on which a process of {host} locks a file does not support locks (flock)]][[why?: {why}]].",
        next="[[held?Run fuser -v FILE or lsof FILE, which shows it. Open HDF5 files for reading only, or set -x HDF5_USE_FILE_LOCKING=FALSE if nothing writes them||"
        "Move the cache or file that it locks to a local disk (-x HF_HOME=/tmp/hf, TRITON_CACHE_DIR, TORCH_EXTENSIONS_DIR; for HDF5 -x HDF5_USE_FILE_LOCKING=FALSE). Or mount the shared folder with locks: Lustre -o flock; NFS with rpc.statd or version 4]].",
        pattern=r"fcntl\.(?:flock|lockf|fcntl)\([^\r\n]*(?:\r?\n(?!Traceback)[^\r\n]*){0,6}?\r?\n(?P<error>\w*Error: (?P<why>\[Errno (?:5|22|37|38|45|95|116|121|524)\] [^\r\n`]*[^\s.`]))"
        r"|(?P<why2>[Uu]nable to lock file, errno = (?:(?P<held>11)\b|\d+)(?:, error message = '[^'\r\n]{1,60}')?)|(?P<why3>[^\r\n]{0,80}No locks available)",
        lines=8,
    ),
    Signature(
        "gpu-start-failed",
        keys=(
            "RmInitAdapter failed",
            "rm_init_adapter failed",
            "Cannot initialize GSP firmware RM",
            "failed to wait for GFW_BOOT",
            "FSP command timed out",
            "probe routine failed for",
        ),
        cause="The NVIDIA driver of {host} cannot start a GPU[[gpu? ({gpu})]]: nvidia-smi does not show it.",
        next="Leave {host} out with --exclude {host}; power it off and on (a reboot may not be enough). If the error "
        "stays, try another driver version, or switch between the open and the proprietary kernel module; if that does not help, suspect the GPU itself.",
        pattern=r"(?:NVRM: GPU (?:at )?(?:PCI:)?(?P<gpu>[\da-fA-F:.]+): )?(?:RmInitAdapter|rm_init_adapter) failed"
        r"|Cannot initialize GSP firmware RM|failed to wait for GFW_BOOT|FSP command timed out|The NVIDIA probe routine failed for",
    ),
    Signature(
        "too-many-files",
        keys=("Too many open files", "items of ancdata", "maximal number of files that could be opened"),
        cause="A process on {host} may open no more files.",
        next="Run ulimit -n 65536 before the program (in a container: docker run --ulimit nofile=65536), or use fewer "
        "data loader workers. If the message names ancdata: torch.multiprocessing.set_sharing_strategy('file_system').",
        pattern=r"^(?!.*(?:[Nn]otify|files in system)).*Too many open files|received 0 items of ancdata|number of files that could be opened simultaneously was reached",
    ),
    Signature(
        "too-many-processes",
        keys=(
            "esource temporarily unavailable",
            "os.fork()",
            "fork_exec(",
            "annot fork",
            "std::system_error",
            "can't start new thread",
            "unable to allocate necessary resources for OMP thread",
        ),
        cause="This user or container cannot start more processes on {host}: a limit is reached.",
        next="Raise ulimit -u where the ranks run (in a container: docker run --pids-limit -1), or use fewer threads: -x OMP_NUM_THREADS=4.",
        pattern=r"(?:fork|pthread_create|clone|Thread creation failed|OMP: System error #11)\b[^\r\n]*[Rr]esource temporarily unavailable|can't start new thread"
        r"|std::system_error'\s+what\(\): +Resource temporarily unavailable|resources for OMP thread|: [Cc]annot fork\b(?![^\r\n]*memory)"
        r"|(?:os\.fork\(\)|fork_exec\()[^\r\n]*(?:\r?\n(?!Traceback)[^\r\n]*){0,8}?\r?\nBlockingIOError: \[Errno 11\]",
        lines=10,
    ),
    Signature(
        "segfault",
        keys=("]: segfault at ",),
        cause="The kernel of {host} saw {what} crash.",
        next="Run it again with -x PYTHONFAULTHANDLER=1: the log of its rank then shows more.",
        pattern=r"(?P<what>\S+)\[\d+\]: segfault at ",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "nvml-refused",
        keys=("Failed to initialize NVML: Insufficient Permissions",),
        cause="A process on {host} is not permitted to open the devices of the GPUs.",
        next="Run ls -l /dev/nvidia* where the process runs: all users must be able to read and write them (NVreg_ModifyDeviceFiles or a cgroup may prevent that). "
        "With MIG, run nvidia-smi as root.",
    ),
    Signature(
        "pcie-error",
        keys=("PCIe Bus Error: severity=Uncorrected", "AER: Uncorrected", "AER: Multiple Uncorrected"),
        cause="A device on the PCIe bus of {host}[[device? ({device})]] reports an error that could not be corrected.",
        next="lspci -s [[device?{device}||ADDRESS]] names it. Leave {host} out with --exclude {host}; reseat the card or its riser, and see dmesg -T after the next "
        "start.",
        pattern=r"(?:(?P<device>[\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d): )?PCIe Bus Error: severity=Uncorrected|AER: (?:Multiple )?Uncorrected[^\r\n:]*"
        r"(?:received|error)[^\r\n]*?(?P<device2>[\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d)?",
    ),
    Signature(
        "iommu-fault",
        keys=("IO_PAGE_FAULT", "DMAR: [DMA "),
        cause="The IOMMU of {host} blocked a device's access to memory, as happens when GPUs and HCAs access each other directly (P2P, GPUDirect).",
        next="Turn it off for the host's own devices: iommu=pt on the kernel command line (Intel: intel_iommu=off, or VT-d off in the BIOS), PCI ACS off, and "
        "reboot.",
        pattern=r"AMD-Vi: Event logged \[IO_PAGE_FAULT|DMAR: \[DMA (?:Read|Write)",
    ),
    Signature(
        "hca-failed",
        keys=("mlx5_core", "mlx4_core"),
        cause="An RDMA device of {host} ({device}) does not answer its driver: {why}.",
        next="Leave {host} out with --exclude {host}. There: mlxfwmanager (firmware), dmesg -T | grep mlx; mlxfwreset -d {device} reset, or power off and on.",
        pattern=r"mlx[45]_core (?P<device>[\da-f:.]*[\da-f]):? [^\r\n]*?(?P<why>device's health compromised|firmware (?:fatal|internal) error|internal error detected"
        r"|Health issue observed[^\r\n,]*|(?:wait_func|cmd_work_handler|wait_func_handle_exec_timeout)\b[^\r\n]*?timeout"
        r"|command [^\r\n]{0,60} timed out|Firmware over \d+ MS in pre-initializing)",
    ),
    Signature(
        "hca-queue-overrun",
        keys=("CQ error on CQN ",),
        cause="The HCA {device} of {host} stopped a completion queue: [[full?more operations ended than it has room for||its memory cannot be accessed]] (syndrome {code}).",
        next="[[full?Update MPI, UCX or libfabric, which counts its operations wrongly, or use another transport (-x UCX_TLS=tcp,sm,self; FI_PROVIDER=tcp)"
        "||Update the driver and the firmware of the HCA; if it recurs on {host} alone, leave that host out with --exclude {host}]].",
        pattern=r"mlx[45]_core (?P<device>[\da-f:.]*[\da-f]):? [^\r\n]*?CQ error on CQN 0x[\da-f]+, syndrome? (?P<code>(?P<full>0x0?1\b)|0x[\da-f]+)",
    ),
    Signature(
        "hca-kernel-completion",
        keys=("mlx5_poll_one:",),
        cause="Operations over {device} that the kernel of {host} itself started (a file server or a disk over RDMA, IPoIB) failed[[code?, syndrome {code}]][[flushed?: they were thrown away after an earlier error of the same connection]].",
        next="Look for the first error above these lines (dmesg -T | grep -E 'mlx5|nvme|rpcrdma|rdma') and for one of the other side, which may have ended or lost the network. Syndrome 0x5 follows another error; 0x15 is no answer: check link and cable (ibstat, mlxlink).",
        pattern=r"infiniband (?P<device>[\w.-]+): mlx5_poll_one:\d+[^\r\n]*(?:rror cqe on cqn|syndrome )[^\r\n]*(?:\r?\n[^\r\n]*?\bsyndrome (?P<code>(?P<flushed>0x0?5\b)|0x[\da-f]+))?",
        lines=2,
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "hca-objects-used-up",
        keys=("failed, status limits exceeded",),
        cause="The HCA of {host} ran out of a resource ({what})[[uar?: each process uses some of its doorbell pages]][[qp?: each connection uses one queue pair]].",
        next="Run fewer ranks on {host}, or connect over one device only: -x UCX_NET_DEVICES=mlx5_0:1[[qp? with -x UCX_TLS=dc_x,sm,self]]. [[uar?Enlarge the firmware's LOG_BAR_SIZE (mlxconfig -d DEVICE query | grep BAR), then reboot||Update the firmware and the driver of the HCA]].",
        pattern=r"mlx5_core[^\r\n]*?(?<!\w)(?P<what>(?!CREATE_MKEY)(?=[A-Z])(?P<uar>ALLOC_UAR)?(?P<qp>CREATE_QP)?[A-Z\d_]*)\(0x[\da-f]+\)[^\r\n]{0,80}failed, status limits exceeded",
    ),
    Signature(
        "hca-keys-used-up",
        keys=("CREATE_MKEY(",),
        cause="The HCA of {host} has no room for more registered memory (its keys are used up), so registrations of the ranks on it fail.",
        next="Run fewer ranks on the host, or make fewer registrations: -x UCX_IB_REG_METHODS=direct, larger pages, no on-demand paging (ODP). Newer firmware and driver of the HCA allow more.",
        pattern=r"CREATE_MKEY\(0x200\)[^\r\n]{0,80}failed, status limits exceeded",
    ),
    Signature(
        "network-tables-full",
        keys=("nf_conntrack: table full", "neighbor table overflow", "neighbour table overflow"),
        cause="{host} drops packets: the table of its [[track?firewall's connections (conntrack)||neighbors (ARP)]] is full.",
        next="Run [[track?sysctl -w net.netfilter.nf_conntrack_max=1048576||sysctl -w net.ipv4.neigh.default.gc_thresh1=4096 net.ipv4.neigh.default.gc_thresh2=8192 net.ipv4.neigh.default.gc_thresh3=16384]], which enlarges it.",
        pattern=r"(?P<track>nf_conntrack): table full|neighbou?r table overflow",
    ),
    Signature(
        "network-card-stuck",
        keys=("NETDEV WATCHDOG: ",),
        cause="The network card {interface} of {host} has stopped sending.",
        next="Set {interface} down and up again with ip link set; check driver and firmware with ethtool -i {interface}. Leave {host} out with --exclude {host} until it stays up.",
        pattern=r"NETDEV WATCHDOG: (?P<interface>[\w.-]+)",
    ),
    Signature(
        "disk-fault",
        keys=("I/O error, dev ", "Buffer I/O error on dev", "EXT4-fs error", "Remounting filesystem read-only"),
        cause="A disk of {host} fails[[disk? ({disk})]]: it cannot be read or written.",
        next="Leave {host} out with --exclude {host}; smartctl -a and dmesg -T there, and mount | grep ' ro,'.",
        pattern=r"I/O error,? (?:on )?dev (?P<disk>[\w-]+)|EXT4-fs error \(device (?P<disk2>[\w-]+)\)|Remounting filesystem read-only",
    ),
    Signature(
        "nvme-lost",
        keys=("nvme nvme",),
        cause="The kernel of {host} lost the disk {disk} ({why}): what waits for its files hangs or fails.",
        next="nvme list and dmesg -T | grep nvme show whether it came back after a reboot; nvme smart-log /dev/{disk} shows its state. If it recurs, test it without power saving (nvme_core.default_ps_max_latency_us=0 pcie_aspm=off on the kernel's command line), then replace it.",
        pattern=r"nvme (?P<disk>nvme\d{1,3}): (?P<why>Removing after probe failure status: -?\d+|Disabling device after reset failure: -?\d+|Device not ready; aborting \w+|controller is down; will reset)",
    ),
    Signature(
        "kernel-in-nvidia",
        keys=("state:D ",),
        cause="The process {task} on {host} waits inside the NVIDIA driver ({where}), where it cannot be killed.",
        next="dmesg -T | grep -E 'NVRM|Xid' shows the driver's own errors. If the process stays (ps -o pid,stat,wchan), reboot {host}; if it recurs, update the driver.",
        pattern=r"task:(?P<task>\S{1,30}?) +state:D [\s\S]{0,1500}?\+0x[\da-f]+/0x[\da-f]+ \[(?P<where>nvidia\w{0,20})\]",
        lines=25,
        kind=FailureText.ECHO,
        unless=("kernel-stuck",),
    ),
    Signature(
        "kernel-stuck",
        keys=("soft lockup - CPU#", "blocked for more than "),
        cause="The kernel of {host} saw [[task?{task} blocked for more than {seconds} s||a CPU that was stuck (soft lockup)]].",
        next="Read the call trace below that line: names with nvidia_ point to the driver, nfs_ and ll_ to a file server, mlx5_ to the HCA. If the host stays in this state, reboot it.",
        pattern=r"INFO: task (?P<task>\S+?):\d+ blocked for more than (?P<seconds>\d+) seconds|soft lockup - CPU#\d+ stuck",
        kind=FailureText.ECHO,
    ),
    Signature(
        "gpu-reset-required",
        keys=("NV_ERR_RESET_REQUIRED", "NV_ERR_GPU_IS_LOST", "NV_ERR_NVLINK_FABRIC_FAILURE"),
        cause="The driver of {host} can no longer use a GPU ({why}).",
        next="Leave {host} out with --exclude {host}; nvidia-smi -r when nothing uses its GPUs, or reboot. dmesg -T | grep Xid shows what came before.",
        pattern=r"NVRM: [^\r\n]*\[?(?P<why>NV_ERR_(?:RESET_REQUIRED|GPU_IS_LOST|NVLINK_FABRIC_FAILURE))",
        unless=("gpu-xid-fatal", "gpu-xid-nvlink", "gpu-lost"),
    ),
    Signature(
        "file-system-failed",
        keys=(
            ": Input/output error",
            "[Errno 5] ",
            "[Errno 74] ",
            "[Errno 107] ",
            "[Errno 108] ",
            "[Errno 112] ",
            "[Errno 117] ",
            "[Errno 121] ",
        ),
        cause="The file system of {host} fails[[why? ({why})]]: [[file?{file}||a file]] cannot be read or written.",
        next="[[mount?Mount it again on {host}: the process behind a FUSE mount (s3fs, gcsfuse, sshfs) has ended, or the server of a Lustre or CIFS mount has cut off this client||Leave {host} out with --exclude {host} "
        "(Slurm: --exclude=NODE)]]. There: dmesg -T | tail -50; [[file?df -h {file}||df -h]].",
        pattern=r"(?:^|[\s:])(?P<file>/(?:usr/)?s?bin/[\w.-]+|/\S+/help-[\w-]+\.txt): (?:bad interpreter: )?Input/output error"
        r"|^\w*Error: \[Errno (?:5|74|(?P<mount>107|108|112)|117|121)\] (?P<why>[A-Z][\w/ ]{1,60}\w)(?:: '(?P<file2>[^'\r\n]{1,200})')?",
        unless=("file-locks",),
    ),
    Signature(
        "file-missing",
        keys=("Error: [Errno 2] ", "Error: [Errno 20] ", "Error: [Errno 6] "),
        cause="[[path?A rank on {host} does not find {path}||There is no {name} in the folder in which a rank on {host} runs, and no program of that name on its PATH]].",
        next="[[path?Run ls -l {path} on {host}, where the ranks run: it must exist on every host (a shared folder, --sync DIR, container.mounts of the inventory). A relative path starts from the folder in which the job starts||"
        "Check where the ranks run: ls -l {name}; command -v {name}. Give the full path, or install it there]].",
        pattern=r"^(?:\w+\.)*\w*Error: \[Errno (?:2|6|20)\] [A-Z][\w ]{1,40}: '(?:(?P<path>(?=[^'/\r\n]{0,100}/)[^'\r\n]{1,300})|(?P<name>[^'/\r\n]{1,100}))'",
        unless=("lock-file-gone", "cache-shared", "data-worker-gone", "checkpoint-metadata-missing"),
        survived=True,
        handled=True,
    ),
    Signature(
        "file-denied",
        keys=("Error: [Errno 13] ", "Error: [Errno 1] ", "Error: [Errno 17] ", "Error: [Errno 21] "),
        cause="A rank on {host} [[exists?creates {file}, which is there already: another rank or an older run has made it]][[folder?opens {file} as a file, and it is a folder]][[denied?may not open {file}]].",
        next="[[exists?Create it on one rank only, or with os.makedirs(..., exist_ok=True); what an older run has left, remove]][[folder?Give the path of the file in it]][[denied?Run id and ls -ld {file} there: the user of the ranks must have the right to it (in a container: --user, or another folder)]].",
        pattern=r"^(?:\w+\.)*\w*Error: \[Errno (?:(?P<denied>13|1)|(?P<exists>17)|(?P<folder>21))\] [A-Z][\w ]{1,40}: '(?P<file>[^'\r\n]{1,300})'",
        unless=("threads-refused", "namespace-refused", "binding-not-permitted", "cache-shared"),
        survived=True,
        handled=True,
    ),
    Signature(
        "system-call-refused",
        keys=tuple(f"Error: [Errno {number}] " for number in (7, 8, 16, 18, 26, 27, 36)),
        cause="The system of {host} refused what a rank asks for ({what})[[file?: {file}]].",
        next="[[long?Pass the arguments or environment variables, which are too long, in a file]][[exec?Show its kind with file PROGRAM: it is for another kind of processor, or a script without a #! line]][[move?Move between file systems with shutil.move() in place of os.rename(), and put TMPDIR on the same one]]"
        "[[busy?Find what uses it with fuser -v FILE]][[size?Raise ulimit -f, or write several files]].",
        pattern=r"^(?:\w+\.)*\w*Error: \[Errno (?:(?P<long>7|36)|(?P<exec>8)|(?P<move>18)|(?P<busy>16|26)|(?P<size>27))\] (?P<what>[A-Z][\w -]{1,40}\w)(?:: '(?P<file>[^'\r\n]{1,300}))?",
        survived=True,
        handled=True,
    ),
    Signature(
        "connection-failed",
        keys=(
            "[Errno 99] ",
            "[Errno 100] ",
            "[Errno 101] ",
            "[Errno 103] ",
            "[Errno 110] ",
            "[Errno 111] ",
            "[Errno 113] ",
        ),
        cause="A program on {host} has no connection to another one ({why})[[own?: the address that it is to listen on is not one of {host}]][[refused?: nothing listens at that address]][[route?: no network leads there, or a firewall refuses it]][[silent?: that one does not answer, or a firewall drops it]].",
        next="Read the traceback for the host and port (MASTER_ADDR, a store, a proxy, a download), and check from {host}: nc -vz HOST PORT; ip route get HOST. A variable such as https_proxy may send it elsewhere.",
        pattern=r"^(?:\w+\.)*\w*Error: \[Errno (?:(?P<own>99)|(?P<refused>111)|(?P<route>100|101|113)|(?P<silent>103|110))\] (?P<why>[A-Z][\w ]{1,60}\w)",
        unless=("torch-connect-timeout", "torch-master-unreachable", "data-worker-gone", "file-locks"),
        survived=True,
        handled=True,
    ),
)


def words(name: str, **values: str) -> Tuple[str, str]:
    """Return cause and next step of an entry above without double brackets, with `values` in their places.

    Raises:
        StopIteration, KeyError: there is no such entry; it has a place that no value is given for.
    """
    known = next(each for each in SYSTEM if each.name == name)
    return known.cause.format(**values), known.next.format(**values)


# multiprocessing.shared_memory: its names are those of files below /dev/shm.
SHARED_MEMORY_THERE = (
    Qualifier(
        r"\bshm_open\([^\n]*\n(?:[^\n]*\n){0,3}?FileExistsError: \[Errno 17\] [^\n']*'(?P<file>/[^'\n]+)'",
        "A rank on {host} creates the shared memory /dev/shm{file}, which is there already: a run that was killed left it, or another job on {host} uses it.",
        "If no other job runs there (fuser -v /dev/shm{file}), remove it: rm /dev/shm{file}; MosaicML Streaming: streaming.base.util.clean_stale_shared_memory(). Otherwise give each job a container or a name of its own.",
    ),
)
SHARED_MEMORY_GONE = (
    Qualifier(
        r"\bshm_open\([^\n]*\n(?:[^\n]*\n){0,3}?FileNotFoundError: \[Errno 2\] [^\n']*'(?P<file>/[^'\n]+)'",
        "A rank on {host} opens the shared memory /dev/shm{file}, which is gone: the process that created it has ended or has not started, or runs in another container.",
        "Look for a process of that host that failed before. If none did, let all ranks of a host share one /dev/shm (docker run --ipc=host), and keep Python's resource tracker from removing it: SharedMemory(track=False) since Python 3.13.",
    ),
)
