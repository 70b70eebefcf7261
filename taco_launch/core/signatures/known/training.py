"""Failure messages of Horovod, TensorFlow, JAX and Python in the ranks.

Sources: Horovod 0.28 (stall_inspector.cc, controller.cc, operations.cc); tensorflow/python/eager/context.py, core/common_runtime/
base_collective_executor.cc and collective_param_resolver_local.cc, core/distributed_runtime/master.cc; xla/tsl/distributed_runtime/
coordination; jax/_src/distributed.py.
"""

from taco_launch.core.signatures.known import FailureText, Qualifier, Signature

# Modules whose package has another name on PyPI; apex of PyPI is another project.
_PACKAGES = (
    *(("cv2", "opencv-python"), ("PIL", "pillow"), ("sklearn", "scikit-learn"), ("skimage", "scikit-image")),
    *(("yaml", "pyyaml"), ("bs4", "beautifulsoup4"), ("dateutil", "python-dateutil"), ("dotenv", "python-dotenv")),
    *(("attr", "attrs"), ("pkg_resources", "setuptools"), ("distutils", "setuptools")),
    *(("pynvml", "nvidia-ml-py"), ("hydra", "hydra-core"), ("google", "protobuf"), ("faiss", "faiss-cpu")),
    ("apex", "git+https://github.com/NVIDIA/apex"),
)

# A traceback's places: those in libraries are not the program's own. All lines of one are indented, or another rank's.
_LIBRARY = r'(?:[^"\r\n]*/)?(?:site-packages|dist-packages|lib(?:64)?/python3[\d.]*)/'
_NOT_OWN = rf'(?:{_LIBRARY}|<|[^"\r\n]*\.pyx")'
_OWN = rf'(?!{_NOT_OWN})(?:[^"\r\n]*/)?(?P<file>[^"/\r\n]+)", line (?P<at>\d+)[^\r\n]*\r?\n'
_ABOVE = rf'(?:(?!  File "(?!{_NOT_OWN}))(?: [^\r\n]*)?\r?\n){{0,58}}?'
_IN = rf'(?:^  File "(?={_NOT_OWN})(?:{_LIBRARY})?(?P<inner>[^"<\r\n][^"\r\n]*)", line (?P<inner_at>\d+)[^\r\n]*\r?\n)?'
_LAST = r'(?:[^"\r\n]*/)?(?P<file2>[^"/<\r\n][^"/\r\n]*)", line (?P<at2>\d+)[^\r\n]*\r?\n'
_CODE = r"(?:^    (?:(?P<code{}>assert [^\r\n]{{0,200}}?[^\s,(\\])[\s,(\\]*|[^\r\n]*)\r?\n){{0,2}}"

# xla/tsl/distributed_runtime/coordination/coordination_service_agent.cc, and what Python raises at its exit
_JAX_END = "JAX waited at its end (jax.distributed.shutdown) for processes that did not get there in time: one works on, or has ended without it."
_JAX_END_NEXT = (
    "See which process is still at work or failed, in the logs of all of them, process 0 first. If some have longer work at the end, let all wait for each other "
    "(multihost_utils.sync_global_devices) before they leave."
)

