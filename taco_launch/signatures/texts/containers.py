"""What the container runtimes say of devices, images and their hooks: NVIDIA's toolkit and CDI, registries, enroot and pyxis."""

from taco_launch.signatures.entry import FailureText, Signature

CONTAINERS = (
    Signature(
        "cdi-unknown-device",
        ("unresolvable CDI devices",),
        "The container requests the device {what}, which no description (CDI) of {host} names.",
        "[[auto?nvidia-smi on {host}: the NVIDIA Container Toolkit makes that description of its own from the driver, which does not "
        "answer or is not loaded.||nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml on {host}; nvidia-ctk cdi list shows the "
        "names.]]",
        r"unresolvable CDI devices (?=(?P<auto>runtime\.nvidia\.com)?)(?P<what>[^\s\\\"]+)",
    ),
    Signature(
        "cdi-stale",
        ("failed to stat CDI host device",),
        "The description of devices (CDI) of {host} names {device}, which does not exist: it is older than a change of the GPUs or the "
        "driver.",
        "Make it anew on {host}: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml (systemctl restart nvidia-cdi-refresh where "
        "there is that unit).",
        r"failed to stat CDI host device \\?\"?(?P<device>[^\s\"\\]+)",
    ),
    Signature(
        "registry-limit",
        ("toomanyrequests",),
        "The registry gives {host} no more images for now: its limit of pulls is reached, which all hosts behind one address share.",
        "docker login on {host}; or pull once and hand the image on: docker save and docker load, a registry or a mirror of your own. "
        "Or image: from: controller in an inventory: set-up copies it from host to host.",
    ),
    Signature(
        "nvidia-container-ldconfig",
        ("ldcache error: ",),
        "The NVIDIA container runtime of {host} could not run {what}[[signal?, which was killed (signal {signal})]].",
        "[[signal?Try again when {host} is less busy: it gives that program 10 s.||In /etc/nvidia-container-runtime/config.toml: ldconfig = "
        '"@/sbin/ldconfig.real" on Debian and Ubuntu, "@/sbin/ldconfig" elsewhere.]]',
        r"ldcache error: process (?P<what>\S+) (?:failed with error code|terminated with signal:? ?(?P<signal>\d+))",
    ),
    Signature(
        "nvidia-container-device",
        ("device error: ",),
        "The container requests a GPU[[device? ({device})]] that {host} has not.",
        "nvidia-smi -L on {host} shows which there are; --gpus and NVIDIA_VISIBLE_DEVICES count from 0.",
        r"nvidia-container-cli: device error: (?:(?P<device>[^:\s]+): )?unknown device",
    ),
    Signature(
        "enroot-failed",
        ("pyxis: ",),
        "Slurm's container plugin (pyxis) could not start the container on {host}: {why}.",
        "enroot import docker://IMAGE by hand on that host shows all of it. An image without the shell or program that is named is "
        "incomplete, or of another architecture; srun --no-container-entrypoint leaves its entry point out.",
        r"pyxis: +(?P<why>enroot-\w+: [^\r\n]*[^\s.])|pyxis: (?P<why2>failed to (?:import|create|start)[^\r\n]*[^\s.])"
        r"|pyxis:? +(?P<why3>\[ERROR\] [^\r\n]*[^\s.])",
    ),
    Signature(
        "pod-ended",
        ("command terminated with exit code ",),
        "Kubernetes ended what ran in a worker's pod (exit code {code}[[killed?: killed, most often because memory ran out]]); what is lost "
        "after that follows from it.",
        "kubectl describe pod WORKER says why (OOMKilled, evicted, a limit); kubectl logs --previous has its last lines.",
        r"^command terminated with exit code (?P<code>(?P<killed>137)|143|\d+)",
    ),
    Signature(
        "process-killed",
        ("Killed",),
        "A process on {host} was killed (signal 9), most often by the kernel because memory ran out.",
        "dmesg -T | grep -i kill on {host}; the container's or job's memory limit; fewer data loader workers, smaller batches.",
        r"^(?:\S+: line \d+: +\d+ )?Killed(?:$| {2,}\S[^\r\n]*$)",
        kind=FailureText.OUTCOME,
        unless=("rank-killed", "out-of-memory", "out-of-memory-asked", "torchrun-rank-killed", "slurm-out-of-memory"),
    ),
)
