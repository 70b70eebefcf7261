"""What frameworks around torch and TensorFlow say: Lightning, accelerate, DeepSpeed, Ray, and the Python parts of Horovod.

Sources: lightning/fabric/plugins/environments/slurm.py; accelerate/utils/operations.py; deepspeed/launcher/runner.py and
runtime/config.py; ray/_private/utils.py and src/ray/gcs; horovod/runner/elastic/driver.py; tensorflow/python/eager/context.py and
core/common_runtime/base_collective_executor.cc; torch/utils/cpp_extension.py; torch/distributed/fsdp/_common_utils.py, _runtime_utils.py and _fully_shard/_fsdp_param.py; DeepEP's
csrc/deep_ep.cpp and csrc/kernels.
"""

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
        "fsdp-state",
        (
            "expected to be in states ",
            "`BACKWARD_PRE` or `BACKWARD_POST` state but got ",
            "Expects to be in one of (<ShardedState.",
        ),
        "FSDP on {host} was used out of order: a part of the model that it wraps is in state {state}.",
        "Call the wrapped model itself, not its inner modules or their methods (model.generate, model.module.head); call forward() and backward() in turns, "
        "and do not run backward() twice on one output.",
        r"(?:to be in states [^\r\n]{1,300} but current state is|BACKWARD_POST` state but got|one of \(<ShardedState[^\r\n]{1,300}, not)\s{1,4}"
        r"<?(?P<state>\w{1,40}\.\w+)",
        lines=2,
    ),
    Signature(
        "deepep-timeout",
        ("DeepEP error: timeout (", "DeepEP timeout check failed: ", "DeepEP dispatch ", "DeepEP combine "),
        "DeepEP waited in vain on {host} for data of other ranks ([[where?{where}||{what}]]).",
        "See that every rank calls dispatch and combine alike and none has ended. Between hosts it needs NVSHMEM with IBGDA (driver option "
        "NVreg_EnableStreamMemOPs=1 and PeerMappingOverride=1, then a restart), a version of NVSHMEM that this DeepEP supports, and one that is the same on all hosts.",
        r"DeepEP (?:error: timeout \((?P<where>[^)\r\n]{1,80})\)|(?P<what>timeout check failed|(?:dispatch|combine)[^\r\n,]{0,80} timeout))",
    ),
    Signature(
        "accelerate-rtx",
        ("doesn't support faster communication broadband",),
        "accelerate refuses the GPUs of {host}, which cannot reach each other directly: NCCL_P2P_DISABLE and NCCL_IB_DISABLE are not set.",
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
    Signature(
        "lightning-slurm",
        ("in Lightning, but the number of ", "in your SLURM bash script, but this variable is not supported"),
        "[[other?Lightning's {one} does not match Slurm's {other}||Lightning does not support Slurm's {one}]].",
        "Make them agree: #SBATCH --ntasks-per-node=8 with devices=8, and #SBATCH --nodes=2 with num_nodes=2; leave --ntasks out. Start the "
        "script with srun.",
        r"You set `(?P<one>[\w-]+=\S{0,20})`(?: in your SLURM bash script| in Lightning, but the number of [\w ]{1,30} configured in SLURM\s{1,4}"
        r"`(?P<other>[\w-]+=\S{0,20})`)",
        lines=2,
    ),
    Signature(
        "accelerate-shapes",
        ("Cannot apply desired operation due to shape mismatches",),
        "accelerate cannot combine the tensors of the ranks[[what? in {what}]]: their shapes differ.",
        "Make them equal first: accelerator.pad_across_processes(tensor, dim=1), or pad every batch to one length (padding='max_length'). "
        "drop_last=True leaves out a smaller last batch.",
        r"due to shape mismatches(?:[\s\S]{0,200}?Operation: `(?:accelerate\.utils\.operations\.)?(?P<what>\w{1,60})`)?",
        lines=4,
    ),
    Signature(
        "deepspeed-hostfile",
        (
            "Hostfile contains a bad entry",
            "Hostfile contains multiple entries for",
            "Hostfile is empty or not formatted correctly",
        ),
        "DeepSpeed's launcher cannot use its hostfile[[twice?: it lists {twice} more than once]][[line?: it does not understand '{line}']].",
        "Write each host on a line of its own, once: gpu1 slots=8. The launcher prints what it read after 'Bad hostfile text'.",
        r"Hostfile (?:contains a bad entry: (?:(?P<line>[^{\r\n][^\r\n]{0,200}?), unable)?|contains multiple entries for (?P<twice>[^\s,]+)|is empty or not)",
    ),
    Signature(
        "deepspeed-batch-size",
        ("Check batch related parameters.",),
        "DeepSpeed's batch sizes do not fit together: train_batch_size is {all}, which is not {micro} (per GPU) x {steps} (steps of gradient accumulation) x "
        "{world} (ranks).",
        "[[alone?DeepSpeed counts one rank only: start the script with a launcher, and create the model after deepspeed.init_distributed() (with Hugging "
        "Face: after TrainingArguments). Otherwise ]][[alone?remove||Remove]] train_batch_size from the configuration of DeepSpeed, or set all three values "
        'to "auto" with Hugging Face\'s Trainer.',
        r"world_size ?(?P<all>\d+) != (?P<micro>\d+) \* (?P<steps>\d+) \* (?=(?P<alone>1\b)?)(?P<world>\d+)",
    ),
    Signature(
        "extension-build-failed",
        ("Error building extension '",),
        "torch could not compile {name}, a part in C++ or CUDA, when it was first used on {host}.",
        "Read the compiler's own error further up, after FAILED. nvcc --version must match torch.version.cuda, and nvcc must support that g++ (ds_report "
        "shows what DeepSpeed finds). Then remove the half-built files: rm -rf ~/.cache/torch_extensions.",
        r"Error building extension '(?P<name>[^'\r\n]{1,80})'",
        unless=("compiler-missing",),
    ),
    Signature(
        "ray-versions",
        ("Version mismatch: The cluster was started with:",),
        "{host} has another Ray or Python than the head of the Ray cluster[[here?: Ray {here} with Python {python}, and the head Ray {ray} with Python {main}]].",
        "Use the same image on every host, or install the same versions of Ray and Python.",
        r"The cluster was started with:(?:\s+Ray: (?P<ray>\S+)\s+Python: (?P<main>\S+)\s+This process on node (?P<host>\S+) was started with:"
        r"\s+Ray: (?P<here>\S+)\s+Python: (?P<python>\S+))?",
        lines=6,
    ),
    Signature(
        "ray-head-unreachable",
        ("Unable to connect to GCS at ",),
        "Ray on {host} cannot connect to its head at {peer}: the head does not run there, it has another version, or a firewall is in between.",
        "On the head: ray status; ss -ltn. On this host: nc -vz with that address and port. ray start --address needs the head's own address (not 127.0.0.1, "
        "no URL) and the port of ray start --head, 6379 by default.",
        r"Unable to connect to GCS at (?P<peer>\S+?)\. Check",
        at_end=r"Unable to connect to GCS",
    ),
    Signature(
        "ray-out-of-memory",
        ("killed due to the node running low on memory", "killed due to memory pressure"),
        "Ray killed a worker[[host? on {host}]], because that host's memory was almost full[[used? ({used})]].",
        "Use smaller batches, fewer data loader workers, or fewer Ray workers on a host. RAY_memory_usage_threshold changes the limit; "
        "RAY_memory_monitor_refresh_ms=0 turns this off, and the kernel then kills instead.",
        r"killed due to (?:the node running low on memory|memory pressure)(?:[\s\S]{0,40}?Memory on the node \(IP: (?P<host>[\w.:]{1,60}),[^\r\n]{0,400}? was "
        r"(?P<used>[\d.]+\w* ?/ ?[\d.]+\w*))?",
        lines=2,
        unless=("out-of-memory",),
    ),
    Signature(
        "ray-node-died",
        ("because its node has died",),
        "Ray lost a host of the cluster: it went down or off the network, or its raylet ended.",
        "ray list nodes names it. On that host: uptime; dmesg -T | tail -50; /tmp/ray/session_latest/logs/raylet.out.",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "ray-no-resources",
        (
            "The following resource request cannot be scheduled right now",
            "No available node types can fulfill resource request",
        ),
        "Ray has no host with the resources that are requested[[what?: {what}]].",
        "ray status shows what the cluster has and what is in use. Start Ray on the missing hosts, end older jobs, or request fewer workers or GPUs per worker "
        "(ScalingConfig).",
        r"(?:scheduled right now: |fulfill resource requests? )(?P<what>\{[^}\r\n]{1,200}\})",
        at_end=r"cannot be scheduled right now|fulfill resource request",
    ),
    Signature(
        "horovod-hosts-gone",
        ("No hosts from previous set remaining, unable to broadcast state",),
        "Horovod's elastic training lost every host that had the state of the training, so no rank can give it to new ones.",
        "Look for the reason why those ranks ended; Horovod no longer uses a host on which ranks failed. Start the job again from its last checkpoint.",
    ),
    Signature(
        "tensorflow-strategy-late",
        ("Collective ops must be configured at program startup",),
        "The program used TensorFlow before it created MultiWorkerMirroredStrategy.",
        "Create the strategy first, before any tensor, variable, data set or layer, and before tf.config.list_logical_devices(). Set TF_CONFIG before that.",
    ),
    Signature(
        "tensorflow-collective-aborted",
        ("Collective ops is aborted by: ", "BaseCollectiveExecutor::StartAbort "),
        "A worker of TensorFlow on {host} ended because a collective was aborted: {why}.",
        "Look for the worker that ended first. If none did, TF_CONFIG must have the same addresses in the same order on every host, and every host must be able "
        "to connect to all of them.",
        r"Collective ops is aborted by: (?P<why>[^\r\n\\]{0,200}[^\s.\\])|BaseCollectiveExecutor::StartAbort (?P<why2>[^\r\n]{0,200}[^\s.])",
        kind=FailureText.ECHO,
    ),
)