TRAINING = (
    Signature(
        "horovod-stall-shutdown",
        keys=('marked by "!") is stalled for longer than',),
        cause="Ranks waited for others until Horovod gave up: the ranks marked by ! in the lines before did not arrive.",
        next="See where those ranks are: their logs, or, while they hang, taco-launch stacks JOB (py-spy dump --pid PID). Every rank has to do the same steps.",
    ),
    Signature(
        "horovod-stalled",
        keys=("submitted to be reduced, gathered or broadcasted by subset of ranks",),
        cause="[[rank?Rank {rank} has not reached the collective {tensor}, in which others wait; the log's next lines name "
        "all that are missing]][[ready?Of all ranks only {ready} "
        "reached the collective {tensor}, and wait for the others]]"
        "[[tensor?||Some ranks have not reached a collective in which the others wait]].",
        next="See what the rank that is missing does[[ready? (one that is not in that list)]]: its log, or, while it hangs, taco-launch stacks JOB (py-spy dump --pid PID). "
        "A rank that has failed, waits for data or does other steps than the rest holds them all up.",
        pattern=r"by subset of ranks(?:[\s\S]{0,500}?(?:(?:Missing|Stalled) ranks:\s+(?P<rank>\d+)!?: \[(?P<tensor>[^\],\s]+)"
        r"|Stalled ops:\s*(?P<tensor2>\S+) \[(?:missing ranks: (?P<rank2>\d+)|ready ranks: (?P<ready>\d+(?:, \d+)*))))?",
        kind=FailureText.ECHO,
        lines=6,  # one log service adds an empty line to each
        # The warning is the log's end, or what a kill or a time limit leaves comes after it. Up to 0.16 each line of it
        # had the tensor first.
        at_end=r"^\d+!?: \[|^(?:Missing|Stalled) ranks:|subset of ranks|\[(?:missing|ready) ranks: "
        r"|(?i:killed|terminat|cancel|interrupt|signal|\^C)",
    ),
    Signature(
        "horovod-stalled-list",
        keys=(" [ready ranks: ", " [missing ranks: "),
        cause="Ranks of Horovod wait for others in the collective {tensor}: [[rank?rank {rank} has not arrived]][[ready?only the ranks {ready} "
        "have arrived]].",
        next="See what the others do: their logs, or, while they hang, taco-launch stacks JOB (py-spy dump --pid PID). A rank that has failed, waits for data or does other steps "
        "than the rest holds them all up.",
        pattern=r"(?:\bops:)?(?P<tensor>(?!ops:)\S+) \[(?:missing ranks: (?P<rank>\d+(?:, \d+)*)|ready ranks: (?P<ready>\d+(?:, \d+)*))\]",
        kind=FailureText.NOTE,  # the list alone may be of a stall that passed
        unless=("horovod-stalled", "horovod-stall-shutdown"),
    ),
    Signature(
        "gloo-rank-missing",
        keys=("Wait timeout for key(s)", " seconds for key(s): "),
        cause="Rank [[rank?{rank}||another]] never reached the rendezvous of Horovod's Gloo (its HTTP store).",
        next="See whether that rank has started: its log, and its host; every host has to reach the one that horovodrun runs on. If ranks start late: "
        "HOROVOD_GLOO_TIMEOUT_SECONDS=300.",
        pattern=r"http_store\.cc:\d+\] Wait timeout (?:after \d+ seconds )?for key\(s\): *(?P<rank>\d+)?",
    ),
    Signature(
        "horovod-mismatch",
        keys=(": One rank ",),
        cause="The ranks do not match: mismatched {what} in one collective.",
        next="See that all ranks have the same model, data types and batch shapes (drop_last=True for the last batch).",
        pattern=r"Mismatched (?P<what>[A-Za-z /]+?): One rank",
        unless=("horovod-device-mismatch",),
    ),
    Signature(
        "horovod-device-mismatch",
        keys=("device selection: One rank",),
        cause="One rank gives Horovod GPU memory, and another gives it CPU memory: on one host the program sees no GPU, "
        "or its Horovod or framework was built without GPU support.",
        next="Check nvidia-smi -L and horovodrun --check-build on every host, where the ranks run. Use the same image and the same device code on all hosts.",
        pattern=r"Mismatched [A-Za-z ]*CPU/GPU device selection: One rank",
    ),
    Signature(
        "horovod-run-store",
        keys=("data input KVStore server failed", "data from KVStore server failed"),
        cause="A process of horovod.run could not reach the store of the machine that called it[[why? ({why})]]: a proxy "
        "is in between, the calling program has ended, or the data for the store is too large.",
        next="export no_proxy=ADDRESS of that machine for all ranks; return small values from the function, and write large ones to a file.",
        pattern=r"KVStore server failed\.?(?:[^\r\n]*?error\((?:\d+, )?'(?P<why>[^'\r\n]+)')?",
    ),
    Signature(
        "horovod-not-built",
        keys=("has not been built", "has not been compiled"),
        cause="This Horovod was built without {framework}.",
        next="Build it again where {framework} can be imported: [[mxnet?HOROVOD_WITH_MXNET=1 ]][[tensorflow?HOROVOD_WITH_TENSORFLOW=1 ]][[torch?HOROVOD_WITH_PYTORCH=1 ]]HOROVOD_WITH_MPI=1 pip install --no-cache-dir --force-reinstall horovod, with "
        "HOROVOD_GPU_OPERATIONS=NCCL where CUDA is installed. horovodrun --check-build shows what it has.",
        pattern=r"Extension (?=horovod\.(?:(?P<torch>torch)|(?P<tensorflow>tensorflow)|(?P<mxnet>mxnet))?)(?:horovod\.(?P<framework>\w+)) has not been built"
        r"|Horovod (?=(?P<torch2>[Pp]y[Tt]orch)?)(?=(?P<tensorflow2>[Tt]ensor[Ff]low)?)(?=(?P<mxnet2>MXNet)?)(?P<framework2>\w+) has not been compiled",
    ),
    Signature(
        "horovod-not-initialized",
        keys=("Horovod has not been initialized",),
        cause="Horovod was used before hvd.init().",
        next="Call hvd.init() first, before hvd.rank(), hvd.size() or the optimizer.",
        unless=("cuda-out-of-memory",),
    ),
    Signature(
        "horovod-shut-down",
        keys=("Horovod has been shut down. This ",),
        cause="Horovod ended here because another rank failed or finished before.",
        next="Look for the rank that failed first; this one is not the reason.",
        kind=FailureText.ECHO,
    ),
    Signature(
        "peer-gone",
        keys=("Connection reset by peer", "onnection closed by peer"),
        cause="A rank lost its connection to another one[[peer? at {peer}]].",
        next="Look for the rank that ended first[[peer?, on the host of {peer}]]; the rank in this message is not the cause.",
        pattern=r"^(?!.*(?:_exchange_identification|ssh|[Rr]etry|KVStore)).*?(?:\[(?P<peer>(?!127\.|::1)[\da-fA-F.:]{3,45})\]:\d+: )?[Cc]onnection (?:reset|closed) by peer"
        r"(?: \[(?P<peer2>(?!127\.|::1)[\da-fA-F.:]{3,45})\])?",
        kind=FailureText.ECHO,
        unless=("nccl-peer-gone", "data-worker-gone"),
    ),
    Signature(
        "command-missing",
        keys=("taco-launch: cannot run ",),
        cause="On {host} no program is found under the name {what}[[hint?||, or the interpreter that its first line names does not exist]].",
        next="[[hint?{hint}]][[file?Check where the ranks run: ls -l {file}. A relative path starts from the folder in "
        "which the job starts.]][[name?Check where the ranks run: command -v {name}. Give the full path, install it, or pass the PATH "
        "that has it: -x PATH.]]",
        pattern=r"cannot run (?P<what>'[^']*'|\"[^\"]*\"): No such file or directory \((?P<hint>[^\r\n]+)\)"
        r"|cannot run (?=(?:'[^'/]*'|\"[^\"/]*\"):)(?P<name>(?P<what2>[^\r\n]+)): No such file or directory"
        r"|cannot run (?P<file>(?P<what3>'[^']*'|\"[^\"]*\")): No such file or directory",
        unless=("command-no-interpreter",),
    ),
    Signature(
        "command-no-interpreter",
        keys=("taco-launch: cannot run ",),
        cause="On {host} the script {what} cannot start: its first line names the interpreter {interpreter}, which does not exist there.",
        next="[[windows?Remove the Windows line ends, the \\r: sed -i 's/\\r$//' {what}||Correct the first line of {what}, or put the right one before it, such as python3 {what} or bash {what}]].",
        pattern=r"cannot run (?P<what>'[^']*'): No such file or directory \(its first line names (?P<interpreter>'[^'\r\n]*?(?P<windows>\\r)?')\)",
    ),
    Signature(
        "command-not-executable",
        keys=("taco-launch: cannot run ",),
        cause="On {host} the file {what} is not marked as executable, or its file system is mounted noexec.",
        next="chmod +x {what}[[python?, or put its interpreter before it: python3 {what}]][[shell?, or put its interpreter before it: bash {what}]].",
        pattern=r"cannot run (?P<what>'[^']*?(?:(?P<python>\.py)|(?P<shell>\.sh))?'|\"[^\"]*\"): Permission denied",
    ),
    Signature(
        "command-no-program",
        keys=("taco-launch: cannot run ",),
        cause="{what} is a script without a #! line, or a program for another kind of processor.",
        next="Put its interpreter before it (bash {what}), or a #! line into it.",
        pattern=r"cannot run (?P<what>'[^']*'|\"[^\"]*\"): Exec format error",
    ),
    Signature(
        "horovod-without-gloo",
        keys=("was built without Gloo, which its elastic jobs require",),
        cause="The Horovod of {python} on {host} was built without Gloo, which its elastic jobs require.",
        next="Build Horovod again for that Python, where the ranks run, with HOROVOD_WITH_GLOO=1; or start the job without "
        "--elastic: --launcher mpirun.",
        pattern=r"the Horovod of (?P<python>\S{1,300}) was built without Gloo",
    ),
    Signature(
        "elastic-without-horovod",
        keys=("an elastic Horovod job requires it there",),
        cause="{python} on {host} does not import Horovod: {why}.",
        next="Install Horovod, built with Gloo, for that Python, where the ranks run; or name the Python that has it by its full path.",
        pattern=r"(?P<python>\S{1,300}) does not import Horovod \((?P<why>[^\r\n]{1,300}?)\): an elastic Horovod job",
    ),
    Signature(
        "windows-line-ends",
        keys=(
            "\\r': No such file",
            "\\r\u2019: No such file",
            "^M: bad interpreter",
            "\\r: command not found",
            "\\r': command not found",
        ),
        cause="A script has Windows line ends, so its interpreter is not found.",
        next="sed -i 's/\\r$//' SCRIPT",
    ),
    Signature(
        "command-not-found",
        keys=(
            *(
                ": command not found",
                ": not found",
                "sh: line ",
                "sh: /",
                ": Command not found.",
                "command not found: ",
            ),
            *(
                "bad interpreter: No such file",
                "slurm_script: line ",
                "env: '",
                "env: \u2018",
                "env: `",
                "env: python",
                "failed to run command ",
                "failed to execute ",
            ),
        ),
        cause="[[file?There is no {file} where a rank on {host} looks for it, or the interpreter that its first line names is not "
        "there||The program {what} is not on the PATH of a rank on {host}]].",
        next="[[file?Check where the ranks run: ls -l {file}. A relative path starts from the folder in which the job starts||"
        "Install it (in a container: in the image), name it by its full path, or pass the PATH: -x PATH]].",
        pattern=r"(?:^(?P<host3>[A-Za-z\d][\w.-]*): )?\b(?:ba|da)?sh: (?:(?:line )?\d+: )?(?P<file>(?!\S*(?:orted|prted))(?=[^\s:/]*/)[^\s:]+): (?:not found|No such file or directory)"
        r"|\b(?:ba|da)?sh: (?:line )?\d+: (?P<what>(?!-|\S*(?:orted|prted))\S*[^\s\r]): (?:command )?not found"
        r"|^(?:(?P<host>[A-Za-z\d][\w.-]*): )?-?(?:ba|z|k)sh: (?P<what2>(?!-|\S*(?:orted|prted))\S+): command not found"
        r"|\b(?:ba|z)sh: (?P<what3>(?!-|\S*(?:orted|prted))\S+): command not found"
        # zsh, scripts of bash, exec in them, csh, and programs that start another
        r"|\bzsh:(?:\d+:)? command not found: (?P<what4>(?!\S*(?:orted|prted))\S+)"
        r"|^(?:(?P<host2>[A-Za-z\d][\w.-]*): )?[\w./~+-]+: line \d+: (?P<what5>(?!-|\S*(?:orted|prted))[\w./+-]*\w): command not found"
        r"|sh: (?:(?:line )?\d+: )?exec: (?P<what6>[\w./+-]+): not found"
        r"|^(?:[A-Za-z][\w.-]*: )?(?P<what7>[\w./+-]+): Command not found\."
        r"|^(?:/usr/bin/)?env: [\u2018'`\"]?(?P<what8>[\w./+-]+)[\u2019'\"]?: No such file or directory"
        r"|^(?:nohup|nice|timeout|stdbuf|setsid|taskset|chrt|ionice): failed to (?:run command|execute) [\u2018'`\"]?(?P<what9>[\w./+-]+)[\u2019'\"]?: No such file"
        r"|^(?:[A-Za-z\d][\w.-]*: )?[\w./~+-]*(?:\.sh|slurm_script): line \d+: (?P<file2>(?=[^\s:/]*/|[^\s:]*activate:)[^\s:]+): No such file or directory"
        r"|(?<![^\s:])(?P<file3>(?=[^\s:/]*/)[^\s:]+): \S+: bad interpreter: No such file"
        r"|^sudo: (?P<what10>[\w./+-]+): command not found",
        kind=FailureText.OUTCOME,
        unless=("pod-no-kubectl",),
        survived=True,
    ),
    Signature(
        "conda-not-active",
        keys=(
            *("to use 'conda", "to use 'mamba", "to use 'micromamba", "Run 'conda init'", "conda: error: "),
            *("'mamba' is running as a subprocess", "conda environment: "),
        ),
        cause="[[missing?conda knows no environment {missing} on {host}||A shell on {host} cannot activate an environment of conda: it is no interactive shell, so it has not read what conda init wrote]]. "
        "What follows ran with another Python.",
        next="[[missing?conda env list shows the environments there; another user or another installation of conda has its own. Name it by its path: conda activate /PATH/TO/envs/NAME||"
        'In the script, before conda activate: source /PATH/TO/conda/etc/profile.d/conda.sh (or eval "$(conda shell.bash hook)"); or use the environment\'s Python by its full path, or conda run -n NAME PROGRAM]].',
        pattern=r"shell has not been properly (?:configured|initialized) to use '(?:conda|mamba|micromamba)|conda: error: [^\r\n]{0,40}invalid choice: '(?:de)?activate'|Run 'conda init' before 'conda (?:de)?activate'|'mamba' is running as a subprocess and can't modify"
        r"|EnvironmentNameNotFound: Could not find conda environment: (?P<missing>\S+)|EnvironmentLocationNotFound: Not a conda environment: (?P<missing2>\S+)|Could not find conda environment: (?P<missing3>\S+)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "module-not-loaded",
        keys=(
            *("modulefile for '", "module(s) are unknown", "module(s) or extension(s) exist but cannot be loaded"),
            *("Lmod has detected the following error", "cannot be loaded due to a conflict"),
        ),
        cause="The environment module[[what? {what}]] cannot be loaded on {host}: [[needs?others have to be loaded before it]][[conflict?another one that is loaded excludes it]][[absent?no module of that name is on its path (MODULEPATH)]].",
        next="[[needs?Run module spider {what}, which lists what has to be loaded first]][[conflict?Run module purge first, and load only what the program needs; the line below names what excludes it]][[absent?Run module avail (Lmod: module spider NAME) on that host, which shows names and versions. Compute nodes may have other modules than the login node: load it inside the job, after module use FOLDER for your own]].",
        pattern=r"(?P<absent>Unable to locate) a modulefile for [`'\"](?P<what>[^`'\"\r\n]+)['\"]|(?P<absent2>following) module\(s\) are unknown:\s+\"?(?P<what2>[^\s\"]+)|(?P<needs>module\(s\) or extension\(s\) exist but cannot be loaded as requested):\s+\"?(?P<what3>[^\s\",]+)"
        r"|Lmod has detected the following error:\s+Cannot load module[\s\"']+(?P<what4>[\w./+-]+)[\"']?\s+(?P<needs2>without\s+these\s+module)"
        r"|(?P<conflict>Module cannot be loaded due to a conflict)",
        kind=FailureText.FALLBACK,
        lines=4,
    ),
    Signature(
        "modules-missing",
        keys=("libexec/lmod: ", "modulecmd", "MODULEPATH is undefined"),
        cause="[[program?Environment modules cannot be loaded on {host}: their program {program} is not there||A shell on {host} has environment modules, but no path to them (MODULEPATH is not set): it is no login shell]].",
        next="[[program?Install it on that node as on the login node, or run ls -l {program} there: a shared folder may not be mounted||Start the script as a login shell (#!/bin/bash -l), or set it: module use /PATH/TO/modulefiles]].",
        pattern=r"(?P<program>\S*/(?:lmod/libexec/lmod|modulecmd[\w.]*)): (?:No such file|not found|command not found)|MODULEPATH is undefined",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "command-denied",
        keys=("Permission denied",),
        cause="A shell on {host} may not run {file}: it is not marked as executable, its file system is mounted noexec, or the user may not read it.",
        next="Check ls -l {file} and findmnt -T {file} on that host; chmod +x {file}, or put its interpreter before it: bash {file}.",
        pattern=r"^(?:(?P<host>[A-Za-z\d][\w.-]*): )?(?:/bin/|/usr/bin/)?-?(?:ba|da|z)?sh: (?:(?:line )?\d+: )?(?P<file>[^\s:]*/[^\s:]+): Permission denied|^[\w./~+-]*(?:\.sh|slurm_script): line \d+: (?P<file2>[^\s:]*/[^\s:]+): Permission denied",
        kind=FailureText.OUTCOME,
        survived=True,
    ),
    Signature(
        "script-missing",
        keys=("can't open file '",),
        cause="Python finds no script {file} on {host}.",
        next="Mount or copy it there, under the same path on every host (into containers by container.mounts of the "
        "inventory); a relative path starts from the folder in which the job starts. If --sync copied it, use its "
        "path in the copied folder instead, or start the job in a folder inside the copied one: --workdir DIR.",
        pattern=r"can't open file '(?:/(?=/))?(?P<file>[^']+)'",  # from / python3 makes //x of a relative x
    ),
    Signature(
        "module-missing",
        keys=("ModuleNotFoundError: No module named",),
        cause="The Python of a rank on {host} has no module {module}.",
        next="Install it where the ranks run: python3 -m pip install {package}, or into an image: taco-launch image build --from IMAGE --requirements FILE --tag NAME:TAG. "
        "If it is your own file, name the folder that contains it: -x PYTHONPATH=DIR (--sync DIR copies it to other hosts); if your own Python finds it, name that Python by its full path.",
        pattern=r"No module named '?(?P<module>(?P<package>[^'\s.;]+))(?![^'\s;])",
        packages=_PACKAGES,
        survived=True,
    ),
    Signature(
        "module-part-missing",
        keys=("ModuleNotFoundError: No module named",),
        # Lib/importlib/_bootstrap.py: the parent was imported, else the error would name that
        cause="The Python of a rank on {host} has {package}, but no {module} in it: another version is installed, or a file of that name hides it.",
        next="[[megatron?Put a checkout of Megatron-LM on the path: -x PYTHONPATH=/path/Megatron-LM (pip's megatron-core has megatron.core only)||"
        "Show which one is imported: python3 -c 'import {package}; print({package})'. Install the version that has {module}, or rename your own file]].",
        pattern=r"No module named '?(?=(?P<megatron>megatron\.(?!core\b)))?(?P<module>(?P<package>[^'\s.;]+)\.[^'\s;]+)",
        survived=True,
    ),
    Signature(
        "library-missing",
        keys=("cannot open shared object file",),
        cause="The shared library {library} is not found on {host}.",
        next="Pass the path to the ranks: -x LD_LIBRARY_PATH (sshd in a container drops the image's environment), or install it; check: "
        "ldconfig -p | grep {library}.",
        # NCCL and TensorFlow say so of libraries that they can do without.
        unless=("horovod-other-build",),
        pattern=r"^(?!.*(?:NCCL INFO |dlerror|nvidia-container-cli|Unable to initialize backend|/(?:torch_extensions|\.triton|torchinductor_\w+)/)).*?(?<![\w.+-])(?P<library>(?=[\w.+-]{1,100}?\.so)[\w.+-]{1,120}): cannot open shared object file",
        survived=True,
    ),
    Signature(
        "nccl-other-build",
        keys=("undefined symbol: nccl", "undefined symbol: pnccl"),
        cause="The program on {host} finds another NCCL than it was built with: that has no {what}.",
        next="See which libnccl is loaded: ldd on the library that the line names, echo $LD_LIBRARY_PATH, pip list | grep nccl. "
        "Use only one: torch's own (nvidia-nccl-cu12 or the like) must come before any other in LD_LIBRARY_PATH.",
        pattern=r"undefined symbol: (?P<what>p?nccl\w+)",
        survived=True,
    ),
    Signature(
        "cudnn-mixed",
        keys=(
            "Could not load library libcudnn",
            "undefined symbol: cudnn",
            "SUBLIBRARY_VERSION_MISMATCH",
            "Loaded runtime CuDNN library",
            "Could not load symbol cudnn",
        ),
        cause="Two versions of cuDNN are mixed on {host}[[library?: {library} does not fit]][[other? {other}]].",
        next="Show which are there: find / -name 'libcudnn*.so*' 2>/dev/null; pip list | grep -i cudnn; echo $LD_LIBRARY_PATH. Use only one: remove the folder of the other from LD_LIBRARY_PATH (module unload cudnn), so that the program's own comes first.",
        pattern=r"Could not load library (?P<library>libcudnn[\w.]+)\. Error: [^\r\n]*?(?:undefined symbol: [^\s,]+(?:, version (?P<other>libcudnn[\w.]+))?|version `[^']+' not found)|undefined symbol: cudnn\w+|SUBLIBRARY_VERSION_MISMATCH"
        r"|Loaded runtime CuDNN library: (?P<library2>[\d.]*\d) but source was compiled with: (?P<other2>[\d.]*\d)|Could not load symbol cudnn\w+",
    ),
    Signature(
        "library-too-old",
        keys=("' not found (required by", "undefined symbol: "),
        cause="Libraries on {host} do not match: {what} is missing.",
        next="Build or install it where the ranks run (in a container: in the image): it was built against other versions.",
        pattern=r"version `(?P<what>[^']+)' not found|undefined symbol: (?P<what2>[^\s,]+)",
        unless=(
            *("nccl-other-build", "torch-other-build", "tensorflow-other-build", "horovod-other-build"),
            *("mpi-other-build", "libstdcxx-too-old", "cudnn-mixed"),
        ),
        survived=True,
    ),
    Signature(
        "mpi-other-build",
        keys=("undefined symbol: ",),
        cause="Two installations of MPI are mixed on {host}: {library} does not find {what}, which another library of its own installation has.",
        next="Use one: which -a mpirun, ldd on that library and echo $LD_LIBRARY_PATH show them. Remove one of them, or its folder from the path, and build what uses MPI (horovod, mpi4py) again with the other's mpicc.",
        pattern=r"(?<![^\s:])(?P<library>[^\s:]*lib(?:mpi|open-rte|open-pal|oshmem)[\w.-]*): undefined symbol: (?P<what>\S+)"
        r"|(?<![^\s:])(?P<library2>[^\s:]+): undefined symbol: (?P<what2>(?:ompi|opal|orte|mca|prte)_\w+)",
        survived=True,
    ),
    Signature(
        "arguments-refused",
        keys=(": error: unrecognized arguments:",),
        cause="The script does not know {what}.",
        next="[[launch?Use torchrun, or taco-launch run, and read LOCAL_RANK from the environment: the launcher adds that argument, --local-rank with torch 2, "
        "--local_rank with older ones||Correct the arguments after the script's name; options of taco-launch go before the --]].",
        pattern=r"error: unrecognized arguments: (?P<what>(?P<launch>--local[-_]rank=)?[^\r\n]*\S)",
    ),
    Signature(
        "input-asked",
        keys=("EOFError: EOF when reading a line",),
        cause="The program on {host} reads input, but the standard input of a rank is empty.",
        next="Pass the input as an argument, a file or a variable (-x NAME=VALUE).",
    ),
    Signature(
        "lock-file-gone",
        keys=(".lock'",),
        cause="A rank on {host} uses a lock file ({file}) that another process removed, or whose folder does not exist.",
        next="If several ranks or jobs share that folder, let one of them fill it before the others start, or give each its own: os.environ['LOCAL_RANK'] in its path. Otherwise create the folder on every host.",
        pattern=r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<file>[^'\r\n]{1,300}\.lock)'",
        survived=True,
    ),
    Signature(
        "cache-shared",
        keys=(".incomplete",),
        cause="Several ranks fill one cache of Hugging Face at once: on {host}, another one removed, renamed or uses {file}.",
        next="Create it on one rank before the others: with accelerator.main_process_first() (transformers: training_args.main_process_first()), or once before the job. If each host has a disk of its own, set HF_HOME to a folder on it.",
        pattern=r"^(?:\w+Error): \[Errno (?:39|2|17|66|116)\] [A-Z][\w ]{1,40}: '(?P<file>[^'\r\n]{1,300}\.incomplete)[^\r\n]*",
        survived=True,
        handled=True,
    ),
    Signature(
        "python-syntax",
        keys=("SyntaxError: ", "IndentationError: ", "TabError: "),
        cause="Python cannot parse the code that it reads: {why}.",
        next="[[encoding?Save the file as UTF-8, and check that the command names the right file||Correct the line that Python prints above the words {kind}]][[tabs?: indent with blanks only]].[[encoding?|| If the file is right, it was written for another version of Python: compare python3 --version.]]",
        pattern=r"^(?P<kind>(?:Syntax|Indentation|(?P<tabs>Tab))Error): (?P<why>(?=(?P<encoding>Non-UTF-8 code|encoding problem|\(unicode error\) 'utf-8'|source code (?:string )?cannot contain null bytes)|)[^\r\n]*[^\s.])",
        survived=True,
        handled=True,
    ),
    Signature(
        "python-exception",
        keys=("Traceback (most recent call last)", "Error): ray::"),
        cause="The program raised {error}[[file? (line {at} of {file}]][[inner?, in {inner} line {inner_at}]][[file?)]][[code?: {code}]].",
        next="Read the traceback that ends there: its last File line that names your own code shows the place.[[inner? If what that line passes is right, try another version of the package that raised it.]]",
        # The last place of the program's own, and the last place, with the line of the source and what underlines it.
        pattern=rf'(?m)(?:^  File "(?:{_OWN}{_ABOVE}{_IN}{_CODE.format("")}|{_LAST}{_CODE.format("2")}))?'
        r"^(?!\S*ChildFailedError|\S*RayTaskError\(\S*\): ray::|(?:subprocess\.)?CalledProcessError: Command |\S*ProcessExitedException: process \d+ terminated|\S*SignalException: Process \d+ got signal)(?!\S*CheckpointException: CheckpointException ranks:)(?P<error>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Iteration)\b|Exception(?=:|\s*$))(?!:?\s*-- Process \d+ terminated)(?!.*(?:"
        r"Horovod has been shut down|onnection (?:reset|closed) by (?:remote )?peer|ncclRemoteError|"
        r"remote process exited|communicator was aborted|: Broken pipe$|NCCL [Ee]rror(?: in)?: ))(?:\([\w.]+\))?(?:: [^\r\n]*\S)?)",
        kind=FailureText.OUTCOME,
        lines=60,
        not_after="Exception ignored in",
        unless=("python-syntax",),
        handled=True,
    ),
    Signature(
        "horovodrun-start",
        keys=(
            *("Timed out waiting for ", "task function was not successful"),
            *(".wait_for_initial_registration(", ".wait_for_task_to_task_address_updates("),
        ),
        cause="horovodrun's tasks on the other hosts did not answer in time: they share no network interface with it, a firewall is "
        "in between, or they start slowly.",
        next="horovodrun --network-interface NAME --start-timeout 120 --verbose; all ports have to be open between the hosts. Under "
        "taco-launch no such tasks are needed.",
        pattern=r"Timed out waiting for [^\r\n]*[Pp]lease check connectivity between servers|\.wait_for_(?:initial_registration|task_to_task_address_updates)\(|task function was not successful(?=[\s\S]*(?:wait_for_|(?:driver|task)_service\.py))",
        lines=20,
    ),
    Signature(
        "python-crashed",
        keys=("Fatal Python error: ",),
        cause="Python itself crashed in a rank on {host}: {why}.",
        next="Read the stack below that line, which shows where. Compare versions with a host on which it works: most often a library was built for another CUDA, "
        "NCCL, Python or CPU.",
        pattern=r"Fatal Python error: (?P<why>(?!Bus error)[^\r\n]*[^\s.])",
        kind=FailureText.OUTCOME,
        unless=(
            "gloo-no-interface",
            "gloo-connect",
            "gloo-loopback",
            "gloo-failed",
            "gloo-sizes-differ",
            "libuv-aborted",
        ),
    ),
    Signature(
        "python-bus-error",
        keys=("Fatal Python error: Bus error",),
        cause="A process of a rank on {host} ended with a bus error: it used shared memory or a mapped file that has no room behind it, most often because /dev/shm is full.",
        next="Run df -h /dev/shm and df -h /tmp where the ranks run; in a container: docker run --shm-size=32g, or --ipc=host. Use fewer workers of data loaders and tokenizers.",
        kind=FailureText.OUTCOME,
        unless=("shm-too-small", "torch-shared-memory"),
    ),
    Signature(
        "arguments-wrong",
        keys=(": error: the following arguments are required:", ": error: argument "),
        cause="The script refuses its arguments: {what}.",
        next="[[missing?Add what is missing behind the script's name; --help lists all. If the script reads a YAML file as its first argument, start it with torchrun or taco-launch run: deepspeed and torch.distributed.launch put --local_rank before it||Correct that argument behind the script's name; --help lists all and their values]].",
        # argparse of Python
        unless=("conda-not-active",),
        pattern=r"^(?:[\w./-]+(?: \w+)?): error: (?P<what>(?P<missing>the following arguments are required:)?[^\r\n]*[^\s.])",
    ),
    Signature(
        "deepspeed-rank-killed",
        keys=("exits with return code = -9",),
        cause="DeepSpeed's launcher on {host} reports that a rank was killed (signal 9), most often because the host's memory was used up.",
        next="dmesg -T | grep -i -E 'out of memory|oom' on {host}. Use fewer data loader workers, offload less to the "
        "CPU (offload_optimizer, offload_param), or add memory.",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "deepspeed-rank-crashed",
        keys=("exits with return code = -",),
        cause="DeepSpeed's launcher on {host} reports that a rank [[bus?ended with a bus error (signal 7), most often because /dev/shm was "
        "full||crashed (signal {signal})]].",
        next="[[bus?Run df -h /dev/shm where the ranks run. To enlarge it in a container: docker run --shm-size=32g, or --ipc=host||Read the lines above it (11: a "
        "segmentation fault; 6: an abort, with its reason there; 4: a library built for another CPU). To see the Python stack: -x PYTHONFAULTHANDLER=1; a "
        "library built for another CUDA, NCCL or torch can cause this]].",
        pattern=r"exits with return code = -(?P<signal>(?!9\b)(?P<bus>7\b)?\d{0,2})\b",
        kind=FailureText.OUTCOME,
        unless=("torch-collective-timeout",),
    ),
    Signature(
        "deepspeed-rank-failed",
        keys=("exits with return code = ",),
        cause="DeepSpeed's launcher on {host} reports that a rank ended with exit code {code}, and shows neither which nor why.",
        next="Read the lines above this one: the first traceback of the log. To have a file for each rank: deepspeed --enable_each_rank_log FOLDER.",
        # The command that it prints is always that of the rank that it started last.
        pattern=r"exits with return code = (?P<code>[1-9]\d*)",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "package-version",
        keys=(" is required for a normal functioning of this module, but found ",),
        cause="The Python of a rank on {host} has {found}, and the program requires {need}.",
        next="Install that version where the ranks run: python3 -m pip install '{need}'. Or use versions that fit together, as a new transformers or LLaMA-Factory needs others.",
        pattern=r"Error: (?P<need>[\w.\[\]-]+[<>=!~][^\s]*) is required for a normal functioning of this module, but found (?P<found>[\w.=+-]*\w)",
    ),
    Signature(
        "variable-required",
        keys=("environment variable CUDA_DEVICE_MAX_CONNECTIONS",),
        cause="Megatron requires CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment of the ranks, so that communication and computation overlap as it plans them.",
        next="Pass it to the ranks: -x CUDA_DEVICE_MAX_CONNECTIONS=1. On Blackwell and newer GPUs, other values are allowed by newer versions of Megatron.",
        pattern=r"requires? setting the environment variable CUDA_DEVICE_MAX_CONNECTIONS",
    ),
    Signature(
        "tensorflow-device-twice",
        keys=("is being mapped to multiple CUDA devices",),
        cause="Two sessions of TensorFlow in one process choose different GPUs.",
        next="Give every session the same configuration: gpu_options.visible_device_list = str(hvd.local_rank()), from the first one on.",
    ),
    Signature(
        "tensorflow-strategy-late",
        keys=("Collective ops must be configured at program startup",),
        cause="The program used TensorFlow before it created MultiWorkerMirroredStrategy.",
        next="Create the strategy first, before any tensor, variable, data set or layer, and before tf.config.list_logical_devices(). Set TF_CONFIG before that.",
    ),
    Signature(
        "tensorflow-collective-aborted",
        keys=("Collective ops is aborted by: ", "BaseCollectiveExecutor::StartAbort "),
        cause="A worker of TensorFlow on {host} ended because a collective was aborted: {why}.",
        next="Look for the worker that ended first. If none did, TF_CONFIG must have the same addresses in the same order on every host, and every host must be able "
        "to connect to all of them.",
        pattern=r"Collective ops is aborted by: (?P<why>[^\r\n\\]{0,200}[^\s.\\])|BaseCollectiveExecutor::StartAbort (?P<why2>[^\r\n]{0,200}[^\s.])",
        kind=FailureText.ECHO,
        unless=("tensorflow-device-types",),
    ),
    Signature(
        "tensorflow-device-types",
        keys=("is joining a group with incompatible device type",),
        cause="The workers of TensorFlow use different devices: task {task} has a {device}, another one a {other}.",
        next="Run python3 -c 'import tensorflow as tf; print(tf.config.list_physical_devices())' on each host, and give the worker that sees no GPU one, or a build of TensorFlow for its CUDA.",
        pattern=r"task:(?P<task>\d+)/device:(?P<device>\w+):\d+ is joining a group with incompatible device type *(?P<other>\w+)",
    ),
    Signature(
        "tensorflow-worker-restarted",
        keys=(
            "current incarnation doesn't match with one in the group",
            "different incarnation",
            "with a new incarnation",
        ),
        cause="[[task?The task {task} of TensorFlow||A task of TensorFlow]] was restarted alone, or belongs to another cluster: the others still know its earlier run.",
        next="Find in that task's earlier log why it ended, then restart all tasks together: tasks of MultiWorkerMirroredStrategy cannot be replaced one by one. If none was restarted, compare TF_CONFIG on all hosts.",
        pattern=r"(?:Device (?P<task>/job:[^\s/]+(?:/replica:\d+)?/task:\d+)\S* )?current incarnation doesn't match|(?:(?P<task2>/job:[^\s/]+(?:/replica:\d+)?/task:\d+)[^\r\n]{0,200})?(?:different incarnation|with a new incarnation)",
    ),
    Signature(
        "jax-without-nccl",
        keys=("Unable to load NCCL library",),
        cause="JAX found no NCCL library on {host}, so its GPUs cannot work together.",
        next="Install it beside jax, for the same CUDA: pip install -U 'jax[cuda12]' (or nvidia-nccl-cu12). If it is installed, its folder is missing in LD_LIBRARY_PATH, or another libnccl.so.2 there hides it.",
        pattern=r"Unable to load NCCL library",
    ),
    Signature(
        "tensorflow-task-unreachable",
        keys=("failed with UnavailableError",),
        cause="{task} of TensorFlow cannot reach [[peer?{peer}||another task]]: that one has not started or has ended, or its address in TF_CONFIG cannot be reached from there.",
        next="See whether [[peer?{peer}||the other task]] runs and listens at its address (ss -ltnp on its host), and from the other hosts: nc -vz HOST PORT. All tasks must have the same cluster in TF_CONFIG, with names that resolve everywhere; unset http_proxy.",
        pattern=r"on worker (?P<task>/job:\S+) failed with UnavailableError(?:[\s\S]{0,300}?remote target (?P<peer>/job:[^\s/]+/replica:\d+/task:\d+))?",
        kind=FailureText.ECHO,
        lines=2,
        unless=("grpc-refused",),
    ),
    Signature(
        "xla-rendezvous",
        keys=("threads to join the rendezvous",),
        cause="A thread of XLA (JAX, TensorFlow) waits for the others to start: {what}: not all {count} threads have come.",
        next="Check that every process runs the same program with the same versions. If a host cannot reach the others, -x NCCL_DEBUG=INFO shows it; a first compilation may only be slow.",
        pattern=r"waiting for [`'](?P<what>[^;`'\r\n]{1,80})[^\r\n]*? Expected (?P<count>\d+) threads to join the rendezvous",
        kind=FailureText.FALLBACK,
        at_end=r"threads to join the rendezvous",
    ),
    Signature(
        "grpc-refused",
        keys=('"os_error":"Connection refused"', "subchannel.cc"),
        cause="Nothing listens at {peer}, to which TensorFlow or another gRPC client on {host} connects: that task has not started, has ended, or listens at another "
        "address.",
        next="Compare the addresses in TF_CONFIG (or the cluster spec) with ss -ltnp on that host, and look whether its task ended first.",
        pattern=r'"os_error":"Connection refused"[^\r\n]{0,80}"target_address":"(?:ipv[46]:)?(?P<peer>[^"\r\n]{3,80})"',
        kind=FailureText.ECHO,
    ),
    Signature(
        "tensorflow-group-size",
        keys=(" is joining a group with size",),
        cause="Two groups of collectives in TensorFlow use the same key: {device} joins with a group size of {one}, but the group has size {other}.",
        next="Create one distribution strategy in a process, with all of its GPUs, or start a new process for each. On several hosts, use the same cluster in TF_CONFIG and the same number of visible GPUs on all.",
        pattern=r"Device (?P<device>\S+) is joining a group with size ?(?P<one>\d+), but that group has size (?P<other>\d+)",
    ),
    Signature(
        "tensorflow-nccl-missing",
        keys=("No OpKernel was registered to support Op 'NcclAllReduce'",),
        cause="This TensorFlow has no NCCL: it is the build for CPUs, or for Windows.",
        next="Use a build with CUDA, on Linux, or do without NCCL: tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.HierarchicalCopyAllReduce()).",
    ),
    Signature(
        "tensorflow-nccl",
        keys=("internal error", "unhandled cuda error", "unhandled system error", "invalid usage"),
        cause="NCCL failed in a process of TensorFlow on {host} ({why}), which does not report NCCL's reason.",
        next="Run it again with NCCL_DEBUG=INFO and read the NCCL WARN lines. To see whether it is NCCL: tf.distribute.MirroredStrategy(cross_device_ops="
        "tf.distribute.HierarchicalCopyAllReduce()) runs without NCCL; NCCL_P2P_DISABLE=1 shows whether it is the path between GPUs.",
        pattern=r"(?P<why>(?:internal|unhandled (?:cuda|system)) error|invalid usage)\s+\[\[\{{0,2}node [\w/]{0,200}NcclAllReduce",
        lines=2,
    ),
    Signature(
        "tensorflow-task-silent",
        keys=("CreateSession still waiting for response from worker:",),
        cause="TensorFlow waits for the task {task}, which has not started, or is not reachable at its address in the cluster specification.",
        next="See whether that task runs and listens (ss -ltnp on its host), and compare the address with TF_CONFIG or ClusterSpec. A proxy between (http_proxy, "
        "grpc_proxy) does this too: -x no_proxy='*'.",
        pattern=r"CreateSession still waiting for response from worker: (?P<task>/job:\S+)",
        at_end=r"still waiting for response|(?i:killed|terminat|cancel|interrupt|\^C)",
    ),
    Signature(
        "tensorflow-server-reset",
        keys=("Master init: Unavailable:",),
        cause="A server of TensorFlow closed the connection while the session started[[why? ({why})]]: it has ended, or a different program from the one in the cluster specification listens there.",
        next="Read the logs of the other tasks (ps, worker) for the one that ended first, and compare their addresses with TF_CONFIG or ClusterSpec.",
        pattern=r'Master init: Unavailable:[^\r\n]{0,600}?(?:"os_error":"(?P<why>[^"\r\n]{1,80})"|$)',
        unless=("grpc-refused",),
    ),
    Signature(
        "jax-rank-missing",
        keys=("Barrier timed out. ", "task names:"),
        cause="Processes of JAX or TensorFlow did not reach the others in time[[task?: {task} and those on the next lines]].",
        next="See whether those processes have started, and that each has its own process_id and the same coordinator_address and num_processes; from their hosts: nc -vz ADDRESS PORT. "
        "If some processes start late: jax.distributed.initialize(initialization_timeout=600).",
        pattern=r"(?:DEADLINE_EXCEEDED|INTERNAL|ABORTED): Barrier timed out\.(?:[\s\S]{0,400}?imed out task names:\s+(?P<task>/job:\S+))?",
        lines=3,
    ),
    Signature(
        "jax-not-registered",
        keys=("CoordinationService/RegisterTask", "Coordination service agent in error status"),
        cause="A process of JAX could not register with its coordinator in time[[why? ({why})]]: process 0 did not start, is not reached at that address, or has too many processes to serve at once.",
        next="Check that process 0 runs, and nc -vz ADDRESS PORT with its coordinator_address from this host; all processes need the same address and num_processes. If they start late: jax.distributed.initialize(initialization_timeout=600).",
        pattern=r"(?:while calling /tensorflow\.CoordinationService/RegisterTask|agent in error status)(?:[\s\S]{0,400}?(?P<why>DEADLINE_EXCEEDED|Deadline Exceeded|UNAVAILABLE|[Ff]ailed to connect to all addresses|Connection refused))?",
        lines=3,
        unless=("jax-rank-missing",),
    ),
    Signature(
        "jax-end-alone",
        keys=("Failed to disconnect from coordination service", "RPC: /tensorflow.CoordinationService/ShutdownTask"),
        cause=_JAX_END,
        next=_JAX_END_NEXT,
        # xla/tsl/distributed_runtime/coordination/coordination_service_agent.cc; an error that Python runs into at its exit
        pattern=r"Failed to disconnect from coordination service[\s\S]{0,80}?DEADLINE_EXCEEDED|CoordinationService/ShutdownTask[\s\S]{0,200}?(?:DEADLINE_EXCEEDED|Deadline)",
        lines=3,
        kind=FailureText.ECHO,
        unless=("jax-task-died",),
    ),
    Signature(
        "jax-shutdown-raised",
        keys=('jax/_src/distributed.py", line',),
        cause=_JAX_END,
        next=_JAX_END_NEXT,
        pattern=r"jax/_src/distributed\.py\", line \d+, in shutdown(?:\r?\n +[^\r\n]*){0,6}\r?\n(?P<error>[\w.]{1,80}Error: DEADLINE_EXCEEDED)",
        lines=9,
        kind=FailureText.ECHO,
        unless=("jax-task-died", "jax-end-alone"),
    ),
    Signature(
        "jax-task-died",
        keys=(
            "heartbeat timeout",
            "stopped sending heartbeats",
            "JAX distributed service detected fatal errors",
            "detected missing heartbeats",
            "Failed to send heartbeat",
        ),
        cause="[[why?This process of JAX ended because another one did: the coordination service reports {why}]][[task?JAX's coordinator heard nothing from {task}: that process crashed or was killed, or was too busy to answer]]"
        "[[silent?JAX's coordinator and its processes no longer hear each other: one crashed or was killed, or was too busy to answer]].",
        next="Look for the first error in the log of [[task?{task}||the process that ended first, most often process 0, which serves the others]], and for its host (dmesg -T | grep -i kill). If it lives but compiles, loads or allocates for long: jax.distributed.initialize(heartbeat_timeout_seconds=600).",
        # coordination_service.cc and pjrt/distributed/client.h of XLA
        pattern=r"Task (?P<task>/job:\S+) heartbeat timeout|stopped sending heartbeats\):\s*(?P<task2>/job:[^\s,]+)|detected (?P<silent>missing heartbeats)|(?P<silent2>Failed to send heartbeat) to coordination"
        r"|JAX distributed service detected fatal errors[^\r\n]*?(?:absl::)?Status: (?:UNAVAILABLE: The following tasks are unhealthy[^\r\n]*\s+(?P<task3>/job:[^\s,]+)|(?P<why>[^\r\n]{1,200}[^\s.]))",
        lines=2,
        kind=FailureText.ECHO,
    ),
    Signature(
        "horovod-operation-missing",
        keys=(
            " operation enabled",
            "Unsupported CPU operation type, only MPI",
            "Unsupported controller type, only MPI",
        ),
        cause="This Horovod was built without a library that can do {what} on the device of the tensor.",
        next="horovodrun --check-build lists what it has. Build it again: HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_GPU_OPERATIONS=NCCL pip install --no-cache-dir horovod.",
        pattern=r"No (?P<what>All\w{1,20}|Broadcast|Reducescatter|Adasum) operation enabled|Unsupported (?P<what2>CPU operation|controller) type, only MPI",
    ),
    Signature(
        "horovod-process-set",
        keys=(
            "rocess set provided does not exist",
            "Process set does not exist or has not been registered",
            "Process is not part of provided process set",
            "Process set has been removed",
        ),
        cause="The program uses a process set of Horovod that this rank is not in, or that is not registered.",
        next="Pass all sets to hvd.init(process_sets=[...]) on every rank, in the same order, and test process_set.included() before a collective in it.",
    ),
    Signature(
        "horovod-process-set-static",
        keys=("Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow",),
        cause="The program adds or removes a process set after hvd.init(), which Horovod does not allow by default.",
        next="-x HOROVOD_DYNAMIC_PROCESS_SETS=1, or pass all sets to hvd.init(process_sets=[...]).",
    ),
    Signature(
        "horovod-process-sets-differ",
        keys=(
            "Attempted to register process set with mismatching",
            "mismatching numbers of process sets",
            "Tried to register process set with ",
        ),
        cause="The ranks register different process sets with Horovod[[rank?, or one with the rank {rank}, which is wrong or named twice]].",
        next="Give hvd.init(process_sets=...) the same sets in the same order on all ranks, with ranks from 0 to hvd.size() - 1.",
        pattern=r"register process set with (?:mismatching|(?:duplicate|invalid) rank: ?(?P<rank>-?\d+)?)|mismatching numbers of process sets",
    ),
    Signature(
        "horovod-join",
        keys=(" is not supported with Join at this time",),
        cause="A rank has called hvd.join(), and another one still calls {what}, which Horovod cannot do without the first.",
        next="Give all ranks the same number of batches (drop_last=True) instead of hvd.join(). Sparse gradients use allgather: DistributedOptimizer(..., sparse_as_dense=True).",
        pattern=r"(?P<what>[Aa]llgather|[Aa]lltoall|[Bb]roadcast|[Rr]educescatter) is not supported with Join",
    ),
    Signature(
        "horovod-splits",
        keys=(
            "Sum of splits entries is greater than",
            "splits not provided, but first dimension",
            "Number of entries in splits does not equal",
            "alltoall expects ",
        ),
        cause="The splits of hvd.alltoall() do not fit the tensor or the number of ranks.",
        next="Pass splits as a 1-D int32 tensor with hvd.size() numbers whose sum is tensor.shape[0]; without splits, tensor.shape[0] must be a multiple of hvd.size().",
    ),
    Signature(
        "horovod-mpi-failed",
        keys=(" failed, see MPI output for details",),
        cause="An MPI operation of Horovod ({what}) failed on {host}; MPI's own lines show why.",
        next="Read the lines of MPI above this one and of the rank that ended first. With NCCL, -x HOROVOD_CPU_OPERATIONS=gloo leaves MPI out (horovodrun --gloo).",
        pattern=r"(?P<what>MPI_\w{1,30}) failed, see MPI output",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "horovod-nccl-old",
        keys=("NCCLAlltoall requires NCCL version",),
        cause="hvd.alltoall() on GPUs requires NCCL 2.7 or newer, and this Horovod was built with an older one.",
        next="Build Horovod again with a newer NCCL: HOROVOD_NCCL_HOME=/usr HOROVOD_GPU_OPERATIONS=NCCL pip install --no-cache-dir --force-reinstall horovod.",
    ),
    Signature(
        "horovod-rendezvous",
        keys=("HTTP GET request failed too many times, aborting",),
        cause="A rank of {host} does not reach the rendezvous server of horovodrun: HOROVOD_GLOO_RENDEZVOUS_ADDR names an address that {host} does not reach, or horovodrun has ended.",
        next="Check that curl http://$HOROVOD_GLOO_RENDEZVOUS_ADDR:$HOROVOD_GLOO_RENDEZVOUS_PORT/ answers on {host}. If it does not, unset http_proxy, open the "
        "port, or name the network that the hosts share: horovodrun --network-interfaces bond0.",
        unless=("gloo-rank-missing",),
    ),
    Signature(
        "horovod-affinity",
        keys=(
            "is invalid in HOROVOD_THREAD_AFFINITY=",
            "were found in HOROVOD_THREAD_AFFINITY=",
            "Core ID cannot be less than zero",
        ),
        cause="HOROVOD_THREAD_AFFINITY on {host} is not a list of CPU numbers.",
        next="Unset it, or give one number for each rank of the host: -x HOROVOD_THREAD_AFFINITY=0,8,16,24.",
    ),
    Signature(
        "horovod-timeline",
        keys=("Error opening the Horovod Timeline file", "Error writing to the Horovod Timeline"),
        cause="Horovod on {host} cannot write its timeline: the folder is missing or full, or the user may not write there.",
        next="ls -ld and df -h of the folder in HOROVOD_TIMELINE on the host of rank 0 (in its container).",
        kind=FailureText.NOTE,
    ),
    Signature(
        "horovod-not-built-with",
        keys=(
            "Gloo support is required to use elastic",
            "Gloo support has not been built",
            "MPI support has not been built",
            "Neither MPI nor Gloo support has been built",
            "Horovod has not been built with MPI support",
            "Horovod MPI is not enabled",
        ),
        cause="This Horovod was built without {what}, which this way to start it requires.",
        next="[[gloo?Start it with horovodrun --mpi or mpirun, or build||Start it with horovodrun --gloo, or build]] Horovod again with CMake, g++ and MPI installed: HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 pip install --no-cache-dir --force-reinstall horovod.",
        pattern=r"(?P<what>(?P<gloo>Gloo)) support (?:is required|has not been built)|(?P<what2>MPI) support has not been built|Neither (?P<what3>MPI nor Gloo) support|Horovod (?:has not been built with (?P<what4>MPI) support|(?P<what5>MPI) is not enabled)",
    ),
    Signature(
        "horovodrun-login",
        keys=("could not connect to some hosts via ssh",),
        cause="horovodrun could not log in to all hosts with ssh; its lines above name them.",
        next="Check that ssh -p PORT HOST true from the first host answers without a password for each host. Pass the port with horovodrun --ssh-port, and a key "
        "with --ssh-identity-file.",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "horovod-elastic-slots",
        keys=("Timed out waiting for ", "minimum slots"),
        cause="Elastic Horovod did not find {count} slots in time: hosts of its discovery script are missing, or were left out because they failed.",
        next="Run the host discovery script by hand: it must print HOST:SLOTS for enough hosts. If hosts were excluded, look for their first failure; --start-timeout or --elastic-timeout wait longer.",
        pattern=r"Timed out waiting for (?P<count>\d+) (?:minimum )?slots",
    ),
    Signature(
        "horovodrun-slots",
        keys=("Not enough slots on the hosts to fulfill the", "Requested more processes ("),
        cause="horovodrun must start more ranks[[asked? ({asked})]] than the hosts have slots[[slots? ({slots})]].",
        next="Request fewer (-np), or give the hosts more slots: -H gpu1:8,gpu2:8.",
        pattern=r"to fulfill the (?P<asked>\d+) requested|Requested more processes \((?P<asked2>\d+)\) than there are available slots \((?P<slots>\d+)\)",
    ),
    Signature(
        "horovodrun-hosts",
        keys=(
            "Invalid host input, ",
            "Argument hosts and hostfile only allow one",
            "One of --host-discovery-script, --hosts, or --hostnames",
        ),
        cause="horovodrun cannot use the hosts that it was given.",
        next="Write either -H gpu1:8,gpu2:8 or --hostfile FILE with lines like 'gpu1 slots=8', not both. Elastic jobs use --host-discovery-script instead.",
    ),
    Signature(
        "horovodrun-both",
        keys=("Argument use_gloo and use_mpi only allow one",),
        cause="horovodrun was given both --gloo and --mpi.",
        next="Remove one of them: --gloo needs ssh only, --mpi an installed MPI.",
    ),
    Signature(
        "horovodrun-no-port",
        keys=("Exception: Unable to find a port to bind to",),
        cause="horovodrun on {host} found no free port: the ports that processes may use are taken.",
        next="ss -s and sysctl net.ipv4.ip_local_port_range on {host} show how many are in use; end older jobs there.",
    ),
    Signature(
        "horovodrun-no-network",
        keys=(
            "Unable to find a set of common task-to-task",
            "Cannot find an IPv4 address of the common interface",
            "No interface is found for address 127.0.0.1",
            "No available network interface found matching",
        ),
        cause="horovodrun found no network interface with the same name on all hosts[[asked? that is named {asked}]][[one?: worker {worker} has {one}, and worker {peer} has {other}]].",
        next="ip -br addr on each host shows the names. Name the network: horovodrun --network-interfaces bond0; where names differ, start the job with mpirun and -x NCCL_SOCKET_IFNAME.",
        pattern=r"Unable to find a set of common(?:[^\[\r\n]{0,60}\[\((?P<worker>\d+), \{'(?P<one>[^'\r\n]{1,40})'[^{}\r\n]{0,400}\}\), \((?P<peer>\d+), \{'(?P<other>[^'\r\n]{1,40})')?|Cannot find an IPv4 address|No interface is found for|matching user provided interface: [{\[]?'?(?P<asked>[\w.,' -]{0,60}\w)?",
    ),
    Signature(
        "horovodrun-digest",
        keys=("Security error: digest did not match the message",),
        cause="A process connected to horovodrun's port with the secret key of another job, or no key.",
        next="End older ranks on all hosts (ps aux | grep horovod), which still try to reach that port, and start again. A port scanner has the same effect.",
    ),
    Signature(
        "horovod-elastic-stopped",
        keys=(
            " has exceeded limit ",
            "blacklisted slots count == ",
            "failed to activate new hosts -> stop running",
            "failure count == ",
        ),
        cause="Elastic Horovod ended the job: [[limit?it was restarted more than {limit} times||too many hosts failed or left]].",
        next="Read the first error of the rank that failed first: it repeats after each restart. --reset-limit allows more of them, --blacklist-cooldown-range 60 300 uses a failed host again.",
        pattern=r"reset count \d+ has exceeded limit (?P<limit>\d+) -> stop|(?:slots count == \d+|failed to activate new hosts|failure count == \d+) -> stop running",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "horovod-discovery",
        keys=("Failed to execute discovery script: ",),
        cause="The host discovery script {file} of elastic Horovod failed[[code? with exit code {code}]].",
        next="Run {file} by hand on the first host: it must be executable and print HOST:SLOTS lines.",
        pattern=r"discovery script: (?P<file>\S{1,200}?)\. Exit code: (?P<code>\d+)?",
    ),
    Signature(
        "horovod-parameter-names",
        keys=(
            "named_parameters was specified, but one or more model parameters were not named",
            "Parameter names in named_parameters must be unique",
            "named_parameters should be a sequence of tuples",
        ),
        cause="The names given to Horovod's DistributedOptimizer do not fit the parameters of its optimizer.",
        next="Pass named_parameters=model.named_parameters() of the same model. With several models, give each name a prefix of its own, or leave named_parameters out.",
    ),
    Signature(
        "horovod-backward-passes",
        keys=("Gradients were computed more than backward_passes_per_step times",),
        cause="The program calls backward() more often before optimizer.step() than backward_passes_per_step allows.",
        next="Set DistributedOptimizer(..., backward_passes_per_step=N), where N is the number of batches whose gradients are added up; or call step() after each backward().",
    ),
    Signature(
        "horovod-zero-grad",
        keys=("optimizer.zero_grad() was called after loss.backward() but before",),
        cause="The program clears the gradients while Horovod still adds them up.",
        next="Call optimizer.zero_grad() before loss.backward(), or after optimizer.step() or optimizer.synchronize().",
    ),
    Signature(
        "horovod-tensor-refused",
        keys=(
            "cannot broadcast torch.optim.LBFGS state",
            "Tensor is required to be contiguous",
            "Tensors in list must be on same device",
            "SyncBatchNorm expected input tensor to be on GPU",
        ),
        cause="Horovod cannot use what the program gives it: {what}.",
        next="Move the tensors to the rank's GPU and call .contiguous() on them before the collective. LBFGS has a state that Horovod cannot send: use another optimizer, or broadcast the parameters only.",
        pattern=r"(?P<what>cannot broadcast torch\.optim\.LBFGS state|Tensor is required to be contiguous|Tensors in list must be on same device|SyncBatchNorm expected input tensor to be on GPU)",
    ),
    Signature(
        "horovod-start-failed",
        keys=("Horovod initialization failed. Please check log messages above",),
        cause="hvd.init() failed on {host}; the lines above it show why.",
        next="Read the first error above it. -x HOROVOD_LOG_LEVEL=debug shows where it stops.",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "horovod-environment",
        keys=("Could not determine process rank and size: only one of",),
        cause="Only one of the variables for the rank and the number of ranks is set ({names}).",
        next="env | grep -E 'HOROVOD_|OMPI_COMM|PMI_' where the ranks run shows what is set. Start the program with horovodrun or mpirun, and unset what an older shell left.",
        pattern=r"only one of (?P<names>\w{1,60} and \w{1,60}) found in environment",
    ),
    Signature(
        "horovodrun-cluster",
        keys=(
            "Horovod did not detect an LSF job",
            "horovod does not find the jsrun command",
            "Different slots in -hosts parameter are not supported in Intel",
            "Intel MPI and MPICH do not support multiple interfaces",
        ),
        cause="horovodrun cannot use this launcher here: {what}.",
        next="Use another one: horovodrun --gloo, which needs ssh only; or mpirun directly, with a machine file for Intel MPI and one interface (-x NCCL_SOCKET_IFNAME==bond0).",
        pattern=r"(?P<what>Horovod did not detect an LSF job|horovod does not find the jsrun command|Different slots in -hosts parameter are not supported|Intel MPI and MPICH do not support multiple interfaces)",
    ),
    Signature(
        "horovodrun-command-failed",
        keys=("RuntimeError: mpirun failed with exit code ", "RuntimeError: jsrun failed with exit code "),
        cause="The {what} that horovodrun started ended with exit code {code}.",
        next="Read the lines of {what} and the ranks above this one: they show the reason.",
        pattern=r"RuntimeError: (?P<what>mpirun|jsrun) failed with exit code (?P<code>\d+)",
        kind=FailureText.FALLBACK,
    ),
)
# Why the shell does not find a command, by the lines near it.
OF_MISSING_COMMANDS = (
    Qualifier(
        r"(?:\b(?:srun|sbatch|salloc|squeue|scontrol|qsub|qstat|bsub|jsrun): (?:command )?not found|command not found: (?:srun|sbatch|qsub|bsub))",
        "{what} is not on {host}: the script is for a cluster with a scheduler (Slurm, PBS or LSF), and this is none of its hosts.",
        "Run it on that cluster's login node, or see how it is typed without a scheduler: taco-launch translate SCRIPT.",
    ),
    Qualifier(
        r"sh: (?:line \d+: )?cd: (?P<folder>/[^\s:]+): No such file",
        "{host} lacks the folder {folder} and what is started in it[[file? ({file})]]: the launcher uses the paths of the host on which it was started.",
        "Put the program and its environment under the same paths on every host: a shared folder, --sync DIR, or one container image.",
    ),
    Qualifier(
        r"^(?P<host>(?P<stem>[A-Za-z][\w-]*?)\d+): (?:-?\w*sh: )?(?:line \d+: )?(?P<what>(?P=stem)\d+): command not found",
        "The shell on {host} was given the name of a host ({what}) as its command: what starts it (pdsh, ssh) reads its list of hosts or its options wrongly.",
        "Write the hosts as one word, separated by commas (pdsh -w 'node-0,node-1' or -w 'node-[0-6]', in quotes), and give ssh's options in PDSH_SSH_ARGS. ssh {host} true tests one host by hand.",
    ),
    Qualifier(
        r"modulefile for|module\(s\) are unknown|Cannot load module|/lmod: No such file|MODULEPATH is undefined|exist but cannot be loaded",
        "The program {what} is not on the PATH of a rank on {host}: the environment module that has it was not loaded, as the lines near it show.",
        "Make module load work there first: run module avail inside the job, start the script as a login shell (#!/bin/bash -l), or give the full path of {what}.",
    ),
    Qualifier(
        r"^[^\n]*: source: not found",
        "The script on {host} is written for bash, and was run by sh, which has no source.",
        "Put #!/bin/bash into its first line and start it by its own name, or start it with bash SCRIPT.",
    ),
    Qualifier(
        r"\bactivate: No such file or directory",
        "The shell on {host} finds no file {file} to activate an environment with: conda's bin folder is not on its PATH, or is elsewhere there.",
        "In the script: source /PATH/TO/conda/etc/profile.d/conda.sh and conda activate NAME; for a venv, source its own bin/activate by the full path. The path must exist on every host.",
    ),
    Qualifier(
        r"\b(?:module|ml): (?:command )?not found",
        "The shell on {host} does not have the function {what} of the environment modules: it is no login shell.",
        "In the script: source /etc/profile.d/modules.sh (Lmod: /etc/profile.d/lmod.sh or z00_lmod.sh), or start it with bash -l.",
    ),
    Qualifier(
        r"\b(?:conda|mamba|micromamba): (?:command )?not found",
        "The shell on {host} does not have {what}: batch shells do not read what conda init wrote into ~/.bashrc.",
        "In the script: source /PATH/TO/conda/etc/profile.d/conda.sh, or load the site's module of it; or name the environment's Python by its full path: /PATH/TO/conda/envs/NAME/bin/python.",
    ),
)
