"""Recognise what Docker, NVIDIA's container toolkit and CDI, registries, enroot, pyxis and Kubernetes print about containers."""

from taco_launch.core.signatures.known import FailureText, Qualifier, Signature

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
        pattern=r"could not select device driver(?! \\*\"cdi)|nknown runtime specified nvidia|invalid runtime name: nvidia"
        r'|no runtime for [\\"]*nvidia[\\"]* is (?P<containerd>configured)|RuntimeHandler [\\"]*nvidia[\\"]* not (?P<containerd2>supported)'
        r"|nvidia-container-(?:runtime(?:-hook)?|toolkit)\W{0,4}: (?:executable file not found|no such file)",
    ),
    Signature(
        "image-needs-newer-driver",
        keys=("unsatisfied condition: ", "unsupported CUDA version: driver "),
        cause="The image needs [[cuda?CUDA {cuda}||{condition}]], and the driver of {host} is older[[driver?: it supports CUDA {driver}]].",
        next="Update the driver, or use an image for an older CUDA.",
        pattern=r"unsatisfied condition: (?P<condition>[^,\r\n]*[^,\s])|unsupported CUDA version: driver (?P<driver>[\d.]+) < image (?P<cuda>[\d.]*\d)",
    ),
    Signature(
        "nvidia-container",
        keys=("nvidia-container-cli",),
        cause="The NVIDIA container runtime could not prepare the container: {why}.",
        next="Check on the host: nvidia-container-cli -k -d /dev/tty info; nvidia-smi -L.",
        pattern=r"nvidia-container-cli(?:\.real)?: (?![^\r\n]*(?:version mismatch|display driver combination))(?!no such file or directory)(?P<why>[^\r\n\\\"]*[^\s.\\\"])",
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
                "nvidia-container-file-exists",
                "nvidia-container-file-missing",
                "nvidia-container-nvml",
                "nvidia-container-slow",
                "docker-nested",
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
        keys=("change root failed: ", "failed to change root directory: "),
        cause="The NVIDIA container runtime of {host} looks for the driver in a folder that is not there.",
        next="If the driver is installed on the host, remove root = ... from /etc/nvidia-container-runtime/config.toml. If "
        "a container provides the driver, start that container.",
        pattern=r"nvidia-container-cli(?:\.real)?: [^\r\n]*change root failed: no such file|nvc\.c:\d+\] failed to change root directory: No such",
    ),
    Signature(
        "image-missing",
        keys=(
            "pull access denied for ",
            "manifest unknown",
            "manifest for ",
            "No such image: ",
            "repository does not exist",
        ),
        cause="The image[[image? {image}]] is not available.",
        next="Check the name and tag, and docker login for a private registry; see what exists: docker image ls.",
        pattern=r"pull access denied for (?P<image>[^\s,]+)|manifest (?:for (?P<image2>\S+) not found: )?manifest unknown|manifest for (?P<image4>\S+) not found"
        r"|No such image: (?P<image3>\S+)|repository does not exist",
    ),
    Signature(
        "container-missing",
        keys=("No such container: ", "is not running"),
        cause="The training container[[name? {name}]] is not running on {host}, or was removed.",
        next="Run docker ps -a on {host}. If it is listed, start it: docker start {name}; docker logs {name} shows why it ended.",
        pattern=r"^(?!.*rpc error: ).*?No such container: (?P<name>\S+)|[Cc]ontainer (?P<name2>\S+) is not running",
        survived=True,
    ),
    Signature(
        "container-name-taken",
        keys=("Conflict. The container name",),
        cause="A container named {name} already exists on {host}.",
        next="Run docker ps -a on {host}. If no job uses the container, remove it: docker rm -f {name}; otherwise use another name.",
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
        next="On {host}, run systemctl status {service}; journalctl -u {service} -n 50.[[fabric? If its version is not exactly the driver's (nvidia-smi), install "
        "that one; a host without NVSwitches needs none: systemctl disable it.]]",
        pattern=r"Job for (?P<service>(?P<fabric>nvidia-fabricmanager)?[\w@.-]*?)\.service failed because (?P<why>[^\r\n]*[^\s.])"
        r"|(?P<service2>(?P<fabric2>nvidia-fabricmanager)?[\w@.-]*?)\.service: Failed with result '(?P<why2>[^'\r\n]+)'",
        unless=("fabricmanager-not-needed", "fabricmanager"),
        survived=True,
    ),
    Signature(
        "nvidia-container-library",
        keys=("load library failed: ", "initialization error: cannot open shared object"),
        cause="The NVIDIA container runtime of {host} does not find [[library?the driver's library {library}||a library of the driver]]: the driver is not installed there, or is incomplete.",
        next="Run nvidia-smi and ldconfig -p | grep [[library?{library}||libnvidia-ml]] on {host}, and install the driver's own packages (libnvidia-compute). Docker from snap or rootless Docker may "
        "not see them: install docker-ce.",
        pattern=r"nvidia-container-cli(?:\.real)?: [^\r\n]*load library failed: (?P<library>[\w.+-]+)|nvidia-container-cli(?:\.real)?: initialization error: cannot open shared object",
    ),
    Signature(
        "docker-mount-missing",
        keys=("bind source path does not exist: ",),
        cause="The folder {path} that the container on {host} is to see does not exist there.",
        next="mkdir -p {path} on {host}, or mount the storage that has it; each host of the job requires it.",
        pattern=r"bind source path does not exist: (?P<path>[^\s\"]{1,200}[^\s\".])",
    ),
    Signature(
        "docker-mount-refused",
        keys=("error while creating mount source path",),
        cause="Docker on {host} cannot create the folder {path} for a mount: {why}.",
        next="[[only?Use a path that can be written. Docker from snap sees only the home folders: install docker-ce instead||mkdir -p {path} on {host} as a user who may do so; on NFS, root often may not (root_squash)]].",
        pattern=r"error while creating mount source path '(?P<path>[^'\r\n]{1,200})': mkdir [^\r\n:]{1,200}: (?=(?P<only>read-only)?)(?P<why>[a-z][a-z -]{1,60}[a-z])",
    ),
    Signature(
        "docker-mount-kind",
        keys=("Are you trying to mount a directory onto a file",),
        cause="A mount of the container on {host} joins a file and a folder[[path?: {path}]].",
        next="ls -ld [[path?{path}||PATH]] on {host}: Docker creates an empty folder where the file to mount is missing. Remove that folder, put the file there, and start the container again.",
        pattern=r"(?:error mounting \\*\"(?P<path>[^\"\\\r\n]{1,200})\\*\"[^\r\n]{0,600})?Are you trying to mount a directory",
    ),
    Signature(
        "docker-program-refused",
        keys=('": permission denied', '": is a directory', '": stat '),
        cause="The container on {host} cannot start {program}: [[denied?it may not be executed]][[folder?it is a folder]][[missing?there is no such file in the image or its mounts]].",
        next="[[denied?chmod +x the file (or start it as python3 FILE, bash FILE), and check that its file system is not mounted noexec||Correct the command or the entry point: docker run --rm --entrypoint ls IMAGE -l shows what the image has]].",
        pattern=r"(?:exec|unable to start container process)[^\r\n]{0,160}?: exec: \\*\"(?P<program>[^\"\\\r\n]{1,200})\\*\": (?:(?P<denied>permission denied)|(?P<folder>is a directory)|stat \S{1,200}: (?P<missing>no such file or directory))",
    ),
    Signature(
        "docker-work-folder",
        keys=("chdir to cwd (",),
        cause="The container on {host} cannot start in the folder {path}: {why}.",
        next="Set a folder that the container's user may enter: docker run -w /PATH. On NFS with root_squash, or with --user, check its rights: ls -ld {path} on {host}.",
        pattern=r"chdir to cwd \(\\*\"(?P<path>[^\"\\\r\n]{1,200})\\*\"\) set in config\.json failed: (?P<why>[a-z][a-z ]{0,60}[a-z])",
    ),
    Signature(
        "docker-nested",
        keys=(
            'error mounting "proc" to rootfs',
            "ip_unprivileged_port_start: permission denied",
            "/proc/sys/kernel/overflowuid: permission denied",
            "attr/keycreate: permission denied",
        ),
        cause="The Docker of {host} itself runs in a container (LXC, Proxmox, Kubernetes) or under a security module, which does not let it set up containers.",
        next="Run Docker on the host, or allow nesting for the outer container: security.nesting=true for LXC, --privileged for Docker. If an update of runc or containerd came before it, use the version before, or update AppArmor's profile.",
        pattern=r"error mounting \\*\"proc\\*\" to rootfs|(?:ip_unprivileged_port_start|overflowuid|attr/keycreate): permission denied",
    ),
    Signature(
        "docker-cgroup",
        keys=(
            "unable to apply cgroup configuration",
            "cannot use systemd cgroups manager",
            "cgroup mountpoint does not exist",
            "Devices cgroup isn't mounted",
        ),
        cause="Docker on {host} cannot create a control group for the container: the groups are not mounted, or systemd does not manage them.",
        next='Make mount | grep cgroup and docker info | grep -i cgroup on {host} agree: in /etc/docker/daemon.json, "exec-opts": ["native.cgroupdriver=systemd"] '
        "fits systemd, and cgroupfs a host without it. Then run systemctl restart docker.",
    ),
    Signature(
        "docker-memory-limit",
        keys=("container init was OOM-killed",),
        cause="The memory limit of the container on {host} is too low: the kernel killed it while it was starting.",
        next="Set a larger docker run --memory (or mem_limit), or leave it out; free -h on {host} shows what there is.",
    ),
    Signature(
        "docker-keyring",
        keys=("unable to create session key: disk quota exceeded",),
        cause="{host} has no room for another kernel key: many containers run there.",
        next="sysctl -w kernel.keys.maxkeys=20000 kernel.keys.maxbytes=400000 on {host} (in /etc/sysctl.d to keep it), and remove containers that no job needs.",
    ),
    Signature(
        "docker-storage",
        keys=(
            "error creating overlay mount to",
            "runc create failed: invalid rootfs",
            "error initializing graphdriver",
        ),
        cause="Docker's storage on {host} is damaged or does not work on that file system.",
        next="docker info | grep -A3 Storage and dmesg -T | tail on {host}. If the image's layers are damaged: docker rm the container, docker image rm the image, and pull it again; the storage must lie on ext4 or xfs (ftype=1), not on NFS.",
    ),
    Signature(
        "docker-runtime-broken",
        keys=("unable to retrieve OCI runtime error",),
        cause="The container runtime of {host} did not start[[why? ({why})]]: its program is missing or does not run there.",
        next="Check that runc --version and nvidia-container-runtime --version answer on {host}. Install containerd.io (runc) again, check the path under runtimes "
        "in /etc/docker/daemon.json, and systemctl restart docker.",
        pattern=r"unable to retrieve OCI runtime error \([^)\r\n]{1,300}\): (?P<why>[^\r\n]{1,160}?)(?:: unknown|\.?\s*$)",
        unless=("docker-no-gpu-support", "library-missing"),
    ),
    Signature(
        "containerd-down",
        keys=("/run/containerd/containerd.sock",),
        cause="The Docker engine of {host} does not reach containerd, which starts its containers.",
        next="systemctl restart containerd docker on {host}; if it fails: journalctl -u containerd -n 50, df -h /var/lib/containerd.",
        pattern=r"(?:dial(?:ing)?:?|connect\w*)[^\r\n]{0,120}/run/containerd/containerd\.sock[^\r\n]{0,80}(?:timeout|refused|no such file|unavailable)",
    ),
    Signature(
        "docker-cdi-off",
        keys=('device driver "cdi"', 'device driver \\"cdi'),
        cause="The container requests its GPUs by CDI, which the Docker engine of {host} does not offer: it is older than 25, or the feature is turned off.",
        next='Set "features": {{"cdi": true}} in /etc/docker/daemon.json on {host}, and systemctl restart docker (Docker 25 to 27). An older one: --gpus all.',
        pattern=r"could not select device driver \\*\"cdi",
    ),
    Signature(
        "docker-registry",
        keys=("/v2/",),
        cause="Docker on {host} does not reach the registry {registry} ({why}).",
        next="curl -I https://{registry}/v2/ on {host} shows whether name, proxy and firewall allow it; Docker's own proxy is set in /etc/systemd/system/docker.service.d (HTTPS_PROXY). Or image: from: controller in the inventory: setup then copies the image from host to host.",
        pattern=r"(?:Get|Head) \\*\"https?://(?P<registry>[^/\"\s]{1,120})/v2/[^\"\r\n]{0,200}\": [^\r\n]{0,300}?(?P<why>Client\.Timeout exceeded|context deadline exceeded|i/o timeout|no such host|server misbehaving|connection (?:refused|reset by peer)|no route to host|network is unreachable|TLS handshake timeout|EOF)",
    ),
    Signature(
        "docker-registry-http",
        keys=("server gave HTTP response to HTTPS client",),
        cause="The registry[[registry? {registry}]] speaks HTTP only, and Docker on {host} expects HTTPS.",
        next='Add it to /etc/docker/daemon.json on every host: "insecure-registries": ["HOST:PORT"], then systemctl restart docker. Or give the registry a certificate.',
        pattern=r"(?:https://(?P<registry>[^/\"\s]{1,120})/v2/[^\r\n]{0,200})?server gave HTTP response to HTTPS",
    ),
    Signature(
        "docker-registry-certificate",
        keys=("x509: ",),
        cause="Docker on {host} does not trust the certificate of the registry[[registry? {registry}]]: {why}.",
        next="[[time?Run date on {host} and correct the clock (timedatectl set-ntp true); if it is right, renew the certificate||Put the authority's certificate into /etc/docker/certs.d/REGISTRY/ca.crt on every host]].",
        pattern=r"(?:https://(?P<registry>[^/\"\s]{1,120})/v2/[^\r\n]{0,300})?x509: (?P<why>(?=(?P<time>certificate has expired)?)certificate [^\r\n:]{1,120}[^\s:.])",
    ),
    Signature(
        "docker-registry-login",
        keys=(
            "unauthorized: authentication required",
            "denied: denied",
            "no basic auth credentials",
            "unauthorized: incorrect username or password",
        ),
        cause="The registry[[registry? {registry}]] requires a login that Docker on {host} does not have, or that may not read this image.",
        next="docker login[[registry? {registry}]] on {host} as the user who pulls (root under sudo); for nvcr.io, the user is $oauthtoken and the password an NGC key.",
        pattern=r"(?:https://(?P<registry>[^/\"\s]{1,120})/v2/[^\r\n]{0,300})?(?:unauthorized: |denied: denied|no basic auth credentials)",
        unless=("image-missing",),
    ),
    Signature(
        "image-no-platform",
        keys=("no matching manifest for ",),
        cause="The image has no build for {platform}, the processor of {host}.",
        next="docker manifest inspect IMAGE lists what there is. Use an image or tag for that processor, or build it there: docker buildx build --platform {platform}.",
        pattern=r"no matching manifest for (?P<platform>[\w./-]{1,40}\w)",
    ),
    Signature(
        "image-disk-full",
        keys=("failed to register layer: ", "failed to extract layer ", "writing blob: "),
        cause="The disk that has the images of {host} is full, so an image could not be unpacked.",
        next="docker info shows the folder (Docker Root Dir), and docker system df what is in it; docker image prune -a removes images that no container uses. A larger disk: data-root in /etc/docker/daemon.json.",
        pattern=r"(?:failed to (?:register layer: |extract layer )|writing blob: )[^\r\n]{0,400}?no space left on device",
    ),
    Signature(
        "image-layer-broken",
        keys=(
            "failed to register layer: ",
            "filesystem layer verification failed",
            "error pulling image configuration: ",
        ),
        cause="Docker on {host} could not unpack a layer of the image: the download was cut off or damaged, or the disk failed.",
        next="docker pull it again on {host}; df -h /var/lib/docker and dmesg -T | tail show whether the disk is at fault. A proxy between may damage large files: copy the image with docker save and docker load.",
        pattern=r"failed to register layer: (?![^\r\n]{0,200}no space left)|filesystem layer verification failed|error pulling image configuration: ",
        unless=("docker-registry", "docker-registry-certificate"),
    ),
    Signature(
        "image-name",
        keys=("invalid reference format",),
        cause="The name of the image is not valid: it has upper-case letters or spaces, or the variable that holds it is empty.",
        next="Write REGISTRY/NAME:TAG in lower case (the tag may have upper case). Quote paths with spaces in -v, as everything after the first word without an option is read as the image.",
    ),
    Signature(
        "docker-iptables",
        keys=("(iptables failed: ", "Failed to program FILTER chain", "No chain/target/match by that name"),
        cause="Docker on {host} cannot add its rules to the firewall: another program removed its chains, or iptables does not fit the kernel.",
        next="systemctl restart docker on {host} creates them again. If it fails: iptables --version and update-alternatives --display iptables (legacy or "
        "nf_tables), lsmod | grep ip_tables, or docker run --network host, which needs no rules.",
        pattern=r"\(iptables failed: |Failed to program FILTER chain",
    ),
    Signature(
        "docker-addresses",
        keys=("non-overlapping IPv4 address pool", "all predefined address pools have been fully subnetted"),
        cause="Docker on {host} has no addresses left for another network.",
        next="docker network prune on {host} removes those that nothing uses. Or add default-address-pools to /etc/docker/daemon.json, or use --network host.",
    ),
    Signature(
        "docker-user",
        keys=("no matching entries in passwd file", "no matching entries in group file"),
        cause="The image has no user or group {name}.",
        next="Give numbers instead: docker run --user $(id -u):$(id -g), or create the user in the image.",
        pattern=r"unable to find (?:user|group) (?P<name>[^\s:]{1,60}): no matching entries",
    ),
    Signature(
        "docker-network-missing",
        keys=(
            "Error response from daemon: network ",
            "could not find a network matching network mode",
            "failed to set up container networking: network ",
        ),
        cause="Docker on {host} has no network {name}.",
        next="docker network ls on {host}; docker network create {name}. For training over several hosts, use --network host.",
        pattern=r"network (?P<name>[\w.-]{1,80}) not found|matching network mode (?P<name2>[\w.-]{1,80})",
    ),
    Signature(
        "docker-network-options",
        keys=("conflicting options: ",),
        cause="Options of docker run exclude each other: {what}.",
        next="Remove one of the two: with --network host or container:NAME, -p, --hostname and --link do nothing or are refused.",
        pattern=r"conflicting options: (?P<what>[^\r\n]{1,120}[^\s.])",
    ),
    Signature(
        "docker-resources",
        keys=(
            "Requested CPUs are not available",
            "Requested memory nodes are not available",
            "Range of CPUs is from",
            "range of CPUs is from",
            "Minimum memory limit allowed is",
        ),
        cause="The container requests CPUs or memory that {host} does not have[[asked? ({asked} of {there})]].",
        next="Correct --cpuset-cpus, --cpuset-mems, --cpus or --memory for that host, or leave them out: nproc, lscpu | grep NUMA and free -h on {host} show what "
        "it has.",
        pattern=r"Requested (?:CPUs|memory nodes) are not available - requested (?P<asked>[\d,-]{1,60}), available: (?P<there>[\d,-]{1,60})|[Rr]ange of CPUs is from|Minimum memory limit allowed is",
    ),
    Signature(
        "docker-volume-name",
        keys=("includes invalid characters for a local volume name", "invalid volume specification: "),
        cause="Docker reads a mount as the name of a volume, because its path does not begin with a slash.",
        next="Write -v with the full path of the folder: -v $PWD/data:/data.",
    ),
    Signature(
        "docker-volume-mount",
        keys=("failed to mount local volume: ", "error while mounting volume '"),
        cause="Docker on {host} cannot mount the storage of a volume[[from? from {from}]]: {why}.",
        next="Mount it by hand on {host} with the same options (docker volume inspect NAME): the server must be reachable (showmount -e SERVER) and allow {host}, and nfs-common be installed.",
        pattern=r"failed to mount local volume: mount (?P<from>[^\s:]{0,100}:?[^\s:]{0,100}):[^\r\n]{0,300}: (?P<why>[a-z][a-z ]{2,60}[a-z])",
    ),
    Signature(
        "docker-version",
        keys=("Maximum supported API version is ", "Minimum supported API version is "),
        cause="The docker command and the Docker engine of {host} have versions that do not fit: the command speaks {client}, the engine {engine}.",
        next="docker version on {host} shows both: update the older one. Until then: export DOCKER_API_VERSION={engine}.",
        pattern=r"client version (?P<client>[\d.]{1,12}) is too (?:new|old)\. (?:Maximum|Minimum) supported API version is (?P<engine>[\d.]{1,12}\d)",
    ),
    Signature(
        "docker-container-busy",
        keys=(
            "is restarting, wait until the container is running",
            "is marked for removal and cannot be",
            "cannot exec in a paused container",
            "removal of container ",
        ),
        cause="A container of {host} is in a state in which nothing can be started in it: it restarts again and again, is paused, or is being removed.",
        next="docker ps -a and docker logs --tail 50 NAME on {host} show its state and why it ends. Then docker unpause NAME, or docker rm -f NAME and start it again.",
        pattern=r"is restarting, wait until|is marked for removal and|cannot exec in a paused|removal of container \S{1,80} is already in progress",
    ),
    Signature(
        "docker-stop-denied",
        keys=("cannot stop container: ", "cannot kill container: "),
        cause="The Docker engine of {host} may not end its own container {name}: AppArmor's profile comes from another installation, as of Docker from snap beside docker-ce.",
        next="aa-remove-unknown on {host}, then stop it again. Remove one of the two installations: snap list docker, dpkg -l docker-ce.",
        pattern=r"cannot (?:stop|kill) container: (?P<name>[^\s:]{1,80}): [^\r\n]{0,120}permission denied",
    ),
    Signature(
        "docker-no-terminal",
        keys=("the input device is not a TTY",),
        cause="docker run or exec has the option -t, and there is no terminal under mpirun, ssh, cron or a scheduler.",
        next="Remove -t (write -i, or nothing, instead of -it).",
    ),
    Signature(
        "docker-daemon-file",
        keys=("unable to configure the Docker daemon with file",),
        cause="The Docker engine of {host} does not start: it cannot use {file} ({why}).",
        next="python3 -m json.tool {file} on {host} shows an error of form. What the unit sets as an option (hosts, for example) must not be in the file too; then systemctl restart docker.",
        pattern=r"Docker daemon with file (?P<file>[^\s:]{1,200}): (?P<why>[^\r\n]{1,160}[^\s.])",
    ),
    Signature(
        "docker-daemon-network",
        keys=("Error initializing network controller",),
        cause="The Docker engine of {host} does not start: it cannot set up its bridge or its firewall rules.",
        next="journalctl -u docker -n 50 and lsmod | grep -E 'bridge|ip_tables|nf_nat' on {host}: after an update of the kernel, reboot. If the bridge is damaged: ip link delete docker0, then systemctl restart docker.",
        unless=("docker-iptables",),
    ),
    Signature(
        "docker-option",
        keys=("unknown flag: --", "unknown shorthand flag: ", 'for "--gpus" flag'),
        cause="The docker command does not accept the option {option}.",
        next="docker run --help lists its options. --gpus requires Docker 19.03 or newer (docker version); put options before the image, and write long ones with two dashes: --gpus all.",
        pattern=r"^(?:docker: )?unknown flag: (?P<option>--[\w-]{1,60})\s*$|^(?:docker: )?unknown shorthand flag: '\w' in (?P<option2>-[\w-]{1,60})|invalid argument \S{1,60} for \"(?P<option3>--gpus)\" flag",
    ),
    Signature(
        "docker-elsewhere",
        keys=("error during connect: ",),
        cause="The docker command talks to an engine on another host, which does not answer ({why}).",
        next="docker context ls and env | grep DOCKER_HOST show where. Unset DOCKER_HOST (docker context use default), or start the engine there.",
        pattern=r"error during connect: [^\r\n]{1,300}?(?P<why>connection refused|no such host|i/o timeout|no route to host|EOF|[a-z]+ [a-z]+ [a-z ]{0,40}[a-z])\.?\s*$",
    ),
    Signature(
        "docker-user-namespace",
        keys=("when user namespaces are enabled", "privileged mode is incompatible with user namespaces"),
        cause="The Docker engine of {host} maps users (userns-remap), which excludes --network host, --pid host and --privileged.",
        next="Start the container with --userns=host as well, or remove userns-remap from /etc/docker/daemon.json and systemctl restart docker.",
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
        next="Run docker login on {host}, or pull once and distribute the image: docker save and docker load, or your own registry or mirror. Or set image: from: "
        "controller in the inventory: setup then copies it from host to host.",
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
        pattern=r"pyxis: {2,8}(?=(?:[^\r\n]{0,300}(?P<space>No space left))?)(?P<why>(?!\[(?:INFO|WARN|DEBUG))[^\s][^\r\n]*[^\s.*])|pyxis:? (?P<why2>\[ERROR\] [^\r\n]*[^\s.])",
        unless=("enroot-folder", "enroot-mount", "registry-refused-enroot", "kernel-limit", "namespace-refused"),
    ),
    Signature(
        "pod-ended",
        keys=("command terminated with exit code ",),
        cause="Kubernetes ended what ran in a worker's pod (exit code {code}[[killed?: killed, most often because memory ran out]]); anything lost after that is a "
        "consequence.",
        next="Run kubectl describe pod WORKER, which shows why (OOMKilled, evicted, a limit). Read its last lines: kubectl logs --previous WORKER.",
        pattern=r"^command terminated with exit code (?P<code>(?P<killed>137)|143)\b",
    ),
    Signature(
        "pod-command-failed",
        keys=("command terminated with exit code ",),
        cause="What kubectl exec ran in a pod ended with exit code {code}, and this log does not show why.",
        next="Read the lines above it, and the pod's own log: kubectl logs POD.",
        pattern=r"^command terminated with exit code (?P<code>(?!(?:137|143)\b)\d+)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "pod-no-kubectl",
        keys=("kubectl: not found", "kubectl: No such file or directory", "kubectl: command not found"),
        cause="{file} was not found in a pod that should start mpirun's daemon in another one. By default mpirun starts daemons from worker to worker, and only the "
        "launcher's pod has kubectl.",
        next="Start all daemons from the launcher: --mca plm_rsh_no_tree_spawn 1 (5.0: --prtemca plm_ssh_no_tree_spawn 1). If the launcher's pod itself lacks it, correct the init container that delivers kubectl.",
        pattern=r"(?P<file>[^\s:]*kubectl): (?:command )?(?:not found|No such file)",
    ),
    Signature(
        "process-signalled",
        keys=("Aborted", "Segmentation fault", "Bus error", "Illegal instruction", "Floating point exception"),
        cause="[[rank?Rank {rank}||A process]] on {host} was ended by a signal: {why}.",
        next="Read the lines before it; in Python, run it with -x PYTHONFAULTHANDLER=1. If it was a bus error, check df -h /dev/shm, which is most often full; if "
        "an illegal instruction, look for a library built for another CPU.",
        # Behind a script's line there may be one blank: what is pasted has lost the gap that bash prints.
        pattern=r"^(?:\S+: line \d+: +\d+ |(?=[A-Z][a-z ]{1,30}?(?: +\(core dumped\))?(?:$| {2,}\S)))(?P<why>Aborted|Segmentation fault|Bus error|Illegal instruction|Floating point exception)"
        r"(?: +\(core dumped\))?(?:$| +(?=\S)(?:HOROVOD_HOSTNAME=(?P<host>\S+) HOROVOD_RANK=(?P<rank>\d+))?[^\r\n]*$)",
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
        pattern=r"^(?:\S+: line \d+: +\d+ Killed(?: +\S|$)|Killed(?:$| {2,}\S[^\r\n]*$))",
        kind=FailureText.OUTCOME,
        unless=("rank-killed", "out-of-memory", "out-of-memory-asked", "torchrun-rank-killed", "slurm-out-of-memory"),
    ),
    Signature(
        "container-program-missing",
        keys=("executable file not found in $PATH",),
        cause="The program {program} was not found in the container on {host}.",
        next="[[tool?Start the container with --gpus all: the NVIDIA Container Toolkit then puts the driver's own programs, which come from the host, into "
        "it||Install it in the image, or give its full path there]].",
        pattern=r"exec: \\*\"(?P<program>(?P<tool>nvidia-smi)?[^\"\\]*)\\*\": executable file not found in \$PATH",
        unless=("docker-no-gpu-support",),
    ),
    Signature(
        "image-other-processor",
        keys=("exec format error", "Exec format error", "does not match the detected host platform"),
        cause="The image or program is for another kind of processor than that of {host}.",
        next="Compare docker image inspect --format '{{{{.Architecture}}}}' IMAGE with uname -m on {host}, and pull the right image: docker pull --platform "
        "linux/arm64 (or linux/amd64).",
        pattern=r"exec [^\r\n]*: exec format error|sh: (?:(?:line )?\d+: )?[^\s:]+: (?:cannot execute binary file: )?Exec format error|platform \(\S+\) does not match the detected host platform",
        survived=True,
    ),
    Signature(
        "apptainer-failed",
        keys=("FATAL:  ", "ERROR  : "),
        cause="apptainer (singularity) could not start the container on {host}: {why}.",
        next="Run it by hand on that host with apptainer --debug: every folder that is bound must exist there. For fuse or setuid problems, use apptainer config or "
        "--userns.",
        pattern=r"^(?:[\w.-]+: )?[ \t]*FATAL: {2,}(?P<why>[^\r\n]*[^\s.:])|^ERROR {2}: (?P<why3>[^\r\n]*[^\s.:])|FATAL: {2,}(?P<why2>container creation failed: [^\r\n]*[^\s.:])",
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
        next="In /etc/enroot/enroot.conf, set ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u) (likewise ENROOT_CACHE_PATH and ENROOT_DATA_PATH), a folder of each "
        "user's own. Create it in a Slurm prolog.",
        pattern=r"pyxis: +mkdir: cannot create directory ['\u2018](?P<path>[^'\u2019\r\n]+)['\u2019]: Permission denied",
    ),
    Signature(
        "pyxis-failed",
        keys=("pyxis: failed to ", "pyxis: couldn't start container"),
        cause="Slurm's container plugin (pyxis) could not start the container on {host}: {why}.",
        next="Read the indented lines below it, which give the reason; if they are not here, see that host's slurmd.log. To see it by hand on that host: enroot "
        "import docker://IMAGE.",
        pattern=r"pyxis: (?P<why>failed to (?:import|create|start)[^\r\n]*[^\s.]|couldn't start container)",
        unless=("enroot-failed", "enroot-folder", "enroot-mount", "pyxis-image-path"),
    ),
    Signature(
        "nvidia-container-driver",
        keys=("failed to process request",),
        cause="The NVIDIA container runtime of {host} gets no answer from the driver. Most often the driver's libraries and its kernel module do not match, or the driver or the NVIDIA Container Toolkit is too old.",
        next="Run nvidia-container-cli -k -d /dev/tty info on {host}, which shows the step that fails. If nvidia-smi and cat /proc/driver/nvidia/version show different versions, reboot; otherwise update the driver and the NVIDIA Container Toolkit.",
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
        cause="[[container?Container {container} of pod {pod} has not started: {reason}]][[name?Kubernetes cannot reach the worker {name}: its container does not run]]"
        "[[why?Kubernetes cannot reach the worker: {why}]].",
        next="[[container?kubectl describe pod {pod} shows what it waits for, at its end; kubectl logs {pod} -c NAME shows what an init container does"
        "||kubectl get pods -o wide, kubectl describe pod WORKER, and kubectl logs --previous WORKER show why it ended or did not start]].",
        pattern=r"unable to upgrade connection: container not found \(\"(?P<name>[^\"\r\n]+)\"\)|rror dialing backend: (?P<why>[^\r\n]*[^\s.])"
        r"|NotFound\): pods \"(?P<name2>[^\"\r\n]+)\" not found|container \"(?P<container>[^\"\r\n]+)\" in pod \"(?P<pod>[^\"\r\n]+)\" is waiting to start: (?P<reason>[^\r\n]*[^\s.])",
    ),
    # What kubectl describe and kubectl get events show, by the reason.
    Signature(
        "pod-not-scheduled",
        keys=("nodes are available: ", "unbound immediate PersistentVolumeClaims"),
        cause="Kubernetes finds no node for a pod: {why}.",
        next="[[gpu?kubectl describe nodes | grep -A8 Allocated shows how many GPUs are free (nvidia.com/gpu 0 everywhere: the device plugin does not run there). Request fewer per pod, or wait for other jobs||"
        "kubectl describe nodes shows taints, labels and what is free; kubectl get pvc shows whether a volume is bound. Change the pod's requests, nodeSelector or tolerations accordingly]].",
        pattern=r"(?P<why>\d+/\d+ nodes are available: (?=(?:[^\r\n]*?(?P<gpu>Insufficient [\w.-]+/\w*gpu))?)[^\r\n]*?[^\s.])(?:[. ]+preemption: [^\r\n]*)?[. \t]*(?:\r?\n|$)(?![\s\S]*Successfully assigned)"
        r"|(?P<why2>pod has unbound immediate PersistentVolumeClaims)(?![\s\S]*Successfully assigned)",
        lines=12,
    ),
    Signature(
        "pod-not-created",
        keys=("Error creating: ", "is forbidden: "),
        cause="Kubernetes refuses to create a pod: {why}.",
        next="[[quota?kubectl describe quota shows what is used: request less, delete what is not needed, or wait for other jobs||Correct what that message names: kubectl get serviceaccount,priorityclass shows what exists; an admission webhook's text is the site's own rule]].",
        pattern=r"(?:Error creating: |pods \"[^\"\r\n]+\" is )(?=(?:[^\r\n]*(?P<quota>exceeded quota))?)(?P<why>(?:pods? \"[^\"\r\n]+\" is )?forbidden: [^\r\n]*[^\s.]|admission webhook [^\r\n]*[^\s.])",
    ),
    Signature(
        "pod-image-not-pulled",
        keys=(
            "Failed to pull image ",
            "Back-off pulling image ",
            "ErrImagePull",
            "ImagePullBackOff",
            "InvalidImageName",
        ),
        cause="Kubernetes cannot get the image[[image? {image}]] of a pod[[why?: {why}]].",
        next="Check name and tag: docker manifest inspect IMAGE. For a private registry, the pod needs imagePullSecrets (kubectl create secret docker-registry); otherwise test from the node itself: crictl pull IMAGE.",
        pattern=r"Failed to pull image \"(?P<image>[^\"\r\n]+)\"(?:: (?P<why>[^\r\n]*[^\s.]))?|Back-off pulling image \"(?P<image2>[^\"\r\n]+)\"|\b(?:Init:)?(?:ErrImagePull|ImagePullBackOff|InvalidImageName)\b",
        unless=("registry-limit", "docker-registry-login"),
    ),
    Signature(
        "pod-out-of-memory",
        keys=("OOMKilled",),
        cause="Kubernetes killed a container because it used more memory than its limit (OOMKilled).",
        next="Raise resources.limits.memory of the pod, or use smaller batches and fewer data loader workers. /dev/shm counts, too: an emptyDir of medium Memory.",
        pattern=r"(?:Reason: +|\d/\d +(?:Init:)?|reason[\"']?: *[\"']?)OOMKilled\b",
    ),
    Signature(
        "pod-evicted",
        keys=(
            "The node was low on resource",
            "The node had condition: ",
            "ephemeral local storage usage exceeds",
            "Evicted",
        ),
        cause="Kubernetes removed a pod from its node[[why?: {why}]].",
        next="Request what the pod uses (resources.requests of memory and ephemeral-storage), write large files to a volume, and see kubectl describe node NODE for its conditions.",
        pattern=r"(?P<why>The node was low on resource: [\w-]+|The node had condition: \[\w+\]|[^\r\n]{0,60}ephemeral local storage usage exceeds[^\r\n]{0,60}\w)|\d/\d +Evicted\b",
    ),
    Signature(
        "pod-volume-missing",
        keys=("MountVolume.", "Unable to attach or mount volumes", "FailedAttachVolume", 'persistentvolumeclaim "'),
        cause="Kubernetes cannot mount a volume of a pod[[what? ({what})]]: {why}.",
        next="kubectl get pvc,secret,configmap shows whether it is there, in the pod's own namespace. For a disk that one node may use at a time (ReadWriteOnce), pods on several nodes need ReadWriteMany.",
        pattern=r"MountVolume\.\w+ failed for volume \"(?P<what>[^\"\r\n]+)\" ?: (?P<why>[^\r\n]*[^\s.])(?![\s\S]*Started container)|(?P<why2>Unable to attach or mount volumes: [^\r\n]*[^\s.])(?![\s\S]*Started container)"
        r"|(?P<why4>persistentvolumeclaim \"[^\"\r\n]+\" not found)(?![\s\S]*Started container)"
        r"|FailedAttachVolume [^\r\n]*?(?P<why3>Multi-Attach error[^\r\n]*[^\s.]|AttachVolume\.Attach failed[^\r\n]*[^\s.])",
        unless=("pod-not-scheduled",),
        lines=12,
    ),
    Signature(
        "pod-sandbox-failed",
        keys=("ailed to create pod sandbox", "ailed create pod sandbox", "FailedCreatePodSandBox"),
        cause="The node cannot create a pod's network or sandbox[[why?: {why}]].",
        next="On the node: journalctl -u kubelet | tail -50, and the pods of its network (kubectl -n kube-system get pods -o wide). With a second network (Multus, SR-IOV), check that its NetworkAttachmentDefinition is in the pod's namespace and that the node has free devices.",
        pattern=r"ailed (?:to )?create pod sandbox: (?P<why>[^\r\n]{0,900}[^\s.])(?![\s\S]*Started container)|FailedCreatePodSandBox(?![^\r\n]*ailed (?:to )?create pod sandbox)(?![\s\S]*Started container)",
        kind=FailureText.FALLBACK,
        lines=12,
        unless=("docker-no-gpu-support",),
    ),
    Signature(
        "pod-container-settings",
        keys=(
            "CreateContainerConfigError",
            "CreateContainerError",
            "RunContainerError",
            "Error: couldn't find key",
            "Error: secret ",
            "Error: configmap ",
        ),
        cause="Kubernetes cannot create a container of a pod[[why?: {why}]].",
        next="kubectl describe pod POD shows which setting: a Secret, ConfigMap or key that does not exist in that namespace, or a user or path that the image lacks.",
        pattern=r"Error: (?P<why>(?:couldn't find key|(?:secret|configmap) \"[^\"\r\n]+\" not found)[^\r\n]{0,200})|\d/\d +(?:Init:)?(?:CreateContainer(?:Config)?Error|RunContainerError)\b",
    ),
    Signature(
        "pod-unhealthy",
        keys=(" probe failed: ", " probe errored: ", " failed liveness probe", " failed startup probe"),
        cause="A [[what?{what} probe||liveness or startup probe]] of a container of a pod fails[[why?: {why}]][[ends?; Kubernetes ends and starts the container again for that, in the middle of a job too]].",
        next="[[ends?Remove that probe from the workers of a job, or raise its failureThreshold and initialDelaySeconds||Raise initialDelaySeconds if its start takes long, as the pod gets no traffic until that probe succeeds]]. kubectl logs POD shows whether what the probe asks for (a port, a file, sshd) has started.",
        # pkg/kubelet/prober/prober.go and kuberuntime_manager.go
        pattern=r"(?P<what>Readiness|(?P<ends>Liveness|Startup)) probe (?:failed|errored): (?P<why>[^\r\n]{1,200}[^\s.])|Container \S+ failed (?P<ends2>liveness|startup) probe",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "pod-restarts",
        keys=("restarting failed container", "CrashLoopBackOff"),
        cause="A container of a pod[[pod? ({pod})]] fails again and again[[container?: {container}]][[waits?, the init container of a worker, which waits until the name of the job's first pod (master or launcher) resolves: that pod or its service does not exist]].",
        next="[[waits?Look at that first pod: kubectl get pods,svc; kubectl describe pod MASTER. kubectl logs WORKER -c {container} shows what the init container waits for||kubectl logs --previous POD (-c CONTAINER) shows why it ended; kubectl describe pod POD shows the exit code and the reason (Last State)]].",
        pattern=r"[Bb]ack-off (?:\d\w+ )?restarting failed container(?:[ =](?=(?:(?P<waits>init-(?:pytorch|master|mpi|tensorflow))\b)?)(?P<container>[\w.-]+))?(?: (?:in pod |pod=)(?P<pod>[\w.-]+?)_)?|(?:^(?P<pod2>[\w.-]+) +)?\d/\d +(?:Init:)?CrashLoopBackOff\b",
        kind=FailureText.FALLBACK,
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
        pattern=r"nvidia-container-cli(?:\.real)?: initialization error: cuda error: (?!system has unsupported)(?P<why>[\w -]*\w)",
    ),
    Signature(
        "nvidia-container-hook",
        keys=("invoking the NVIDIA Container Runtime Hook directly",),
        cause="Docker on {host} gives the container its GPUs by --gpus, and the NVIDIA Container Toolkit there is set to CDI, which does not allow that.",
        next='Start it with --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all (or --device nvidia.com/gpu=all). Or set mode = "auto" under nvidia-container-runtime in /etc/nvidia-container-runtime/config.toml.',
    ),
    Signature(
        "nvidia-container-file-exists",
        keys=("mount error: file creation failed: ",),
        cause="The image contains files of an NVIDIA driver ({file}), so those of {host} cannot be put there.",
        next="Remove libcuda.so*, libnvidia-*.so* and nvidia-* programs from the image: a driver was installed in it, or a container with GPUs was saved by docker commit.",
        pattern=r"mount error: file creation failed: \S{0,300}?/merged(?P<file>/[^\s:]{1,200}): file exists",
    ),
    Signature(
        "nvidia-container-file-missing",
        keys=(
            "mount error: stat failed: ",
            "mount error: mount operation failed: ",
            "mount error: open failed: ",
            "detection error: path error: ",
        ),
        cause="The NVIDIA container runtime of {host} does not find {file}, a part of the driver.",
        next="nvidia-smi and ls -l {file} on {host}: after an update of the driver or a change of MIG, run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, or reboot. If it stays missing, install the driver's packages again.",
        pattern=r"nvidia-container-cli(?:\.real)?: [^\r\n]{0,60}error: (?:stat failed|mount operation failed|open failed|path error): (?P<file>/[^\s:]{1,200}): no such file",
    ),
    Signature(
        "nvidia-container-nvml",
        keys=(": nvml error: ",),
        cause="The driver of {host} does not answer the NVIDIA container runtime ({why}), so no container there gets its GPUs.",
        next="Run nvidia-smi and dmesg -T | grep -E 'NVRM|Xid' on {host}: if a GPU is lost, reset it or reboot; if nvidia-smi works, reinstall the NVIDIA Container Toolkit from NVIDIA's own packages. If permissions are insufficient, check ls -l /dev/nvidia* and, for rootless Docker, no-cgroups in /etc/nvidia-container-runtime/config.toml.",
        pattern=r"nvidia-container-cli(?:\.real)?: \w{1,20} error: nvml error: (?P<why>(?!driver not loaded|driver/library)[a-z][a-z ]{1,60}[a-z])",
        unless=("driver-mismatch", "nvidia-driver-not-loaded"),
    ),
    Signature(
        "nvidia-container-slow",
        keys=("driver error: timed out", "driver rpc error: timed out"),
        cause="The driver of {host} took too long to start its GPUs for a container.",
        next="nvidia-smi -pm 1 on {host} (or systemctl enable --now nvidia-persistenced) keeps the driver loaded. If nvidia-smi itself takes long: dmesg -T | grep -E 'NVRM|Xid'.",
        pattern=r"nvidia-container-cli(?:\.real)?: [^\r\n]{0,60}driver (?:rpc )?error: timed out",
    ),
)

