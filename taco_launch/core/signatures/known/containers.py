"""Recognise what Docker, NVIDIA's container toolkit and CDI, registries, enroot, pyxis and Kubernetes print about containers."""

from taco_launch.core.signatures.known import FailureText, Signature

DOCKER = (
    Signature(
        "docker-not-running",
        keys=("Cannot connect to the Docker daemon",),
        cause="The Docker engine does not run on {host}.",
        next="systemctl start docker (systemctl enable docker for the next start); if it fails: journalctl -u docker -n 50.",
    ),
    Signature(
        "docker-not-allowed",
        keys=("permission denied while trying to connect to the Docker",),
        cause="This user is not allowed to talk to the Docker engine.",
        next="Use sudo, or add the user to the group: usermod -aG docker USER, and log in again.",
    ),
    Signature(
        "docker-no-gpu-support",
        keys=(
            "could not select device driver",
            "nknown runtime specified nvidia",
            "unknown or invalid runtime name: nvidia",
            "no runtime for ",
            "RuntimeHandler ",
            "nvidia-container-runtime",
            "nvidia-container-toolkit",
        ),
        cause="[[containerd?containerd||Docker]] on {host} has no GPU support: the NVIDIA Container Toolkit is not installed or not configured.",
        next="Install nvidia-container-toolkit, then nvidia-ctk runtime configure --runtime=[[containerd?containerd||docker]]; systemctl restart [[containerd?containerd||docker]]. On all "
        "hosts of an inventory: taco-launch -i FILE setup --only toolkit.",
        pattern=r"could not select device driver|nknown runtime specified nvidia|invalid runtime name: nvidia"
        r'|no runtime for [\\"]*nvidia[\\"]* is (?P<containerd>configured)|RuntimeHandler [\\"]*nvidia[\\"]* not (?P<containerd2>supported)'
        r"|nvidia-container-(?:runtime(?:-hook)?|toolkit)\W{0,4}: (?:executable file not found|no such file)",
    ),
    Signature(
        "image-needs-newer-driver",
        keys=("unsatisfied condition: ",),
        cause="The image needs {condition}, and the driver of {host} is older.",
        next="Update the driver, or use an image for an older CUDA.",
        pattern=r"unsatisfied condition: (?P<condition>[^,\r\n]*[^,\s])",
    ),
    Signature(
        "nvidia-container",
        keys=("nvidia-container-cli",),
        cause="The NVIDIA container runtime could not prepare the container: {why}.",
        next="Check on the host: nvidia-container-cli -k -d /dev/tty info; nvidia-smi -L.",
        pattern=r"nvidia-container-cli(?:\.real)?: (?![^\r\n]*version mismatch)(?P<why>[^\r\n\\\"]*[^\s.\\\"])",
        unless=(
            *("nvidia-driver-not-loaded", "image-needs-newer-driver", "driver-mismatch", "nvidia-container-cgroup"),
            *(
                "nvidia-container-root",
                "nvidia-container-ldconfig",
                "nvidia-container-device",
                "nvidia-container-library",
                "nvidia-container-driver",
                "nvidia-container-cgroup-old",
                "nvidia-container-rules",
                "nvidia-container-cuda",
                "gpushare-no-gpu",
            ),
        ),
    ),
    Signature(
        "nvidia-container-cgroup",
        keys=("failed to add device rules", "devices.allow: operation not permitted"),
        cause="Docker on {host} is not allowed to set which devices containers may use: it is rootless, or itself runs in a container.",
        next="Run Docker as root on the host, or make the container that it runs in privileged. Or set no-cgroups = true in /etc/nvidia-container-runtime/config.toml and use "
        "docker run --device /dev/nvidia0 and so on.",
        pattern=r"nvidia-container-cli(?:\.real)?: [^\r\n]*(?:failed to add device rules|devices\.allow)[^\r\n]*not permitted",
    ),
    Signature(
        "nvidia-container-root",
        keys=("change root failed: ",),
        cause="The NVIDIA container runtime of {host} looks for the driver in a folder that is not there.",
        next="If the driver is installed on the host, remove root = ... from /etc/nvidia-container-runtime/config.toml. If "
        "a container provides the driver, start that container.",
        pattern=r"nvidia-container-cli(?:\.real)?: [^\r\n]*change root failed: no such file",
    ),
    Signature(
        "image-missing",
        keys=("pull access denied for ", "manifest unknown", "No such image: ", "repository does not exist"),
        cause="The image[[image? {image}]] is not available.",
        next="Check the name and tag, and docker login for a private registry; see what exists: docker image ls.",
        pattern=r"pull access denied for (?P<image>[^\s,]+)|manifest (?:for (?P<image2>\S+) not found: )?manifest unknown"
        r"|No such image: (?P<image3>\S+)|repository does not exist",
    ),
    Signature(
        "container-missing",
        keys=("No such container: ", "is not running"),
        cause="The training container[[name? {name}]] does not run on {host}.",
        next="docker ps -a on {host}; docker start {name}, and see why it ended: docker logs {name}.",
        pattern=r"^(?!.*rpc error: ).*?No such container: (?P<name>\S+)|[Cc]ontainer (?P<name2>\S+) is not running",
        survived=True,
    ),
    Signature(
        "container-name-taken",
        keys=("Conflict. The container name",),
        cause="{host} has a container {name} already.",
        next="docker ps -a on {host}: if no job needs it, docker rm -f {name}; else give the new one another name.",
        pattern=r'The container name \\?"/?(?P<name>[^"\\]+)\\?" is already in use',
    ),
    Signature(
        "device-missing",
        keys=("error gathering device information",),
        cause="{host} has no device {device} to hand to the container.",
        next="Load its driver before the container starts: ls -l {device}; for /dev/infiniband, modprobe -a ib_uverbs rdma_ucm.",
        pattern=r'custom device \\?"(?P<device>[^"\\]+)',
    ),
    Signature(
        "engine-not-privileged",
        keys=("error setting rlimit", "unable to apply caps"),
        cause="The Docker engine itself lacks the rights that the container asks for: it runs in a container, or with limits.",
        next="Ask for less: no --privileged, a memlock no higher than the engine's own (ulimit -Hl).",
    ),
    Signature(
        "docker-refused",
        keys=("Error response from daemon: ",),
        cause="Docker on {host} refused: {why}.",
        next="Run docker info and journalctl -u docker -n 50 on {host} to see more.",
        pattern=r"Error response from daemon: (?P<why>[^\r\n]*[^\s.:])",
        kind=FailureText.FALLBACK,
        survived=True,
    ),
    Signature(
        "service-failed",
        keys=(".service failed because ", ".service: Failed with result "),
        cause="The service {service} of {host} does not start: {why}.",
        next="On {host}: systemctl status {service}; journalctl -u {service} -n 50.[[fabric? Its version must be exactly the driver's (nvidia-smi). A host "
        "without NVSwitches needs none: systemctl disable it.]]",
        pattern=r"Job for (?P<service>(?P<fabric>nvidia-fabricmanager)?[\w@.-]*?)\.service failed because (?P<why>[^\r\n]*[^\s.])"
        r"|(?P<service2>(?P<fabric2>nvidia-fabricmanager)?[\w@.-]*?)\.service: Failed with result '(?P<why2>[^'\r\n]+)'",
        unless=("fabricmanager-not-needed", "fabricmanager"),
        survived=True,
    ),
    Signature(
        "nvidia-container-library",
        keys=("load library failed: ",),
        cause="The NVIDIA container runtime of {host} does not find the driver's library {library}: the driver is not installed there, or is incomplete.",
        next="Run nvidia-smi and ldconfig -p | grep {library} on {host}, and install the driver's own packages (libnvidia-compute). Docker from snap or rootless Docker may "
        "not see them: install docker-ce.",
        pattern=r"nvidia-container-cli(?:\.real)?: [^\r\n]*load library failed: (?P<library>[\w.+-]+)",
    ),
)

