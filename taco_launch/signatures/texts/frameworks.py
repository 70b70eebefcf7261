"""What frameworks say around torch and TensorFlow: Lightning, accelerate, Ray, DeepSpeed's launcher, and Horovod's Python part."""

from taco_launch.signatures.entry import FailureText, Signature

FRAMEWORKS = (
    Signature(
        "lightning-gpus",
        ("MisconfigurationException: You requested ",),
        "Lightning on {host} requests GPUs {asked}, and the process sees [[seen?{seen} only||fewer]].",
        "Show each task all GPUs of its host: in Slurm --gpus-per-node or --gres, without --gpus-per-task. Or Trainer(devices=...) no more than it sees.",
        r"You requested (?i:gpus?): (?P<asked>\[[\d, ]{0,200}\])(?:\s{1,9}But your machine only has: (?P<seen>\[[\d, ]{0,200}\]))?",
        lines=2,
    ),
    Signature(
        "accelerate-rtx",
        ("doesn't support faster communication broadband",),
        "accelerate refuses the GPUs of {host}, which cannot reach each other directly, because NCCL is not told so.",
        "-x NCCL_P2P_DISABLE=1 -x NCCL_IB_DISABLE=1 in every rank, or a newer accelerate and driver.",
    ),
    Signature(
        "ray-worker-died",
        ("Worker exit type: SYSTEM_ERROR",),
        "A worker of Ray[[host? on {host}]] was killed or crashed[[pid? (process {pid})]].",
        "On its host: dmesg -T | tail (was memory full?), and the worker's own file in /tmp/ray/session_latest/logs.",
        r"(?:Worker IP address: (?P<host>[\w.:]+) Worker port: \d+ Worker PID: (?P<pid>\d+) )?Worker exit type: SYSTEM_ERROR",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "deepspeed-ssh-port",
        ("KeyError: 'PDSH_SSH_ARGS_APPEND'",),
        "DeepSpeed's launcher (about 0.14.0) fails with --ssh_port where PDSH_SSH_ARGS_APPEND is not set.",
        'export PDSH_SSH_ARGS_APPEND="-p PORT", or a newer DeepSpeed.',
    ),
    Signature(
        "horovodrun-no-address",
        ("Horovod was unable to connect to ",),
        "horovodrun does not reach {name} on any of its addresses ({addresses}): the hosts share no network interface of one name, or a firewall is between.",
        "horovodrun --network-interface NAME --verbose; all ports have to be open between the hosts. Under taco-launch no such service is needed.",
        r"Horovod was unable to connect to (?P<name>[^\r\n]{1,120}) on any of the following addresses: (?P<addresses>[^\r\n]{0,300}[^\s.])",
    ),
    Signature(
        "horovod-tensor-in-flight",
        ("with the same name as another tensor that is currently being processed",),
        "Horovod was asked to reduce a tensor whose last reduction is not done yet: backward() was called again before optimizer.step().",
        "DistributedOptimizer(..., backward_passes_per_step=N); or optimizer.synchronize() after backward() and with optimizer.skip_synchronize(): "
        "optimizer.step(). Give tensors of your own names that differ.",
    ),
    Signature(
        "tensorflow-device-twice",
        ("is being mapped to multiple CUDA devices",),
        "Two sessions of TensorFlow in one process choose different GPUs.",
        "Give every session the same configuration: gpu_options.visible_device_list = str(hvd.local_rank()), from the first one on.",
    ),
)
