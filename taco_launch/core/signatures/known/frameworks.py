"""Recognise what frameworks around torch and TensorFlow print: Lightning, accelerate, DeepSpeed, Ray, and the Python parts of Horovod.

Sources: lightning/fabric/plugins/environments/slurm.py; accelerate/utils/operations.py; deepspeed/launcher/runner.py and
runtime/config.py; ray/_private/utils.py and src/ray/gcs; horovod/runner/elastic/driver.py;
deepspeed/runtime/engine.py, zero/partitioned_param_coordinator.py and fp16/loss_scaler.py; ray's
src/ray/common/file_system_monitor.cc; megatron/core/parallel_state.py; transformers/utils/hub.py; vllm/config and v1/worker; verl/single_controller; torch/nn/modules/module.py,
torch/serialization.py; torch/utils/cpp_extension.py; torch/distributed/fsdp/_common_utils.py, _runtime_utils.py and _fully_shard/_fsdp_param.py; DeepEP's
csrc/deep_ep.cpp and csrc/kernels.
"""

from taco_launch.core.signatures.known import FailureText, Qualifier, Signature

# The last place of a traceback, in the part of a framework that checks how it is used; what it raises there itself names the cause.
# What fails below it, or ends it from outside, is another matter.
_LAST_PLACE = (
    r'^  File "[^"\n]*/{}\.py", line \d+[^\n]*\n {{4}}(?:raise|assert)\b[^\n]*\n(?: {{4}}[^\n]*\n){{0,4}}(?!\S*(?:Timeout|Connection|OSError|Rendezvous|Import|NotFound|Memory|Signal|StopIteration))'
    r"(?!.*(?:\bfailed\b|timed out|terminated|exited|died|lost))(?P<raised>[A-Za-z_][^\n]*[^\s.])"
)
_REFUSES = "{} on {{host}}: {{raised}}."
REFUSED_BY = tuple(
    Qualifier(_LAST_PLACE.format(place), _REFUSES.format(who), where)
    for place, who, where in (
        (
            r"deepspeed/(?:runtime/(?:config\w*|engine|bf16_optimizer|\w+/\w*config\w*)|elasticity/\w+|__init__|utils/groups)",
            "DeepSpeed does not accept its configuration",
            "Correct what the message names in DeepSpeed's JSON file (--deepspeed_config; in transformers and accelerate the file that deepspeed= or accelerate config names), the same on all hosts. ds_report shows versions and which operations work.",
        ),
        (
            r"deepspeed/launcher/\w+",
            "DeepSpeed's launcher does not accept its options or hostfile",
            "Correct the option or the line of the hostfile (HOST slots=8) that the message names; deepspeed --help lists them. Under taco-launch run, DeepSpeed's own launcher is not needed.",
        ),
        (
            r"accelerate/(?:accelerator|state|launchers|data_loader|commands/\w+|commands/\w+/\w+|utils/(?:dataclasses|launch|deepspeed|megatron_lm|fsdp_utils|other))",
            "accelerate does not accept how it is set up",
            "Correct what the message names: in accelerate's configuration (accelerate config; accelerate env shows it), in an option of accelerate launch, or in the call of Accelerator(). It must be the same on all hosts.",
        ),
        (
            r"transformers/(?:training_args\w*|hf_argparser|integrations/\w+|trainer)",
            "transformers' Trainer does not accept its arguments",
            "Correct the argument that the message names (TrainingArguments, or the option of that name), the same on all hosts; if it is correct, compare the versions of transformers, accelerate and deepspeed (pip list).",
        ),
        (
            r"megatron/(?:training/arguments|arguments|core/(?:\w+/)*\w*config\w*|core/parallel_state|training/initialize)",
            "Megatron-LM does not accept its options",
            "Change the options that the message compares: sizes must divide each other and the number of ranks (tensor x pipeline x context x data). It prints all values at its start.",
        ),
        (
            r"(?:pytorch_lightning|lightning(?:_fabric|/pytorch|/fabric)?)/(?:(?:\w+/)*(?:\w*connector\w*|configuration_validator)|(?:strategies|plugins|accelerators|utilities|trainer)/(?:\w+/)*\w+|fabric|wrappers|cli)",
            "Lightning does not accept how its Trainer is set up",
            "Correct what the message names in Trainer(devices=, num_nodes=, strategy=, accelerator=, precision=), and compare it with how the ranks are started: as many per host as devices.",
        ),
        (
            r"(?:megatron/training/checkpointing|megatron/core/dist_checkpointing/(?:\w+/)*\w+|deepspeed/(?:checkpoint/\w+|utils/zero_to_fp32)|torch/distributed/checkpoint/\w+)",
            "A checkpoint cannot be saved or loaded as it is",
            "Compare what the message names with how the checkpoint was saved: the parallel sizes, the number of ranks, the options of the model and the versions. ls -l on its folder must show the same files on all hosts.",
        ),
        (
            r"torch/(?:nn/parallel/distributed|distributed/(?:fsdp/(?:\w+/)*\w+|device_mesh|tensor/(?:\w+/)*\w+|distributed_c10d))",
            "torch refuses how the program distributes its model or data",
            "Correct the call that the traceback shows above torch's own lines, as the message says, and make it the same on all ranks.",
        ),
        (
            r"datasets/(?:\w+/)*\w+",
            "Hugging Face's datasets cannot load or use the data",
            "Check the name, the path or the column that the message names, on all hosts. If only some ranks fail, let one load first and the others afterwards (with accelerator.main_process_first()), or remove what is half written in HF_DATASETS_CACHE.",
        ),
        (
            r"torch/utils/data/(?:dataloader|sampler|distributed)",
            "torch's data loader does not accept its arguments",
            "Correct the argument of DataLoader or of its sampler that the message names, on all ranks.",
        ),
        (
            r"horovod/(?:runner/(?:launch|__init__|js_run|mpi_run|gloo_run|common/util/\w+|util/\w+)|spark/common/\w+|ray/\w+)",
            "Horovod's launcher does not accept its options",
            "Correct the option that the message names; horovodrun --help lists them. taco-launch run starts such a program without horovodrun.",
        ),
        (
            r"torch/distributed/(?:run|launch|launcher/api|elastic/(?:rendezvous|utils)/\w+|rendezvous)",
            "torchrun does not accept its options",
            "Correct the option that the message names; torchrun --help lists them, and TORCHELASTIC_ and PET_ variables count as options, too (env | grep -E 'PET_|TORCHELASTIC').",
        ),
    )
)
_COMPILER = (
    "Read the compiler's own error further up, after FAILED. nvcc --version must match torch.version.cuda, and nvcc must support that g++ (ds_report "
    "shows what DeepSpeed finds). Then remove the half-built files: rm -rf ~/.cache/torch_extensions."
)