CONTAINERS = (
    Signature(
        "cdi-unknown-device",
        keys=("unresolvable CDI devices",),
        cause="The container requests the device {what}, which no CDI specification on {host} lists.",
        next="[[auto?Run nvidia-smi on {host}: the NVIDIA Container Toolkit generates that specification itself from the "
        "driver, which does not answer or is not loaded.||Run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml on {host}; nvidia-ctk cdi list shows the "
        "names.]]",
        pattern=r"unresolvable CDI devices (?=(?P<auto>runtime\.nvidia\.com)?)(?P<what>[^\s\\\"]+)",
    ),
    Signature(
        "cdi-stale",
        keys=("failed to stat CDI host device",),
        cause="The CDI specification on {host} lists {device}, which does not exist: the file is older than a change of the GPUs or the "
        "driver.",
        next="Generate it again on {host}: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml (or systemctl restart "
        "nvidia-cdi-refresh, if that unit exists).",
        pattern=r"failed to stat CDI host device \\?\"?(?P<device>[^\s\"\\]+)",
    ),
    Signature(
        "registry-limit",
        keys=("toomanyrequests",),
        cause="The registry refuses more pulls from {host} for now: its pull limit is reached. All hosts behind one IP address share that limit.",
        next="Run docker login on {host}. Or pull once and distribute the image: docker save and docker load, or your own "
        "registry or mirror. Or set image: from: controller in the inventory: setup then copies it from host to host.",
    ),
    Signature(
        "nvidia-container-ldconfig",
        keys=("ldcache error: ",),
        cause="The NVIDIA container runtime of {host} could not run {what}[[code? (exit code {code})]][[signal?, which was killed (signal {signal})]].",
        next="[[signal?Try again when {host} is less busy: the runtime allows that program 10 s.||In /etc/nvidia-container-runtime/config.toml: ldconfig = "
        '"@/sbin/ldconfig.real" on Debian and Ubuntu, "@/sbin/ldconfig" elsewhere. If that is right: libnvidia-container 1.9 and 1.10 cannot mount '
        "/dev on some hosts, so use a newer one (or 1.8.1); set debug = in that file to get a log with the reason.]]",
        pattern=r"ldcache error: process (?P<what>\S+) (?:failed with error code:? ?(?P<code>\d+)?|terminated with signal:? ?(?P<signal>\d+))",
    ),
    Signature(
        "nvidia-container-device",
        keys=("device error: ",),
        cause="The container requests a GPU[[device? ({device})]] that {host} does not have.",
        next="nvidia-smi -L on {host} lists its GPUs; --gpus and NVIDIA_VISIBLE_DEVICES count from 0.",
        pattern=r"nvidia-container-cli(?:\.real)?: device error: (?:(?P<device>[^:\s]+): )?unknown device",
        unless=("gpushare-no-gpu",),
    ),
    Signature(
        "enroot-failed",
        keys=("pyxis: ",),
        cause="Slurm's container plugin (pyxis) could not start the container on {host}: {why}.",
        next="[[space?Run df -h there for the folders that /etc/enroot/enroot.conf names (ENROOT_CACHE_PATH, ENROOT_DATA_PATH, ENROOT_TEMP_PATH) and for pyxis's "
        "runtime_path in plugstack.conf, which is in memory by default (/run/pyxis)||Run enroot import docker://IMAGE by hand on that host to see the full error. An image "
        "without the shell or program that is named is incomplete, or of another architecture; srun --no-container-entrypoint leaves its entry point out]].",
        # The lines of enroot's own log are indented.
        pattern=r"pyxis: {2,8}(?=(?:[^\r\n]{0,300}(?P<space>No space left))?)(?P<why>(?!\[(?:INFO|WARN|DEBUG))[^\s][^\r\n]*[^\s.])|pyxis:? (?P<why2>\[ERROR\] [^\r\n]*[^\s.])",
        unless=("enroot-folder", "enroot-mount", "registry-refused-enroot"),
    ),
    Signature(
        "pod-ended",
        keys=("command terminated with exit code ",),
        cause="Kubernetes ended what ran in a worker's pod (exit code {code}[[killed?: killed, most often because memory ran out]]); anything lost after that is a "
        "consequence.",
        next="kubectl describe pod WORKER shows why (OOMKilled, evicted, a limit); kubectl logs --previous has its last lines.",
        pattern=r"^command terminated with exit code (?P<code>(?P<killed>137)|143|\d+)",
    ),
    Signature(
        "process-signalled",
        keys=("Aborted", "Segmentation fault", "Bus error", "Illegal instruction", "Floating point exception"),
        cause="[[rank?Rank {rank}||A process]] on {host} was ended by a signal: {why}.",
        next="Bus error: /dev/shm is full, most often. Illegal instruction: a library built for another CPU. Otherwise read the lines before it; in Python: -x "
        "PYTHONFAULTHANDLER=1.",
        pattern=r"^(?:\S+: line \d+: +\d+ )?(?P<why>Aborted|Segmentation fault|Bus error|Illegal instruction|Floating point exception)"
        r"(?: +\(core dumped\))?(?:$| {2,}(?=\S)(?:HOROVOD_HOSTNAME=(?P<host>\S+) HOROVOD_RANK=(?P<rank>\d+))?[^\r\n]*$)",
        kind=FailureText.OUTCOME,
        unless=(
            "rank-crashed",
            "process-crashed",
            "rank-bus-error",
            "python-crashed",
            "slurm-task-signal",
            "torchrun-rank-signal",
        ),
    ),
    Signature(
        "process-killed",
        keys=("Killed",),
        cause="A process on {host} was killed (signal 9), most often by the kernel because memory ran out.",
        next="Run dmesg -T | grep -i kill on {host}, and check the memory limit of the container or job. Use fewer data loader workers or smaller batches.",
        pattern=r"^(?:\S+: line \d+: +\d+ )?Killed(?:$| {2,}\S[^\r\n]*$)",
        kind=FailureText.OUTCOME,
        unless=("rank-killed", "out-of-memory", "out-of-memory-asked", "torchrun-rank-killed", "slurm-out-of-memory"),
    ),
    Signature(
        "container-program-missing",
        keys=("executable file not found in $PATH",),
        cause="The container on {host} has no program {program}.",
        next="[[tool?The driver's own programs come from the host: start the container with --gpus all (the NVIDIA Container Toolkit puts them in)||Install it in "
        "the image, or give its full path there]].",
        pattern=r"exec: \\*\"(?P<program>(?P<tool>nvidia-smi)?[^\"\\]*)\\*\": executable file not found in \$PATH",
        unless=("docker-no-gpu-support",),
    ),
    Signature(
        "image-other-processor",
        keys=("exec format error", "does not match the detected host platform"),
        cause="The image or program is for another kind of processor than that of {host}.",
        next="Compare docker image inspect --format '{{{{.Architecture}}}}' IMAGE with uname -m on {host}, and pull the right image: docker pull --platform "
        "linux/arm64 (or linux/amd64).",
        pattern=r"exec [^\r\n]*: exec format error|platform \(\S+\) does not match the detected host platform",
        survived=True,
    ),
    Signature(
        "apptainer-failed",
        keys=("FATAL:   ",),
        cause="apptainer (singularity) could not start the container on {host}: {why}.",
        next="Run it by hand on that host with apptainer --debug. Every folder that is bound must exist there. For fuse or "
        "setuid problems, use apptainer config or --userns.",
        pattern=r"^FATAL: {2,}(?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "apptainer-no-gpu",
        keys=("Could not find any nv files on this host",),
        cause="apptainer on {host} found none of the NVIDIA driver's files, so the container has no GPU.",
        next="Run nvidia-smi and ldconfig -p | grep libcuda on {host}: the driver must be installed there, with its libraries in the library path.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "enroot-folder",
        keys=("pyxis: ",),
        cause="Slurm's container plugin (pyxis) is not allowed to create the folder {path} on {host}.",
        next="Each user needs a folder there. In /etc/enroot/enroot.conf, set ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u) (likewise ENROOT_CACHE_PATH and "
        "ENROOT_DATA_PATH), and create it in a Slurm prolog.",
        pattern=r"pyxis: +mkdir: cannot create directory ['\u2018](?P<path>[^'\u2019\r\n]+)['\u2019]: Permission denied",
    ),
    Signature(
        "pyxis-failed",
        keys=("pyxis: failed to ", "pyxis: couldn't start container"),
        cause="Slurm's container plugin (pyxis) could not start the container on {host}: {why}.",
        next="The indented lines below it give the reason. If they are not here, see that host's slurmd.log. Running enroot "
        "import docker://IMAGE by hand on that host may also show it.",
        pattern=r"pyxis: (?P<why>failed to (?:import|create|start)[^\r\n]*[^\s.]|couldn't start container)",
        unless=("enroot-failed", "enroot-folder", "enroot-mount", "pyxis-image-path"),
    ),
    Signature(
        "nvidia-container-driver",
        keys=("failed to process request",),
        cause="The NVIDIA container runtime of {host} gets no answer from the driver: its libraries and its kernel module do not match, or it is too old.",
        next="Run nvidia-smi and cat /proc/driver/nvidia/version on {host}: both must show the same version. Update the driver and the NVIDIA Container "
        "Toolkit, then reboot. nvidia-container-cli -k -d /dev/tty info shows where it fails.",
        pattern=r"nvidia-container-cli(?:\.real)?: [^\r\n]{0,80}driver (?:rpc )?error: failed to process request",
        unless=("nvidia-container-no-gpu",),
    ),
    Signature(
        "enroot-tool-missing",
        keys=(": command not found",),
        cause="Enroot's helper {tool} is not installed on {host}, or not in the PATH of the job.",
        next="Install the package enroot as a whole (it puts {tool} into /usr/bin), or add the folder of its helpers to PATH; then import the image again.",
        pattern=r"(?P<tool>enroot-[a-z0-9]{2,20}): command not found",
    ),
    Signature(
        "nvidia-container-no-gpu",
        keys=("failed to detect NVIDIA devices",),
        cause="The NVIDIA container runtime finds no NVIDIA GPU on {host}: the kernel module of the driver is not loaded, or the machine has no GPU.",
        next="lspci -d 10de: lists the GPUs of {host}, and lsmod | grep nvidia the modules. Install the driver, or load it: modprobe nvidia; then restart Docker.",
    ),
    Signature(
        "nvidia-container-cgroup-old",
        keys=("cgroup subsystem devices not found",),
        cause="{host} has cgroup v2 only, and its NVIDIA Container Toolkit knows cgroup v1 only.",
        next="Install NVIDIA Container Toolkit 1.8 or newer. Or start the kernel with systemd.unified_cgroup_hierarchy=0.",
    ),
    Signature(
        "nvidia-container-rules",
        keys=("failed to add device rules",),
        cause="The NVIDIA container runtime of {host} cannot add its GPUs to the container's cgroup: the kernel refuses its BPF program.",
        next='Update the NVIDIA Container Toolkit and runc. Else use CDI (mode = "cdi" in /etc/nvidia-container-runtime/config.toml), or no-cgroups = true '
        "there and docker run --device /dev/nvidia0 and so on.",
        pattern=r"failed to add device rules: [^\r\n]{0,200}invalid argument",
    ),
    Signature(
        "ngc-cuda-failed",
        keys=("The NVIDIA Driver is present, but CUDA failed to initialize",),
        cause="CUDA did not start in the container on {host}: {why}.",
        next="Run nvidia-smi and dmesg -T | grep -E 'NVRM|Xid' on {host}. Compare the driver with what the image needs, and start the container with docker run --gpus all.",
        pattern=r"CUDA failed to initialize[\s\S]{0,200}?\[\[ (?P<why>[^\]\r\n]*\(error \d+\)) \]\]",
        lines=3,
        unless=("fabricmanager", "cuda-driver-old", "cuda-forward-compatibility"),
        at_end=r"\(error \d+\) \]\]",
    ),
    Signature(
        "kubernetes-no-pod",
        keys=(
            "unable to upgrade connection: container not found",
            "rror dialing backend",
            'NotFound): pods "',
            " is waiting to start: ",
        ),
        cause="Kubernetes cannot reach the worker[[name? {name}]]: [[why?{why}||its container does not run]].",
        next="kubectl get pods -o wide, kubectl describe pod WORKER, and kubectl logs --previous WORKER show why it ended or did not start.",
        pattern=r"unable to upgrade connection: container not found \(\"(?P<name>[^\"\r\n]+)\"\)|rror dialing backend: (?P<why>[^\r\n]*[^\s.])"
        r"|NotFound\): pods \"(?P<name2>[^\"\r\n]+)\" not found|in pod \"(?P<name3>[^\"\r\n]+)\" is waiting to start: (?P<why2>\w+)",
    ),
    Signature(
        "pyxis-image-path",
        keys=("importing docker image: ",),
        cause="pyxis searches a registry for an image named {file}, because a file needs a path before its name.",
        next="Write --container-image=./{file}, or the full path of the file.",
        pattern=r"pyxis: importing docker image: (?P<file>[^\s/.][^\s/]*\.sqsh)\b",
        only_with=("pyxis-failed", "enroot-failed"),
    ),
    Signature(
        "enroot-mount",
        keys=("pyxis: ",),
        cause="enroot on {host} cannot mount {path} into the container: {why}.",
        next="ls -ld {path} on that node, as the user of the job: it must exist on every node, and the user must be able to read it. Root often cannot read NFS "
        "(root_squash): submit the job as another user.",
        pattern=r"pyxis: +enroot-mount: failed to mount: (?P<path>\S+) at \S+: (?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "gpushare-no-gpu",
        keys=("no-gpu-has-",),
        cause="Kubernetes' plugin for shared GPUs (gpushare) gave the pod no GPU: it found none on {host} with {memory} free, or its scheduler extender had not "
        "chosen one.",
        next="kubectl inspect gpushare shows what is in use. A single GPU must have as much memory free as "
        "aliyun.com/gpu-mem requests, and the default scheduler must call gpushare's scheduler extender.",
        pattern=r"device error: [^\r\n]{0,40}no-gpu-has-(?P<memory>\w+)-to-run",
    ),
    Signature(
        "nvidia-container-cuda",
        keys=("initialization error: cuda error: ",),
        cause="CUDA does not start on {host} itself ({why}), so no container there gets its GPUs.",
        next="On {host}: nvidia-smi; nvidia-modprobe -u -c 0, then ls -l /dev/nvidia-uvm; dmesg -T | grep NVRM. After an update of the driver, or after the machine slept: rmmod nvidia_uvm, modprobe nvidia_uvm, or reboot.",
        pattern=r"nvidia-container-cli(?:\.real)?: initialization error: cuda error: (?P<why>[\w -]*\w)",
    ),
)
