"""Failure messages of CUDA's runtime, driver and libraries, as the calling framework repeats them.

Source: CUDA Runtime API, "Data types used by CUDA Runtime" (cudaError_t); CUDA Driver API (CUresult).
"""

from taco_launch.core.signatures.known import FailureText, Qualifier, Signature

CUDA = (
    Signature(
        "cuda-out-of-memory",
        keys=(
            "CUDA out of memory",
            "CUDA error: out of memory",
            "Cuda failure 'out of memory'",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "CUDNN_STATUS_ALLOC_FAILED",
            "Triton Error [CUDA]: out of memory",
            "OOM when allocating tensor",
            "CUDA error 2: out of memory",
            "HIP out of memory",
            "HIP error: out of memory",
        ),
        cause="[[gpu?GPU {gpu}||A GPU]] of {host} ran out of memory.",
        next="Use smaller batches. Check whether the GPU was free: nvidia-smi on {host}; a rank of an older job may hold memory, or "
        "all ranks of a host use GPU 0.",
        # TensorFlow warns when a part of the memory that it would like to have is not free, and continues.
        pattern=r"^(?!.*failed to allocate .* from device: |.*OOM when allocating tensor.*device:CPU)(?:[^\r\n]*?\bGPU (?P<gpu>\d+) has a total )?",
    ),
    Signature(
        "cuda-memory-asked",
        keys=("failed to allocate ",),
        cause="A GPU of {host} has less free memory than TensorFlow requested: most often a second rank, or an older job, is on it.",
        next="nvidia-smi on {host} lists the processes that use memory. Use one rank per GPU (tf.config.set_visible_devices by hvd.local_rank()), and "
        "TF_FORCE_GPU_ALLOW_GROWTH=true.",
        pattern=r"failed to allocate [^\r\n]* from device: CUDA_ERROR_OUT_OF_MEMORY",
        at_end=r"failed to allocate |(?i:killed|terminat|abort)",  # TensorFlow may continue with less
    ),
    Signature(
        "cuda-library-start",
        keys=("CUDNN_STATUS_NOT_INITIALIZED", "CUBLAS_STATUS_NOT_INITIALIZED", "because cuDNN failed to initialize"),
        cause="{library} could not start on a GPU of {host}: most often the GPU's memory is full, otherwise the driver is older than "
        "this {library} needs.",
        next="Check with nvidia-smi on {host} that the GPU is free. Use smaller batches (in TensorFlow: "
        "TF_FORCE_GPU_ALLOW_GROWTH=true), or an image or build for an older CUDA.",
        pattern=r"(?P<library>CUDNN|CUBLAS)_STATUS_NOT_INITIALIZED|because (?P<library2>cuDNN) failed to initialize",
    ),
    Signature(
        "cuda-device-number",
        keys=("invalid device ordinal",),
        cause="A rank on {host} requested a GPU number that does not exist: there are more ranks than GPUs, or the program uses the rank instead of the local rank.",
        next="Call torch.cuda.set_device(local_rank). Give each host no more slots than GPUs that nvidia-smi -L shows where the ranks run.",
        unless=("nccl-gpu-hidden", "nccl-tests-gpus", "jax-gpu-hidden"),
    ),
    Signature(
        "jax-gpu-hidden",
        keys=("unable to create StreamExecutor for CUDA:",),
        cause="JAX on {host} cannot use GPU {gpu}: CUDA does not show that GPU to the process.",
        next="In Slurm, use --gpus-per-node with --ntasks-per-node, not --gpus-per-task, so that each process sees all GPUs of its host. Or name those that it sees: "
        "jax.distributed.initialize(local_device_ids=[0]).",
        pattern=r"unable to create StreamExecutor for CUDA:(?P<gpu>\d+)[^\r\n]*INVALID_DEVICE",
    ),
    Signature(
        "triton-kernel-invalid",
        keys=("Triton Error [CUDA]: device kernel image is invalid",),
        cause="What Triton compiled on {host} cannot be loaded by the GPU's driver: it comes from a cache of another version, or this Triton and the driver or GPU do not fit together.",
        next="Remove what is cached: rm -rf ~/.triton/cache /tmp/torchinductor_$USER. If it fails again, use the Triton that belongs to the installed torch, and a driver that is not older than its CUDA: nvidia-smi; python3 -c 'import torch; print(torch.version.cuda)'.",
    ),
    Signature(
        "triton-missing",
        keys=("Cannot find a working triton installation",),
        cause="torch.compile found no Triton that works on {host}.",
        next="python3 -c 'import triton' in that environment shows why: without a package, install the version that torch requires (pip install triton). To continue without it: -x TORCH_COMPILE_DISABLE=1.",
        survived=True,
    ),
    Signature(
        "triton-too-old",
        keys=("is not a recognized processor for this target",),
        cause="The Triton on {host} is older than its GPU: its compiler does not know {what}.",
        next="Use a newer torch with the Triton that belongs to it (sm_100 and sm_120 need torch 2.7 with CUDA 12.8). To continue without it: -x TORCH_COMPILE_DISABLE=1.",
        pattern=r"'(?P<what>(?:sm_|gfx)\w{1,10})' is not a recognized processor",
    ),
    Signature(
        "hsa-queue-aborted",
        keys=("aborting with error : HSA_STATUS_ERROR",),
        cause="An AMD GPU of {host} stopped, and its queue was ended: {why}.",
        next="[[space?Use smaller batches, because memory of the GPU or of its queues ran out, or fewer processes on each GPU (rocm-smi --showpids)||Run it with -x AMD_SERIALIZE_KERNEL=3 so that the trace names the operation, and look for amdgpu in dmesg -T. Check that the build has the GPU's gfx (rocminfo | grep gfx) and that HSA_OVERRIDE_GFX_VERSION, if set, names a close one]].",
        pattern=r"aborting with error : (?=(?P<space>HSA_STATUS_ERROR_OUT_OF_RESOURCES)?)(?P<why>HSA_STATUS_ERROR[^\r\n]{1,160}[^\s.])",
        unless=("hip-memory-fault",),
    ),
    Signature(
        "cuda-architecture",
        keys=("no kernel image is available for execution", "device kernel image is invalid"),
        cause="The program's CUDA code was not built for the GPUs of {host}.",
        next="Use an image or build that supports them. Compare python3 -c 'import torch; print(torch.cuda.get_arch_list())' with the GPU's compute "
        "capability.",
        unless=("hip-architecture", "triton-kernel-invalid"),
    ),
    Signature(
        "hip-architecture",
        keys=(
            "HIP error: invalid device function",
            "hipErrorNoBinaryForGpu",
            "hipErrorInvalidDeviceFunction",
            "HIP error: no kernel image",
        ),
        cause="The program's GPU code was not built for the AMD GPUs of {host}.",
        next="Compare rocminfo | grep gfx with python3 -c 'import torch; print(torch.cuda.get_arch_list())', and use an image or build that has that gfx (PYTORCH_ROCM_ARCH). For a close one of the same family: -x HSA_OVERRIDE_GFX_VERSION=10.3.0.",
    ),
    Signature(
        "hip-memory-fault",
        keys=("Memory access fault by GPU",),
        cause="A kernel on AMD GPU {gpu} of {host} used an address that is not its own: {why}.",
        next="Run it with -x AMD_SERIALIZE_KERNEL=3 -x HIP_LAUNCH_BLOCKING=1 so that the trace names the operation. If it recurs on the same GPU only, check that GPU: rocm-smi, dmesg -T | grep amdgpu.",
        pattern=r"Memory access fault by GPU \*{0,2}node-(?P<gpu>\d+)[^\r\n]{0,120}?Reason: (?P<why>[^\r\n]{1,120}[^\s.])",
    ),
    Signature(
        "cuda-misaligned",
        keys=("misaligned address", "CUDA_ERROR_MISALIGNED_ADDRESS"),
        cause="A kernel of the program read or wrote memory of a GPU of {host} at an address that is not a multiple of what it reads at once: an error of that kernel, or of how its data is laid out.",
        next="Run it with -x CUDA_LAUNCH_BLOCKING=1 so that the trace names the operation, and compute-sanitizer --tool memcheck PROGRAM for the place. If it is a library's (flash-attention, apex, a Triton kernel): use another version, or .contiguous() before it.",
        pattern=r"CUDA (?:driver )?error: misaligned address|CUDA_ERROR_MISALIGNED_ADDRESS|an? (?:CUDA )?misaligned address",
    ),
    Signature(
        "cuda-mps",
        keys=("MPS client failed to connect", "MPS server is not ready", "CUDA_ERROR_MPS_", "cudaErrorMps"),
        cause="A process on {host} could not reach the server of NVIDIA's MPS, through which it is to share a GPU[[why? ({why})]]: it does not run, runs as another user, or its folder is not visible.",
        next="Run nvidia-cuda-mps-control -d on {host}, and give the ranks (and their containers: --ipc=host, -v) the same CUDA_MPS_PIPE_DIRECTORY. To do without MPS: echo quit | nvidia-cuda-mps-control, and unset that variable.",
        pattern=r"MPS client failed to connect|(?P<why>MPS server is not ready[^\r\n]{0,80}[^\s.])|(?P<why2>CUDA_ERROR_MPS_\w+|cudaErrorMps\w+)",
    ),
    Signature(
        "gpu-memory-fault",
        keys=("uncorrectable ECC error",),
        cause="A GPU of {host} has an uncorrectable memory error.",
        next="Leave {host} out with --exclude {host}. Run nvidia-smi -q -d ECC,ROW_REMAPPER there, then reset the GPU or reboot.",
    ),
    Signature(
        "gpu-nvlink-fault",
        keys=("uncorrectable NVLink error",),
        cause="A GPU of {host} has an NVLink error.",
        next="Leave {host} out with --exclude {host}. There: nvidia-smi nvlink -e, and dmesg -T | grep Xid (74, 144 to 150); reset the GPUs, or "
        "reboot.",
    ),
    Signature(
        "cuda-forward-compatibility",
        keys=("forward compatibility was attempted on non supported HW",),
        cause="The image's CUDA is newer than the driver of {host}, and its GPU does not support that (CUDA's forward "
        "compatibility works only on data center GPUs).",
        next="Update the driver, or use an image for an older CUDA: nvidia-smi shows the newest CUDA that the driver can run.",
    ),
    Signature(
        "cuda-device-assert",
        keys=(
            *("device-side assert triggered", "CUDA_ERROR_ASSERT"),
            *(", in cross_entropy", ", in nll_loss", ", in embedding", ", in one_hot"),
            *(".gather(", ".scatter(", ".scatter_(", "index_select("),
        ),
        cause="A check in a CUDA kernel failed on {host}[[op?, in {op} or a step before it]]: an index or a label is out of range. It is not a fault of the GPU, and every later CUDA error of that "
        "rank is a consequence.",
        next="Check the data of that step: labels against the number of classes, indices against the size of an embedding, tokens against the vocabulary. To find the line, run one batch on the CPU, or with "
        "-x CUDA_LAUNCH_BLOCKING=1.",
        pattern=r"(?m)(?:(?:, in |\.)(?P<op>cross_entropy|nll_loss|embedding|one_hot|gather|scatter_?|index_select)\b[^\r\n]*\r?\n(?:  [^\r\n]*\r?\n){0,6})?"
        r"^[^\r\n]*?(?P<error>(?:\w+: CUDA error: )?device-side assert triggered|CUDA_ERROR_ASSERT)",
        lines=8,
        unless=("cuda-assert",),
    ),
    Signature(
        "cuda-error",
        keys=("CUDA error: ", "CUDA driver error: ", "CUDA_ERROR_", "an illegal memory access was encountered"),
        cause="A CUDA call failed on {host}: {why}.",
        next="Run it with -x CUDA_LAUNCH_BLOCKING=1 so that the trace shows where it failed, and check dmesg -T | grep Xid on {host}.",
        pattern=r"CUDA (?:driver )?error: (?P<why>(?!out of memory|initialization error|device-side assert|CUBLAS_STATUS_|CU\w+_NOT_INIT|invalid device ord|no kernel image|uncorrectable|system not|"
        r"CUDA driver version|all CUDA-capable devices are busy|CUDA-capable device\(s\) is|system has unsupported display|the launch timed out|device kernel image is inv|the provided PTX was|misaligned|driver shutting down|MPS )[^\r\n]*\S)"
        r"|^(?!.*(?:cuInit|from device))[^\r\n]*?\b(?P<why2>CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_\w+|INVALID_\w+|UNKNOWN"
        r"|HARDWARE_STACK_ERROR|ILLEGAL_INSTRUCTION|SYSTEM_DRIVER_MISMATCH|DEINITIALIZED)\b[^\r\n]*\S)"
        r"|^(?!.*(?:NCCL|UCX))[^\r\n]{0,80}(?P<why3>an illegal memory access was encountered)",
        unless=("cuda-assert", "jax-gpu-hidden"),
    ),
    Signature(
        "cuda-assert",
        keys=(".cu:",),
        cause="[[nan?What the program draws samples from holds inf, nan or a negative number on {host} ({file})||The program's own data is wrong on {host}: {file} checks that {what}, and this check failed]]. Every later CUDA error is a "
        "consequence.",
        next="[[nan?Use bfloat16 or float32 in place of float16, and check the weights and the input of that step.]][[unit?Keep the values between 0 and 1: apply a sigmoid, or use a loss with logits, and check for nan.]]"
        "[[index?Check the data of that step: labels against the number of classes, indices against the size of an embedding, tokens against "
        "the vocabulary.]] To find the line, run one batch on the CPU.",
        pattern=r"(?P<file>[\w.]+\.cu):\d+: [^\r\n]{0,400}?Assertion `(?=(?P<nan>probability tensor contains)|(?P<unit>input_val >= zero)|(?P<index>[^\r\n]))(?P<what>[^\r\n]{1,200}?)` failed",
    ),
    Signature(
        "cuda-gpu-busy",
        keys=("all CUDA-capable devices are busy or unavailable", "CUDA-capable device(s) is/are busy or unavailable"),
        cause="A GPU of {host} accepts no further process: it is in exclusive compute mode and another process uses it, or it needs a reset.",
        next="nvidia-smi on {host} shows the process that uses it, nvidia-smi -q -d COMPUTE its mode; nvidia-smi -c 0 allows several processes.",
    ),
    Signature(
        "cuda-start-failed",
        keys=("CUDA unknown error - this may be due to an incorrectly set up environment",),
        cause="CUDA does not start on {host}: most often the kernel module nvidia_uvm or /dev/nvidia-uvm is missing there.",
        next="nvidia-modprobe -c 0 -u on {host}, and ls -l /dev/nvidia-uvm where the ranks run; after the machine slept: rmmod nvidia_uvm, "
        "modprobe nvidia_uvm.",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "no-gpu",
        keys=(
            *(
                "No CUDA GPUs are available",
                "Found no NVIDIA driver on your system",
                "no CUDA-capable device is detected",
                "Current node has no GPU available",
            ),
            *("ProcessGroupNCCL is only supported with GPUs, no GPUs", "no supported devices found for platform CUDA"),
        ),
        cause="A rank on {host} sees no GPU.",
        next="Run nvidia-smi -L where the ranks run on {host} (a container needs docker run --gpus all), and set no empty CUDA_VISIBLE_DEVICES.[[torch? If both are "
        "right, torch was built without CUDA: python3 -c 'import torch; print(torch.version.cuda)'.]]",
        # What torch only warns of, and TensorFlow's own, are said by programs that continue without a GPU.
        pattern=r"^(?!.*(?:CUDA initialization: |failed call to cuInit))(?=(?:.*(?P<torch>ProcessGroupNCCL is only))?)",
    ),
    Signature(
        "cuda-stub",
        keys=("CUDA driver is a stub library", "cudaErrorStubLibrary"),
        cause="The program on {host} has loaded the CUDA toolkit's stub instead of the driver's libcuda.so.",
        next="Remove .../stubs from LD_LIBRARY_PATH; start a container with --gpus all. ldconfig -p | grep libcuda shows "
        "which is found.",
    ),
    Signature(
        "cuda-launch-timeout",
        keys=("the launch timed out and was terminated",),
        cause="The driver of {host} ended a kernel that ran for too long on a GPU: the GPU also drives a display, whose driver allows a few seconds, or the kernel hung.",
        next="nvidia-smi -q -d PIDS on {host}: if it shows Xorg or gnome-shell, stop them (systemctl isolate multi-user.target) or use another GPU. If the GPU has no "
        "display, -x NCCL_P2P_DISABLE=1 shows whether the kernel waited for another GPU.",
    ),
    Signature(
        "cuda-toolkit-other",
        keys=("does not match the version torch was compiled with",),
        cause="The CUDA toolkit of {host} is {have}, and torch was built with {built}: C++ and CUDA extensions cannot be compiled with it.",
        next="Install the toolkit of torch's version and set CUDA_HOME to it, or install a torch built for CUDA {have}. DeepSpeed: if only the minor version differs, DS_SKIP_CUDA_CHECK=1 skips this check.",
        pattern=r"Installed CUDA version (?P<have>[\d.]*\d) does not match the version torch was compiled with (?P<built>[\d.]*\d)",
    ),
    Signature(
        "cuda-home-missing",
        keys=("CUDA_HOME does not exist", "CUDA_HOME environment variable is not set"),
        cause="A CUDA extension must be compiled on {host}, but the CUDA toolkit (nvcc) is missing, or CUDA_HOME does not point to it.",
        next="Install the toolkit in the version of torch.version.cuda, or use an image with it (nvidia/cuda:...-devel); export CUDA_HOME=/usr/local/cuda. To install DeepSpeed without building: DS_BUILD_OPS=0, or a wheel.",
    ),
)
# The whole state of a model does not fit where a part of it does.
OF_GPU_MEMORY = (
    Qualifier(
        r"^[^\n]*(?:Failed to clone\(\) tensor with name _fsdp|\bin (?:\w*_post_state_dict_hook|(?:get_)?(?:full_|model_)?state_dict|_zero3_consolidated_16bit_state_dict|save_(?:checkpoint|model|state|fsdp_model))$)",
        "[[gpu?GPU {gpu}||A GPU]] of {host} ran out of memory while the state of the model was gathered to save it: the whole of it does not fit beside a rank's part.",
        "For FSDP, use FullStateDictConfig(offload_to_cpu=True, rank0_only=True), or SHARDED_STATE_DICT (accelerate: fsdp_state_dict_type). For ZeRO-3, set stage3_gather_16bit_weights_on_model_save to false and create the weights later by zero_to_fp32.py.",
    ),
)