FRAMEWORKS = (
    Signature(
        "lightning-rank-ended",
        keys=("Child process with PID ",),
        cause="Rank {rank} of Lightning on {host} ended [[killed?by signal 9, most likely because memory ran out||with exit code {code}]], and Lightning ended the others.",
        next="[[killed?Run dmesg -T | grep -i kill on its host||Read that rank's own lines above this line]].",
        pattern=r"\[rank: (?P<rank>\d+)\] Child process with PID \d+ terminated with code (?=(?P<killed>-9\b)?)(?P<code>-?\d+)",
        kind=FailureText.OUTCOME,
        unless=("out-of-memory", "out-of-memory-asked", "slurm-out-of-memory"),
    ),
    Signature(
        "sagemaker-script-failed",
        keys=("ExecuteUserScriptError",),
        cause="SageMaker ended because the script failed[[code? with exit code {code}]]; its line does not show why.",
        next="Read the script's own lines above this line; in CloudWatch each host has a log stream of its own.",
        pattern=r"ExecuteUserScriptError:(?:[\s\S]{0,300}?ExitCode (?P<code>\d+))?",
        kind=FailureText.FALLBACK,
        lines=3,
    ),
    Signature(
        "lightning-gpus",
        keys=("MisconfigurationException:",),
        cause="Lightning on {host} requests GPUs {asked}, and the process sees [[seen?{seen} only||fewer]].",
        next="Show each task all GPUs of its host: in Slurm --gpus-per-node or --gres, without --gpus-per-task. Or set Trainer(devices=...) to no more GPUs than the process sees.",
        pattern=r"MisconfigurationException:\s{1,40}You requested (?i:gpus?): (?P<asked>\[[\d, ]{0,200}\])(?:\s{1,40}But your machine only has: (?P<seen>\[[\d, ]{0,200}\]))?",
        lines=3,
    ),
    Signature(
        "fsdp-state",
        keys=(
            "expected to be in states ",
            "`BACKWARD_PRE` or `BACKWARD_POST` state but got ",
            "Expects to be in one of (<ShardedState.",
        ),
        cause="FSDP on {host} was used out of order: a part of the model that it wraps is in state {state}.",
        next="Call the wrapped model itself, not its inner modules or their methods (model.generate, model.module.head); "
        "call forward() and backward() alternately, and do not run backward() twice on one output.",
        pattern=r"(?:to be in states [^\r\n]{1,300} but current state is|BACKWARD_POST` state but got|one of \(<ShardedState[^\r\n]{1,300}, not)\s{1,4}"
        r"<?(?P<state>\w{1,40}\.\w+)",
        lines=2,
    ),
    Signature(
        "deepep-timeout",
        keys=("DeepEP error: timeout (", "DeepEP timeout check failed: ", "DeepEP dispatch ", "DeepEP combine "),
        cause="DeepEP timed out on {host} while waiting for data from other ranks ([[where?{where}||{what}]]).",
        next="Check that every rank makes the same dispatch and combine calls and that none has ended. Between hosts, use a version of NVSHMEM that this DeepEP "
        "supports, the same on all hosts, with IBGDA (driver options NVreg_EnableStreamMemOPs=1 and PeerMappingOverride=1, then a restart).",
        pattern=r"DeepEP (?:error: timeout \((?P<where>[^)\r\n]{1,80})\)|(?P<what>timeout check failed|(?:dispatch|combine)[^\r\n,]{0,80} timeout))",
    ),
    Signature(
        "accelerate-rtx",
        keys=("doesn't support faster communication broadband",),
        cause="accelerate refuses the GPUs of {host}: they cannot reach each other directly, and NCCL_P2P_DISABLE and NCCL_IB_DISABLE are not set.",
        next="Set -x NCCL_P2P_DISABLE=1 -x NCCL_IB_DISABLE=1 for every rank, or use a newer accelerate and driver.",
    ),
    Signature(
        "ray-task-died",
        keys=("while executing a task by an unexpected system error",),
        cause="A worker of Ray was killed or crashed while it ran a task.",
        next="Read the worker's own log file in /tmp/ray/session_latest/logs; on its host, dmesg -T | grep -i kill shows whether memory ran out.",
        kind=FailureText.OUTCOME,
        unless=("ray-worker-died", "lightning-rank-ended"),
    ),
    Signature(
        "ray-worker-died",
        keys=("Worker exit type: SYSTEM_ERROR",),
        cause="A worker of Ray[[host? on {host}]] was killed or crashed[[pid? (process {pid})]].",
        next="On its host: dmesg -T | tail (was memory full?), and the worker's own log file in /tmp/ray/session_latest/logs.",
        pattern=r"(?:Worker IP address: (?P<host>[\w.:]+) Worker port: \d+ Worker PID: (?P<pid>\d+) )?Worker exit type: SYSTEM_ERROR",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "deepspeed-ssh-port",
        keys=("KeyError: 'PDSH_SSH_ARGS_APPEND'",),
        cause="DeepSpeed's launcher (in versions around 0.14.0) fails with --ssh_port if PDSH_SSH_ARGS_APPEND is not set.",
        next='Run export PDSH_SSH_ARGS_APPEND="-p PORT", or upgrade DeepSpeed.',
    ),
    Signature(
        "horovod-not-importable",
        keys=("Failed to determine if ",),
        cause="horovodrun cannot load Horovod's compiled library on {host}, so it does not know whether {what} was built.",
        next="horovodrun --check-build --verbose shows the import error. Most often torch, TensorFlow or Python was changed after Horovod was built: rebuild it with "
        "pip install --no-cache-dir --force-reinstall horovod.",
        pattern=r"Failed to determine if (?P<what>[\w ]{1,40}?) support has been built",
    ),
    Signature(
        "horovodrun-no-address",
        keys=("Horovod was unable to connect to ",),
        cause="horovodrun does not reach {name} on any of its addresses ({addresses}): the hosts have no network interface of the same name, or a firewall blocks it.",
        next="horovodrun --network-interface NAME --verbose; all ports have to be open between the hosts. taco-launch does not need this connection.",
        pattern=r"Horovod was unable to connect to (?P<name>[^\r\n]{1,120}) on any of the following addresses: (?P<addresses>[^\r\n]{0,300}[^\s.])",
    ),
    Signature(
        "horovod-tensor-in-flight",
        keys=("with the same name as another tensor that is currently being processed",),
        cause="Horovod was asked to reduce a tensor whose last reduction is not done yet: backward() was called again before optimizer.step().",
        next="Use DistributedOptimizer(..., backward_passes_per_step=N), or call optimizer.synchronize() after backward(), and then with "
        "optimizer.skip_synchronize(): optimizer.step(). Give your own tensors different names.",
    ),
    Signature(
        "lightning-starts-ranks",
        keys=(" GPUs but launched ",),
        cause="Slurm started {tasks} task[[one?||s]] for {gpus} GPUs, so Lightning starts the other ranks itself.",
        next="Use #SBATCH --ntasks-per-node={gpus} and srun before the script, so that Slurm starts all ranks.",
        pattern=r"You requested (?P<gpus>\d+) GPUs but launched (?=(?P<one>1 )?)(?P<tasks>\d+) slurm tasks",
        kind=FailureText.NOTE,
    ),
    Signature(
        "lightning-slurm",
        keys=("in Lightning, but the number of ", "in your SLURM bash script, but this variable is not supported"),
        cause="[[other?Lightning's {one} does not match Slurm's {other}||Lightning does not support Slurm's {one}]].",
        next="Make them agree: #SBATCH --ntasks-per-node=8 with devices=8, and #SBATCH --nodes=2 with num_nodes=2; leave --ntasks out. Start the "
        "script with srun.",
        pattern=r"You set `(?P<one>[\w-]+=\S{0,20})`(?: in your SLURM bash script| in Lightning, but the number of [\w ]{1,30} configured in SLURM\s{1,4}"
        r"`(?P<other>[\w-]+=\S{0,20})`)",
        lines=2,
    ),
    Signature(
        "accelerate-shapes",
        keys=("Cannot apply desired operation due to shape mismatches",),
        cause="accelerate cannot combine the tensors of the ranks[[what? in {what}]]: their shapes differ.",
        next="Make them equal first: accelerator.pad_across_processes(tensor, dim=1), or pad every batch to one length (padding='max_length'). "
        "drop_last=True leaves out a smaller last batch.",
        pattern=r"due to shape mismatches(?:[\s\S]{0,200}?Operation: `(?:accelerate\.utils\.operations\.)?(?P<what>\w{1,60})`)?",
        lines=4,
    ),
    Signature(
        "deepspeed-hostfile",
        keys=(
            "Hostfile contains a bad entry",
            "Hostfile contains multiple entries for",
            "Hostfile is empty or not formatted correctly",
        ),
        cause="DeepSpeed's launcher cannot use its hostfile[[twice?: it lists {twice} more than once]][[line?: it does not understand '{line}']].",
        next="Write each host on a line of its own, once: gpu1 slots=8. The launcher prints what it read after 'Bad hostfile text'.",
        pattern=r"Hostfile (?:contains a bad entry: (?:(?P<line>[^{\r\n][^\r\n]{0,200}?), unable)?|contains multiple entries for (?P<twice>[^\s,]+)|is empty or not)",
    ),
    Signature(
        "deepspeed-batch-size",
        keys=("Check batch related parameters.",),
        cause="DeepSpeed's batch sizes do not fit together: train_batch_size is {all}, which is not {micro} (per GPU) x {steps} (steps of gradient accumulation) x "
        "{world} (ranks).",
        next="[[alone?Start the script with a launcher, and create the model after deepspeed.init_distributed() (with Hugging Face: after TrainingArguments): "
        'DeepSpeed counts one rank only. Otherwise remove||Remove]] train_batch_size from the configuration of DeepSpeed, or set all three values to "auto" '
        "with Hugging Face's Trainer.",
        pattern=r"world_size\s?(?P<all>\d+)\s!=\s(?P<micro>\d+)\s\*\s(?P<steps>\d+)\s\*\s(?=(?P<alone>1\b)?)(?P<world>\d+)",
        lines=3,  # a narrow terminal wraps it
    ),
    Signature(
        "nvcc-too-old",
        keys=("Unsupported gpu architecture '",),
        cause="nvcc on {host} is older than the GPU that it should compile for: it does not know {what}.",
        next="Use a CUDA toolkit that does, and name it with CUDA_HOME: compute_86 needs 11.1, compute_89 and compute_90 need 11.8, "
        "compute_100 needs 12.8. Or compile for an older GPU of the same generation: TORCH_CUDA_ARCH_LIST=8.0+PTX.",
        pattern=r"nvcc fatal +: Unsupported gpu architecture '(?P<what>[\w-]{1,40})'",
    ),
    Signature(
        "nvshmem-failed",
        keys=(": non-zero status: ",),
        cause="NVSHMEM failed on {host}[[what?: {what}]] (status {code}, in {where}).",
        next="Set -x NVSHMEM_DEBUG=INFO for the reason. Between hosts, check ibv_devinfo, ulimit -l and lsmod | grep peermem where the ranks run, and name the HCAs (NVSHMEM_HCA_LIST); "
        "on one host, nvidia-smi topo -p2p r must show OK between the GPUs.",
        pattern=r"(?P<where>[\w-]+\.(?:cpp|cu|h)):(?:\d+|NULL value|\w+): non-zero status: (?P<code>-?\d+):? ?(?P<what>[^\r\n]{0,160}[^\s.])?",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "custom-all-reduce",
        keys=("peer access is not supported between these two devices",),
        cause="Two GPUs of {host} cannot access each other's memory, which a custom all-reduce requires.",
        next="Use NCCL's instead: --disable-custom-all-reduce (vLLM, SGLang). nvidia-smi topo -p2p r shows which pairs can; a virtual "
        "machine, or ACS and the IOMMU on bare metal, prevent it.",
        pattern=r"custom_all_reduce\S*[^\r\n]{0,80}peer access is not supported",
    ),
    Signature(
        "horovod-other-build",
        keys=("undefined symbol: _Z", " import mpi_lib"),
        cause="Horovod's {library} was built for another version of {framework} than the one on {host}.",
        next="Build Horovod again where that {framework} is installed: pip install --no-cache-dir --force-reinstall --no-deps horovod. "
        "horovodrun --check-build shows what it was built for.",
        pattern=r"horovod/(?P<framework>tensorflow|torch|mxnet)/(?P<library>mpi_lib[\w.-]{0,80}): undefined symbol: (?!_ZN?K?S)"
        r"|from horovod\.(?P<framework2>tensorflow|torch|mxnet) import (?P<library2>mpi_lib\w*)[^\r\n]*\r?\n[^\r\n]*ImportError: lib(?:torch|c10|tensorflow|mxnet)\w*\.so[\w.]*: cannot open",
        lines=2,
        survived=True,
    ),
    Signature(
        "deepspeed-no-hostfile",
        keys=("Unable to find hostfile, will proceed with training with local resources only",),
        cause="deepspeed found no hostfile, so it uses the GPUs of {host} alone.",
        next="For several hosts: deepspeed --hostfile FILE script.py. Options of deepspeed go before the script.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "script-is-an-option",
        keys=("can't find '__main__' module in '",),
        cause="{what} was started as the script: it is a file or a folder without a program.",
        next="Put options of a launcher, such as --hostfile FILE, before the script, each with its value.",
        pattern=r"can't find '__main__' module in '(?P<what>[^'\r\n]{1,200})'",
    ),
    Signature(
        "not-divisible",
        keys=("divisible by", "a multiple of"),
        cause="{what} is not a multiple of {size}.",
        next="Change one of the two[[plain?: the second number is most often the tensor parallel size, which must divide the vocabulary, the heads and the sizes of the layers (--tensor-parallel-size in vLLM, --make-vocab-size-divisible-by in Megatron)]]"
        "[[parallel?: a parallel size has to divide what it splits, and the number of ranks. Of a batch with sequence parallelism: pad its sequences to a multiple]].",
        pattern=r"Error: (?P<what>[A-Za-z][^\r\n:]{2,80}?)(?: \(\d+\))? (?:should|must|needs to|has to|is not|not) (?:be )?(?:evenly )?(?:divisible by|a multiple of) (?:the )?(?=(?:[^\r\n]*(?P<parallel>parallel|tp|pp))?)(?P<size>[^\r\n]{2,120}?[^\s.])(?=[.,;]?\s*$|[.;] )"
        r"|Error: (?P<what3>[A-Za-z][\w ]{2,40}: ?\d+) is not divisible by (?P<size3>\w{2,40}: ?\d+)|Error: (?P<plain>(?P<what2>\d+)) is not divisible by (?P<size2>\d+)",
        unless=("ranks-not-divisible", "vllm-parallel-size"),
        survived=True,
    ),
    Signature(
        "engine-ranks",
        keys=(
            "mpiSize == tp * pp",
            "Runtime world size (",
            "MPI worldSize is expected to be equal to tp*pp",
            "Assertion failed: MPI size ",
        ),
        cause="TensorRT-LLM's engine was built for [[built?{built}||another number of]] ranks (tensor x pipeline parallel size)[[now?, and {now} runs it||, and not so many run it]].",
        next="Start as many ranks as the engine was built for (tp_size x pp_size): taco-launch run --np N. If you did and each counts 1, the program's MPI is not that of mpirun: compare ldd on libtensorrt_llm.so with mpirun --version, and use one of them for mpi4py as well.",
        # cpp/tensorrt_llm/runtime/worldConfig.cpp, executor/executorImpl.cpp; examples/run.py
        pattern=r"mpiSize == tp \* pp|MPI worldSize is expected|MPI size (?P<now>\d+) != TP size (?P<built>\d+ \* PP size \d+)|Engine world size \((?P<built2>[\d *]+)\) != Runtime world size \((?P<now2>\d+)\)",
    ),
    Signature(
        "checkpoint-model-parallel",
        keys=("Loading a checkpoint for MP=",),
        cause="The checkpoint has {parts} part[[one?||s]], one for each rank, and {ranks} ranks load it.",
        next="Start {parts} rank[[one?||s]]: taco-launch run --np {parts}. For another number, convert the checkpoint to as many parts, or use a version for Hugging Face's transformers.",
        pattern=r"checkpoint for MP=(?=(?P<one>1\b)?)(?P<parts>\d+) but world size is (?P<ranks>\d+)",
    ),
    Signature(
        "composer-rank-ended",
        keys=("composer.cli.launcher:Rank ",),
        cause="Rank {rank} of composer on {host} [[killed?was killed (signal 9), most likely because memory ran out]][[bus?ended with a bus error (signal 7), most often because /dev/shm is full]][[signal?was ended by signal {signal} (11: a crash, 6: an abort)]][[code?failed with exit code {code}]]; composer does not show why.",
        next="[[killed?Run dmesg -T | grep -i kill on its host, and use fewer data loader workers or smaller batches]][[bus?Run df -h /dev/shm where the ranks run; in a container: docker run --shm-size=32g, or --ipc=host]][[signal?Run it with -x PYTHONFAULTHANDLER=1, which shows where it crashed; a library built for another CUDA or torch can cause this]]"
        "[[code?Read that rank's own lines: composer prints them below 'Begin global rank {rank} STDERR', or in the files of --stdout and --stderr]].",
        pattern=r"composer\.cli\.launcher:Rank (?P<rank>\d+) crashed with exit code (?:-(?=(?P<killed>9\b)?)(?=(?P<bus>7\b)?)(?:[79]\b|(?P<signal>\d+))|(?P<code>\d+))",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "vllm-engine-not-started",
        keys=("Engine core initialization failed", "WorkerProc initialization failed due to an exception"),
        cause="A process of vLLM's engine on {host} failed while it started, and this line does not show why.",
        next="Read the first traceback above it, in lines of EngineCore, Worker or VllmWorker; -x VLLM_LOGGING_LEVEL=DEBUG shows more. Without one, that process was killed: dmesg -T | grep -i kill, and df -h /dev/shm.",
        kind=FailureText.FALLBACK,
        unless=("vllm-memory", "vllm-parallel-size", "cuda-out-of-memory"),
    ),
    Signature(
        "vllm-waits",
        keys=("No available block found in 60 second", "No available shared memory broadcast block found in 60 second"),
        cause="A process of vLLM on {host} waits for its workers: one still loads or compiles, hangs in a collective, or has ended.",
        next="Look in the log for a worker that failed, and run py-spy dump --pid PID on the workers, which shows what they do. If they hang while they communicate: -x NCCL_P2P_DISABLE=1 or -x NCCL_DEBUG=INFO; --disable-custom-all-reduce.",
        kind=FailureText.ECHO,
        at_end=r"No available (?:shared memory broadcast )?block found",
    ),
    Signature(
        "deepspeed-adam-missing",
        keys=("object has no attribute 'ds_opt_adam'",),
        cause="DeepSpeed's optimizer on the CPU (DeepSpeedCPUAdam) could not be compiled or loaded on {host}; this line only follows from that.",
        next="Read the first error above it, of the extension cpu_adam. ds_report shows whether nvcc, g++ and torch fit together; DS_BUILD_CPU_ADAM=1 pip install --no-cache-dir deepspeed builds it when it is installed.",
        kind=FailureText.FALLBACK,
        unless=("extension-build-failed", "compiler-missing", "cuda-toolkit-other", "cuda-home-missing"),
    ),
    Signature(
        "deepspeed-config-mismatch",
        keys=("DeepSpeed config values that mismatch",),
        cause="DeepSpeed's configuration and the arguments of Hugging Face's Trainer differ: {what}.",
        next="Set that value to \"auto\" in DeepSpeed's JSON file (or leave it out of accelerate's configuration), so that the Trainer's is used; or make both equal.",
        pattern=r"DeepSpeed config values that mismatch\s+TrainingArguments\s+values:\s+- (?P<what>ds [^\r\n]{1,200}[^\s.])",
        lines=4,
    ),
    Signature(
        "deepspeed-devices-mixed",
        keys=("assert len(set(t.device for t in tensors)) == 1",),
        cause="ZeRO-3 puts parameters into one block, and those of this model are on different devices.",
        next="Do not move the model to a GPU before deepspeed.initialize() (no .cuda(), .to() or device_map), or make it within deepspeed.zero.Init(); in Lightning, make the layers in configure_model().",
        pattern=r"assert len\(set\(t\.device for t in tensors\)\) == 1[^\r\n]*(?:(?:\r?\n *\^+)?\r?\n(?P<error>AssertionError))?",
        lines=3,
    ),
    Signature(
        "transformer-engine-missing",
        keys=("NameError: name 'TE", "transformer_engine/pytorch/__init__.py", "transformer_engine/common/__init__.py"),
        cause="Megatron or another program on {host} uses NVIDIA's Transformer Engine, which is not installed completely there for this torch.",
        next="Install it for that torch: pip install --no-build-isolation 'transformer_engine[pytorch]', or use an image that has it (NGC's pytorch). Without it, Megatron runs with --transformer-impl local.",
        pattern=r"NameError: name 'TE[A-Z]\w+' is not defined|transformer_engine/(?:pytorch|common)/__init__\.py\", line \d+, in _load_library(?:\r?\n +[^\r\n]*){0,4}\r?\n(?P<error>StopIteration)",
        lines=6,
    ),
    Signature(
        "apex-missing",
        keys=("Apex required to use megatron", "install apex from https://", "requires apex"),
        cause="The program on {host} uses NVIDIA's apex, which is not installed there.",
        next="Install it where the ranks run, with its CUDA parts: pip install -v --no-build-isolation --config-settings '--build-option=--cpp_ext' --config-settings '--build-option=--cuda_ext' git+https://github.com/NVIDIA/apex (the package apex of PyPI is another one). Or use an image that has it (NGC's pytorch).",
        survived=True,
    ),
    Signature(
        "lightning-cuda-forked",
        keys=("Lightning can't create new processes if CUDA is already initialized",),
        cause="Lightning is to fork its ranks (ddp_notebook, ddp_fork), and the program has already used CUDA in the process that starts them.",
        next="Use no torch.cuda, .cuda() or .to('cuda') before trainer.fit(), and restart the kernel of the notebook. In a script, use strategy='ddp', which starts each rank as a process of its own.",
    ),
    Signature(
        "lightning-start-method",
        keys=("is not compatible with an interactive environment", "The start method 'fork' is not available"),
        cause="Lightning cannot start its ranks as strategy[[name?='{name}']] has it: [[name?it does not work in a notebook||this system cannot fork]].",
        next="[[name?Use strategy='ddp_notebook' there, or run the code as a script||Use strategy='ddp' in a script, or 'ddp_spawn']].",
        pattern=r"strategy='(?P<name>\w+)'[^\r\n]{0,40} is not compatible with an interactive environment|start method 'fork' is not available",
    ),
    Signature(
        "lightning-refuses",
        keys=("MisconfigurationException: ",),
        cause="Lightning does not accept how its Trainer is set up on {host}: {why}.",
        next="Correct what the message names in Trainer(devices=, num_nodes=, strategy=, accelerator=, precision=), and compare it with how the ranks are started: as many per host as devices.",
        pattern=r"MisconfigurationException: (?P<why>[^\r\n]*[^\s.])",
        kind=FailureText.FALLBACK,
        unless=("lightning-gpus", "lightning-no-gpu", "lightning-start-method"),
    ),
    Signature(
        "sizes-disagree",
        keys=(
            ") exceeds ",
            ") is not equal to ",
            ") does not match ",
            ") must equal ",
            ") must be equal to ",
            ") is larger than ",
            ") is greater than ",
            ") is less than ",
        ),
        cause="{what} is {one}, and {other} is {two}: these sizes do not fit together.",
        next="Change one of the two: tensor x pipeline x data (and context, expert) parallel size must be the number of ranks (hosts x ranks of a host). If {two} or {one} is less than the number you started, the ranks do not see each other: check WORLD_SIZE in each.",
        # The checks of Megatron, vLLM and their like
        pattern=r"Error: (?:The )?(?P<what>(?=[^\r\n(]{0,80}(?:[Ss]ize|GPUs|ranks|processes|devices|gpus))[A-Za-z_`][^\r\n(:]{2,80}?)`? ?\((?P<one>\d+)\) (?:exceeds|is not equal to|does not match|must (?:be )?equal(?: to)?|is (?:larger|greater|less) than) (?:the )?(?P<other>[^\r\n(:]{2,80}?)`? ?\((?P<two>\d+)\)",
        survived=True,
    ),
    Signature(
        "deepspeed-op-missing",
        keys=("Unable to pre-compile ",),
        cause="DeepSpeed's part {name} cannot be built on {host}: something that it requires is missing.",
        next="ds_report shows which parts can be built and what is missing (libaio-dev for async_io, CUTLASS_PATH for evoformer). Or use a configuration of DeepSpeed without it, such as offload to the CPU instead of nvme.",
        pattern=r"Unable to pre-compile (?P<name>\w{1,40})",
    ),
    Signature(
        "extension-build-failed",
        keys=("Error building extension '",),
        cause="torch could not compile the C++ or CUDA extension {name} when it was first used on {host}.",
        next=_COMPILER,
        pattern=r"Error building extension '(?P<name>[^'\r\n]{1,80})'",
        unless=("compiler-missing", "header-missing", "nvcc-too-old"),
    ),
    Signature(
        "extension-compiler-failed",
        keys=("Command '['ninja', ",),
        cause="torch could not compile a C++ or CUDA extension when it was first used on {host}.",
        next=_COMPILER,
        unless=("extension-build-failed", "compiler-missing", "header-missing", "nvcc-too-old"),
    ),
    Signature(
        "extension-not-built",
        keys=("cannot open shared object file",),
        cause="The compiled extension {name} is not in its cache on {host}: it is built when it is first used, and that build failed, was interrupted, or is not finished.",
        next="Read the compiler's error further up, or in the log of the rank that was first. Then remove what is half-built, and start again: rm -rf {folder}; a cache that several hosts share "
        "can be moved to a disk of each host ([[torch?-x TORCH_EXTENSIONS_DIR=/tmp/extensions||-x TRITON_CACHE_DIR=/tmp/triton]]).",
        pattern=r"(?P<folder>/[\w./+-]*/(?:(?P<torch>torch_extensions)|\.triton|torchinductor_\w+)/[\w./+-]*)/(?P<name>[\w.+-]{1,100})\.so: cannot open shared object file",
        unless=(
            "extension-build-failed",
            "extension-compiler-failed",
            "compiler-missing",
            "header-missing",
            "nvcc-too-old",
            "cuda-home-missing",
        ),
        survived=True,
    ),
    Signature(
        "ray-versions",
        keys=("Version mismatch: The cluster was started with:",),
        cause="{host} has a different version of Ray or Python from the head of the Ray cluster[[here?: Ray {here} with Python {python}, and the head Ray {ray} with Python {main}]].",
        next="Use the same image on every host, or install the same versions of Ray and Python.",
        pattern=r"The cluster was started with:(?:\s+Ray: (?P<ray>\S+)\s+Python: (?P<main>\S+)\s+This process on node (?P<host>\S+) was started with:"
        r"\s+Ray: (?P<here>\S+)\s+Python: (?P<python>\S+))?",
        lines=6,
    ),
    Signature(
        "ray-head-unreachable",
        keys=(
            *(
                "Unable to connect to GCS",
                "Failed to connect to GCS",
                "Couldn't reconnect to GCS",
                "Failed to send request to gcs",
            ),
            *("Failed to get cluster ID from GCS", "GCS has been unavailable", "Failed to get system config within"),
        ),
        cause="Ray on {host} [[empty?was given an empty address for its head||cannot connect to its head]][[peer? at {peer}]][[empty?||: the head does not run there or no longer, "
        "it has another version, or a firewall is in between]].",
        next="[[empty?Print the variable that holds the head's address (MASTER_ADDR, HEAD_IP) where ray start --address runs: it is not set there||"
        "On the head: ray status; ss -ltn; without a head, ray stop on this host removes the address of an earlier cluster. Check nc -vz from here: ray start --address "
        "needs the head's own address (not 127.0.0.1, no URL) and the port of ray start --head, 6379 by default]].",
        # gcs_rpc_client.h, gcs_client.cc, retryable_grpc_client.cc, global_state_accessor.cc, _private/utils.py and gcs_utils.py
        pattern=r"(?:Unable|Failed) to connect to GCS(?: \(ray head\))?(?: at (?:address )?(?:(?P<peer>[\w.\[-][^\s]*?)(?=\. |\.?$| within)|(?P<empty>:\d+)))?(?! at)"
        r"|Couldn't reconnect to GCS|Failed to (?:send request to gcs|get cluster ID from GCS|get system config within)|GCS has been unavailable",
        at_end=r"(?i)gcs|system config within|failed to connect to all addresses",
    ),
    Signature(
        "ray-head-not-started",
        keys=("Failed to start GCS",),
        cause="Ray's head did not start on {host}: its server of the cluster's state (GCS) ended at once.",
        next="Read /tmp/ray/session_latest/logs/gcs_server.out and gcs_server.err there, and run ray stop: a port may be in use by an earlier head.",
        pattern=r"node\.py:\d+ -- Failed to start GCS\b",
    ),
    Signature(
        "ray-process-ended",
        keys=("Check failed: ",),
        cause="Ray's own process {who} on {host} ended, because a check in it failed ({at}): {why}.",
        next="Look for what came before it in /tmp/ray/session_latest/logs/{who}.out of that host: a host that left, memory, a full disk. Start Ray there again (ray list nodes shows "
        "which hosts are left), and update it if it ends in the same place.",
        # Older versions write as glog does, newer ones as src/ray/util/logging.cc
        pattern=r"\(pid=(?P<who>raylet|gcs_server)(?:, ip=(?P<host>[\w.:-]+))?\) F\d{4} [^\r\n]{0,60}?(?P<at>\w+\.(?:cc|h):\d+)\]\s+Check failed: (?P<why>[^\r\n]*[^\s.])"
        r"| C \d+ \d+\] \((?P<who2>raylet|gcs_server)\) (?P<at2>\w+\.(?:cc|h):\d+):\s+Check failed: (?P<why2>[^\r\n]*[^\s.])",
    ),
    Signature(
        "ray-worker-not-started",
        keys=("have not registered within the timeout",),
        cause="A worker process of Ray on {host} [[dead?ended||did not get ready in time]] while it started (process {pid}).",
        next="Read /tmp/ray/session_latest/logs/*{pid}* on that host. Most often: its limit of processes (ulimit -u) or its memory is used up, Python or a module is missing "
        "there, or the environment is on a slow shared folder (RAY_worker_register_timeout_seconds=300 waits longer).",
        pattern=r"workers? of the worker process ?\((?P<pid>\d+)\) have not registered within the timeout\. The process is (?:(?P<dead>dead)|still alive)",
        at_end=r"not registered within the timeout",
    ),
    Signature(
        "ray-out-of-memory",
        keys=("killed due to the node running low on memory", "killed due to memory pressure"),
        cause="Ray killed a worker[[host? on {host}]], because that host's memory was almost full[[used? ({used})]].",
        next="Use smaller batches, fewer data loader workers, or fewer Ray workers on a host. RAY_memory_usage_threshold changes the limit; "
        "RAY_memory_monitor_refresh_ms=0 turns this off, and the kernel then kills instead.",
        pattern=r"killed due to (?:the node running low on memory|memory pressure)(?:[\s\S]{0,40}?Memory on the node \(IP: (?P<host>[\w.:]{1,60}),[^\r\n]{0,400}? was "
        r"(?P<used>[\d.]+\w* ?/ ?[\d.]+\w*))?",
        lines=2,
        unless=("out-of-memory",),
    ),
    Signature(
        "ray-node-died",
        keys=(
            "because its node has died",
            "has been marked dead because the detector has missed",
            "Raylet is terminated: ip=",
            "Raylet is terminated. Termination is unexpected",
        ),
        cause="Ray lost [[host?{host}||a host of the cluster]]: it went down or off the network, or its raylet ended.",
        next="[[host?On {host}||ray list nodes names it. On that host]]: uptime; dmesg -T | tail -50; /tmp/ray/session_latest/logs/raylet.out.",
        pattern=r"because its node has died|Raylet is terminated(?:: ip=(?P<host2>[\w.:-]+),|\. Termination)|node with node id: \S+ and (?:ip|address): (?P<host>[\w.:-]+) has been marked dead",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "ray-no-resources",
        keys=(
            "The following resource request cannot be scheduled right now",
            "No available node types can fulfill resource request",
            "could not find a node type to satisfy the request: ",
        ),
        cause="Ray has no host with the resources that are requested[[what?: {what}]].",
        next="[[ip?If ray status lists no node_{ip}, start Ray there with --node-ip-address={ip}, or correct the address that the program takes for its host (vLLM: VLLM_HOST_IP). If it lists it, end what uses its GPUs."
        "||ray status shows what the cluster has and what is in use. Start Ray on the missing hosts, end older jobs, or request fewer workers or GPUs per worker "
        "(ScalingConfig).]]",
        pattern=r"(?:scheduled right now: |fulfill resource requests? |satisfy the request: \[)(?P<what>\{(?=(?:[^}\r\n]{0,200}'node:(?P<ip>[\d.]{7,15})')?)[^}\r\n]{1,200}\})",
        at_end=r"Waiting for creating a placement group|cannot be scheduled right now|fulfill resource request|find a node type to satisfy|groups the resource request",
    ),
    Signature(
        "horovod-hosts-gone",
        keys=("No hosts from previous set remaining, unable to broadcast state",),
        cause="Horovod's elastic training lost every host that had the state of the training, so no rank can give it to new ones.",
        next="Look for the reason why those ranks ended; Horovod no longer uses a host on which ranks failed. Start the job again from its last checkpoint.",
    ),
    Signature(
        "lightning-no-gpu",
        keys=("No supported gpu backend found",),
        cause="Lightning on {host} sees no GPU: torch is built without CUDA, or no GPU is visible.",
        next="Check where the ranks run (a container needs --gpus all): nvidia-smi -L, echo $CUDA_VISIBLE_DEVICES, and python3 -c 'import torch; "
        "print(torch.version.cuda, torch.cuda.is_available())'. If the version is None, torch was built without CUDA: install a CUDA build.",
        pattern=r"MisconfigurationException: No supported gpu backend found",
    ),
    Signature(
        "deepspeed-world-size",
        keys=("The checkpoint being loaded used a DP world size of ",),
        cause="The optimizer's state in the checkpoint was saved by {saved} ranks (data parallel), and {now} load it: ZeRO cannot divide it again.",
        next="Continue with as many ranks as before. With another number: convert it (ds_to_universal.py of DeepSpeed, then load_universal_checkpoint), or load the weights only "
        "(load_optimizer_states=False, or zero_to_fp32.py in the checkpoint's folder).",
        pattern=r"used a DP world size of (?P<saved>\d+) but the current world size is (?P<now>\d+)",
    ),
    Signature(
        "deepspeed-not-gathered",
        keys=("'status': 'NOT_AVAILABLE'", "'status': 'INFLIGHT'", "ZeroParamStatus.AVAILABLE, param.ds_summary()"),
        cause="With ZeRO-3 the program used a parameter[[shape? of shape ({shape})]] whose parts its ranks had not gathered.",
        next="Make all ranks go through the same modules in the same order: for models with experts, use deepspeed.utils.set_z3_leaf_modules; with gradient "
        "checkpointing, use_reentrant=False. Outside of forward(), use with deepspeed.zero.GatheredParameters([...]); to see whether ZeRO-3 is the cause, run "
        "it with stage 2.",
        # Ranks that fail at once write their lines into each other's.
        pattern=r"(?:AssertionError|^\s*): \{'id': \d+, 'status': '(?:NOT_AVAILABLE|INFLIGHT)'(?:[^\r\n]{0,200}?'ds_shape': \((?P<shape>[\d, ]{1,60})\))?"
        r"|param\.ds_summary\(\)\s{0,200}AssertionError(?!: \{)",
        lines=2,
    ),
    Signature(
        "deepspeed-in-flight",
        keys=("still have inflight params",),
        cause="With ZeRO-3, parameters were still being gathered when the model's pass ended: its modules ran in a different order from the step before, or not all of them ran.",
        next="Update DeepSpeed, and make every step and every rank go through the same modules: call the model itself, and use deepspeed.utils.set_z3_leaf_modules for models with experts. "
        '"stage3_prefetch_bucket_size": 0 turns off gathering ahead; to see whether ZeRO-3 is the cause, run it with stage 2.',
    ),
    Signature(
        "loss-scale-exhausted",
        keys=("Current loss scale already at minimum",),
        cause="The gradients overflowed in step after step until the loss scale of fp16 was at its minimum: the training diverges, or the model does not work with fp16.",
        next="Use bf16 (bf16.enabled in DeepSpeed, --bf16), which needs no loss scale. With fp16, try a lower learning "
        "rate, a longer warm-up or clipped gradients, and find out which batch first gives nan or inf (torch.autograd.set_detect_anomaly).",
    ),
    Signature(
        "ranks-not-divisible",
        keys=("orld_size (", "orld size ("),
        cause="{all} ranks are not divisible by the model's parallel size[[by? ({by})]].",
        next="Change the sizes, or the number of ranks (hosts x ranks of a host), which must be a multiple of tensor x pipeline x context parallel size. If {all} "
        "is less than the number you started, the ranks do not see each other: check WORLD_SIZE in each.",
        pattern=r"orld[_ ]size`? \((?P<all>\d+)\) (?:is not|must be) divisible by (?P<by>[^\r\n]{0,160}[^\s.])",
    ),
    Signature(
        "checkpoint-parameter-empty",
        keys=("from checkpoint, the shape in current model is torch.Size(",),
        cause="[[loads?The model's {name} is empty where the checkpoint is loaded: ZeRO-3 has divided it among the ranks]]"
        "[[rows?The checkpoint's part of {name} has no rows, most often because its first dimension is not divided evenly among the ranks]]"
        "[[saved?The checkpoint has an empty {name}: it was saved from a model whose parameters ZeRO-3 had divided among the ranks]].",
        next="[[loads?Load it before deepspeed.initialize(), or inside of with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0)]]"
        "[[rows?Use a number of ranks that divides that dimension, or pad it to a multiple of them, when you save and load]]"
        "[[saved?Create the weights from DeepSpeed's own checkpoint with zero_to_fp32.py in its folder; for the next one, set stage3_gather_16bit_weights_on_model_save to true]].",
        pattern=r"size mismatch for (?P<name>[\w.]{1,160}): copying a param with shape torch\.Size\(\[(?:(?P<saved>0)\]|0(?P<rows>, \d[\d, ]*)\]|(?!0[\],])[\d, ]+\]\) "
        r"from checkpoint, the shape in current model is torch\.Size\(\[(?P<loads>0)\])",
    ),
    Signature(
        "checkpoint-of-other-model",
        keys=("Error(s) in loading state_dict for ",),
        cause="The checkpoint does not fit the model {model}[[missing?: it lacks {missing}]][[unexpected?: the model has no {unexpected}]][[size?: {size} has another size]].",
        next="Build the model with the configuration that the checkpoint was saved with (sizes, vocabulary, version), and remove the prefix module. of DDP from its "
        "names, or save model.module.state_dict(). If the checkpoint is sharded (FSDP, ZeRO-3, tensor parallel), merge it first.",
        pattern=r"in loading state_dict for (?P<model>\w+):?(?:\s+(?:Missing key\(s\) in state_dict: \"(?P<missing>[^\"\r\n]{1,120})|Unexpected key\(s\) in state_dict: \"(?P<unexpected>[^\"\r\n]{1,120})"
        r"|size mismatch for (?P<size>[^:\r\n]{1,120})))?",
        lines=2,
        unless=("checkpoint-parameter-empty",),
        survived=True,
    ),
    Signature(
        "checkpoint-shapes",
        keys=("from checkpoint, the shape in current model is ",),
        cause="The checkpoint does not fit the model: {name} is {saved} there, and {own} in the model.",
        next="If one number is 2, 4, 8 or more times the other, the checkpoint is one part of a model divided by tensor parallelism: load it with as many ranks (Megatron: --tensor-model-parallel-size), or merge its parts. Otherwise build the model with the configuration and vocabulary that the checkpoint was saved with.",
        pattern=r"size mismatch for (?P<name>[^\s:]{1,160}): copying a param with shape (?:torch\.Size\()?(?P<saved>\[[\d, ]*\])\)? from checkpoint, the shape in current model is (?:torch\.Size\()?(?P<own>\[[\d, ]*\])",
        unless=("checkpoint-parameter-empty", "checkpoint-of-other-model"),
        survived=True,
    ),
    Signature(
        "tokenizer-file-broken",
        keys=(" column ",),
        cause="A file of the tokenizer cannot be read on {host} ({what}): [[old?the installed tokenizers package is older than the one that wrote it||it is no complete JSON file]].",
        next="[[old?Update it: pip install -U tokenizers transformers||Look at it: head -c 200 tokenizer.json. If its first line is 'version https://git-lfs', run git lfs pull; otherwise remove it and download the model's files again]].",
        # serde_json's errors, which Python shows as a bare Exception.
        pattern=r"^Exception: (?P<what>(?:(?P<old>data did not match any variant)|expected |EOF while|trailing |invalid |key must|control character)[^\r\n]{0,120} at line \d+ column \d+)",
    ),
    Signature(
        "checkpoint-not-written",
        keys=(
            *("PytorchStreamWriter failed writing file", "RuntimeError: write(): fd "),
            *("RuntimeError: File ", "RuntimeError: Parent directory ", "unexpected pos "),
        ),
        cause="torch.save could not write its file on {host}[[why? ({why})]]: the folder is missing, the disk or the quota is full, or its file system failed.",
        next="Check df -h, df -i and quota -s for that folder, and dmesg -T | tail. Keep fewer checkpoints, and write each one under a temporary name that is "
        "changed when it is complete.",
        pattern=r"PytorchStreamWriter failed writing file|inline_container\.cc:\d+\] \. unexpected pos|RuntimeError: (?:File|Parent directory) \S+ (?P<why2>cannot be opened|does not exist)|write\(\): fd \d+ failed with (?P<why>[^\r\n]*[^\s.])",
        unless=("disk-full",),
    ),
    Signature(
        "checkpoint-shard-size",
        keys=(" mismatch sizes torch.Size(", "Size mismatch between saved torch.Size("),
        cause="A sharded checkpoint does not fit the model: {what} has another shape.",
        next="Load it with the same kind of state_dict (FSDP's StateDictType, DTensor) and the same wrapping as it was saved with; or convert it: python -m torch.distributed.checkpoint.format_utils dcp_to_torch.",
        pattern=r"req MetadataIndex\(fqn='(?P<what>[^'\r\n]{1,200})'[^\r\n]* mismatch sizes torch\.Size|Size mismatch between saved torch\.Size\([^)\r\n]*\) and current: torch\.Size\([^)\r\n]*\) for (?P<what2>[^\s]{0,200}\w)",
    ),
    Signature(
        "checkpoint-broken",
        keys=(
            "failed finding central directory",
            "PytorchStreamReader failed reading",
            "invalid header or archive is corrupted",
            *("storage has wrong size: expected ", "unexpected EOF, expected ", "Error while deserializing header: "),
            *(
                "UnpicklingError: invalid load key, ",
                "UnpicklingError: pickle data was truncated",
                "EOFError: Ran out of input",
            ),
            "unpickling stack underflow",
        ),
        cause="A checkpoint or another saved file is incomplete or damaged: it cannot be read as what it should be.",
        next="Run ls -l on the file on the host that fails: it was cut off while it was saved (killed, disk full) or "
        "downloaded, it is a Git LFS pointer (git lfs pull), or another rank is still writing it (add a barrier before loading). Use the previous checkpoint.",
        unless=("child-process-cut-off", "torch-object-damaged"),
        survived=True,
    ),
    Signature(
        "checkpoint-weights-only",
        keys=("Weights only load failed",),
        cause="torch 2.6 and newer load only tensors by default, and the file has other Python objects[[what? ({what})]].",
        next="For a file that you trust: torch.load(..., weights_only=False), or torch.serialization.add_safe_globals([CLASS]); or a newer version of the framework that loads it.",
        pattern=r"Weights only load failed(?:[\s\S]{0,900}?GLOBAL (?P<what>[\w.]{1,120}))?",
        lines=6,
        survived=True,
    ),
    Signature(
        "hub-gated",
        keys=("ou are trying to access a gated repo", "Cannot access gated repo for url", "GatedRepoError: "),
        cause="The model is a gated one of Hugging Face, and the process on {host} has no token that may read it.",
        next="Accept the terms on the model's page, and give every rank the token: -x HF_TOKEN, or huggingface-cli login on each host.",
        survived=True,
    ),
    Signature(
        "hub-refused",
        keys=(
            "RepositoryNotFoundError: 401 Client Error",
            "HfHubHTTPError: 401 Client Error",
            "HfHubHTTPError: 403 Forbidden",
            "RepositoryNotFoundError: 404 Client Error",
        ),
        cause="Hugging Face refused a download of {host} ({code}): the name is wrong, or the token is missing or may not read it.",
        next="Check the name of the model or data set, and give every rank a token that may read it: -x HF_TOKEN, or huggingface-cli login on each host.",
        # huggingface_hub/utils/_http.py, hf_raise_for_status
        pattern=r"Error: (?P<code>40[134])\b",
        survived=True,
    ),
    Signature(
        "hub-not-reached",
        keys=(
            *("We couldn't connect to 'https://huggingface.co'", "is not a valid model identifier listed on"),
            *("host='huggingface.co', port=443): ", "LocalEntryNotFoundError: ", "offline mode is enabled"),
        ),
        cause="[[name?{name} is neither a folder on {host} nor a model of Hugging Face||The process on {host} cannot reach Hugging Face, and what it needs is not in its cache]].",
        next="[[name?Check a path on {host} with ls -d: it must exist on every host. If it is a name, write OWNER/MODEL; a private one requires HF_TOKEN (-x "
        "HF_TOKEN)||Download once on a host with access (huggingface-cli download), put HF_HOME on storage that all hosts share, and pass -x HF_HOME -x "
        "HF_HUB_OFFLINE=1]].",
        pattern=r"couldn't connect to 'https://huggingface|host='huggingface\.co', port=443\): (?:Max retries|Read timed out)|LocalEntryNotFoundError: |offline mode is enabled|(?P<name>[^\s'\"]{1,120}) is not a local folder and is not a valid model identifier",
        unless=("hub-gated",),
        survived=True,
    ),
    Signature(
        "device-map-auto",
        keys=("that has been loaded with `device_map='auto'` in any distributed mode",),
        cause="The model was spread over all GPUs (device_map='auto'), and each rank of a distributed job needs a complete model of its own.",
        next="Leave device_map out, or device_map={{'': local_rank}}. If the model does not fit on one GPU, use FSDP or DeepSpeed ZeRO-3, or start one process without a launcher.",
    ),
    Signature(
        "ddp-nothing-to-train",
        keys=(
            "a module doesn't have any parameters that require a gradient",
            "expect at least one dense parameter",
            "optimizer got an empty parameter list",
            ", in initialize_optimizer_states",
        ),
        cause="[[optimizer?The optimizer got no parameter to train||A module given to DistributedDataParallel has nothing to train]]: all [[optimizer?||its ]]parameters are frozen.",
        next="[[optimizer?Print the names with requires_grad before the optimizer is made||Wrap only modules that train (a frozen encoder or reference model needs no DDP)]], or see why requires_grad is False: PEFT adapters that were not added, or loaded for inference.",
        # What DeepSpeed's ZeRO-3 makes of no group, in initialize_optimizer_states
        pattern=r"parameters that require a gradient|at least one dense parameter|(?P<optimizer>optimizer got an empty)|, in initialize_(?P<optimizer2>optimizer)_states(?:\r?\n +[^\r\n]*){0,4}\r?\n(?P<error>ValueError: max\(\) (?:arg|iterable argument) is)",
        lines=6,
    ),
    Signature(
        "flash-attention-gpu",
        keys=("FlashAttention only supports",),
        cause="FlashAttention has no code for the GPU of {host}: it needs {what}.",
        next="Turn it off: attn_implementation='sdpa' (transformers), or the framework's own option for attention; or use newer GPUs.",
        pattern=r"FlashAttention only supports (?P<what>[^\r\n]{1,80}?)[.\s]*$",
    ),
    Signature(
        "mesh-size",
        keys=(
            "esh should not be bigger than default world size",
            "mesh_shape and mesh_dim_names should have same length",
        ),
        cause="The device mesh does not fit: [[asked?its shape needs {asked} ranks, which is more than there are||it has fewer sizes than dimension names]].",
        next="[[asked?Start more ranks, or make its sizes smaller: their product (data x tensor x ... parallel) must be the number of ranks||Give init_device_mesh "
        "one size for each of mesh_dim_names]].",
        pattern=r"bigger than default world size(?: (?P<now>\d+))?, but found (?P<asked>\d+)|should have same length",
    ),
    Signature(
        "vllm-memory",
        keys=("No available memory for the cache blocks", "is less than desired GPU memory utilization"),
        cause="vLLM on {host} does not have enough GPU memory[[free? ({free} GiB free)]]: the model leaves none for its cache, or other processes use the GPU.",
        next="nvidia-smi shows who uses it: end ranks of an older run, and let the trainer free memory first (colocated). Otherwise set a larger tensor_parallel_size, a smaller "
        "max_model_len, or another gpu_memory_utilization.",
        pattern=r"No available memory for the cache blocks|Free memory on device[^\r\n(]*\((?P<free>[\d.]+)/[^\r\n]*less than desired GPU memory",
    ),
    Signature(
        "vllm-parallel-size",
        keys=("attention heads (",),
        cause="{heads} attention heads of the model are not divisible by vLLM's tensor parallel size {size}.",
        next="Set --tensor-parallel-size to a divisor of {heads}; to use more hosts or GPUs, set --pipeline-parallel-size.",
        pattern=r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<size>\d+)\)",
    ),
    Signature(
        "vllm-driver-without-gpu",
        keys=("Ray does not allocate any GPUs on the driver node",),
        cause="vLLM was started on a host where Ray's placement group has no GPU: all GPUs of {host} are in use or unknown to Ray, or Ray knows {host} by another "
        "address.",
        next="Start vLLM on a host with free GPUs: ray status shows those of each host. If hosts have several addresses, set VLLM_HOST_IP on each host to the one "
        "given to ray start --node-ip-address.",
    ),
    Signature(
        "megatron-helpers",
        keys=("Failed to compile the C++ dataset helper functions",),
        cause="Megatron could not compile its dataset helpers on {host}.",
        next="Run make -C megatron/core/datasets in the checkout, with g++ and pybind11 installed. A package that was installed without its Makefile lacks them: install from "
        "the checkout (pip install -e .).",
    ),
    Signature(
        "gpus-of-ray",
        keys=("is less than total desired GPUs",),
        cause="The Ray cluster has {have} GPUs but the training requests {want}.",
        next="ray status lists the resources of each host: start Ray on the missing hosts with --num-gpus, see that nvidia-smi works there; or lower nnodes and n_gpus_per_node.",
        pattern=r"available GPUs (?P<have>[\d.]+) is less than total desired GPUs (?P<want>[\d.]+)",
    ),
    Signature(
        "ray-group-too-small",
        keys=("is invalid. Valid placement group indexes: ", "exceeds the total number of available GPUs in the "),
        cause="[[asked?The program requests more workers or GPUs than Ray gave to its placement group: it has no bundle {asked}, only {have}||"
        "vLLM runs in a placement group of Ray with fewer GPUs than its tensor x pipeline parallel size]].",
        next="[[group?Create that placement group with a bundle of one GPU for each of them, or start vLLM outside of it||Compare tensor x pipeline parallel size with the GPUs that ray status lists: lower them, start Ray on the missing hosts, or end "
        "what uses the GPUs. If ray status lists enough, set RAY_ADDRESS before the program starts, which otherwise starts a Ray of its own]].",
        pattern=r"(?:placement group bundle index (?P<asked>\d+) is invalid\. Valid placement group indexes: (?P<have>[\d-]+(?: to \d+)?)|(?P<group>number of required GPUs) exceeds the total number)",
        unless=("ray-no-resources",),
        at_end=r"placement group|total number of available GPUs",
    ),
    Signature(
        "ray-disk-full",
        keys=(" full, available space: ",),
        cause="The disk with Ray's folder {folder} is almost full[[left? ({left} left)]]: Ray stores no more objects there, and workers that need to store one fail.",
        next="df -h {folder}; ls /tmp/ray, and remove folders of older sessions. ray start --temp-dir=/DISK (or ray.init(_temp_dir=...)) uses a larger disk.",
        pattern=r"file_system_monitor\.cc:\d+: (?P<folder>\S+) is over [\d.]+% full, available space: (?P<left>[\d.]+(?: [KMGT]?B)?)",
        at_end=r"Object creation will fail",
    ),
    Signature(
        "launchers-disagree",
        keys=(" does not match torch ",),
        cause="The {what} of MPI is {mpi} and that of torch.distributed is {torch}: the program reads the variables of two launchers, or each host runs as a job of its own.",
        next="Start all ranks with one launcher, on all hosts together: mpirun, or torchrun with --nnodes on each host, but not one within the other. Print RANK, WORLD_SIZE, OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE in a rank.",
        # deepspeed/comm/comm.py, mpi_discovery
        pattern=r"MPI (?P<what>rank|world size) (?P<mpi>\d+) does not match torch (?:rank|world size) (?P<torch>\d+)",
    ),
    Signature(
        "deepspeed-no-address",
        keys=("Using IP address of ", "--master_addr= "),
        cause="DeepSpeed's launcher found no address of the first host[[name? ({name})]]: hostname -I, which it runs there, printed nothing, or a banner came first.",
        next="Give the address: deepspeed --master_addr ADDRESS. ssh [[name?{name}||HOST]] hostname -I must print addresses only, so let no login script there write anything.",
        # deepspeed/launcher/runner.py
        pattern=r"Using IP address of\s+for node (?P<name>\S+)|--master_addr= --master_port=",
    ),
    Signature(
        "deepspeed-no-sync",
        keys=("no_sync context manager is incompatible with gradient partition",),
        cause="DeepSpeed refuses no_sync() with ZeRO stage {stage}, which reduces gradients in every backward pass; newer versions of DeepSpeed check that.",
        next="Update accelerate and transformers, which no longer call it there, or use gradient_accumulation_steps=1, ZeRO stage 1, or an older DeepSpeed. In a "
        "loop of your own, use engine.backward() and engine.step(), which accumulate without no_sync().",
        pattern=r"gradient partition\w* logic of ZeRO stage (?P<stage>\d)",
    ),
    Signature(
        "checkpoint-exists",
        keys=("The checkpoint directory already exists and is not empty",),
        cause="The checkpoint folder {path} exists and is not empty; with FSDP, Lightning does not overwrite it.",
        next="Give each checkpoint a name of its own (the step in it), or remove the old one on rank 0 before all ranks save.",
        pattern=r"already exists and is not empty: (?P<path>[^\s{]+)$",
    ),
    Signature(
        "header-missing",
        keys=(" fatal error: ",),
        cause="A C++ or CUDA extension is compiled on {host}, and the header {what} is missing there.",
        next="[[cuda?Install the whole CUDA toolkit, which has it (not only nvcc), in the version of torch.version.cuda, and set CUDA_HOME to it]][[python?Install "
        "python3-dev for that Python, which has it]][[other?Install the package that has it: apt-file search {other}]].",
        pattern=r"(?:\.(?:h|hpp|hxx|cuh|cu|c|cc|cpp|cxx):\d+:\d+|^cc1(?:plus)?): fatal error: (?=(?P<what>[\w./+-]{1,120}): No such file or directory)"
        r"(?:(?P<cuda>(?:cu(?:da|blas|dnn|fft|rand|solver|sparse|b/)|nv(?:ml|rtc|tx|Tools)|thrust/|driver_types)[\w/.]*)|(?P<python>Python\.h)|(?P<other>[\w./+-]+)):",
    ),
    Signature(
        "child-process-cut-off",
        keys=(", in spawn_main", ", in _main"),
        cause="A child process on {host} got only a part of what its parent sends at its start: the parent failed while it sent that, or was killed.",
        next="Look for the parent's own traceback near this one: most often what it sends cannot be pickled. Otherwise dmesg -T | grep -i kill shows whether memory ran out.",
        # multiprocessing/spawn.py, which reads with pickle what popen_spawn_posix.py writes
        pattern=r"multiprocessing/spawn\.py\", line \d+, in _main\r?\n +[^\r\n]*(?:\r?\n +[^\r\n]*)?\r?\n(?P<error>(?:_pickle\.)?(?:UnpicklingError: pickle data was truncated|EOFError: Ran out of input))",
        lines=4,
        kind=FailureText.ECHO,
    ),
    Signature(
        "not-pickled",
        keys=(
            "Can't pickle ",
            "cannot pickle ",
            "can't pickle ",
            "cannot be pickled",
            "refusing to serialize non-leaf tensor",
        ),
        cause="The program on {host} hands something to another process that Python cannot send: {what}.",
        next="Move functions and classes to the top level of a module, and give a data set, collate_fn or a process's arguments no lambda, lock, generator, open file or tensor with a gradient (use .detach()). num_workers=0 shows whether the data loader is the cause.",
        pattern=r"Error: (?P<what>(?:Can't pickle|[Cc]annot pickle|can't pickle) [^\r\n]{1,160}[^\s.]|[^\r\n]{1,80} cannot be pickled|Cowardly refusing to serialize non-leaf tensor)",
        survived=True,
        handled=True,
    ),
    Signature(
        "process-start-method",
        keys=(
            "finished its bootstrapping phase",
            "daemonic processes are not allowed to have children",
            "freeze_support()",
        ),
        cause="[[daemon?A process on {host} that is a daemon itself, such as a data loader worker, starts another process||A process on {host} starts others while Python still imports the program]].",
        next="[[daemon?Start no processes in workers of a data loader or pool: num_workers=0, or threads there||Put the start of the program under if __name__ == '__main__':]].",
        pattern=r"finished its bootstrapping phase|(?P<daemon>daemonic processes are not allowed)",
    ),
    Signature(
        "numpy-other-version",
        keys=(
            *(
                "numpy.core.multiarray failed to import",
                "numpy._core.multiarray failed to import",
                "compiled against ABI version 0x",
            ),
            *("numpy.dtype size changed", "module 'numpy' has no attribute ", "compiled using NumPy 1.x cannot be run"),
        ),
        cause="The numpy of {host} does not fit a package that was built or written for another version[[what? ({what} no longer exists)]].",
        next="Install the version that the package requires, most often pip install 'numpy<2' ('numpy<1.24' for np.float, np.int, np.bool), or a newer version of that package. Do so on every host, or in the image.",
        pattern=r"numpy\.(?:_?core\.multiarray failed to import|dtype size changed)|compiled against ABI version|module 'numpy' has no attribute '(?P<what>\w{1,40})'|compiled using NumPy 1\.x",
        survived=True,
        handled=True,
    ),
    Signature(
        "name-not-importable",
        keys=("ImportError: cannot import name ", "most likely due to a circular import"),
        cause="[[circle?On {host}, {package} is imported while it is still being imported: a file of the program's own has its name, or two modules import each other||The {package} that a rank on {host} imports has no {name}: it is another version than the one the program was written for]].",
        next="[[circle?Show which file is imported, and rename your own: python3 -c 'import {package}; print({package}.__file__)'||Compare pip show on the package in question with what the program requires (requirements.txt), on every host; python3 -c 'import {package}; print({package})' shows which is imported]].",
        pattern=r"cannot import name '(?P<name>[^'\r\n]{1,80})' from (?P<circle>partially initialized module )?'(?P<package>[\w.]{1,80})'|partially initialized (?P<circle2>module) '(?P<package2>[\w.]{1,80})'",
        survived=True,
        handled=True,
    ),
    Signature(
        "library-no-tls",
        keys=("cannot allocate memory in static TLS block",),
        cause="The library {library} cannot be loaded on {host}: the space for its thread variables (static TLS) is used up by libraries that were loaded before.",
        next="Load it first: -x LD_PRELOAD={library}, or import its package before the others.",
        pattern=r"(?P<library>[\w./+-]{1,200}): cannot allocate memory in static TLS block",
    ),
    Signature(
        "import-failed-inside",
        keys=("because of the following error (look up to see its traceback)",),
        cause="transformers or diffusers could not import {what} on {host}[[why?: {why}]].",
        next="Fix that error: most often a package that it needs (torch, flash_attn, apex, deepspeed) is of another version or broken; python3 -c 'import {what}' shows the whole traceback.",
        pattern=r"Failed to import (?P<what>[\w.]{1,100}) because of the following error \(look up to see its traceback\):(?:\s+(?P<why>[^\r\n]{1,300}[^\s.]))?",
        lines=2,
        unless=(
            "name-not-importable",
            "module-missing",
            "library-missing",
            "library-too-old",
            "torch-other-build",
            "cuda-home-missing",
        ),
        survived=True,
        handled=True,
    ),
    Signature(
        "dtypes-mixed",
        keys=(
            *(
                "expected scalar type ",
                "must have the same dtype, but got ",
                " and weight type (",
                "to have the same dtype, but got: ",
            ),
            *("Found dtype ", "must have the same dtype as"),
        ),
        cause="[[cpu?A part of the model or its input is on the CPU, the rest on a GPU of {host}||An operation on {host} got tensors of two types]]: {one} and {other}.",
        next="[[cpu?Move both to the rank's GPU: model.to(local_rank), batch.to(local_rank)||Use one type: run the forward pass in torch.autocast('cuda', dtype=torch.bfloat16), or convert the model, its inputs and labels with .to(dtype). Weights that were added or loaded later (LoRA, a new head) often keep float32]].",
        pattern=r"Error: (?:expected scalar type (?P<one>\w{1,20}) but found (?P<other>\w{1,20})|Found dtype (?P<one2>\w{1,20}) but expected (?P<other2>\w{1,20})"
        r"|[^\r\n]{1,60} (?:must have the same dtype|to have the same dtype), but got:? (?P<one3>[\w.]{1,30}) (?:and|!=) (?P<other3>[\w.]{1,30})"
        r"|Input type \((?:(?=torch\.(?P<cpu>cuda)\.\w+Tensor\) and weight type \(torch\.[A-Z]|torch\.(?P<cpu2>[A-Z])\w*Tensor\) and weight type \(torch\.cuda))?(?P<one4>[\w.]{1,40})\) and (?:weight|bias) type \((?P<other4>[\w.]{1,40})\))",
        survived=True,
        handled=True,
    ),
    Signature(
        "dtype-without-code",
        keys=(" not implemented for '",),
        cause="An operation of the program ({what}) has no code for the type {type} on the device of the tensor: most often a model in half precision runs on the CPU of {host}.",
        next="Move the model and the batch to the rank's GPU (model.to(local_rank)), or use float32 on the CPU. On a GPU, convert the tensor of that line: x.float().",
        pattern=r"\"(?P<what>\w{1,80})\" not implemented for '(?P<type>\w{1,20})'",
        survived=True,
        handled=True,
    ),
    Signature(
        "backward-refused",
        keys=(
            *("Trying to backward through the graph a second time", "has been modified by an inplace operation"),
            *("element 0 of tensors does not require grad", "Trying to backward an extra time"),
        ),
        cause="torch cannot compute the gradients: [[twice?backward() is called a second time on a graph that the first call has released]][[place?a tensor that they need was changed in place]][[none?the loss does not depend on any parameter that is trained]].",
        next="[[twice?Call backward() once for each loss, and keep states between steps with .detach(); retain_graph=True only where two losses share a graph]]"
        "[[place?Write x = x + y in place of x += y, and run it with torch.autograd.set_detect_anomaly(True), which shows the line. With DistributedDataParallel and several forward passes: broadcast_buffers=False]]"
        "[[none?See which parameters have requires_grad, and that the loss is not made under torch.no_grad() or with .item(). With PEFT and gradient checkpointing: model.enable_input_require_grads(), or use_reentrant=False]].",
        pattern=r"Trying to backward (?P<twice>through the graph a second|an extra) time|modified by an (?P<place>inplace) operation|does not (?P<none>require grad)",
        survived=True,
        handled=True,
    ),
    Signature(
        "batch-not-stacked",
        keys=(
            *("stack expects each tensor to be equal size", "Trying to resize storage that is not resizable"),
            *(
                "each element in list of batch should be of equal size",
                "batch must contain tensors, numpy arrays",
                "Unable to create tensor, you should probably",
            ),
        ),
        cause="The data loader on {host} cannot put its samples into one batch: they have different sizes, or a type that it does not know[[what? ({what})]].",
        next="Give DataLoader a collate_fn that pads or crops all samples to one size (transformers: DataCollatorWithPadding). To see the sample: num_workers=0 and batch_size=1.",
        pattern=r"but got (?P<what>\[[\d, ]{0,100}\] at entry \d+ and \[[\d, ]{0,100}\] at entry \d+)|resize storage|list of batch should|batch must contain tensors[^\r\n]{0,80}; found (?P<what2>[^\r\n]{1,100}[^\s.])|Unable to create tensor",
        survived=True,
        handled=True,
    ),
    Signature(
        "image-broken",
        keys=("cannot identify image file ", "image file is truncated", "broken data stream when reading image file"),
        cause="An image of the data set cannot be read on {host}[[file? ({file})]]: it is incomplete, or no image.",
        next="Print the path where the data set's __getitem__ meets that error, then remove the file or copy it again. To use the part that can be read: PIL.ImageFile.LOAD_TRUNCATED_IMAGES = True.",
        pattern=r"cannot identify image file (?:'(?P<file>[^'\r\n]{1,200}))?|image file is truncated|broken data stream",
        survived=True,
        handled=True,
    ),
    Signature(
        "index-out-of-table",
        keys=("IndexError: index out of range in self",),
        cause="The program on {host} looks up an index that its embedding does not have: a token is not in the model's vocabulary, or a position is beyond its longest sequence.",
        next="Compare the largest value of input_ids with model.config.vocab_size, and their length with max_position_embeddings. After tokens were added: model.resize_token_embeddings(len(tokenizer)).",
        survived=True,
        handled=True,
    ),
    Signature(
        "gradient-scaler",
        keys=("No inf checks were recorded for this optimizer", "Attempting to unscale FP16 gradients"),
        cause="[[half?The parameters that are trained are in fp16 themselves, and torch's GradScaler needs them in float32||The optimizer found no gradient in its step: none of its parameters took part in the loss]].",
        next="[[half?Load the model in float32 (or only the trained part: param.data = param.data.float()) and let fp16=True convert, or use bf16||See that the optimizer has the parameters of the model that runs (made after FSDP or model.to()), and that requires_grad is True]].",
        pattern=r"No inf checks|Attempting to unscale (?P<half>FP16)",
    ),
    Signature(
        "optimizer-state-other",
        keys=(
            "loaded state dict has a different number of parameter groups",
            "that doesn't match the size of optimizer's group",
            "Missing key in checkpoint state_dict: ",
        ),
        cause="[[key?The checkpoint has no {key}, which the program loads||The optimizer state of the checkpoint does not fit this optimizer: it has other parameters or groups]].",
        next="Load it with the same versions and options as it was saved with: the same frozen layers, weight decay groups, wrapping (FSDP or not) and kind of state_dict. Otherwise load the model's weights only, and start with a new optimizer.",
        # torch/distributed/checkpoint/default_planner.py
        pattern=r"different number of parameter groups|size of optimizer's group|Missing key in checkpoint state_dict: (?P<key>[^\r\n]{1,160}[^\s.])",
        survived=True,
        handled=True,
    ),
    Signature(
        "checkpoint-gpu-other",
        keys=("Attempting to deserialize object on ",),
        cause="A file that was saved on a GPU is loaded where [[count?only {count} are visible||torch sees no GPU]] ({host}).",
        next="Load it with torch.load(..., map_location='cpu'), then move it to the rank's own GPU. If that host has GPUs, nvidia-smi -L and python3 -c 'import torch; print(torch.cuda.is_available())' must show them.",
        pattern=r"Attempting to deserialize object on (?:a )?CUDA device(?:[^\r\n]{0,80}device_count\(\) is (?P<count>\d+))?",
        survived=True,
        handled=True,
    ),
    Signature(
        "checkpoint-not-found",
        keys=(
            *(
                "Can't find a valid checkpoint at ",
                "Error no file named ",
                "No valid checkpoint found in output directory",
                " but folder does not exist",
            ),
            *("Unable to find 'latest' file at ", "is not a zero checkpoint", "can't find model states file at "),
        ),
        cause="There is no checkpoint that the program can load in {path} on {host}: the folder is not there, is incomplete, or has another format (a sharded one of FSDP or ZeRO).",
        next="Run ls -l {path} on every host: it must have model.safetensors or pytorch_model.bin. Make one from shards with accelerate merge-weights (FSDP) or zero_to_fp32.py (DeepSpeed); newer versions of transformers load shards themselves.",
        pattern=r"valid checkpoint at (?P<path>\S{1,200})|Error no file named [^\r\n]{1,300}? found in directory (?P<path2>[^\s]{1,200}[^\s.])|No valid checkpoint found in output directory \((?P<path3>[^)\r\n]{1,200})"
        r"|Tried to find (?P<path4>\S{1,200}) but folder|(?:'latest' file at|model states file at) '?(?P<path5>[^\s']{1,200})|Error: (?P<path6>\S{1,200}) is not a zero checkpoint",
        survived=True,
        handled=True,
    ),
    Signature(
        "fsdp-state-type-missing",
        keys=(", in set_state_dict_type",),
        cause="The program loads or saves the state of an FSDP model before FSDP has wrapped it, or no kind of state_dict is set.",
        next="Load after accelerator.prepare(model), or update transformers and accelerate, whose Trainer did so in the wrong order; and set fsdp_state_dict_type: FULL_STATE_DICT in accelerate's configuration.",
        pattern=r", in set_state_dict_type\r?\n +[^\r\n]*(?:\r?\n +[^\r\n]*)?\r?\n(?P<error>KeyError: None)",
        lines=4,
    ),
    Signature(
        "deepspeed-dtypes-mixed",
        keys=("assert len(set(t.dtype for t in tensors)) == 1",),
        pattern=r"assert len\(set\(t\.dtype for t in tensors\)\) == 1[^\r\n]*(?:(?:\r?\n *\^+)?\r?\n(?P<error>AssertionError))?",
        lines=3,
        cause="ZeRO-3 puts parameters into one block, and those of this model have different types (fp32, fp16, bf16).",
        next="Load the whole model in one type (torch_dtype=torch.bfloat16), the same as fp16 or bf16 in DeepSpeed's configuration; convert adapters and new layers, too: model.to(torch.bfloat16) before deepspeed.initialize().",
    ),
    Signature(
        "deepspeed-group-twice",
        keys=("ZeRO parameter intra parallel group is already initialized",),
        cause="The program creates a second DeepSpeed model in one process with ZeRO++ (zero_hpz_partition_size), whose groups exist only once.",
        next="Leave zero_hpz_partition_size out of the configuration, or give only one model to DeepSpeed with it (a reference or reward model without ZeRO++, in a configuration of its own).",
    ),
    Signature(
        "dtensor-not-supported",
        keys=("found no DeviceMesh from dtensor args for ", "does not have a sharding strategy registered"),
        cause="[[ddp?The model that DistributedDataParallel wraps has parameters that are sharded already (DTensor)||torch has no rule for the operation {what} on sharded tensors (DTensor)]].",
        next="[[ddp?Load it without tp_plan or device_map='auto' (transformers), or use FSDP2 or tensor parallelism alone, without DistributedDataParallel||Use a newer torch, which has more rules, or call .full_tensor() before that operation, outside of the sharded part]].",
        pattern=r"found no DeviceMesh from dtensor args for (?:(?P<ddp>c10d\.(?:broadcast|allgather)_)|(?P<what>[\w.]{1,80}\w))|Operator (?P<what2>[\w.]{1,80}\w) does not have a sharding strategy",
    ),
    Signature(
        "weights-not-gathered",
        keys=(
            "'weight' must be 2-D",
            "weight should have at least three dimensions",
            "out of bounds for storage of size 0",
            "but its data is not allocated yet",
        ),
        cause="A layer on {host} was called while its weights are empty: FSDP or ZeRO-3 has divided them among the ranks and not gathered them for this call.",
        next="Call the wrapped model itself, not a part of it (embeddings, lm_head, generate() of an inner module), and use_reentrant=False with gradient checkpointing. Outside of forward, use with FSDP.summon_full_params(model), or with deepspeed.zero.GatheredParameters(params).",
        pattern=r"'weight' must be 2-D|weight should have at least three dimensions|storage of size 0|data is not allocated yet",
    ),
    Signature(
        "fsdp-order-differs",
        keys=("Forward order differs across ranks",),
        cause="The ranks of an FSDP model go through its layers in different orders, or some skip one.",
        next="Give every rank the same path: no layer that only some batches use (experts, a branch for images), and the same number of steps. Run such a layer on a dummy input, or leave it out of what FSDP wraps.",
    ),
    Signature(
        "fsdp-device-other",
        keys=("Inconsistent compute device and `device_id` on rank ",),
        cause="Rank {rank} gave FSDP a model on {one} and a device_id of {other}.",
        next="Call torch.cuda.set_device(local_rank) before the model is made, and pass device_id=torch.cuda.current_device().",
        pattern=r"`device_id` on rank (?P<rank>\d+): (?P<one>\S{1,40}) vs (?P<other>\S{1,40})",
    ),
    Signature(
        "fairseq-out-of-step",
        keys=("Unable to unpickle data from other workers",),
        cause="A rank of fairseq got from the others something else than it expects: the ranks are out of step, because one ran out of memory, skipped a batch or ended its epoch earlier.",
        next="Look in the logs for the rank that reports OOM or ends an epoch first. Use smaller batches (--max-tokens), and give all ranks the same number of batches; if only the data is too large: --all-gather-list-size 65536.",
    ),
    Signature(
        "bitsandbytes-failed",
        keys=("bitsandbytes/csrc/", "csrc/pythonInterface", "/mmfs1/gscratch/zlab/timdettmers", "csrc/ops.cu"),
        cause="A CUDA call of bitsandbytes failed on {host}, which ended the rank: {why}.",
        next="[[argument?Use an optimizer without paging (adamw_8bit in place of paged_adamw), as its memory cannot be moved on this GPU or driver, and call torch.cuda.set_device(local_rank) first||Check GPU memory with nvidia-smi, and that python3 -m bitsandbytes finds the CUDA of torch]].",
        # CUDA_CHECK_RETURN of csrc/ops.cuh
        pattern=r"^Error (?=(?P<argument>invalid (?:argument|device))?)(?P<why>[a-z][^\r\n]{2,80}?) at line \d+ in file \S*csrc/",
    ),
    Signature(
        "wandb-failed",
        keys=("wandb.errors.", "api_key not configured (no-tty)"),
        cause="Weights & Biases ended the program on {host}: [[key?it has no API key||{why}]].",
        next="[[key?Pass the key to the ranks: -x WANDB_API_KEY||Check that the host reaches api.wandb.ai through its proxy]]; without it, -x WANDB_MODE=offline or report_to='none'. Only rank 0 should call wandb.init().",
        pattern=r"wandb\.errors\.(?:\w+\.)?\w{1,40}: (?=(?P<key>api_key not configured)?)(?P<why>[^\r\n]{1,160}[^\s.])|(?P<key2>api_key not configured)",
        unless=("too-many-files",),
        survived=True,
        handled=True,
    ),
    Signature(
        "hub-too-often",
        keys=("429 Client Error",),
        cause="Hugging Face refuses {host}: it was asked too often in a short time, most often by all ranks at once.",
        next="Download on one rank first, or before the job (huggingface-cli download), put HF_HOME on storage that all hosts share, and pass -x HF_HUB_OFFLINE=1. A token raises the limit: -x HF_TOKEN.",
        pattern=r"429 Client Error[^\r\n]{0,120}huggingface\.co",
        survived=True,
        handled=True,
    ),
)
