"""Failure messages of MPICH, Intel MPI and Hydra, their launcher.

Sources: MPICH's src/pm/hydra, src/mpid/ch3 and ch4/netmod/ofi.
"""

from taco_launch.core.signatures.known import FailureText, Qualifier, Signature

MPICH = (
    Signature(
        "hydra-proxy-missing",
        keys=("hydra_pmi_proxy", "hydra_bstrap_proxy"),
        cause="Hydra cannot start its own proxy {program} on {host}: the installation there is incomplete, or has another path.",
        next="Start mpiexec by its full path, and use an installation that exists under the same path on all hosts: ls -l {program} on {host}. A build tree (.libs) is none: make install.",
        pattern=r"(?:\[proxy:[\d:]+@(?P<host>[^\]\s]+)\][^\r\n]*)?execvp error on file (?P<program>\S*hydra_\w{1,20}_proxy) \("
        r"|^\w{2,5}: (?:line \d+: )?(?P<program2>\S*hydra_\w{1,20}_proxy): (?:[Nn]o such file|command not found|not found)",
    ),
    Signature(
        "mpich-singleton",
        keys=("This singleton init program attempted to access", "PMII_singinit: execv failed"),
        cause="The processes of an MPICH program on {host} found no process manager, so each runs alone, as rank 0 of 1: their launcher does not speak the PMI of this MPICH.",
        next="In Slurm, use srun --mpi=pmi2 (srun --mpi=list shows the others; MPICH has to be built for the same one). Otherwise start the program by the mpiexec of its own MPICH.",
    ),
    Signature(
        "hydra-program-missing",
        keys=("execvp error on file",),
        cause="Hydra cannot start {program} on {host}: {why}.",
        next="Give its full path, or ./NAME for a program in the current folder. It must exist on every host: ls -l "
        "{program} on {host}.",
        pattern=r"(?:\[proxy:[\d:]+@(?P<host>[^\]\s]+)\][^\r\n]*)?execvp error on file (?!\d+ |-)(?P<program>\S+) \((?P<why>[^)\r\n]+)\)",
        unless=("hydra-proxy-missing",),
    ),
    Signature(
        "hydra-no-program",
        keys=("execvp error on file",),
        cause="mpiexec (Hydra) read {word} as the program: an option before it lacks its value, or a variable in the line is empty.",
        next="Print the line with its values (set -x before it), and correct the options before {word}.",
        pattern=r"execvp error on file (?P<word>\d+|-\S*) \(",
    ),
    Signature(
        "hydra-hostfile-of-pbs",
        keys=("nable to open host file",),
        cause="mpiexec cannot open {file}, in which PBS lists the hosts: a container does not have that folder.",
        next="Bind it (apptainer exec -B {folder}), or start mpiexec outside the container: mpiexec apptainer exec IMAGE PROGRAM.",
        pattern=r"nable to open host file:? +(?P<file>(?P<folder>/\S{0,200}?/(?:PBS|pbs|torque)/aux)/\S+)",
    ),
    Signature(
        "hydra-hostfile-missing",
        keys=("nable to open host file",),
        cause="mpiexec cannot open the hostfile {file}.",
        next="Check its name where mpiexec runs: ls -l {file}. A relative name starts from the current folder: give the full path after -f (Intel MPI: -hostfile).",
        pattern=r"nable to open host file:? +(?P<file>[^\r\n]*\S)",
        unless=("hydra-hostfile-of-pbs",),
    ),
    Signature(
        "hydra-bootstrap",
        keys=("nable to run bstrap_proxy", "nable to run proxy", "rror setting up the boo", "HYD_bstrap_setup ("),
        cause="Intel MPI's mpiexec could not start its proxy on {host}[[code? (exit code {code})]]. It uses ssh, or srun inside a "
        "Slurm job[[alone?, even for its own host]].",
        next="[[alone?Set I_MPI_HYDRA_BOOTSTRAP=fork in the environment if all ranks are on one host: it requires no ssh server, which containers lack||Test the connection by hand: ssh {host} true. "
        "I_MPI_HYDRA_BOOTSTRAP=ssh (or slurm) in the environment selects one of the two, and I_MPI_HYDRA_DEBUG=1 shows the command]].",
        pattern=r"nable to run (?:bstrap_proxy|proxy(?=[^\r\n]{0,100} \(pid ))(?: on (?=(?P<alone>localhost|127\.)?)(?P<host>[\w.-]+)(?::\d+)?)?(?: \(pid \d+, exit code (?P<code>\d+)\))?"
        r"|rror setting up the boots?trap proxies|HYD_bstrap_setup \([^)\r\n]{1,200}\): error waiting",  # one version has a slip of the pen
        unless=("slurm-pmi-disturbed",),
    ),
    Signature(
        "hydra-pbs",
        keys=(" failed with TM error ", "tm_init failed", "tm_spawn failed"),
        cause="mpiexec on {host} starts its proxies through the task manager of PBS, and that failed ({what}[[code?, TM error {code}]]).",
        next="Run it inside a PBS job (qsub -I; echo $PBS_JOBID). If it is, this mpiexec was built for another PBS: mpiexec -launcher ssh -rmk none (Intel MPI: -bootstrap ssh) starts the proxies by ssh; give the hosts with -f $PBS_NODEFILE.",
        pattern=r"^(?:\[mpiexec@(?P<host>[\w.-]+)\])?[^\r\n]*?(?P<what>\btm_\w+(?:\(\w*\))?) failed(?: with TM error (?P<code>\d+))?",
    ),
    Signature(
        "hydra-launcher-failed",
        keys=(
            "launcher init returned error",
            "launcher cannot launch processes",
            "launcher returned error waiting for completion",
            "unable to initialize the bootstrap server",
            "bootstrap server cannot launch processes",
        ),
        cause="mpiexec on {host} could not start its proxies with its launcher, and this log does not show why.",
        next="Read the line above it, which the launcher wrote. mpiexec -launcher ssh (or fork, for this host alone) uses another one; -verbose shows the command.",
        pattern=r"(?:\[mpiexec@(?P<host>[\w.-]+)\])?[^\r\n]*?(?:launcher (?:init returned error|cannot launch processes|returned error waiting)|unable to initialize the bootstrap server|bootstrap server cannot launch)",
        kind=FailureText.FALLBACK,
        unless=(
            "hydra-pbs",
            "hydra-bootstrap",
            "hydra-connect",
            "hydra-rank-ended",
            "hydra-proxy-missing",
            "hydra-name-unresolved",
            "ssh-unresolvable",
        ),
    ),
    Signature(
        "hydra-option",
        keys=("unrecognized argument ",),
        cause="The mpiexec that ran is of MPICH or Intel MPI (Hydra), which has no option {option}.",
        next="Use that option's name in Hydra (mpiexec -help), or the mpirun that the command is written for: which -a mpirun mpiexec. Open MPI has --bind-to, --map-by, --mca and -x; Hydra -bind-to, -genv and -genvlist.",
        pattern=r"match_arg \([^)\r\n]*\): unrecognized argument (?P<option>\S+)",
    ),
    Signature(
        "hydra-connect",
        keys=("nable to connect from", "unable to connect to server "),
        cause="Hydra's proxy on {host} cannot connect back to mpiexec on {peer}[[port?, port {port}]][[why? ({why})]]: a firewall blocks it, or that name "
        "resolves to another address there.",
        next="On {host}, run getent hosts {peer}, and name the interface to use: mpiexec -iface NAME. If only some ports are open: MPIEXEC_PORT_RANGE=20000:20100 "
        "(Intel MPI: I_MPI_PORT_RANGE).",
        pattern=r'nable to connect from "(?P<host>[^"\r\n]+)" to "(?P<peer>[^"\r\n]+)" \((?P<why>[^)\r\n]+)\)'
        r"|(?:\[proxy:[\d:]+@(?P<host2>[^\]\s]+)\][^\r\n]*)?unable to connect to server (?P<peer2>\S+) at port (?P<port>\d+)",
        unless=("hydra-name-unresolved",),
    ),
    Signature(
        "hydra-name-unresolved",
        keys=("unable to get host address",),
        cause="Hydra's proxy[[host? on {host}]] cannot resolve [[peer?{peer}, ]]the name of the host on which mpiexec runs[[why? ({why})]].",
        next="Add that name to /etc/hosts[[host? on {host}]] until getent hosts [[peer?{peer}||NAME]] prints an address that the hosts share. Or have the launcher use another name: mpiexec -localhost ADDRESS, or -iface INTERFACE.",
        pattern=r"(?:\[proxy:[\d:]+@(?P<host>[^\]\s]+)\][^\r\n]*)?unable to get host address(?: for (?P<peer>[\w.-]+))?(?: \((?P<why>[A-Z][^)\r\n]+)\))?"
        r"(?:[^\r\n]*\r?\n[^\r\n]*?(?:\[proxy:[\d:]+@(?P<host2>[^\]\s]+)\][^\r\n]*)?unable to connect to server (?P<peer2>\S+) at port)?",
        lines=2,
    ),
    Signature(
        "hydra-rank-ended",
        keys=("BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",),
        cause="[[rank?Rank {rank}||A process]] on {host} ended badly ([[why?{why}||exit code {code}]][[term?: most often SIGTERM, by which a time limit or another process ended it]][[stop?: "
        "SIGINT (Ctrl-C), or what Python's argument parser ends with]]).",
        next="Read that rank's own lines before this point. Signal 9 (exit code 137) is a KILL, most often because memory ran out: "
        "dmesg -T on {host}; 6 (134) is an abort by the program or a library, 11 (139) a segmentation fault.",
        pattern=r"BAD TERMINATION OF ONE OF YOUR[^\r\n]*\s+=\s+(?:RANK (?P<rank>\d+) )?PID \d+ RUNNING AT (?P<host>\S+)\s+=\s+"
        r"(?:EXIT CODE|EXIT STATUS|KILLED BY SIGNAL): (?=(?P<term>15\b)?)(?=(?P<stop>2\b)?)(?P<code>\d+)(?: \((?P<why>[^)\r\n]+)\))?",
        kind=FailureText.OUTCOME,
        lines=14,  # a second such frame below it may tell the same
        unless=("cpp-exception",),
    ),
    Signature(
        "intelmpi-no-pmi",
        keys=("PMI server not found",),
        cause="Intel MPI's ranks cannot find each other: the program was started without mpiexec, or by srun without the "
        "path of Slurm's PMI library.",
        next="Start it with mpiexec.hydra. Or use srun --mpi=pmi2, and set I_MPI_PMI_LIBRARY to the path of Slurm's libpmi2.so.",
        pattern=r"PMI server not found",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "ofi-no-network",
        keys=("OFI ",),
        cause="MPI found no network on {host} that its libfabric can use ({what}[[why?: {why}]]).",
        next="fi_info -l lists the providers of that host. FI_PROVIDER=tcp shows whether the rest works; FI_LOG_LEVEL=warn shows why another provider, such as verbs or psm3, is not "
        "used.",
        pattern=r"OFI (?!poll )(?:call )?(?P<what>\w+(?: \w+)*)(?:\(\))? failed \((?:[^():\r\n]*:)+ *(?P<why>[^():\r\n]+)\)|OFI (?P<what2>fi_getinfo)\(\) failure",
    ),
    Signature(
        "ofi-operation-failed",
        keys=("OFI poll failed",),
        cause="A network operation of MPI (libfabric) failed during the run[[cancelled?: it was cancelled, because the job was ended from outside or another rank "
        "ended]][[long?: a message is longer than the buffer of its receiver]][[why?: {why}. Most often the rank at the other end is gone]].",
        next="[[long?Compare the count and type of the send and the receive in the program.||Look for the rank or host that ended first, and for what ended the job (sacct -j JOBID, scancel, a time limit). If none did, "
        "dmesg -T on both hosts shows whether the network failed.]]",
        pattern=r"OFI poll failed \([^()\r\n]*?(?:Input/output error - )?(?:(?P<cancelled>CANCELED|Operation canceled)|(?P<long>Message too long|Truncation error)|(?P<why>[A-Z][\w /-]+))\)",
        kind=FailureText.ECHO,
    ),
    Signature(
        "ofi-mtl-failed",
        keys=("Error returned from fi_cq_readerr",),
        cause="Open MPI's transport over libfabric (MTL ofi) failed on {host}: {why}.",
        next="Continue without it: --mca pml ucx, or --mca pml ob1 --mca mtl ^ofi. -x FI_PROVIDER=tcp shows whether it is the provider's fault; -x FI_LOG_LEVEL=warn names the provider.",
        pattern=r"Error returned from fi_cq_readerr: (?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "ofi-mismatch",
        keys=("Mismatched address format: remote EP",),
        cause="The hosts use different libfabric providers: the addresses of {host} have a different format from those of the other host.",
        next="Use the same provider on all hosts: -x FI_PROVIDER=verbs, or tcp. To run without libfabric: --mca mtl ^ofi --mca pml ob1 (or ucx).",
        pattern=r"(?:(?P<host>[\w.-]+):rank\d+: +)?Mismatched address format: remote EP",
    ),
    Signature(
        "ofi-address-map",
        keys=("OFI get address vector map failed",),
        cause="MPI on {host} could not build its map of all ranks' addresses: libfabric ran out of resources (address handles, memory), or the addresses of some ranks are on "
        "another network.",
        next="Try with fewer ranks, and with the newest libfabric of that provider. To see whether the provider is at fault: FI_LOG_LEVEL=warn names it and its "
        "error, and FI_PROVIDER=tcp (Intel MPI: also psm3 or verbs) replaces it.",
    ),
    Signature(
        "mpich-without-launcher",
        keys=("Unable to write to PMI_fd", "PMI_Get_appnum returned -1"),
        cause="A rank on {host} found environment variables (PMI_FD, PMI_RANK) of a launcher that is not running or did not start it, so MPICH or Intel MPI could not start.",
        next="Start it with the mpirun of that MPI. Under another launcher, remove these variables: env -u PMI_FD -u PMI_RANK -u PMI_SIZE COMMAND. oneCCL under torchrun: "
        "-x CCL_PROCESS_LAUNCHER=none.",
    ),
    Signature(
        "cray-mpich-nic",
        keys=("Unable to use a NIC_POLICY of ",),
        cause="Cray MPICH cannot select a NIC for rank {rank} with the NIC policy {policy}: the cores of that rank are in several NUMA nodes.",
        next="Bind each rank to cores of one NUMA node: srun --cpus-per-task=N --cpu-bind=cores (or --gpus-per-task and --gpu-bind=closest), or set MPICH_OFI_NIC_POLICY=BLOCK.",
        pattern=r"Unable to use a NIC_POLICY of '(?P<policy>\w+)'\. Rank (?P<rank>\d+) is not confined",
    ),
    Signature(
        "mpich-address",
        keys=("in business card",),
        cause="A rank of MPICH on {host} cannot read the address that another rank published: the ranks use different builds of MPICH (host and container), or a host name cannot be resolved there.",
        next="Use the same MPICH on both sides (check with mpichversion): the launcher and a container must have the same "
        "one. Run getent hosts NAME in each container; MPICH_INTERFACE_HOSTNAME=ADDRESS publishes that address instead of a name.",
    ),
    Signature(
        "mpich-truncated",
        keys=(" truncated; ",),
        cause="An MPI receive has room for {room} bytes, but {got} arrived[[sender? from rank {sender} (tag {tag})]]: the two sides do not agree on the size.",
        next="[[sender?Compare the count, type and tag of that send and that receive in the program.||In a collective, the "
        "ranks use different counts or call it in a different order (Horovod: different tensors, or a smaller last batch on one rank). Print the shapes before the call.]]",
        pattern=r"Message(?: from rank (?P<sender>\d+) and tag (?P<tag>-?\d+))? truncated; (?P<got>\d+) bytes received but buffer size is (?P<room>\d+)",
    ),
    Signature(
        "mpich-peer",
        keys=("Communication error with rank ", "(unknown)(): connection failure"),
        cause="A rank of MPICH on {host} cannot reach [[rank?rank {rank}||another rank]][[why? ({why})]]: that rank has ended, or its host name resolves to an address that cannot be reached, or its port is blocked.",
        next="If no rank ended first, run getent hosts NAME on each host: it must show an address on the network that the hosts share (not 127.0.x.x for the host's "
        "own name in /etc/hosts). Open all ports between the hosts, or name the interface: -iface eth0 (or MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE).",
        pattern=r"Communication error with rank (?P<rank>\d+)(?:: (?P<why>[A-Z][\w ]+\w))?|\(unknown\)\(\): connection failure",
        kind=FailureText.ECHO,
    ),
    Signature(
        "mpich-pmi",
        keys=(
            "PMI_KVS_Get returned -1",
            "PMI2_KVS_Get returned",
            "PMI_Barrier returned",
            "PMI_KVS_Put returned",
            "PMI_KVS_Commit returned",
        ),
        cause="The ranks of MPICH could not exchange their addresses through the launcher (PMI)[[step?, in {step}]]: a rank ended during startup, or the launcher and the program use different MPI installations.",
        next="Check that which mpirun and ldd PROGRAM | grep libmpi show the same installation on all hosts. Then try a program without GPUs: mpirun -n 2 -ppn 1 "
        "hostname.",
        pattern=r"PMI2_KVS_Get returned|(?P<step>PMI_\w{1,40}) returned",
        kind=FailureText.ECHO,
    ),
    Signature(
        "cray-mpich-gpu",
        keys=("GPU_SUPPORT_ENABLED is requested, but GTL library is not linked",),
        cause="MPICH_GPU_SUPPORT_ENABLED=1 is set, and the program (or mpi4py) was linked without Cray MPICH's library for GPUs (GTL).",
        next="Build it with cc or CC and with the accelerator's module loaded (craype-accel-...); for mpi4py: MPICC='cc -shared' pip install --no-binary=mpi4py mpi4py. If the program passes no GPU buffers to MPI: "
        "MPICH_GPU_SUPPORT_ENABLED=0.",
    ),
    Signature(
        "hydra-exit-string",
        keys=("APPLICATION TERMINATED WITH THE EXIT STRING",),
        cause="A process of MPICH or Intel MPI was ended by signal {signal} ({why})[[bus?, most often because /dev/shm was full]][[killed?, most often because memory ran out]].",
        next="[[bus?Run df -h /dev/shm where the ranks run. In a container: docker run --shm-size=32g, or --ipc=host.]][[killed?Run dmesg -T | grep -i kill there. Use smaller batches or fewer data loader workers.]][[other?Read the last "
        "lines of each rank; in Python: -x PYTHONFAULTHANDLER=1.]]",
        pattern=r"EXIT STRING: (?P<why>[A-Z][\w ]*\w) \(signal (?P<signal>(?P<bus>7)|(?P<killed>9)|(?P<other>\d+))\)",
        kind=FailureText.OUTCOME,
        unless=("hydra-rank-ended",),
    ),
    Signature(
        "hydra-proxy-refused",
        keys=("nable to connect to proxy",),
        cause="mpiexec (Hydra) could not connect to its proxy on a host: nothing listens there yet, or a firewall blocks the port.",
        next="Start persistent proxies before mpiexec, and wait until they listen (ss -ltnp on that host), or let mpiexec start them by ssh: mpiexec -launcher ssh.",
    ),
    Signature(
        "mpich-failed",
        keys=("Fatal error in ",),
        cause="[[rank?Rank {rank}||A rank]] of MPICH or Intel MPI ended in {call}: [[last?{last}||{why}]].",
        next="Read the last line of its error stack, which gives the reason. If it names OFI, FI_PROVIDER=tcp (Intel MPI: I_MPI_FABRICS=shm:ofi) shows whether the "
        "network is at fault; if it names UCX, use UCX_TLS=tcp,sm,self.",
        pattern=r"(?:\(rank (?P<rank>\d+) in comm \w+\): )?Fatal error in (?P<call>\w+): (?P<why>[^\r\n]*?)(?:, error stack:?)?[ .:]*(?=\r?\n|$)"
        r"(?:(?:\r?\n){1,2}\w{1,80}\(\d{1,6}\)\.*: *(?P<last>[^\s][^\r\n]*)?)*",
        lines=20,
        kind=FailureText.FALLBACK,
        unless=("ucx-queue-pairs", "mpich-own-name", "mpich-shared-memory"),
    ),
    Signature(
        "mpich-own-name",
        keys=("gethostbyname failed, ",),
        cause="A rank of MPICH or Intel MPI cannot resolve {name}, the name of its own host.",
        next="Add the name to /etc/hosts of that host until getent hosts {name} prints its address, or choose the network: mpiexec -iface INTERFACE.",
        pattern=r"gethostbyname failed, (?P<name>[\w.-]+)",
    ),
    Signature(
        "mpich-shared-memory",
        keys=("SHMW_Seg_", "MPL_shm_seg_", "MPIDU_shm_seg_"),
        cause="A rank of MPICH or Intel MPI on {host} could not open shared memory: {why}.",
        next="Look at /dev/shm and the temporary folder there (df -h, ls -l): free them, and remove what another user left. In a container: --shm-size.",
        pattern=r"(?:SHMW_Seg_|shm_seg_)\w*\(\d{1,6}\)\.*: *(?P<why>[^\r\n]*[^\s.])",
    ),
    Signature(
        "mvapich-crashed",
        keys=("[error_sighandler] Caught error: ",),
        cause="Rank {rank} on {host} crashed: {why}.",
        next="Start it with -x MV2_DEBUG_SHOW_BACKTRACE=1 (in Python -x PYTHONFAULTHANDLER=1), which shows where. If it is in MPI_Init, rebuild the program with the MVAPICH2 that starts it.",
        pattern=r"\[(?P<host>[\w.-]+):mpi_rank_(?P<rank>\d+)\]\[error_sighandler\] Caught error: (?P<why>[^\r\n(]{1,80}[^\s(])",
    ),
)
OF_RANKS_ALIKE = (
    Qualifier(
        r"^= [^\n]*RUNNING AT (?P<one>\S+)\n= +(?:EXIT CODE|EXIT STATUS|KILLED BY SIGNAL): (?P<code>9)\b[^\n]*\n(?:[^\n]*\n){1,11}?= +BAD TERMINATION[^\n]*\n= [^\n]*RUNNING AT (?!(?P=one)\n)\S+\n= +(?:EXIT CODE|EXIT STATUS|KILLED BY SIGNAL): (?P=code)\b",
        "Several processes of the job were killed alike (signal 9), one of them on {host}: memory rarely ends all at once. Either none got through the start of MPI, or one ended first and Hydra killed the others.",
        "If they wrote nothing before, start them with the mpiexec of the program's own MPI (ldd PROGRAM | grep -E 'libmpi|libpmi' shows which). Otherwise look for the one that ended first: dmesg -T | grep -i kill on each host shows whether its memory ran out.",
    ),
)
