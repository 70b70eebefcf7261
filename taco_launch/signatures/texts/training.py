"""What the program in the ranks says: Horovod 0.28 (stall_inspector.cc, controller.cc, operations.cc), CUDA, Python."""

from taco_launch.signatures.entry import FailureText, Signature

TRAINING = (
    Signature(
        "horovod-stall-shutdown",
        ('marked by "!") is stalled for longer than',),
        "Ranks waited for others until Horovod gave up: the ranks marked by ! in the lines before did not arrive.",
        "See where those ranks are: their logs, or, while they hang, taco-launch stacks JOB (py-spy dump --pid PID). Every rank has to do the same steps.",
    ),
    Signature(
        "horovod-stalled",
        ("submitted to be reduced, gathered or broadcasted by subset of ranks",),
        "[[rank?Rank {rank} has not reached the collective {tensor}, in which others wait; the log's next lines name "
        "all that are missing]][[ready?Of all ranks only {ready} "
        "reached the collective {tensor}, and wait for the others]]"
        "[[tensor?||Some ranks have not reached a collective in which the others wait]].",
        "See what the rank that is missing does[[ready? (one that is not in that list)]]: its log, or, while it hangs, taco-launch stacks JOB (py-spy dump --pid PID). "
        "A rank that has failed, waits for data or does other steps than the rest holds them all up.",
        r"by subset of ranks(?:[\s\S]{0,500}?(?:Missing ranks:\s+(?P<rank>\d+)!?: \[(?P<tensor>[^\],\s]+)"
        r"|Stalled ops:\s*(?P<tensor2>\S+) \[(?:missing ranks: (?P<rank2>\d+)|ready ranks: (?P<ready>\d+(?:, \d+)*))))?",
        kind=FailureText.ECHO,
        lines=4,
        # The warning is the log's end, or what a kill or a time limit leaves comes after it. Up to 0.16 each line of it
        # had the tensor first.
        at_end=r"^\d+!?: \[|^Missing ranks:|subset of ranks|\[(?:missing|ready) ranks: "
        r"|(?i:killed|terminat|cancel|interrupt|signal|\^C)",
    ),
    Signature(
        "horovod-stalled-list",
        (" [ready ranks: ", " [missing ranks: "),
        "Ranks of Horovod wait for others in the collective {tensor}: [[rank?rank {rank} has not arrived]][[ready?only the ranks {ready} "
        "have arrived]].",
        "See what the others do: their logs, or, while they hang, taco-launch stacks JOB (py-spy dump --pid PID). A rank that has failed, waits for data or does other steps "
        "than the rest holds them all up.",
        r"(?:\bops:)?(?P<tensor>(?!ops:)\S+) \[(?:missing ranks: (?P<rank>\d+(?:, \d+)*)|ready ranks: (?P<ready>\d+(?:, \d+)*))\]",
        kind=FailureText.NOTE,  # the list alone may be of a stall that passed
        unless=("horovod-stalled", "horovod-stall-shutdown"),
    ),
    Signature(
        "gloo-rank-missing",
        ("Wait timeout for key(s)",),
        "Rank [[rank?{rank}||another]] never reached the rendezvous of Horovod's Gloo (its HTTP store).",
        "See whether that rank has started: its log, and its host. Every host has to reach the one that horovodrun runs on. "
        "Where ranks start late: HOROVOD_GLOO_TIMEOUT_SECONDS=300.",
        r"http_store\.cc:\d+\] Wait timeout for key\(s\): *(?P<rank>\d+)?",
    ),
    Signature(
        "horovod-mismatch",
        (": One rank ",),
        "The ranks do not do the same: mismatched {what} in one collective.",
        "See that all ranks have the same model, data types and batch shapes (drop_last=True for the last batch).",
        r"Mismatched (?P<what>[A-Za-z /]+?): One rank",
        unless=("horovod-device-mismatch",),
    ),
    Signature(
        "horovod-device-mismatch",
        ("device selection: One rank",),
        "One rank gives Horovod memory of a GPU, and another one memory of the CPU: on one host the program sees no GPU, or its Horovod "
        "or framework is built without.",
        "On every host, where the ranks run: nvidia-smi -L, and horovodrun --check-build. The same image and the same device code on all.",
        r"Mismatched [A-Za-z ]*CPU/GPU device selection: One rank",
    ),
    Signature(
        "horovod-run-store",
        ("data input KVStore server failed", "data from KVStore server failed"),
        "A process of horovod.run could not reach the store of the machine that called it[[why? ({why})]]: a proxy is between, the machine "
        "has ended, or what is handed over is too large.",
        "export no_proxy=ADDRESS of that machine for all ranks; return small values from the function, and write large ones to a file.",
        r"KVStore server failed\.?(?:[^\r\n]*?error\((?:\d+, )?'(?P<why>[^'\r\n]+)')?",
    ),
    Signature(
        "horovod-not-built",
        ("has not been built", "has not been compiled"),
        "This Horovod was built without {framework}.",
        "Build it again: HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_MPI=1 HOROVOD_GPU_OPERATIONS=NCCL pip install "
        "--no-cache-dir horovod; check: horovodrun --check-build.",
        r"Extension (?P<framework>horovod\.\w+) has not been built|(?P<framework2>Horovod \w+) has not been compiled",
    ),
    Signature(
        "horovod-not-initialized",
        ("Horovod has not been initialized",),
        "Horovod was used before hvd.init().",
        "Call hvd.init() first, before hvd.rank(), hvd.size() or the optimizer.",
    ),
    Signature(
        "horovod-shut-down",
        ("Horovod has been shut down. This was caused by an exception on one of the ranks",),
        "Horovod ended here because another rank failed or finished before.",
        "Look for the rank that failed first; this one is not the reason.",
        kind=FailureText.ECHO,
    ),
    Signature(
        "cuda-out-of-memory",
        (
            "CUDA out of memory",
            "CUDA error: out of memory",
            "Cuda failure 'out of memory'",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "OOM when allocating tensor",
        ),
        "A GPU of {host} ran out of memory.",
        "Smaller batches. See whether the GPU was free: nvidia-smi on {host}; a rank of an older job may hold memory, or "
        "all ranks of a host use GPU 0.",
        # TensorFlow warns when a part of the memory that it would like to have is not free, and continues.
        r"^(?!.*failed to allocate .* from device: |.*OOM when allocating tensor.*device:CPU)",
    ),
    Signature(
        "cuda-memory-asked",
        ("failed to allocate ",),
        "A GPU of {host} has less free memory than TensorFlow requested: most often a second rank, or an older job, is on it.",
        "nvidia-smi on {host} lists the processes that use memory. One rank per GPU (tf.config.set_visible_devices by hvd.local_rank()), and "
        "TF_FORCE_GPU_ALLOW_GROWTH=true.",
        r"failed to allocate [^\r\n]* from device: CUDA_ERROR_OUT_OF_MEMORY",
        at_end=r"failed to allocate |(?i:killed|terminat|abort)",  # TensorFlow may continue with less
    ),
    Signature(
        "cuda-library-start",
        ("CUDNN_STATUS_NOT_INITIALIZED", "CUBLAS_STATUS_NOT_INITIALIZED"),
        "{library} could not start on a GPU of {host}: most often the GPU's memory is full, else the driver is older than "
        "this {library} needs.",
        "nvidia-smi on {host}: is the GPU free? Then smaller batches (in TensorFlow: "
        "TF_FORCE_GPU_ALLOW_GROWTH=true), or an image or build for an older CUDA.",
        r"(?P<library>CUDNN|CUBLAS)_STATUS_NOT_INITIALIZED",
    ),
    Signature(
        "cuda-device-number",
        ("invalid device ordinal",),
        "A rank on {host} requested a GPU number that does not exist: more ranks than GPUs, or rank used for local rank.",
        "torch.cuda.set_device(local_rank); slots per host no more than nvidia-smi -L shows where the ranks run.",
        unless=("nccl-gpu-hidden", "nccl-tests-gpus"),
    ),
    Signature(
        "cuda-architecture",
        ("no kernel image is available for execution", "device kernel image is invalid"),
        "The program's CUDA code was not built for the GPUs of {host}.",
        "Use an image or build that was: python3 -c 'import torch; print(torch.cuda.get_arch_list())' against the GPU's compute "
        "capability.",
    ),
    Signature(
        "gpu-memory-fault",
        ("uncorrectable ECC error",),
        "A GPU of {host} has an uncorrectable memory error.",
        "Leave {host} out with --exclude {host}; nvidia-smi -q -d ECC,ROW_REMAPPER there, then reset the GPU or reboot.",
    ),
    Signature(
        "gpu-nvlink-fault",
        ("uncorrectable NVLink error",),
        "A GPU of {host} has an error of its NVLinks.",
        "Leave {host} out with --exclude {host}. There: nvidia-smi nvlink -e, and dmesg -T | grep Xid (74, 144 to 150); reset the GPUs, or "
        "reboot.",
    ),
    Signature(
        "cuda-forward-compatibility",
        ("forward compatibility was attempted on non supported HW",),
        "The image's CUDA is newer than the driver of {host}, and its GPU does not run one newer than its driver (CUDA's "
        "forward compatibility is for data center GPUs).",
        "Update the driver, or use an image for an older CUDA: nvidia-smi shows the newest CUDA that the driver can run.",
    ),
    Signature(
        "cuda-error",
        ("CUDA error: ", "CUDA driver error: ", "CUDA_ERROR_", "an illegal memory access was encountered"),
        "A CUDA call failed on {host}: {why}.",
        "Run it with -x CUDA_LAUNCH_BLOCKING=1 so that the trace shows where; dmesg -T | grep Xid on {host}.",
        r"CUDA (?:driver )?error: (?P<why>(?!out of memory|initialization error|CUBLAS_STATUS_ALLOC|CU\w+_NOT_INIT|invalid device ord|no kernel image|uncorrectable|system not|"
        r"CUDA driver version|all CUDA-capable devices are busy|CUDA-capable device\(s\) is|device kernel image is inv|the provided PTX was)[^\r\n]*\S)"
        r"|^(?!.*(?:cuInit|from device))[^\r\n]*?\b(?P<why2>CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_\w+|MISALIGNED_ADDRESS|INVALID_\w+|ASSERT|UNKNOWN"
        r"|HARDWARE_STACK_ERROR|ILLEGAL_INSTRUCTION|SYSTEM_DRIVER_MISMATCH|DEINITIALIZED)\b[^\r\n]*\S)"
        r"|^(?!.*(?:NCCL|UCX))[^\r\n]{0,80}(?P<why3>an illegal memory access was encountered)",
        unless=("cuda-assert",),
    ),
    Signature(
        "cuda-assert",
        (".cu:",),
        "The program's own numbers are wrong on {host}: in {file} it does not hold that {what}. Every CUDA error after it follows from "
        "it.",
        "Look at the data of that step: labels against the number of classes, indices against the size of an embedding, tokens against "
        "the vocabulary. One batch on the CPU names the line.",
        r"(?P<file>[\w.]+\.cu):\d+: [^\r\n]*?Assertion `(?P<what>[^`\r\n]+)` failed",
    ),
    Signature(
        "cuda-gpu-busy",
        ("all CUDA-capable devices are busy or unavailable", "CUDA-capable device(s) is/are busy or unavailable"),
        "A GPU of {host} accepts no further process: it is in exclusive compute mode and another process uses it, or it needs a reset.",
        "nvidia-smi on {host} shows the process that uses it, nvidia-smi -q -d COMPUTE its mode; nvidia-smi -c 0 allows several processes.",
    ),
    Signature(
        "cuda-start-failed",
        ("CUDA unknown error - this may be due to an incorrectly set up environment",),
        "CUDA does not start on {host}: most often the kernel module nvidia_uvm or /dev/nvidia-uvm is missing there.",
        "nvidia-modprobe -c 0 -u on {host}, and ls -l /dev/nvidia-uvm where the ranks run; after the machine slept: rmmod nvidia_uvm, "
        "modprobe nvidia_uvm.",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "no-gpu",
        (
            *(
                "No CUDA GPUs are available",
                "Found no NVIDIA driver on your system",
                "no CUDA-capable device is detected",
            ),
            *("ProcessGroupNCCL is only supported with GPUs, no GPUs", "no supported devices found for platform CUDA"),
        ),
        "A rank on {host} sees no GPU.",
        "nvidia-smi -L where the ranks run on {host} (a container needs docker run --gpus all), and "
        "CUDA_VISIBLE_DEVICES must not be empty.[[torch? If both are right, torch is built for CPUs: python3 -c 'import torch; "
        "print(torch.version.cuda)'.]]",
        # What torch only warns of, and TensorFlow's own, are said by programs that continue without a GPU.
        r"^(?!.*(?:CUDA initialization: |failed call to cuInit))(?=(?:.*(?P<torch>ProcessGroupNCCL is only))?)",
    ),
    Signature(
        "peer-gone",
        ("Connection reset by peer", "onnection closed by peer"),
        "A rank lost its connection to another one[[peer? at {peer}]].",
        "Look for the rank that ended first[[peer?, on the host of {peer}]]; this one is not the reason.",
        r"^(?!.*(?:_exchange_identification|ssh|[Rr]etry|KVStore)).*?(?:\[(?P<peer>(?!127\.|::1)[\da-fA-F.:]{3,45})\]:\d+: )?[Cc]onnection (?:reset|closed) by peer"
        r"(?: \[(?P<peer2>(?!127\.|::1)[\da-fA-F.:]{3,45})\])?",
        kind=FailureText.ECHO,
        unless=("nccl-peer-gone", "data-worker-gone"),
    ),
    Signature(
        "command-missing",
        ("taco-launch: cannot run ",),
        "On {host} no program is found under the name {what}[[hint?||, or the interpreter that its first line names does not exist]].",
        "[[hint?{hint}]][[file?Check where the ranks run: ls -l {file}. A relative name counts from the folder that the job "
        "starts in.]][[name?Check where the ranks run: command -v {name}. Give the full path, install it, or pass the PATH "
        "that has it: -x PATH.]]",
        r"cannot run (?P<what>'[^']*'|\"[^\"]*\"): No such file or directory \((?P<hint>[^\r\n]+)\)"
        r"|cannot run (?=(?:'[^'/]*'|\"[^\"/]*\"):)(?P<name>(?P<what2>[^\r\n]+)): No such file or directory"
        r"|cannot run (?P<file>(?P<what3>'[^']*'|\"[^\"]*\")): No such file or directory",
    ),
    Signature(
        "command-not-executable",
        ("taco-launch: cannot run ",),
        "On {host} the file {what} is not marked as executable, or its file system is mounted noexec.",
        "chmod +x {what}, or put its interpreter before it: python3 {what}.",
        r"cannot run (?P<what>'[^']*'|\"[^\"]*\"): Permission denied",
    ),
    Signature(
        "command-no-program",
        ("taco-launch: cannot run ",),
        "{what} is a script without a #! line, or a program for another kind of processor.",
        "Put its interpreter before it (bash {what}), or a #! line into it.",
        r"cannot run (?P<what>'[^']*'|\"[^\"]*\"): Exec format error",
    ),
    Signature(
        "windows-line-ends",
        (
            "\\r': No such file",
            "\\r\u2019: No such file",
            "^M: bad interpreter",
            "\\r: command not found",
            "\\r': command not found",
        ),
        "A script has Windows line ends, so its interpreter is not found.",
        "sed -i 's/\\r$//' SCRIPT",
    ),
    Signature(
        "command-not-found",
        (": command not found", ": not found", "sh: line "),
        "[[file?There is no {file} where a rank on {host} looks for it, or the interpreter that its first line names is not "
        "there||The program {what} is not on the PATH of a rank on {host}]].",
        "[[file?Check where the ranks run: ls -l {file}. A relative name counts from the folder that the job starts in||"
        "Install it (in a container: in the image), name it by its full path, or pass the PATH: -x PATH]].",
        r"\b(?:ba|da)?sh: (?:(?:line )?\d+: )?(?P<file>(?!\S*(?:orted|prted))[^\s:]*/[^\s:]+): (?:not found|No such file or directory)"
        r"|\b(?:ba|da)?sh: (?:line )?\d+: (?P<what>(?!-|\S*(?:orted|prted))\S*[^\s\r]): (?:command )?not found"
        r"|\b(?:ba|z)sh: (?P<what2>(?!-|\S*(?:orted|prted))\S+): command not found",
        kind=FailureText.OUTCOME,
        survived=True,
    ),
    Signature(
        "script-missing",
        ("can't open file '",),
        "Python finds no script {file} on {host}.",
        "Mount or copy it there, under the same path on every host (into containers by container.mounts of the "
        "inventory); a relative path counts from the folder the job starts in. If --sync copied it, name it instead by its path in the "
        "copied folder, or start in a folder of that: --workdir DIR.",
        r"can't open file '(?:/(?=/))?(?P<file>[^']+)'",  # from / python3 makes //x of a relative x
    ),
    Signature(
        "module-missing",
        ("ModuleNotFoundError: No module named",),
        "The Python of a rank on {host} has no module {module}.",
        "Install it in the image or environment that the ranks use: python3 -m pip install PACKAGE. If it is there for "
        "you, the ranks run another Python: name it by its full path.",
        r"No module named '?(?P<module>[^'\s]+)",
        survived=True,
    ),
    Signature(
        "library-missing",
        ("cannot open shared object file",),
        "The shared library {library} is not found on {host}.",
        "Hand on the path: -x LD_LIBRARY_PATH (sshd in a container drops the image's environment), or install it; check: "
        "ldconfig -p | grep {library}.",
        # NCCL and TensorFlow say so of libraries that they can do without.
        r"^(?!.*(?:NCCL INFO |dlerror|nvidia-container-cli)).*?(?<![\w.+-])(?P<library>(?=[\w.+-]{1,100}?\.so)[\w.+-]{1,120}): cannot open shared object file",
        survived=True,
    ),
    Signature(
        "nccl-other-build",
        ("undefined symbol: nccl", "undefined symbol: pnccl"),
        "The program on {host} finds another NCCL than it was built with: that has no {what}.",
        "See which libnccl is loaded: ldd on the library that the line names, echo $LD_LIBRARY_PATH, pip list | grep nccl. Have one "
        "only: the one of torch (nvidia-nccl-cu12 or the like) before any other of LD_LIBRARY_PATH.",
        r"undefined symbol: (?P<what>p?nccl\w+)",
        survived=True,
    ),
    Signature(
        "library-too-old",
        ("' not found (required by", "undefined symbol: "),
        "Libraries on {host} do not match: {what} is missing.",
        "The program was built against other versions. Build or install it where the ranks run (in a container: in the "
        "image).",
        r"version `(?P<what>[^']+)' not found|undefined symbol: (?P<what2>\S+)",
        unless=("nccl-other-build", "torch-other-build"),
        survived=True,
    ),
    Signature(
        "arguments-refused",
        (": error: unrecognized arguments:",),
        "The script does not know {what}.",
        "[[launch?The launcher adds that argument: torch.distributed.launch of torch 2 passes --local-rank, older ones --local_rank. Use torchrun, or taco-launch "
        "run, and read LOCAL_RANK from the environment||Correct the arguments after the script's name; options of taco-launch go before the --]].",
        r"error: unrecognized arguments: (?P<what>(?P<launch>--local[-_]rank=)?[^\r\n]*\S)",
    ),
    Signature(
        "input-asked",
        ("EOFError: EOF when reading a line",),
        "The program on {host} reads input, but the standard input of a rank is empty.",
        "Pass the input as an argument, a file or a variable (-x NAME=VALUE).",
    ),
    Signature(
        "python-exception",
        ("Traceback (most recent call last)", "Error): ray::"),
        "The program raised {error}[[file? (line {at} of {file})]][[code?: {code}]].",
        "Read the traceback that ends there: its last File line of your own is the place.",
        # The traceback's last place, with the line of the source and what underlines it, stands right above the error.
        r'(?m)(?:^  File "(?:[^"\r\n]*/)?(?P<file>[^"/<\r\n][^"/\r\n]*)", line (?P<at>\d+)[^\r\n]*\r?\n(?:^    (?:(?P<code>assert [^\r\n]{0,200}?[^\s,(\\])[\s,(\\]*|[^\r\n]*)\r?\n){0,2})?'
        r"^(?!\S*ChildFailedError|\S*RayTaskError\(\S*\): ray::|(?:subprocess\.)?CalledProcessError: Command |\S*SignalException: Process \d+ got signal)(?P<error>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Iteration)\b(?!.*(?:"
        r"Horovod has been shut down|onnection (?:reset|closed) by (?:remote )?peer|ncclRemoteError|"
        r"remote process exited|communicator was aborted|: Broken pipe$))(?:\([\w.]+\))?(?:: [^\r\n]*\S)?)",
        kind=FailureText.OUTCOME,
        lines=60,
        not_after="Exception ignored in",
        handled=True,
    ),
    Signature(
        "cuda-stub",
        ("CUDA driver is a stub library", "cudaErrorStubLibrary"),
        "The program on {host} has loaded the CUDA toolkit's stub instead of the driver's libcuda.so.",
        "Remove .../stubs from LD_LIBRARY_PATH; start a container with --gpus all. ldconfig -p | grep libcuda shows "
        "which is found.",
    ),
    Signature(
        "horovodrun-start",
        ("Timed out waiting for ",),
        "horovodrun's tasks on the other hosts did not answer in time: they share no network interface with it, a firewall is "
        "in between, or they start slowly.",
        "horovodrun --network-interface NAME --start-timeout 120 --verbose; all ports have to be open between the hosts. Under "
        "taco-launch no such tasks are needed.",
        r"Timed out waiting for [^\r\n]*[Pp]lease check connectivity between servers",
    ),
    Signature(
        "python-crashed",
        ("Fatal Python error: ",),
        "Python itself crashed in a rank on {host}: {why}.",
        "The stack below that line shows where. Most often the cause is a library that was built for another CUDA, NCCL, "
        "Python or CPU: compare versions with a host on which it works.",
        r"Fatal Python error: (?P<why>[^\r\n]*[^\s.])",
        kind=FailureText.OUTCOME,
        unless=("gloo-no-interface", "gloo-connect", "gloo-loopback"),
    ),
    Signature(
        "deepspeed-rank-killed",
        ("exits with return code = -9",),
        "DeepSpeed's launcher on {host} reports that a rank was killed (signal 9), most often because the host's memory was used up.",
        "dmesg -T | grep -i -E 'out of memory|oom' on {host}. Fewer data loader workers, less offloaded to the CPU "
        "(offload_optimizer, offload_param), or more memory.",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "deepspeed-rank-crashed",
        ("exits with return code = -",),
        "DeepSpeed's launcher on {host} reports that a rank [[bus?ended with a bus error (signal 7), most often because /dev/shm was "
        "full||crashed (signal {signal})]].",
        "[[bus?df -h /dev/shm where the ranks run. A container: docker run --shm-size=32g, or --ipc=host||Signal 11 is a segmentation fault, 6 an abort, whose reason is above, 4 a library built for "
        "another CPU. For a stack in Python: PYTHONFAULTHANDLER=1. A library built for another CUDA, NCCL or torch does this]].",
        r"exits with return code = -(?P<signal>(?!9\b)(?P<bus>7\b)?\d{0,2})\b",
        kind=FailureText.OUTCOME,
        unless=("torch-collective-timeout",),
    ),
)
