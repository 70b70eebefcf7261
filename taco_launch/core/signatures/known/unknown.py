"""Quote a program that reports a failure which no other entry recognises, and show where to look next."""

import re

from taco_launch.core.signatures.known import FailureText, Signature
from taco_launch.core.signatures.known.help_topics import HELP_TOPICS

_DASHES = "-" * 74
_BLOCK = r"^-{{74}}\s*\n\s*{}(?P<what>\S[^\r\n]*(?:\n[^\r\n-][^\r\n]*){{0,4}}?)[.:!]\s(?:[\s\S]*\n)?-{{74}}\s*(?:\n|$)"
_DETAILS = "Read the text between the dashed lines of the log, which has the details; where it names a parameter, ompi_info --param all all --level 9 lists its allowed values."
# What is of lower rank than a cause, and may be such a text itself.
_KNOWN = (
    *("launch-failed", "mpi-init-failed", "mpi-tcp-connect", "mpirun-broken", "rank-failed"),
    *("pmix-files-left", "fork-warned", "openib-unused", "single-copy-denied", "memory-not-bound", "variable-not-set"),
    *("cuda-memory-not-pinned", "option-deprecated", "prefix-twice", "mpi-cuda-ipc-off", "oob-interface-unusable"),
)

# The frame of a topic that is no cause is recognised by its first two lines.
_TOPICS = "|".join(re.escape(key) for entry in HELP_TOPICS if entry.kind is not FailureText.CAUSE for key in entry.keys)

