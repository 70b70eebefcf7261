"""Recognise what Open MPI's library prints inside the ranks: transports, components, shared memory; and notes of both versions."""

from taco_launch.core.signatures.known import FailureText, Signature

# Frameworks of mpirun and its daemons, not of the ranks' transports (Open MPI 4 and 5).
_OF_MPIRUN = "ess|plm|schizo|oob|pmix|ras|rmaps|state|errmgr|iof|grpcomm|routed|odls|filem|rtc|sstore|prteif|psec|gds"

OPEN_MPI = (
    Signature(
        "component-missing",
        keys=("A requested component was not found", "No components were able to be opened in the"),
        cause="This Open MPI has no {framework} component[[component? {component}]] that it can use on {host} (5.0 has no openib any more; "
        "ucx is often not built in, or finds no device).",
        next="List its components: ompi_info | grep 'MCA {framework}'. Leave the option out, or use --mca pml ob1 --mca btl "
        "tcp,self,vader (5.0: sm instead of vader).",
        pattern=r"(?:A requested component was not found|No components were able to be opened)"
        r"[\s\S]{0,500}?Host: +(?P<host>\S+)\s+Framework: +(?!(?:" + _OF_MPIRUN + r")\b)(?P<framework>\S+)"
        r"(?:\s+Component: +(?P<component>\S+))?",
        lines=11,
        unless=("ucx-without-cuda",),
    ),
    Signature(
        "cuda-memory-not-pinned",
        keys=("The call to cuMemHostRegister(",),
        cause="CUDA could not pin memory for Open MPI[[host? on {host}]] (cuMemHostRegister[[code?, return value {code}]]): copies between GPUs of a host are slower.",
        next="Raise the limit of locked memory (ulimit -l unlimited; of a container: --ulimit memlock=-1), or run without it: --mca btl ^smcuda. If the program "
        "fails, look for its own error elsewhere in the log.",
        pattern=r"The call to cuMemHostRegister\([^\r\n]{0,200}failed(?:[\s\S]{0,200}?Host: +(?P<host>\S+)\s+cuMemHostRegister return value: +(?P<code>-?\d+))?",
        lines=4,
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "pmix-munge-missing",
        keys=("A requested component was not found",),
        cause="PMIx on {host} is to use munge, as Slurm's own does, and does not find munge's library: in a container it is often missing.",
        next="Remove PMIX_MCA_psec from the environment, which Slurm's srun sets to munge in all that it starts, or set it to native. To use munge, install libmunge2 in the image and mount /run/munge.",
        pattern=r"A requested component was not found[\s\S]{0,500}?Host: +(?P<host>\S+)\s+Framework: +psec\s+Component: +munge",
        lines=11,
    ),
    Signature(
        "mpirun-component-missing",
        keys=("A requested component was not found", "No components were able to be opened in the"),
        cause="The Open MPI of {host} lacks a part that mpirun needs ({framework}[[component? {component}]]): it is a "
        "different version or build from that on the other hosts, or its files are incomplete.",
        next="Compare on all hosts: which mpirun; mpirun --version; ompi_info | grep 'MCA {framework}'; if they differ, select one installation: --prefix /PATH. "
        "Remove OMPI_MCA_{framework} and PMIX_MCA_{framework} from the environment: Slurm's srun sets them in a shell that it starts.",
        pattern=r"(?:A requested component was not found|No components were able to be opened)"
        r"[\s\S]{0,500}?Host: +(?P<host>\S+)\s+Framework: +(?P<framework>"
        + _OF_MPIRUN
        + r")\b(?:\s+Component: +(?P<component>\S+))?",
        lines=11,
        unless=("pmix-munge-missing",),
    ),
    Signature(
        "mpi-libfabric",
        keys=("OFI Libfabric library call",),
        cause="Open MPI on {host} cannot use libfabric: {what} failed[[why? ({why})]].",
        next="To run without libfabric: --mca mtl ^ofi --mca btl ^ofi. fi_info on {host} lists its providers. A provider "
        "for a driver other than the loaded one fails like this.",
        pattern=r"OFI Libfabric library call \((?P<what>\w+)\)(?:[\s\S]{0,300}?Local host: +(?P<host>\S+))?(?:[\s\S]{0,300}?Error: +(?P<why>[^\r\n]*"
        r"[^\s.]))?",
        lines=8,
    ),
    Signature(
        "mpi-mixed",
        keys=("has different size in shared object",),
        cause="{program} loads libraries of another installation of Open MPI than its own ({what} differs).",
        next="Run type -a mpirun mpiexec; ldd $(command -v mpiexec) | grep -E 'mpi|open-'. PATH and LD_LIBRARY_PATH must "
        "name one installation only; often both conda and an environment module add theirs.",
        pattern=r"(?P<program>[\w.+-]+): Symbol `(?P<what>(?:orte|opal|ompi|mca|prte|pmix)\w*)' has different size in shared object",
    ),
    Signature(
        "mpirun-broken",
        keys=(
            *(
                "_base_select failed",
                "_base_open failed",
                "ess_hnp_module.c",
                "ess_singleton_module.c",
                "opal_init failed",
            ),
            *(
                "orte_init failed for some reason",
                "pmix_init failed for some reason",
                '"prte_init()" failed for some reason',
            ),
        ),
        cause="mpirun itself, or the daemon that a program without mpirun starts, cannot start on {host}[[what?: {what} finds none of its parts]]: files of its installation are missing, were moved, or are "
        "of another version.",
        next="Run which -a mpirun and ompi_info on {host}. If the installation was moved: export OPAL_PREFIX=/WHERE/IT/IS. env | grep -E 'OMPI_|PMIX_|OPAL_' shows "
        "other variables that may cause this.",
        pattern=r"(?P<what>(?:opal|orte|prte|pmix)_\w+_(?:select|open)) failed|ORTE_ERROR_LOG: (?:Not found in file ess_hnp|A system-required [^\r\n]*in file ess_singleton)_module\.c|opal_init failed"
        r"|(?:orte|pmix|prte)_init(?:\(\)\")? failed for some reason",
        kind=FailureText.FALLBACK,
        unless=("mpi-init-in-child", "session-folder", "mpi-session-folder"),
    ),
    Signature(
        "mpi-init-in-child",
        keys=("getting local rank failed",),
        cause="MPI_Init ran in a process that no launcher started as a rank, but that has the environment variables of a rank: a child of a rank (subprocess, Dask, a worker of a "
        "data loader), or a shell inside mpirun or srun.",
        next="Call MPI in the rank itself only, or start the child without these variables: env -u OMPI_COMM_WORLD_RANK, and the same for the other OMPI_*, PMIX_* and SLURM_* variables.",
    ),
    Signature(
        "mpi-unreachable",
        keys=(
            "pair of MPI processes are unable to reach each other",
            "at least one MPI process is unreachable",
            "help-mca-bml-r2.txt / unreachable proc",
            "pml-add-procs-fail",
            'Returned "Unreachable" (-12)',
        ),
        cause="Two ranks[[one? on {one}]][[other? and {other}]] have no transport in common[[tried? (tried: {tried})]].",
        next="[[tcp?Check why TCP, which was tried, does not connect them: --mca btl_tcp_if_include NETWORK with a network that all hosts share, no firewall between them, and no --mca pmix_base_async_modex"
        "||Allow TCP too: --mca btl tcp,self,vader (5.0: tcp,self,sm), with --mca btl_tcp_if_include NETWORK, a network that the hosts share]].[[one?|| To see "
        "which ranks they are, add --mca orte_base_help_aggregate 0 (4.1).]]",
        pattern=r"pair of MPI processes are unable to reach each other(?:[\s\S]{0,500}?is on host: (?=(?P<one>\S+))(?P<host>\S+)"
        r"[\s\S]{0,120}?is on host: (?:(?P=host)(?=\s)|(?P<other>\S+))\s+BTLs attempted: (?=(?:[^\r\n]*\b(?P<tcp>tcp)\b)?)(?P<tried>[^\r\n]*\S))?"
        r"|process is unreachable|unreachable proc|add-procs-fail|Unreachable",
        lines=10,
        unless=("btl-interface-unknown", "mpi-pml-differ"),
    ),
    Signature(
        "mpi-pml-differ",
        keys=(" selected pml ",),
        cause="The ranks chose different layers for messages: one on {host} has {own}, and its peer on {peer} has {theirs}, so they cannot talk. {theirs} did not start in some ranks.",
        next="Request it, so that those ranks show why it fails: --mca pml {theirs}; most often it is ulimit -l (unlimited where the ranks run), the device files of the HCA, or another build of Open MPI there. "
        "To continue on all alike: --mca pml ob1 --mca btl tcp,self,vader.",
        # ompi/mca/pml/base/pml_base_select.c
        pattern=r"(?:\[(?P<host>[\w.-]+):\d+\] )?\[\[[\d,\]]+ selected pml (?P<own>\w+), but peer \[\[[\d,\]]+ on (?P<peer>\S+) selected pml (?P<theirs>\w+)",
    ),
    Signature(
        "mpi-tcp-connect",
        keys=("Open MPI failed to TCP connect to a peer MPI process", "mca_btl_tcp_endpoint_"),
        cause="A rank on {host} could not connect to another rank[[message? ({message})]]: the address is on a network that "
        "the hosts do not share (docker0, a second NIC), or a firewall blocks it.",
        next="Name the network that they share, using include options rather than exclude options: --mca btl_tcp_if_include "
        "10.0.0.0/24 --mca oob_tcp_if_include 10.0.0.0/24 -x NCCL_SOCKET_IFNAME=NAME.",
        pattern=r"failed to TCP connect to a peer(?:[\s\S]{0,300}?Local host: +(?P<host>\S+)[\s\S]{0,100}?"
        r"Message: +(?P<message>[^\r\n]*\S))?"
        r"|connect\(\) to (?P<message2>\S+(?: on port \d+)? failed: [^\r\n]*\S)",
        lines=9,
    ),
    Signature(
        "mpi-peer-gone",
        keys=("MPI communication peer process has unexpectedly disconnected",),
        cause="A rank lost its connection to a rank of {host}, which ended first.",
        next="Look at the log of the ranks of {host}: the last lines of the one that crashed show why.",
        pattern=r"unexpectedly disconnected(?:[\s\S]{0,900}?Peer host: +(?P<host>\S+))?",
        kind=FailureText.ECHO,
        lines=14,
    ),
    Signature(
        "pmix-unreachable",
        keys=("PMIX TEMPORARILY UNAVAILABLE",),
        cause="The ranks of {host} cannot reach the PMIx server that mpirun has started there: mpirun and the MPI of the program are "
        "of different versions (outside and inside a container), or do not share /tmp.",
        next="Use the mpirun of the program's own installation, as taco-launch does with a container. Otherwise compare mpirun --version on "
        "both sides, and mount /tmp into the container.",
        pattern=r"PMIX TEMPORARILY UNAVAILABLE in file (?:ptl|gds)",
    ),
    Signature(
        "pmix-files",
        keys=("gds_ds12_lock_pthread.c", "gds_ds21_lock_pthread.c", "dstore_base.c"),
        cause="PMIx cannot use the files on {host} through which the ranks of a host find each other: another user left "
        "folders in /tmp, the disk is full, or the file system does not support locks.",
        next="-x PMIX_MCA_gds=hash avoids these files. Otherwise, on {host}: df -h /tmp; ls -ld /tmp/ompi.* /tmp/pmix*.",
        pattern=r"PMIX ERROR: \S[^\r\n]* in file (?:gds_ds\d+_lock_pthread|dstore_base)\.c(?! at line 206\b)",
        survived=True,
        unless=("slurm-without-pmi",),
    ),
    Signature(
        "pmix-files-left",
        keys=("dstore_base.c", "gds_ds12_lock_pthread.c at line 206"),
        cause="PMIx could not remove its files on {host}, which is harmless if the program's output is complete.",
        next="-x PMIX_MCA_gds=hash avoids these files.",
        pattern=r"PMIX ERROR: (?:NO-PERMISSIONS|NOT-FOUND) in file \S*dstore_base\.c|lock_pthread\.c at line 206\b",
        kind=FailureText.NOTE,
        unless=("pmix-files",),
    ),
    Signature(
        "pmix-versions",
        keys=(
            "PMIX ERROR: UNPACK",
            "PMIX_ERR_UNPACK",
            "PMIX ERROR: PMIX_ERR_UNPACK",
            "PMIX ERROR: NOT-SUPPORTED",
            "PMIX_ERR_NOT_SUPPORTED",
        ),
        cause="[[plm?mpirun and its daemon on {host} do not understand each other: the hosts have different versions of Open MPI, or this 5.0 release has a known bug with hosts that "
        "differ||The PMIx of mpirun and that of the program on {host} do not "
        "understand each other. Most often they belong to different versions of Open MPI, on one host or on several]].",
        next="[[plm?Compare mpirun --version on all hosts. If they agree, update Open MPI to the newest 5.0||Use the mpirun "
        "of the program's own MPI. Compare ldd PROGRAM | grep -E 'libmpi|pmix', which mpirun, and mpirun --version on all hosts]].",
        pattern=r"(?:PMIX ERROR: (?:PMIX_ERR_)?(?:UNPACK|NOT[-_]SUPPORTED)|PMIX_ERR_(?:UNPACK|NOT_SUPPORTED))(?:[\w-]{0,60} in file \S{0,120}(?P<plm>plm_base_launch_support\.c))?",
        unless=("slurm-without-pmi", "pmix-session-folder"),
        survived=True,
    ),
    Signature(
        "slurm-without-pmi",
        keys=('direct launched using "srun"',),
        cause="srun started the program, but this Open MPI has no PMI support, which its ranks need to find each other.",
        next="Inside salloc or sbatch, start it with mpirun; or use srun --mpi=pmix if Slurm and Open MPI have the same PMIx (srun "
        "--mpi=list shows what there is).",
    ),
    Signature(
        "mpirun-no-common-network",
        keys=("tcp_peer_send_blocking: send() to socket",),
        cause="mpirun's daemons lost contact: some hosts have only one of the networks in oob_tcp_if_include, and not all the same one.",
        next="Name one network that all hosts share: --mca oob_tcp_if_include 10.0.0.0/24 --mca btl_tcp_if_include 10.0.0.0/24. To list a host's networks: ip -br addr.",
        only_with=("oob-interface-unusable",),
    ),
    Signature(
        "daemon-route",
        keys=("does not know how to route a message to",),
        cause="mpirun cannot reach its own daemon on {host}: the hosts have different versions of Open MPI, or the daemons "
        "use networks that not all hosts share.",
        next="Compare mpirun --version on all hosts, and name the network: --mca oob_tcp_if_include 10.0.0.0/24.",
        pattern=r"does not know how to route a message to(?:[\s\S]{0,200}?target node: +(?P<host>\S+))?",
        lines=7,
        unless=(
            "ssh-unresolvable",
            "ssh-refused",
            "ssh-timed-out",
            "ssh-no-route",
            "ssh-permission-denied",
            "ssh-host-key-refused",
        ),
    ),
    Signature(
        "mpi-session-folder",
        keys=("orte_session_dir failed", "util/session_dir.c"),
        cause="Open MPI cannot make its session folder on {host}, in TMPDIR or /tmp: it is full, not writable, or holds a folder of that name that another user owns.",
        next="Run df -h $TMPDIR /tmp, df -i /tmp and ls -ld $TMPDIR /tmp /tmp/ompi.* on {host}, and remove what is left there. To use another folder: --mca orte_tmpdir_base /PATH, or TMPDIR.",
        pattern=r"orte_session_dir failed|ORTE_ERROR_LOG: [^\r\n]{1,60} in file \S{0,200}util/session_dir\.c",
        unless=("session-folder",),
    ),
    Signature(
        "mpi-session-full",
        keys=("the shared-memory backing",),
        cause="Open MPI cannot write its session files on {host}[[path? ({path})]]: the disk is full, or the folder is another user's.",
        next="Run df -h and ls -ld for it on {host}. To enlarge it in a container: docker run --shm-size=32g; to use another folder: --mca orte_tmpdir_base /PATH, "
        "or TMPDIR.",
        pattern=r"(?:not enough space for (?P<path>/[^\s()]+)[^\r\n]*)?shared-memory backing\s+file",
        lines=2,
    ),
    Signature(
        "rank-caught-signal",
        keys=("Caught signal ",),
        cause="A rank on {host} crashed: {why}[[bus?, most often because /dev/shm was full]][[nvshmem?, in NVSHMEM ({nvshmem})]].",
        next="[[bus?Run df -h /dev/shm where the ranks run. To enlarge it in a container: docker run --shm-size=32g, or --ipc=host]]"
        "[[nvshmem?Use the version of NVSHMEM that the program was built for, the same on all hosts, and set -x NVSHMEM_DEBUG=INFO. Its transports need GPUDirect: check lsmod | grep peermem, and that nv_peer_mem is not loaded beside nvidia_peermem]]"
        "[[other?Read the lines below it, which "
        "name the function, and try one rank alone. Compare the versions of the libraries: different ones are the usual cause]].",
        pattern=r"Caught signal \d+ \((?:(?P<why>(?P<bus>Bus error)[^:)\r\n]*)|(?P<why2>[^:)\r\n]+)(?=[\s\S]{0,1200}?\b(?P<nvshmem>nvshmem\w+)\()|(?P<why3>[^:)\r\n]+)(?P<other>\W|$))",
        kind=FailureText.OUTCOME,
        lines=14,
    ),
    Signature(
        "fork-warned",
        keys=("operating in a condition that could result in memory corruption",),
        cause="A rank on {host} forked a process while it uses RDMA, which Open MPI warns about. Data loaders do this.",
        next="Turn the warning, which is mostly harmless, off: --mca mpi_warn_on_fork 0. If ranks crash then: num_workers=0, or spawn instead of fork.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "mpi-no-port",
        keys=("failed: no port available in the range",),
        cause="Every port that the ranks of {host} may listen on is in use[[range? ({range})]].",
        next="Allow more: --mca btl_tcp_port_range_v4 200 (the number of ports from btl_tcp_port_min_v4 on). See what uses them: "
        "ss -ltnp on {host}; ranks of an older job may still run.",
        pattern=r"bind6?\(\) failed: no port available in the range(?: \[(?P<range>[\d.]+)\])?",
    ),
    Signature(
        "mpi-wrong-peer",
        keys=("accepted a TCP connection from what appears to be a", "received unexpected process identifier"),
        cause="The wrong process answered a rank: several hosts have the same address on some "
        "network (docker0 is 172.17.0.1 on all of them).",
        next="Name the network that the hosts share: --mca btl_tcp_if_include 10.0.0.0/24 --mca oob_tcp_if_include "
        "10.0.0.0/24.",
    ),
    Signature(
        "mpi-runtime-failed",
        keys=("ompi_rte_init failed", "ompi_rte_init) failed"),
        cause="A rank could not reach the launcher of Open MPI (ompi_rte_init): its PMIx is not that of the launcher, or no launcher started it.",
        next="Start the ranks with mpirun, or by srun with a PMIx that Open MPI was built for: srun --mpi=list, then srun --mpi=pmix.",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "mpi-pml-missing",
        keys=("mca_pml_base_open() failed",),
        cause="Open MPI cannot use the layer for messages (pml) that was chosen, or none of those it has.",
        next="List what it has: ompi_info | grep 'MCA pml'. Leave out --mca pml and OMPI_MCA_pml, or name one of these.",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "mpi-init-failed",
        keys=(
            "MPI_INIT has failed",
            "It looks like MPI_INIT failed",
            "It looks like MPI runtime init failed",
            "PML ucx cannot be selected",
            "*** An error occurred in MPI_Init",
        ),
        cause="MPI could not start in a rank[[step?: {step} failed ({why})||, and this log does not show why]].",
        next="Run it with --mca orte_base_help_aggregate 0 (4.1) and -x OMPI_MCA_btl_base_verbose=30, and look at the first "
        "error; --mca pml ob1 --mca btl tcp,self leaves out RDMA.",
        pattern=r"MPI_INIT has failed|PML ucx cannot be selected|An error occurred in MPI_Init"
        r"|It looks like MPI(?:_INIT| runtime init) failed(?:[\s\S]{0,600}?\n +(?P<step>[^\r\n]{3,80}?)(?: failed)?\s+--> Returned (?P<why>[^\r\n]{1,80}?\(-?\d+\)))?",
        lines=12,
        kind=FailureText.FALLBACK,
        unless=("mpi-runtime-failed", "mpi-pml-missing"),
    ),
    Signature(
        "mpirun-text-lost",
        keys=("show_help.c at line",),
        cause="mpirun could not read a message of one of its ranks, so details of a failure may be missing here.",
        next="Run it again with --mca orte_base_help_aggregate 0, which shows the whole message. If it does not, compare mpirun --version on all hosts.",
        pattern=r"ORTE_ERROR_LOG: [^\r\n]*show_help\.c at line \d+",
        kind=FailureText.FALLBACK,
        unless=("mpi-init-failed",),
        at_end=r"show_help\.c at line|orte_base_help_aggregate|sent help message",
    ),
    Signature(
        "mpi-not-running",
        keys=("() function was called before MPI_INIT", "() function was called after MPI_FINALIZE"),
        cause="The program calls {function} [[late?after MPI_Finalize]][[early?before MPI_Init]], which MPI does not allow: a part of it uses MPI[[late? after another one has ended it]][[early? and no part has started it]].",
        next="[[late?Move the call before MPI_Finalize, or leave that to the last user of MPI: destructors and handlers at exit come after it]][[early?Call MPI_Init first (mpi4py: from mpi4py import MPI does it). If ranks are started without MPI (torchrun, ssh), build the program or choose its settings without MPI]].",
        pattern=r"The (?P<function>\w{1,60})\(\) function was called (?:(?P<early>before) MPI_INIT|(?P<late>after) MPI_FINALIZE)",
    ),
    Signature(
        "openib-unused",
        keys=(
            "No preset parameters were found for the device",
            "help-mpi-btl-openib",
            "There is at least non-excluded one OpenFabrics device found",
            "There was an error initializing an OpenFabrics device",
            "infiniband ports on a device are not used by default",
        ),
        cause="Open MPI's old InfiniBand transport (openib) found a device that it does not use. This does not affect NCCL.",
        next="Turn it off: --mca btl ^openib.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "single-copy-denied",
        keys=(", errno = ",),
        cause="Ranks on one host are not allowed to read each other's memory (CMA: process_vm_readv is denied), so messages between them "
        "fail or are copied twice.",
        next="In a container: docker run --cap-add SYS_PTRACE. Else turn it off: --mca btl_vader_single_copy_mechanism none (5.0: "
        "--mca smsc ^cma).",
        pattern=r"Read -1, expected \d+, errno = \d+",
        kind=FailureText.NOTE,
    ),
    Signature(
        "memory-not-bound",
        keys=("tried to bind a process but failed",),
        cause="The memory of the ranks on {host} is not bound to that of their CPUs, which costs some speed: a container is not allowed to do that.",
        next="docker run --cap-add SYS_NICE, or leave binding out: --bind-to none.",
        pattern=r"tried to bind a process but failed(?:[\s\S]{0,400}?Local host: +(?P<host>\S+))?[\s\S]{0,300}?failed to bind memory",
        kind=FailureText.NOTE,
        lines=9,
    ),
    Signature(
        "variable-not-set",
        keys=("could not find environment variable", "Could not find the environment variable"),
        cause="-x {name} passes nothing: the variable is not set where mpirun was started.",
        next="Run export {name}=... first, or give the value: -x {name}=VALUE.",
        pattern=r'(?i:could not find (?:the )?environment variable):? "?(?P<name>[^"\s]+)',
        kind=FailureText.NOTE,
    ),
    Signature(
        "option-deprecated",
        keys=("A deprecated command line option was used", "must be prefixed with double dashes"),
        cause="mpirun 5 accepted [[option?the option {option}||an option]] under its old name; a later version will refuse it.",
        next="[[corrected?Write {corrected} instead, and two||Write two]] dashes before every long option.",
        pattern=r"deprecated command line option was used(?:[\s\S]{0,200}?Deprecated option: +(?P<option>\S+)"
        r"(?:\s+Corrected option: +(?P<corrected>[^\r\n]*\S))?)?|prefixed with double dashes",
        kind=FailureText.NOTE,
        lines=5,
    ),
    Signature(
        "prefix-twice",
        keys=("Both a prefix was supplied to",),
        cause="mpirun was started by its full path and also given --prefix; --prefix wins.",
        next="Remove --prefix: the path already sets it.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "mpi-truncated",
        keys=("MPI_ERR_TRUNCATE: message truncated",),
        cause="A rank received a message that is longer than its buffer: ranks call different collectives, or with different sizes, or two messages have the same tag.",
        next="Compare what the ranks send and receive at that point: sizes, data types, tags and the order of the calls.",
        kind=FailureText.OUTCOME,
        unless=("mpi-call-failed",),
    ),
    Signature(
        "mpi-call-failed",
        keys=("*** An error occurred in MPI_",),
        cause="A rank's call of {call} failed: {why}.",
        next="Read that rank's lines before it: with MPI_ERR_TRUNCATE, the ranks call different collectives, or with different sizes. With MPI_ERR_OTHER or "
        "MPI_ERR_INTERN a transport failed: --mca pml ob1 --mca btl tcp,self shows whether RDMA is at fault.",
        pattern=r"An error occurred in (?P<call>MPI_(?!Init)\w+)[\s\S]{0,600}?(?P<why>MPI_ERR_\w+: [^\r\n]*\S)",
        kind=FailureText.FALLBACK,
        lines=6,
    ),
    Signature(
        "pmix-socket",
        keys=("pmix_server_listener.c", "listener bind() failed"),
        cause="mpirun's daemon on {host} cannot create the socket through which its ranks reach it: the path of its session folder is too long, already in use, or cannot be "
        "written.",
        next="Use a folder with a short path on each host's own disk: export TMPDIR=/tmp on all hosts (or --mca orte_tmpdir_base /tmp), and remove folders that older jobs left: "
        "ls -ld /tmp/ompi.*.",
        pattern=r"(?:pmix_server_)?listener(?:\.c:\d+)? bind\(\) failed",
    ),
    Signature(
        "btl-interface-unknown",
        keys=("] invalid interface ",),
        cause="{host} has no network interface {name}, which btl_tcp_if_include names.",
        next="See what it has: ip -br addr. Names may differ between hosts: give a subnet in which every host has an address, such as 10.0.0.0/24.",
        pattern=r"^\[(?P<host>[\w.-]+)\]\[[^\r\n]{0,200}\] invalid interface \"(?P<name>[^\"\r\n]+)\"",
    ),
    Signature(
        "interface-both-lists",
        keys=("Both TCP interface include and exclude lists were specified",),
        cause="mpirun was given networks to include ({include}) and to exclude ({exclude}), and uses only one of the two.",
        next="Keep only one of them. The other may be set in openmpi-mca-params.conf, ~/.openmpi/mca-params.conf or the environment: env | grep -E "
        "'OMPI_MCA_|PRTE_MCA_|PMIX_MCA_'.",
        pattern=r"exclude lists were specified:?(?:[\s\S]{0,100}?Include: *(?P<include>\S+)[\s\S]{0,100}?Exclude: *(?P<exclude>\S+))",
        lines=6,
    ),
    Signature(
        "mpi-address-changed",
        keys=("btl: tcp: Match incoming connection from ",),
        cause="{host} did not accept rank {rank}'s connection: it comes from {address}, an address that this rank did not announce. Something changes addresses on "
        "the way (NAT), as docker's bridge does.",
        next="docker run --network host. Otherwise add --mca btl_tcp_if_include NETWORK with a network whose addresses arrive unchanged.",
        pattern=r"^\[(?P<host>[\w.-]+):\d+\] btl: tcp: Match incoming connection from \[\[\d+,\d+\],(?P<rank>\d+)\] (?P<address>\S+) with locally known IP \S+ failed",
        kind=FailureText.FALLBACK,
        at_end=r"btl: tcp: ",  # of several addresses one may match
    ),
    Signature(
        "mpi-cuda-ipc-off",
        keys=("help-mpi-common-cuda.txt / cuIpc",),
        cause="Open MPI cannot share GPU memory between ranks of one host (CUDA IPC), and copies it through the host's memory.",
        next="Give containers of one host --ipc=host and all GPUs. To turn the message off: --mca btl_smcuda_use_cuda_ipc 0.",
        kind=FailureText.NOTE,
    ),
    Signature(
        "psm2-failed",
        keys=("PSM2 can't open hfi unit", "PSM2 was unable to open an endpoint"),
        cause="MPI on {host} cannot open the Omni-Path adapter (PSM2): the memlock limit is too low, its link is down, or there are more ranks than PSM2 contexts.",
        next="Check the limit with mpirun ... bash -c 'ulimit -l', which has to show unlimited (limits.conf, or LimitMEMLOCK of sshd or slurmd), and the link with "
        "opainfo on {host}. To run without PSM2: --mca mtl ^psm2 (Open MPI), -x FI_PROVIDER=tcp (Intel MPI, MPICH).",
    ),
    Signature(
        "pmix-munge",
        keys=("psec: munge failed to create credential",),
        cause="PMIx on {host} cannot use munge, which identifies its users: munged does not run, or its socket is not in the container.",
        next="Mount /run/munge into the container, or -x PMIX_MCA_psec=native.",
    ),
    Signature(
        "pmix-out-of-resource",
        keys=("PMIX ERROR: OUT-OF-RESOURCE in file client/", "PMIX ERROR: PMIX_ERR_OUT_OF_RESOURCE in file client/"),
        cause="A rank on {host} did not get what PMIx requires when it starts. Most often its session folder or /dev/shm is full or not writable, or the host has too many ranks for its limits.",
        next="Check on {host}: df -h /dev/shm $TMPDIR, df -i $TMPDIR and ulimit -a where the ranks run. If these are fine, try fewer ranks per host, then the newest release of the same Open MPI series.",
        survived=True,
    ),
    Signature(
        "pmix-session-folder",
        keys=("gds_shmem2.c", "shmem: mmap: an error occurred while determining"),
        cause="A rank on {host} cannot open the files through which the ranks of a host find each other: the session folder[[path? {path}]] is not in its container, or "
        "is not readable.",
        next="Mount that folder (srun's: /tmp/spmix_appdir_*) into the container. -x PMIX_MCA_gds=hash avoids these files.",
        pattern=r"PMIX_ERR_FILE_OPEN_FAILURE in file \S{0,200}gds_shmem2\.c|determining whether or not (?P<path>/\S{0,120}spmix_\S+) could be created",
        survived=True,
    ),
    Signature(
        "pmix-no-server",
        keys=("PMIX ERROR: NOT-FOUND in file ptl_",),
        cause="The program on {host} finds no PMIx server of its own: srun has no PMIx that matches the program's, or a task of srun starts a second MPI program.",
        next="Use srun --mpi=pmix (srun --mpi=list shows the supported types), with one srun for each MPI program. Or use mpirun inside salloc or sbatch.",
        pattern=r"PMIX ERROR: NOT-FOUND in file ptl_\w+\.c",
        survived=True,
    ),
    Signature(
        "pmix-not-initialized",
        keys=("OPAL ERROR: Not initialized in file pmix",),
        cause="A rank on {host} found no PMIx server: the mpirun that started it belongs to another Open MPI than its library, or srun started it without PMIx.",
        next="Compare which mpirun with ldd PROGRAM | grep -E 'libmpi|pmix', on every host; use one installation for both. Under Slurm: srun --mpi=pmix.",
    ),
)
