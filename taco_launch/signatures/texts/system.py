"""What docker, the NVIDIA container toolkit, the driver and the Linux kernel say."""

from typing import Tuple

from taco_launch.signatures.entry import FailureText, Signature

# What keeps GPUs in containers for good: systemd knows of CDI's devices, and manages no cgroup of the driver cgroupfs.
KEEPS_GPUS = (
    "Each reload takes them again; for good, in the inventory: docker: { settings: { features: { cdi: true } } } with engine 25 or "
    'newer, else docker: { settings: { exec-opts: ["native.cgroupdriver=cgroupfs"] } }; then taco-launch -i FILE setup --disrupt '
    "docker"
)

_XID = r"Xid \(PCI:(?P<gpu>[0-9a-fA-F:.]+)[^)]*\): "
_NVLINK, _HARDWARE = "74|14[4-9]|150", "48|62|64|79|92|95|119|120|140|143"

SYSTEM = (
    Signature(
        "docker-not-running",
        ("Cannot connect to the Docker daemon",),
        "The Docker engine does not run on {host}.",
        "systemctl start docker (systemctl enable docker for the next start); if it fails: journalctl -u docker -n 50.",
    ),
    Signature(
        "docker-not-allowed",
        ("permission denied while trying to connect to the Docker",),
        "This user may not talk to the Docker engine.",
        "Use sudo, or add the user to the group: usermod -aG docker USER, and log in again.",
    ),
    Signature(
        "docker-no-gpu-support",
        (
            "could not select device driver",
            "nknown runtime specified nvidia",
            "unknown or invalid runtime name: nvidia",
            "nvidia-container-runtime",
        ),
        "Docker on {host} has no GPU support: the NVIDIA Container Toolkit is not installed or not configured.",
        "Install nvidia-container-toolkit, then nvidia-ctk runtime configure --runtime=docker; systemctl restart docker. On all "
        "hosts of an inventory: taco-launch -i FILE setup --only toolkit.",
        r"could not select device driver|nknown runtime specified nvidia|invalid runtime name: nvidia"
        r"|nvidia-container-runtime\W{0,4}: (?:executable file not found|no such file)",
    ),
    Signature(
        "nvidia-driver-not-loaded",
        ("driver not loaded", "couldn't communicate with the NVIDIA driver"),
        "The NVIDIA driver is not loaded on {host}.",
        "modprobe nvidia; if that fails, dmesg -T | tail. After a kernel update the driver has to be built again (dkms "
        "autoinstall).",
    ),
    Signature(
        "image-needs-newer-driver",
        ("unsatisfied condition: ",),
        "The image needs {condition}, and the driver of {host} is older.",
        "Update the driver, or use an image for an older CUDA.",
        r"unsatisfied condition: (?P<condition>[^,\r\n]*[^,\s])",
    ),
    Signature(
        "nvidia-container",
        ("nvidia-container-cli: ",),
        "The NVIDIA container runtime could not prepare the container: {why}.",
        "Check on the host: nvidia-container-cli -k -d /dev/tty info; nvidia-smi -L.",
        r"nvidia-container-cli: (?![^\r\n]*version mismatch)(?P<why>[^\r\n\\\"]*[^\s.\\\"])",
        unless=(
            *("nvidia-driver-not-loaded", "image-needs-newer-driver", "driver-mismatch", "nvidia-container-cgroup"),
            *("nvidia-container-root", "nvidia-container-ldconfig", "nvidia-container-device"),
        ),
    ),
    Signature(
        "nvidia-container-cgroup",
        ("failed to add device rules", "devices.allow: operation not permitted"),
        "Docker on {host} itself runs in a container that may not say which devices others may use.",
        "Run it on the host, or its container privileged; or no-cgroups = true in /etc/nvidia-container-runtime/config.toml and "
        "docker run --device /dev/nvidia0 and so on.",
        r"nvidia-container-cli: [^\r\n]*(?:failed to add device rules|devices\.allow)[^\r\n]*not permitted",
    ),
    Signature(
        "nvidia-container-root",
        ("change root failed: ",),
        "The NVIDIA container runtime of {host} looks for the driver in a folder that does not exist.",
        "root = ... in /etc/nvidia-container-runtime/config.toml: take it out where the driver is the host's own, or start the "
        "container that brings the driver.",
        r"nvidia-container-cli: [^\r\n]*change root failed: no such file",
    ),
    Signature(
        "image-missing",
        ("pull access denied for ", "manifest unknown", "No such image: ", "repository does not exist"),
        "The image[[image? {image}]] is not to be had.",
        "Check the name and tag, and docker login for a private registry; see what exists: docker image ls.",
        r"pull access denied for (?P<image>[^\s,]+)|manifest (?:for (?P<image2>\S+) not found: )?manifest unknown"
        r"|No such image: (?P<image3>\S+)|repository does not exist",
    ),
    Signature(
        "container-missing",
        ("No such container: ", "is not running"),
        "The training container[[name? {name}]] does not run on {host}.",
        "docker ps -a on {host}; docker start {name}, and see why it ended: docker logs {name}.",
        r"No such container: (?P<name>\S+)|[Cc]ontainer (?P<name2>\S+) is not running",
        survived=True,
    ),
    Signature(
        "container-name-taken",
        ("Conflict. The container name",),
        "{host} has a container {name} already.",
        "docker ps -a on {host}: if no job needs it, docker rm -f {name}; else give the new one another name.",
        r'The container name \\?"/?(?P<name>[^"\\]+)\\?" is already in use',
    ),
    Signature(
        "device-missing",
        ("error gathering device information",),
        "{host} has no device {device} to hand to the container.",
        "Load its driver before the container starts: ls -l {device}; for /dev/infiniband, modprobe ib_uverbs rdma_ucm.",
        r'custom device \\?"(?P<device>[^"\\]+)',
    ),
    Signature(
        "engine-not-privileged",
        ("error setting rlimit", "unable to apply caps"),
        "The Docker engine itself lacks the rights that the container requests: it runs in a container, or with limits.",
        "Request less: no --privileged, a memlock no higher than the engine's own (ulimit -Hl).",
    ),
    Signature(
        "gpu-access-lost",
        ("Failed to initialize NVML: Unknown Error",),
        "The container on {host} has lost its GPUs, as happens when systemd is reloaded on the host (daemon-reload).",
        "Start the container again: docker restart NAME on {host} (set-up's: systemctl restart taco-launch-CLUSTER). "
        f"{KEEPS_GPUS.replace('{', '{{').replace('}', '}}')}.",
    ),
    Signature(
        "driver-mismatch",
        ("Driver/library version mismatch", "driver/library version mismatch"),
        "The loaded NVIDIA driver of {host} is of another version than its libraries: it was updated and not reloaded.",
        "Load the driver again with nothing using the GPUs (rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe "
        "nvidia), or reboot {host}.",
    ),
    Signature(
        "fabricmanager-not-needed",
        ("NV_WARN_NOTHING_TO_DO",),
        "The fabric manager of {host} ends at once, because the host has no NVSwitch: it is not needed there.",
        "systemctl disable --now nvidia-fabricmanager on {host}, if its GPUs are joined by no NVSwitch (nvidia-smi topo -m).",
        r"NVSwitch driver failed with error:WARNING Nothing to do",
        kind=FailureText.NOTE,
    ),
    Signature(
        "cuda-driver-library",
        ("system has unsupported display driver / cuda driver combination",),
        "The libcuda that a program on {host} loads is of another version than the loaded driver.",
        "ldconfig -p | grep libcuda: take a compat folder of CUDA out of LD_LIBRARY_PATH. Where the driver was updated: load it again, "
        "or reboot {host}.",
    ),
    Signature(
        "gpu-lost",
        ("GPU is lost", "Unable to determine the device handle for", "fallen off the bus"),
        "A GPU of {host} no longer answers.",
        "Leave {host} out with -H; power it off and on (a reboot may not be enough), and have the GPU checked.",
        r"^(?!.*NVRM: Xid).*(?:GPU is lost|Unable to determine the device handle for|fallen off the bus)",
    ),
    # By their classes in NVIDIA's catalogue of Xids: docs.nvidia.com/deploy/xid-errors
    Signature(
        "gpu-xid-nvlink",
        ("NVRM: Xid",),
        "GPU {gpu} of {host} reports Xid {xid}, an error of its NVLinks[[follows?; Xid {follows} follows from it]].",
        "Leave {host} out with -H. There: nvidia-smi nvlink -e, dmesg -T | grep Xid; reset all GPUs that NVLinks join "
        "(nvidia-smi -r), or reboot. If it recurs, have GPU, NVSwitch and board checked.",
        _XID + rf"(?:(?P<xid>{_NVLINK})\b|(?P<follows>\d+)\b[^\r\n]*caused by previous Xid (?P<xid2>{_NVLINK})\b)",
    ),
    Signature(
        "gpu-xid-fatal",
        ("NVRM: Xid",),
        "GPU {gpu} of {host} reports Xid {xid}, a fault of the hardware[[follows?; Xid {follows} follows from it]].",
        "Leave {host} out with -H; nvidia-smi -q, reset the GPU or reboot (Xid 79: power off and on), and dcgmi diag -r 3 "
        "before it is used again.",
        _XID + rf"(?:(?P<xid>{_HARDWARE})\b|(?P<follows>\d+)\b[^\r\n]*caused by previous Xid (?P<xid2>{_HARDWARE})\b)",
    ),
    Signature(
        "gpu-gsp",
        ("_kgspIsHeartbeatTimedOut", "_kgspLogRpcTimeout"),
        "The processor (GSP) of GPU[[gpu? {gpu}]] of {host} no longer answers the driver.",
        "Leave {host} out with -H; reset the GPU or reboot, and dcgmi diag -r 3 before it is used again. If it recurs: another driver "
        "version, then the GPU itself.",
        r"NVRM: (?:GPU(?P<gpu>\d+) )?_kgsp(?:IsHeartbeatTimedOut|LogRpcTimeout)",
        unless=("gpu-xid-fatal",),
    ),
    Signature(
        "gpu-xid-contained",
        ("NVRM: Xid",),
        "GPU {gpu} of {host} reports Xid 94: an error of its memory (ECC) that ended the program that used it, and no other.",
        "Run the job again. Reset the GPU when nothing uses it, so that it takes that memory out of use: nvidia-smi -q -d "
        "ROW_REMAPPER.",
        _XID + r"94\b",
    ),
    Signature(
        "gpu-xid-cleanup",
        ("NVRM: Xid",),
        "GPU {gpu} of {host} reports Xid 45: the driver cleans up after a program that has ended, or after another error.",
        "Look for what happened before it: another Xid (dmesg -T | grep Xid), or the rank that ended first.",
        _XID + r"45\b(?![^\r\n]*caused by previous Xid)",
        kind=FailureText.ECHO,
    ),
    Signature(
        "gpu-xid",
        ("NVRM: Xid",),
        "GPU {gpu} of {host} reports Xid {xid} (13, 31 and 43 are caused by the program most often).",
        "Run the job again; if it recurs on the same GPU only, have that checked: dcgmi diag -r 3.",
        _XID + rf"(?P<xid>(?!(?:{_NVLINK}|{_HARDWARE}|45|94)\b)\d+)",
    ),
    Signature(
        "out-of-memory",
        ("ut of memory: Kill", "oom-kill:"),
        "The kernel of {host} killed [[what?{what}||a process]] because memory ran out.",
        "Smaller batches, fewer data loader workers; free -g shows what there is. In a container with --memory: more of it.",
        r"ut of memory: Kill(?:ed)? process \d+,? \((?P<what>[^)]+)\)|oom-kill:.*task=(?P<what2>[^,\s]+)",
    ),
    Signature(
        "out-of-memory-asked",
        ("invoked oom-killer",),
        "The kernel of {host} had no more memory[[group? in the limit of that container or job]] when {what} requested some, and killed a "
        "process for it.",
        "Smaller batches, fewer data loader workers; [[group?a higher limit: docker run --memory, Slurm's --mem, the pod's "
        "limits||free -g shows what there is]].",
        r"(?P<what>\S+) invoked oom-killer(?:[\s\S]{0,6000}?(?P<group>mem_cgroup_out_of_memory|CONSTRAINT_MEMCG))?",
        lines=30,
        unless=("out-of-memory",),
    ),
    Signature(
        "memory-refused",
        ("MemoryError", "std::bad_alloc", "DefaultCPUAllocator", "OOM when allocating tensor"),
        "A process on {host} requested more memory than it may have.",
        "free -g and ulimit -v where the ranks run; smaller batches, fewer data loader workers, less data loaded at "
        "once. In a container with --memory: more of it.",
        r"^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b|std::bad_alloc|DefaultCPUAllocator: (?:can't|not enough)"
        r"|OOM when allocating tensor.*device:CPU",
    ),
    Signature(
        "peermem-not-built",
        ("could not insert 'nv", "could not insert module nv"),
        "The GPUDirect module {module} cannot be loaded ({why}): the NVIDIA driver was built without the RDMA driver's "
        "symbols, or that one was updated since.",
        "Install MLNX_OFED first and the NVIDIA driver (or nv_peer_mem) again after it, so that it is built against it; "
        "then modprobe nvidia-peermem.",
        r"could not insert '?(?:module )?(?P<module>nv[\w-]{0,20}?peer[\w-]{0,20})'?: (?P<why>Invalid argument|Unknown symbol[^(\r\n]*"
        r"[^(\s]|(?!Required key)[^\r\n]*\S)",
    ),
    Signature(
        "peermem-symbols",
        ("Unknown symbol ib_",),
        "The GPUDirect module {module} was built against another RDMA driver than the one that is loaded.",
        "Build it again: dkms status names it, dkms install --force NAME/VERSION builds it (with the headers of the "
        "kernel that runs: ls /lib/modules/$(uname -r)/build), or reinstall the NVIDIA driver; then modprobe {module}.",
        r"(?<![\w-])(?P<module>nv[\w-]{0,20}?peer[\w-]{0,20}): Unknown symbol ib_(?:un)?register_peer_memory_client",
        unless=("peermem-not-built",),
    ),
    Signature(
        "peermem-nvidia-symbols",
        ("Unknown symbol nvidia_p2p_", "disagrees about version of symbol nvidia_p2p_"),
        "The GPUDirect module {module} was built against another NVIDIA driver than the one that is loaded.",
        "Build it again: dkms status names it, dkms install --force NAME/VERSION builds it (with the headers of the "
        "kernel that runs: ls /lib/modules/$(uname -r)/build), or reinstall the NVIDIA driver; then modprobe {module}.",
        r"(?<![\w-])(?P<module>nv[\w-]{0,20}?peer[\w-]{0,20}): (?:Unknown symbol|disagrees about version of symbol) nvidia_p2p_",
    ),
    Signature(
        "peermem-missing",
        ("FATAL: Module nv",),
        "There is no kernel module {module} on {host}.",
        "nvidia-peermem comes with the driver from version 470 on; for older ones build nv_peer_mem.",
        r"Module (?P<module>nv[\w-]{0,20}?peer[\w-]{0,20}) not found",
    ),
    Signature(
        "peermem-in-use",
        (" is in use",),
        "The GPUDirect module {module} cannot be unloaded on {host}: GPU memory is registered with it, or a module uses it.",
        "End what uses it first: nvidia-smi and fuser -v /dev/infiniband/uverbs* name the processes; or reboot {host}.",
        r"(?i)module '?(?P<module>nv[\w-]{0,20}?peer[\w-]{0,20})'? is in use",
    ),
    Signature(
        "module-key",
        ("Required key not available",),
        "Secure Boot of {host} refuses the kernel module {module}: the machine knows no key that it is signed with.",
        "Enrol the key of dkms (mokutil --import /var/lib/dkms/mok.pub; on Ubuntu /var/lib/shim-signed/mok/MOK.der), reboot "
        "and confirm on the console; or turn Secure Boot off.",
        r"could not insert '?(?:module )?(?P<module>[\w-]+)'?: Required key not available",
    ),
    Signature(
        "kernel-headers",
        ("kernel headers for",),
        "The headers of the kernel {kernel}, which runs on {host}, are missing: dkms builds no module without them.",
        "Install linux-headers-{kernel} (rpm systems: kernel-devel-{kernel}). Where no package source of the host has it, the "
        "kernel is older than they are: name the distribution's archive of old packages as a source (Debian's snapshots, "
        "CentOS's vault), or install and boot its kernel of now with the headers; then set-up again, or dkms autoinstall "
        "for what is not set-up's.",
        r"kernel headers for kernel (?P<kernel>\S+) cannot be found",
    ),
    Signature(
        "peermem-callback",
        ("nv_get_p2p_free_callback",),
        "nvidia-peermem found memory that was freed already. It is known to say so without harm.",
        "Nothing, unless ranks fail at that moment: then update the driver.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "cable-error",
        ("Cable error, ",),
        "The cable or transceiver in port module {port} of {host} reports: {why}.",
        "Change it, or with High Temperature see to the airflow: mlxlink -d DEVICE -m, ethtool -m INTERFACE. Leave {host} out "
        "with -H until then.",
        r"Port module event(?:\[error\])?: module (?P<port>\d+), Cable error, (?P<why>[^\r\n]*\S)",
    ),
    Signature(
        "link-down",
        ("Link down", "NIC Link is Down", "lost carrier"),
        "The network link {interface} of {host} went down.",
        "Check cable and switch port: ip -s link show {interface}; ethtool {interface}. Leave {host} out with -H until "
        "it stays up.",
        r"(?:mlx5_core \S+:? )?(?P<interface>[\w.-]+): (?:NIC )?(?:Link [Dd]own|Link is Down|[Ll]ost carrier)",
    ),
    Signature(
        "hardware-error",
        ("[Hardware Error]",),
        "The processor or memory of {host} reports a hardware error.",
        "Leave {host} out with -H and have it checked: journalctl -k | grep -i 'hardware error'; ipmitool sel list.",
    ),
    Signature(
        "file-server",
        ("nfs: server ", "Stale file handle"),
        "[[server?The file server {server} does not answer {host}||A file server's folder is gone from {host} (stale handle)]].",
        "ls and df there hang as well: see the server, or mount again.",
        r"nfs: server (?P<server>\S+) not responding|Stale file handle",
    ),
    Signature(
        "disk-full",
        ("No space left on device",),
        "A disk of {host} is full.",
        "df -h; df -i: the folder that is named there, /tmp, or the one for checkpoints.",
        r"^(?!.*shmget).*No space left on device",
        unless=("shm-too-small", "session-folder"),
    ),
    Signature(
        "sysv-memory-full",
        ("shmget(",),
        "System V shared memory of {host} is used up: by segments that ended jobs have left, or by the kernel's limits.",
        "ipcs -m lists them, ipcrm -m ID removes one; sysctl kernel.shmmni kernel.shmall. UCX continues without: -x "
        "UCX_TLS=^sysv.",
        r"shmget\([^\r\n]*No space left on device",
    ),
    Signature(
        "gpu-start-failed",
        (
            "RmInitAdapter failed",
            "rm_init_adapter failed",
            "Cannot initialize GSP firmware RM",
            "failed to wait for GFW_BOOT",
        ),
        "The NVIDIA driver of {host} cannot start a GPU[[gpu? ({gpu})]]: nvidia-smi does not show it.",
        "Leave {host} out with -H; power it off and on (a reboot may not be enough). If it stays: another driver version, the other of "
        "the open and the proprietary module, then the GPU itself.",
        r"(?:NVRM: GPU (?:at )?(?:PCI:)?(?P<gpu>[\da-fA-F:.]+): )?(?:RmInitAdapter|rm_init_adapter) failed"
        r"|Cannot initialize GSP firmware RM|failed to wait for GFW_BOOT",
    ),
    Signature(
        "too-many-files",
        ("Too many open files", "items of ancdata"),
        "A process on {host} may open no more files.",
        "ulimit -n 65536 before (in a container: docker run --ulimit nofile=65536); fewer data loader workers; of "
        "ancdata: torch.multiprocessing.set_sharing_strategy('file_system').",
        r"Too many open files|received 0 items of ancdata",
    ),
    Signature(
        "too-many-processes",
        ("Resource temporarily unavailable", "can't start new thread"),
        "{host} lets this user or container start no more processes.",
        "ulimit -u where the ranks run (in a container: docker run --pids-limit -1); fewer threads: -x OMP_NUM_THREADS=4.",
        r"(?:fork|pthread_create|clone)\b[^\r\n]*Resource temporarily unavailable|can't start new thread",
    ),
    Signature(
        "segfault",
        ("]: segfault at ",),
        "The kernel of {host} saw {what} crash.",
        "Its rank's log shows more with -x PYTHONFAULTHANDLER=1.",
        r"(?P<what>\S+)\[\d+\]: segfault at ",
        kind=FailureText.OUTCOME,
    ),
)


def words(name: str, **values: str) -> Tuple[str, str]:
    """Return cause and next step of an entry above without double brackets, with `values` in their places.

    Raises:
        StopIteration, KeyError: there is no such entry; it has a place that no value is given for.
    """
    known = next(each for each in SYSTEM if each.name == name)
    return known.cause.format(**values), known.next.format(**values)