UNKNOWN = (
    Signature(
        "ucx-failed",
        keys=(" UCX  ERROR ", " UCX ERROR "),
        cause="UCX failed on {host}: {why}.",
        next="-x UCX_LOG_LEVEL=info shows which devices it uses (ucx_info -d lists them). To see whether UCX is the "
        "cause, run without it: --mca pml ob1 --mca btl tcp,self,vader (5.0: sm instead of vader).",
        pattern=r"UCX +ERROR +(?P<why>[^\r\n]*[^\s.])",
        kind=FailureText.FALLBACK,
        unless=("ucx-without-cuda",),
        at_end=r"UCX +ERROR|MPI_ERRORS_ARE_FATAL|potentially your MPI job|terminated|Abort",
    ),
    Signature(
        "open-mpi-failed",
        keys=("PMIX ERROR: ", "ORTE_ERROR_LOG: ", "PRTE ERROR: ", "PRRTE ERROR: ", "OPAL ERROR: ", "PMIX_ERROR_LOG: "),
        cause="Open MPI failed to start on {host}: {why}.",
        next="Use one installation on all hosts: compare mpirun --version with the program's own libmpi (ldd PROGRAM), and see env | grep -E 'OMPI_|PMIX_|PRTE_' "
        "for other settings. To see how daemons are started: --mca plm_base_verbose 5.",
        pattern=r"(?P<why>(?:PMIX|PRR?TE|OPAL) ERROR: [^\r\n]*[^\s.]|(?:ORTE|PMIX)_ERROR_LOG: [^\r\n]*[^\s.])",
        kind=FailureText.FALLBACK,
        unless=(
            *("mpirun-text-lost", "launch-failed", "mpi-init-failed", "mpirun-broken", "mpirun-component-missing"),
            *("pmix-files-left", "host-lost"),
        ),
        at_end=r"(?:PMIX|PRR?TE|OPAL) ERROR: |_ERROR_LOG: ",
    ),
    # Of the texts of Open MPI's and PRRTE's help-*.txt files, those that no entry knows: all are between such lines.
    Signature(
        "mpirun-help-missing",
        keys=("You were supposed to get help about:",),
        cause="mpirun reports {what}[[slots?: there are fewer slots than ranks]], and its help files, which explain more, are missing: its installation was moved or is incomplete.",
        next="[[slots?Request fewer ranks (-np), or give the hosts more slots, and use||Use]] the mpirun of the program's own installation, or export "
        "OPAL_PREFIX=/WHERE/IT/IS.[[slots? If more ranks than slots are meant: --mca rmaps_base_oversubscribe 1 (5.0: --mca rmaps_default_mapping_policy "
        ":oversubscribe).]]",
        pattern=r"You were supposed to get help about:\s+(?P<what>[\w-]+(?=(?P<slots>:alloc-error)?)[\w:.-]*)",
        kind=FailureText.FALLBACK,
        lines=2,
        unless=("mpirun-broken", "file-system-failed"),
    ),
    Signature(
        "mpirun-reports",
        keys=(_DASHES,),
        cause="mpirun reports: {what}.",
        next=_DETAILS,
        # Programs continue after "Two mutually-exclusive"; "Sorry!" has an entry of its own.
        pattern=_BLOCK.format(
            rf"(?![Ww]arning|WARNING|Two mutually-exclusive MCA|Sorry!|[^\n]*detected that one or more processes exited|(?:[^\n]*\n)?[^\n]*(?:{_TOPICS}))"
        ),
        kind=FailureText.FALLBACK,
        lines=40,
        unless=_KNOWN,
    ),
    Signature(
        "mpirun-warns",
        keys=(_DASHES,),
        cause="mpirun warns: {what}.",
        next=_DETAILS,
        pattern=_BLOCK.format("(?:[Ww]arning|WARNING)[:!]? *"),
        kind=FailureText.NOTE,
        lines=40,
        unless=_KNOWN,
    ),
    Signature(
        "slurm-failed",
        keys=(
            "srun: error: ",
            "srun: fatal: ",
            "slurmstepd: error: ",
            "sbatch: error: ",
            "sbatch: fatal: ",
            "salloc: error: ",
            "salloc: fatal: ",
        ),
        cause="Slurm's message: {why}.",
        next="[[early?Correct what that message names, in the script or in the program that calls Slurm: no job was submitted. sinfo -o '%P %l %c %m %G' shows what can be requested||scontrol show job JOBID and "
        "sacct -j JOBID -o JobID,State,ExitCode,NodeList show the state of the job; on the node, read /var/log/slurm/slurmd.log]].",
        pattern=r"(?:srun|slurmstepd|(?P<early>sbatch|salloc)): (?:error|fatal): (?P<why>[^\r\n]*[^\s.])",
        kind=FailureText.FALLBACK,
        unless=("slurm-pmix-library", "slurm-task-exited", "slurm-task-signal", "slurm-cancelled"),
        survived=True,
    ),
    Signature(
        "rdma-test-failed",
        keys=(
            "Completion with error at ",
            "Failed to modify QP",
            "Couldn't connect to ",
            "Couldn't allocate MR",
            "failed to create mr",
        ),
        cause="RDMA failed on {host}, in a test (perftest) or a library: [[status?an operation ended with status {status} (4: the HCA "
        "may not access that memory; 10: the other side does not allow this access; 12: no answer; 13: receiver not ready)||{why}]].",
        next="For status 4 with --use_cuda, check lsmod | grep peermem, and turn PCI ACS and the IOMMU off; for status 12 or a QP error, use the same device and GID index on "
        "both sides (show_gids; perftest: -d, -x). If it cannot connect, start the server first, and open its port.",
        pattern=r"Completion with error at (?:client|server)[\s\S]{0,80}?Failed status (?P<status>\d+)"
        r"|(?P<why>Failed to modify QP[^\r\n]*[^\s.]|Couldn't (?:connect to [^\s:]+:\d+|allocate MR)|failed to create mr)",
        lines=2,
    ),
    Signature(
        "rdma-connection-manager",
        keys=("RDMA_CM_EVENT_", "Unexpected CM event", "Unable to perform rdma_client function"),
        cause="A connection by RDMA's connection manager (rdma_cm) failed on {host}[[refused?: the other side refused it]][[address?: no RDMA device has a route to the address]][[silent?: the other side did not answer]][[event? ({event})]].",
        next="[[refused?Start the server first, with the same options as the client (perftest: -R, -q, -s), and the same port; a limit of the server refuses connections, too||Use the address of an interface that belongs to the "
        "RDMA device (rdma link; ip -br addr), and check the path: rping -s there, rping -c -a ADDRESS here. With RoCE, no firewall may block UDP port 4791]].",
        # perftest's rdma_cm_event_error_handler, and what librdmacm's other tools print
        pattern=r"^Event: RDMA_CM_EVENT_(?P<event>(?P<address>ADDR|ROUTE)_ERROR|(?P<silent>UNREACHABLE)|(?P<refused>REJECTED)|CONNECT_ERROR); error: -?\d+|Unexpected CM event|Unable to perform rdma_client function",
    ),
    Signature(
        "rdma-completion",
        keys=(": got completion with error",),
        cause="An RDMA operation of {host} failed; its HCA's library ({library}) prints the raw completion below that line.",
        next="Read the status in the program's own line near it: 12 is no answer (GID index, route, lossless settings), 4 is memory that the HCA may not access.",
        pattern=r"(?P<library>mlx[45]): (?P<host>[\w.-]+): got completion with error",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "horovod-failed",
        keys=("background loop uncaught exception: ",),
        cause="Horovod's own thread failed in a rank of {host}: {why}.",
        next="If the message names a connection, look for the rank that ended first; otherwise read the lines before it on every rank.",
        pattern=r"background loop uncaught exception: (?P<why>[^\r\n]*[^\s.])",
        kind=FailureText.FALLBACK,
        unless=("nccl-failed", "nccl-warned", "peer-gone", "gloo-waited", "gloo-failed"),
    ),
    Signature(
        "cpp-exception",
        keys=("terminate called after throwing an instance of ",),
        cause="A rank of {host} ended because of an error in a C++ library ({kind})[[why?: {why}]].",
        next="Read the lines before it, which show what the rank was doing. To see the place in Python: -x PYTHONFAULTHANDLER=1.",
        pattern=r"throwing an instance of '(?P<kind>[^'\r\n]+)'(?:\s+what\(\): +(?P<why>[^\r\n]*[^\s.]))?",
        kind=FailureText.FALLBACK,
        lines=3,
        unless=("gloo-failed",),
    ),
    Signature(
        "heap-damaged",
        keys=(
            "double free or corruption",
            "free(): ",
            "malloc(): ",
            "malloc_consolidate(): ",
            "realloc(): invalid",
            "munmap_chunk(): invalid",
            "corrupted size vs. prev_size",
            "corrupted double-linked list",
        ),
        cause="The memory of a process of {host} was damaged ({what}): an error of a native library, or libraries of different builds in one process.",
        next="Use versions that were built together (torch, NCCL, MPI, driver), and try a newer one. To see where the program was: -x PYTHONFAULTHANDLER=1.",
        # malloc/malloc.c of glibc, malloc_printerr.
        pattern=r"(?P<what>double free or corruption|corrupted (?:size vs\. prev_size|double-linked list)|munmap_chunk\(\): invalid [\w ]+"
        r"|(?:free|malloc|realloc|malloc_consolidate)\(\): (?:corrupted|invalid|double free|unaligned|unsorted|smallbin|mismatching|largebin)[\w ]*)",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "c-assertion",
        keys=(": Assertion `", ": Assertion '", "Assertion failed in file "),
        cause="An assertion in a C or C++ library failed on {host}, in {where}: {what}.",
        next="Look for that text among the issues of {where}'s project: the library received an unexpected value (a size, a shape, a version), or has a bug that a newer version "
        "fixes. To see where the program failed: -x PYTHONFAULTHANDLER=1.",
        unless=("libuv-aborted",),
        pattern=r"^(?:[\w./+-]+: )(?:[^\s:]*/)?(?P<where>[\w.+-]+\.(?:cu|cuh|cc|cpp|cxx|c|h|hpp)):\d+: [^\r\n]{0,400}?: Assertion [`'](?P<what>[^\r\n]{1,200}?)' failed"
        r"|^Assertion failed in file (?:\S*/)?(?P<where2>\S+) at line \d+: (?P<what2>[^\r\n]{1,200})",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "unknown-error",
        keys=(
            "Error",
            "Exception",
            "ERROR",
            "FATAL",
            "CRITICAL",
            "error: ",
            "fatal: ",
            "Traceback (most recent call last)",
            '  File "',
        ),
        cause="[[stated?The first error names its cause. It is||The cause is not known. The first error is]][[rank? that of rank {rank}]][[host? on {host}]]: {what}.",
        next="[[stated?Correct what it names (an option, a size, a version or the data), the same on all hosts. ]][[advice?Follow its message ({advice}), and read the lines above it||Read the lines above it]][[rank? that rank {rank} wrote]], and the rest of its message below.[[communicates? If ranks fail while they communicate, -x NCCL_DEBUG=INFO and -x TORCH_DISTRIBUTED_DEBUG=DETAIL show more.]]",
        pattern=r"^(?:(?P<ignored>Exception ignored in)|(?P<raised>(?!\S*SignalException: Process \d+ got signal|(?:subprocess\.)?CalledProcessError: Command )(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception)|Exception)(?:\([\w.]+\))?(?:: [^\r\n]*[^\s.])?)[\s.]*$"
        # No metric, and not what Open MPI's parts mark.
        r"|(?=[^\r\n]*?(?:(?<![A-Z] )\b(?:ERROR|FATAL|CRITICAL)\b|\b(?:[Ee]rror|[Ff]atal): (?![-+.\d])))(?P<what>[^\r\n]*[^\s.]))",
        kind=FailureText.FALLBACK,
        unknown=True,
    ),
)