# What apptainer-failed means where one of these stands near it.
_BY_HAND = "Run it by hand on that host with apptainer --debug to see more."
OF_APPTAINER = (
    Qualifier(
        r"destination (?P<folder>\S+) doesn't exist in container",
        "apptainer (singularity) could not mount {folder} into the container on {host}: the image has no folder of that name, and none may be added to it there.",
        "Create the folder in the image (mkdir -p {folder} in %post), or leave that bind out: --bind, APPTAINER_BIND, bind path in apptainer.conf. Administrators can set enable overlay = try or enable underlay = yes there.",
    ),
    Qualifier(
        r"mount source (?P<folder>/\S+) doesn't exist",
        "apptainer (singularity) could not start the container on {host}: {folder}, which is bound into it, does not exist there.",
        "Leave that bind out, or use hosts that have the folder (findmnt -T {folder}). It comes from --bind, from APPTAINER_BIND or SINGULARITY_BIND, or from a bind path of apptainer.conf or singularity.conf.",
    ),
    Qualifier(
        r"exec: \"?(?:/\S*/)?nvidia-container-cli\"?: (?:stat|executable file not found|fork/exec)",
        "apptainer (singularity) was set to prepare the GPUs with nvidia-container-cli, which is not installed on {host}.",
        "Use --nv alone: unset APPTAINER_NVCCLI SINGULARITY_NVCCLI, and omit --nvccli. Or install nvidia-container-toolkit on {host}: taco-launch -i FILE setup --only toolkit.",
    ),
    Qualifier(
        r"(?:FATAL|ERROR) *: [^\n]*(?:write: broken pipe|unexpected EOF|connection reset by peer)",
        "apptainer (singularity) itself crashed while it started the container on {host}: {why}.",
        "Run it by hand on that host: apptainer --debug exec IMAGE true. If it fails there only, compare ulimit -a (memory, processes), the free memory and the version with a host on which it works; update it otherwise.",
    ),
    Qualifier(
        r"squashfuse\w* exited|trying to read the squashfs|bad superblock|failed to (?:find|read|load) (?:the )?(?:squashfs|root ?fs|SIF)|image partition|(?:[Ii]nvalid|[Cc]orrupted?|[Uu]nknown) (?:SIF|image)|image format not recognized",
        "apptainer (singularity) could not read the image on {host}: {why}. The file is damaged or incomplete, or FUSE cannot mount it there.",
        "Compare ls -l and sha256sum of the image with its source, and pull it again if they differ; apptainer sif list IMAGE must read it. If it is whole, check /dev/fuse and the disk on {host}; "
        "apptainer build --sandbox FOLDER IMAGE works without FUSE.",
    ),
    Qualifier(
        r"no loop devices available|failed to find loop device",
        "apptainer (singularity) finds no free loop device on {host}, by which it mounts the image.",
        "Run losetup -a on {host}, which lists those in use, and unmount what ended jobs left; raise max loop devices in apptainer.conf. Newer versions share one device per image, or need none (unprivileged, with FUSE).",
    ),
    Qualifier(
        r"configuration disallows users from",
        "The administrator of {host} has forbidden this use of apptainer (singularity): {why}.",
        "Use an image file (SIF) of an allowed owner or folder, or ask the administrator: apptainer.conf has allow container, limit container owners and limit container paths.",
    ),
    Qualifier(
        r"root filesystem extraction failed|unsquashfs",
        "apptainer (singularity) could not unpack the image on {host}: {why}.",
        "Check df -h of APPTAINER_TMPDIR (/tmp otherwise), and that the image is whole (sha256sum). Where user namespaces and FUSE work, or apptainer-suid is installed, nothing has to be unpacked.",
    ),
    Qualifier(
        r"(?:FATAL|ERROR) *: [^\n]*failed to mount \S+ in \d+s",
        "apptainer (singularity) waited too short a time for the image on {host}: {why}. Its file system is slow, as the first access to CVMFS or a busy shared folder is.",
        "Run it again, or copy the image to a local disk first; newer versions of apptainer wait longer.",
    ),
    Qualifier(
        r"(?:FATAL|ERROR) *: [\s\S]{0,400}(?:[Nn]o space left|[Oo]ut of space|[Dd]isk quota exceeded)",
        "apptainer (singularity) has no room on {host} to build or unpack the image: {why}.",
        "Put its folders on a larger disk: export APPTAINER_TMPDIR=/scratch/$USER/tmp APPTAINER_CACHEDIR=/scratch/$USER/cache (older versions: SINGULARITY_...); apptainer cache clean empties the cache.",
    ),
    Qualifier(
        r"while creating squashfs: [^\n]*|mksquashfs[^\n]*(?:not found|failed)",
        "apptainer (singularity) could not write the image on {host}: mksquashfs failed ({why}).",
        "On login nodes, limits of memory and CPU time end mksquashfs (ulimit -a): build in a job, and limit it with APPTAINER_MKSQUASHFS_PROCS or --mksquashfs-args='-processors 2 -mem 2G'. Check df -h of "
        "APPTAINER_TMPDIR, and that squashfs-tools is installed.",
    ),
    Qualifier(
        r"(?:FATAL|ERROR) *: [^\n]*(?:user namespace|newuidmap|newgidmap|setuid|suid|unshare|fakeroot|/etc/subuid|subuid mapping)",
        "apptainer (singularity) may not create a user namespace on {host}: {why}.",
        "sysctl user.max_user_namespaces must be more than 0 there, and kernel.unprivileged_userns_clone 1 (Ubuntu 24.04: kernel.apparmor_restrict_unprivileged_userns 0); --fakeroot needs a line of the user in /etc/subuid and /etc/subgid. "
        "Otherwise the administrator installs apptainer-suid.",
    ),
    Qualifier(
        r"(?:FATAL|ERROR) *: [^\n]*(?:could not open image|stat \S+: no such file|no such file or directory$)",
        "apptainer (singularity) does not find a file on {host}: {why}.",
        "Check ls -l on that host: the image or folder must be on a file system that every host mounts, and its path must be absolute.",
    ),
    Qualifier(
        r"(?:FATAL|ERROR) *: [^\n]*(?:UNAUTHORIZED|unauthorized|denied: |authentication required|403 Forbidden)",
        "The registry refused to give apptainer (singularity) the image: {why}.",
        "Check the image's name and tag. For a private one: apptainer registry login --username NAME docker://REGISTRY (older: remote login), or APPTAINER_DOCKER_USERNAME and APPTAINER_DOCKER_PASSWORD.",
    ),
    Qualifier(
        r"(?:FATAL|ERROR) *: [^\n]*(?:executable file not found|exec \S+ failed|no such file or directory in container)",
        "The image that apptainer (singularity) runs on {host} lacks the program, or a library that it needs: {why}.",
        _BY_HAND
        + " apptainer exec IMAGE ls -l PROGRAM shows whether it is in the image; programs of the host must be bound with their libraries.",
    ),
)
