"""Recognise what launchers print: mpirun 4.1 (ORTE) and 5.0 (PRRTE), from their help-*.txt files and real runs; torchrun about signals."""

from taco_launch.core.signatures.known import FailureText, Signature

_ORTED = r"(?P<daemon>[\w.-]*(?:orted|prted)[\w.-]*)"
_REMOTE = r"(?:[\s\S]{0,1500}?Remote host: +(?P<host>\S+))?"
_NODE = r"(?=(?:[\s\S]{0,500}?Node: *(?P<host>\S+))?)"
_RANK = r"Process name: \[.*,(?P<rank>\d+)\]\s+Exit code: +"
# torchrun's own words of the rank that failed first on its host, up to the signal's number.
_OR_BOX = (
    r"|Root Cause \(first observed failure\):\s+\[0\]:\s+time[^\n]*\s+host +: (?:localhost\s|(?P<host2>\S+))\s*"
    r"rank +: (?P<rank2>\d+)[^\n]*\s+exitcode +: -"
)

LAUNCHER = (
    Signature(
        "mpirun-inside",
        keys=("does not support recursive calls",),
        cause="A launcher was started inside a launcher: the program of a rank is mpirun itself, which refuses to run there.",
        next="Give the program alone, without mpirun and its options: taco-launch run --np 4 -- python3 train.py.",
        pattern=r"(?:mpirun|mpiexec|orterun) does not support recursive calls",
    ),
    Signature(
        "orted-not-on-path",
        keys=("orted: command not found", "prted: command not found", "orted: not found", "prted: not found"),
        cause="On {host} there is no {daemon} on the PATH of a non-interactive ssh session, so mpirun cannot start its daemon "
        "there.",
        next="Name mpirun by its full path, the same on every host (mpirun: in the inventory): its folder is then used as "
        "the prefix on every host. Check: ssh -p PORT {host} 'command -v {daemon}', where PORT is the SSH port of the container, not of the host.",
        pattern=r"(?<![/\w.-])" + _ORTED + ": (?:command )?not found" + _REMOTE,
        lines=14,
    ),
    Signature(
        "orted-wrong-prefix",
        keys=("orted: No such file", "prted: No such file", "orted: not found", "prted: not found"),
        cause="mpirun looks for its daemon at {path}, but {host} has no daemon there: the prefix does not fit that host.",
        next="Find where it is: ssh -p PORT {host} 'ls -d /usr/local/openmpi/bin /opt/*/bin; command -v orted prted'. Then "
        "name mpirun by that path (mpirun: in the inventory), or install the same Open MPI in the same place.",
        pattern=r"(?P<path>/\S*/(?:orted|prted)): (?:No such file or directory|not found)" + _REMOTE,
        lines=14,
    ),
    Signature(
        "host-lost",
        keys=("has lost communication with a remote daemon", "has lost communication with its daemon located on node"),
        cause="mpirun lost its daemon on {host}: the host went down or off the network, or the daemon was killed.",
        next="ssh {host} uptime; dmesg -T | tail -50 there (out of memory? link down?). Leave the host out with --exclude if it is "
        "not well.",
        pattern=r"lost communication with a remote daemon(?:[\s\S]{0,400}?Remote daemon: \S+ on node (?P<host>\S+))?|lost communication with its daemon located on node:?(?:\s{1,200}hostname:\s{1,20}(?P<host2>\S+))?",
        lines=6,
    ),
    Signature(
        "daemon-cannot-call-back",
        keys=("unable to complete a TCP connection", "was unable to establish a TCP connection"),
        cause="A daemon of mpirun on {host} could not connect back to mpirun: a firewall blocks it, or the address is on another network.",
        next="Name the network to use: --mca oob_tcp_if_include NAME (4.1) or --prtemca prte_if_include NAME (5.0), a name "
        "or a subnet such as 10.0.0.0/24, and open its ports between the hosts.",
        pattern=r"(?:A process or daemon was unable to complete|was unable to establish) a TCP connection"
        r"(?:[\s\S]{0,300}?Local host: +(?P<host>\S+))?",
        lines=8,
    ),
    Signature(
        "launch-failed",
        keys=(
            "unable to reliably start one or more daemons",
            "A daemon failed to report back after being spawned",
            "has unexpectedly failed after launch",
        ),
        cause="[[early?mpirun's daemon on {host} ended before it reported back, or cannot reach mpirun||mpirun could not start its daemon on {host}]], and this log does not show why.",
        next="[[early?In a Slurm job, first: export SLURM_EXPORT_ENV=ALL; srun -l bash -c 'command -v orted' must find it on each node. Otherwise test ssh by hand: ssh -p PORT {host} 'command -v orted prted'; if that works, name the network: "
        "--mca oob_tcp_if_include NETWORK.||Test the connection by hand: ssh -p PORT {host} 'command -v orted prted' (--mca plm_base_verbose 5 shows mpirun's own ssh command). If ssh works, the "
        "daemon cannot connect back: --mca oob_tcp_if_include NETWORK.]]",
        pattern=r"unable to reliably start|(?:(?P<early>unexpectedly) )?failed after launch|failed to report back"
        + _REMOTE,
        kind=FailureText.FALLBACK,
        lines=14,
    ),
    Signature(
        "mpi-spawn-failed",
        keys=("MPI_ERR_SPAWN", "An error occurred in MPI_Comm_spawn"),
        cause="The program starts more processes through MPI (MPI_Comm_spawn, mpi4py's MPIPoolExecutor), and they did not start: most often the job has no free slot for them.",
        next="Allow more ranks than slots: --mca rmaps_base_oversubscribe 1 (5.0: --mca rmaps_default_mapping_policy :oversubscribe). With MPIPoolExecutor, start the workers as ranks instead: python3 -m mpi4py.futures SCRIPT.",
    ),
    Signature(
        "not-enough-slots",
        keys=(
            "not enough slots available in the system",
            "All nodes which are allocated for this job are already filled",
            "larger than total available slots",
        ),
        cause="There are fewer slots than ranks[[asked? (requested: {asked})]].",
        next="Request fewer ranks (-np), or give the hosts more slots: -H gpu1:8,gpu2:8 (a bare name is one slot), slots=8 in "
        "the hostfile. If more ranks than slots are meant: --mca rmaps_base_oversubscribe 1 (5.0: --mca rmaps_default_mapping_policy :oversubscribe)[[list?; if --cpu-set "
        "limits the slots, extend it, or add --use-hwthread-cpus]].",
        pattern=r"not enough slots available in the system (?:to satisfy the (?P<asked>\d+)|or not enough[\s\S]{0,200}?Number of procs: +(?P<asked2>\d+)\s+pe-list: "
        r"(?P<list>\S+))|already filled|Process number should not be larger than total available slots",
        lines=8,
        unless=("mpi-spawn-failed",),
    ),
    Signature(
        "executable-not-found",
        keys=("as it could not", "access an executable", "unable to find the specified executable"),
        cause="mpirun cannot run {what} on {host}: it does not exist or is not executable.",
        next="Check where the ranks run (in a container: inside it): command -v {what}; ls -l {what}. A script needs chmod +x and a #! "
        "line, or python3 before it.",
        pattern=r"(?:could not(?: access|\s+access)|unable to find the specified executable)"
        r"(?=[\s\S]{0,500}?Executable: *(?! |none\b|[A-Z][A-Z0-9_]{2,}\s*(?:\n|$)|-|[A-Za-z_]\w*=)(?P<what>[^\r\n]*\S))"
        + _NODE,
        lines=11,
    ),
    Signature(
        "option-without-value",
        keys=("unable to find the specified executable",),
        cause="mpirun took {what} for the program: an option before it has no value, or an empty one.",
        next="Look at the line before {what}: a variable of the shell may be empty there (echo the line first). Each variable needs an -x of its own.",
        pattern=r"unable to find the specified executable(?=[\s\S]{0,500}?Executable: *(?P<what>[A-Z][A-Z0-9_]{2,}|-[^\r\n]*\S|[A-Za-z_]\w*=[^\r\n]*)\s*(?:\n|$))"
        + _NODE,
        lines=11,
    ),
    Signature(
        "runtime-versions-differ",
        keys=("detected a mismatch in versions between two processes",),
        cause="The hosts have different versions of mpirun's runtime[[version?: {version} on {host}, {other} on {where}]].",
        next="Install the same Open MPI on all hosts, or name one installation: --prefix /PATH. See what a login without a terminal finds first on its PATH: ssh "
        "[[where?{where}||HOST]] 'command -v prted orted'.",
        pattern=r"detected a mismatch in versions between two processes(?:[\s\S]{0,600}?Host 1: +(?P<host>\S+)\s+Version: +(?P<version>\S+)"
        r"\s+Host 2: +(?P<where>\S+)\s+Version: +(?P<other>\S+))?",
        lines=14,
    ),
    Signature(
        "single-dash-option",
        keys=("unable to find the specified executable",),
        cause="mpirun 5 read an option as the command: it requires two dashes before long options.",
        next="Write --bind-to none --map-by slot, with two dashes.",
        pattern=r"unable to find the specified executable[\s\S]{0,500}?Executable: *none\b",
        lines=11,
    ),
    Signature(
        "folder-missing",
        keys=("to the specified working directory",),
        cause="{host} has no folder {what}, in which the ranks should start.",
        next="Mount or create it there, or start from a folder that every host has (`--workdir`, or `-wdir` of mpirun).",
        pattern=r"change to the specified working directory"
        r"(?=[\s\S]{0,300}?Working directory: *(?P<what>[^\r\n]*\S))" + _NODE,
        lines=7,
    ),
    Signature(
        "refused-root",
        keys=("has detected an attempt to run as root",),
        cause="mpirun does not run as root unless allowed.",
        next="Add --allow-run-as-root, or set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1.",
    ),
    Signature(
        "unknown-option",
        keys=('Error: unknown option "', "An unrecognized option was included"),
        cause="This mpirun does not know [[option?the option {option}||an option]].",
        next="Look it up: mpirun --help. 4.1 and 5.0 differ (--prtemca exists in 5.0 only, --mca orte_... in 4.1 only). "
        "Arguments of your program go after its name.",
        pattern=r'unknown option "(?P<option>[^"]+)"|unrecognized option was included(?:[\s\S]{0,200}?Option: +(?P<option2>\S+))?',
        lines=5,
    ),
    Signature(
        "mca-given-twice",
        keys=("MCA parameter has been listed multiple times", "MCA parameter was listed more than once"),
        cause="The MCA parameter {name} was given twice, which mpirun refuses.",
        next="Give --mca {name} once. The second value may come from a file: ~/.openmpi/mca-params.conf, openmpi-mca-params.conf.",
        pattern=r"MCA parameter (?:has|was)[\s\S]{0,300}?(?:MCA param|Param): +(?P<name>\S+)",
        lines=6,
    ),
    Signature(
        "option-given-twice",
        keys=("command line option was listed more than once",),
        cause="The option --{option} was given twice, which mpirun 5 refuses, even if one of them is an argument of the "
        "program.",
        next="Give --{option} once. If the program has an option of that name, put its command line into a script.",
        pattern=r'The "(?P<option>[^"]+)" command line option was listed more than once',
    ),
    Signature(
        "variables-two-ways",
        keys=("attempted to pass environment variables to Open MPI", 'with both the "-x" method'),
        cause="Variables were passed both with -x and with mca_base_env_list, which mpirun 4.1 refuses.",
        next="Use -x NAME=VALUE for all. mca_base_env_list may be set in the environment or in a file: env | grep mca_base_env_list; "
        "~/.openmpi/mca-params.conf.",
        pattern=r'(?:with both the "-x" method|Open MPI\s+with both)',
        lines=2,
    ),
    Signature(
        "mca-exclude-each-other",
        keys=("Two mutually-exclusive MCA variables were specified",),
        cause="Two MCA parameters that exclude each other were given[[one?: {one} and {other}]]; Open MPI may then ignore the components that they select.",
        next="Leave one of them out[[one?: {other} may be set in the environment or a file. See: env | grep OMPI_MCA_; "
        "~/.openmpi/mca-params.conf]].",
        pattern=r"mutually-exclusive MCA variables(?:[\s\S]{0,300}?1st MCA variable: (?P<one>\S+)[\s\S]{0,120}?"
        r"2nd MCA variable: (?P<other>\S+))?",
        lines=8,
        # On one host the job keeps running well.
        only_with=("mpi-unreachable", "mpi-tcp-connect", "mpi-init-failed"),
    ),
    Signature(
        "hostfile-missing",
        keys=("was unable to open the hostfile",),
        cause="The hostfile {file} cannot be opened.",
        next="Check the name where mpirun runs (in a container: inside it): ls -l {file}.",
        pattern=r"was unable to open the hostfile:\s+(?P<file>\S+)",
        lines=4,
    ),
    Signature(
        "hostfile-wrong",
        keys=("detected a bad parameter in the hostfile", "detected a parse error in the hostfile"),
        cause="The hostfile {file} is wrong: {why}.",
        next="Write one host per line, as in: gpu1 slots=8. Check it: taco-launch -i {file} inventory.",
        pattern=r"in the hostfile:\s+(?P<file>\S+)\s+(?P<why>[^\r\n]*[^\s:])",
        lines=6,
    ),
    Signature(
        "time-is-up",
        keys=("The user-provided time limit for job execution has been reached",),
        cause="mpirun ended the job after {seconds} s, the limit that --timeout set.",
        next="If the job should have finished by then, see what it waited for (the last lines of each rank); otherwise raise the limit.",
        pattern=r"has been reached:\s+Timeout: (?P<seconds>\d+)",
        lines=4,
    ),
    Signature(
        "interface-missing",
        keys=("None of the TCP networks specified to be included",),
        cause="{host} has no network interface {value}.",
        next="See what it has: ip -br addr. [[subnet?Name a subnet in which every host has an address||Names may differ between hosts: give the "
        "subnet instead, such as 10.0.0.0/24]].",
        pattern=r"None of the TCP networks specified to be included[\s\S]{0,200}?Value given: +(?P<value>[^\s/]+(?P<subnet>/\d+)?\S*)",
        lines=7,
    ),
    Signature(
        "interface-unusable",
        keys=("invalid value was given for btl_tcp_if_",),
        cause="{host} has no network interface {value}, so Open MPI ignores that value.",
        next="See what it has: ip -br addr. [[subnet?Name a subnet in which every host has an address||Names may differ between hosts: give the "
        "subnet instead, such as 10.0.0.0/24]].",
        pattern=r"invalid value was given for btl_tcp_if_[\s\S]{0,120}?Local host: +(?P<host>\S+)\s+Value: +(?P<value>[^\s/]+(?P<subnet>/\d+)?\S*)",
        lines=7,
        # Where the ranks reach each other without it, the job keeps running well.
        only_with=("mpi-unreachable", "mpi-tcp-connect", "mpi-init-failed"),
    ),
    Signature(
        "oob-interface-unusable",
        keys=("invalid value was given for oob_tcp_if_",),
        cause="{host} has no network {value}, so mpirun ignores that value of {name}.",
        next="See what it has: ip -br addr. [[subnet?Name a subnet in which every host has an address||Names may differ between hosts: give the "
        "subnet instead, such as 10.0.0.0/24]].",
        pattern=r"invalid value was given for (?P<name>oob_tcp_if_\w+)[\s\S]{0,120}?Local host: +(?P<host>\S+)\s+"
        r"Value: +(?P<value>[^\s/]+(?P<subnet>/\d+)?\S*)",
        lines=7,
        kind=FailureText.NOTE,
    ),
    Signature(
        "no-network",
        keys=("No network interfaces were found for out-of-band",),
        cause="None of this machine's networks is one that mpirun may use to start daemons.",
        next="See what it has: ip -br addr; correct oob_tcp_if_include (5.0: prte_if_include) or omit it.",
        unless=("interface-missing",),
    ),
    Signature(
        "binding-overload",
        keys=("would result in binding more", "bind that would require binding"),
        cause="{host} has fewer cores than ranks, but mpirun was set to bind each rank to its own core.",
        next="Do not bind, as Horovod advises: --bind-to none.",
        pattern=r"would (?:result in binding more|require binding)" + _NODE,
        lines=6,
    ),
    Signature(
        "mapping-failed",
        keys=("Your job failed to map",),
        cause="mpirun 5 could not place the ranks[[why?: {why}]].",
        next="Use fewer ranks, more slots per host (-H gpu1:8), or no binding: --bind-to none --map-by slot.",
        pattern=r"Your job failed to map(?:[\s\S]{0,300}?Mapper result: +(?P<why>[^\r\n]*\S))?",
        lines=6,
    ),
    Signature(
        "session-folder",
        keys=("A call to mkdir was unable to create the desired directory",),
        cause="mpirun cannot make its session folder {file} ({why}).",
        next="Check space and permissions there: df -h {file}; df -i {file}. To use another folder: --mca orte_tmpdir_base DIR.",
        pattern=r"Directory: +(?P<file>\S+)\s+Error: +(?P<why>[^\r\n]*\S)",
        lines=6,
    ),
    Signature(
        "limit-pipes",
        keys=("limit on number of pipes", "system limit exceeded on number of pipes"),
        cause="The limit of open files on {host} is too low for that many ranks.",
        next="Raise it where the daemon starts: docker run --ulimit nofile=65536 (or LimitNOFILE of sshd).",
        pattern=r"number of pipes" + _NODE,
        lines=4,
    ),
)

RANKS = (
    Signature(
        "rank-command-not-found",
        keys=("Process name: [",),
        cause="Rank {rank} exited with code 127, which usually means that a shell did not find a command. "
        "This is neither an ssh failure nor a missing orted.",
        next="Read that rank's last lines for 'not found', and compare the PATH there: run env instead of your command.",
        pattern=_RANK + r"127\b",
        kind=FailureText.OUTCOME,
        lines=3,
        unless=("command-missing",),
    ),
    Signature(
        "rank-not-executable",
        keys=("Process name: [",),
        cause="Rank {rank} exited with code 126: the program, or something that it calls, cannot be executed.",
        next="Run chmod +x on the script, and check that its folder is not mounted noexec: findmnt -T FILE.",
        pattern=_RANK + r"126\b",
        kind=FailureText.OUTCOME,
        lines=3,
    ),
    Signature(
        "rank-exited-255",
        keys=("Process name: [",),
        cause="Rank {rank} itself exited with code 255 (exit(-1) in most programs): mpirun had started it, so this is not an ssh "
        "failure.",
        next="Read that rank's last lines; the program chose this code.",
        pattern=_RANK + r"255\b",
        kind=FailureText.OUTCOME,
        lines=3,
    ),
    Signature(
        "rank-exited",
        keys=("Process name: [",),
        cause="Rank {rank} was the first to fail: it exited with code {code}.",
        next="Read that rank's last lines before this point.",
        pattern=_RANK + r"(?P<code>(?!(?:126|127|255)\b)\d+)",
        kind=FailureText.OUTCOME,
        lines=3,
    ),
    Signature(
        "rank-killed",
        keys=("noticed that process rank ", "Root Cause (first observed failure)"),
        cause="Rank {rank} on {host} was killed (signal 9)[[killed? {killed}||. The log does not show whether memory ran "
        "out, or a process or a user killed it]].",
        next="[[other?Find out what kills processes on {host}: another user, a time limit, a script||Use smaller batches or fewer data loader "
        "workers, or give it more memory: a higher limit of the container or job, fewer ranks per host]].[[killed?|| An administrator of {host} can check whether memory ran out: "
        "dmesg -T | grep -i 'killed process'.]]",
        pattern=r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited\s+on\s+signal 9\b"
        + _OR_BOX
        + r"9\b",
        kind=FailureText.OUTCOME,
        lines=9,
    ),
    Signature(
        "rank-bus-error",
        keys=("noticed that process rank ", "Root Cause (first observed failure)"),
        cause="Rank {rank} on {host} ended with a bus error, most often because /dev/shm was full.",
        next="Run df -h /dev/shm where the ranks run. To enlarge it in a container: docker run --shm-size=32g (shm_size in the inventory); on the host: mount -o "
        "remount,size=32g /dev/shm, and remove leftover files from it.",
        pattern=r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited\s+on\s+signal (?:7|10)\b"
        + _OR_BOX
        + r"(?:7|10)\b",
        kind=FailureText.OUTCOME,
        lines=9,
    ),
    Signature(
        "rank-crashed",
        keys=("noticed that process rank ", "Root Cause (first observed failure)"),
        cause="Rank {rank} on {host} crashed ({why}).",
        next="Look at the stack above, if there is one; in Python, run it with -x PYTHONFAULTHANDLER=1. If a library there was built for another CUDA, NCCL or CPU, "
        "rebuild it.",
        pattern=r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited\s+on\s+signal (?:4|6|8|11) "
        r"\((?P<why>[^)]+)\)" + _OR_BOX + r"(?:4|8|11) [^\n]*\((?P<why2>SIG\w+)\)",
        kind=FailureText.OUTCOME,
        lines=9,
    ),
    Signature(
        "process-crashed",
        keys=("*** Process received signal ***",),
        cause="A process on {host} crashed ({why})[[where?, in {where}]].",
        next="Look at the stack below that line: frame 1 is where it crashed (in Python, -x PYTHONFAULTHANDLER=1 shows more). If a library there was built for "
        "another version of Python, torch, CUDA or MPI, rebuild it.",
        pattern=r"(?:\[(?P<host>[\w.-]+):\d+\] )?\*\*\* Process received signal \*\*\*\s[^\r\n]*Signal: "
        r"(?P<why>Segmentation fault|Bus error|Illegal instruction|Floating point exception)"
        r"(?:[\s\S]{0,600}?\[ ?[1-9]\d?\] (?P<where>[^\s()]+\([\w.@]*\+0x[\da-f]+\)))?",
        kind=FailureText.OUTCOME,
        lines=15,
        unless=("rank-crashed",),
    ),
    Signature(
        "rank-terminated",
        keys=("noticed that process rank ",),
        cause="Rank {rank} on {host} was ended by signal {signal}: a user, a limit, a shutdown or its own program sent it.",
        next="Search the script for kill. If it sends no signals, run last -x | head and journalctl -n 100 on {host}.",
        pattern=r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited\s+on\s+signal "
        r"(?P<signal>(?!(?:4|6|7|8|9|10|11)\b)\d+ \([^)]+\))",
        kind=FailureText.OUTCOME,
        lines=2,
    ),
    Signature(
        "mpi-abort",
        keys=("MPI_ABORT was invoked on rank", "application called MPI_Abort("),
        cause="Rank {rank} called MPI_Abort, which ends all ranks.",
        next="Read that rank's last lines before this point: the program, or the library under it, found a fault.",
        pattern=r"MPI_ABORT was invoked on rank (?P<rank>\d+)|application called MPI_Abort\([^\r\n]{0,80} - process (?P<rank2>\d+)",
        kind=FailureText.OUTCOME,
    ),
    Signature(
        "exited-without-finalize",
        keys=("exiting improperly", "exiting\nimproperly", "has exited due to process rank"),
        cause="Rank {rank} on {host} exited with code 0 in the middle of the job, without MPI_Finalize (in Horovod: an early "
        "sys.exit, or ranks with different numbers of steps).",
        next="Check that every rank does the same number of steps and returns from main.",
        pattern=r"exited due to process rank (?P<rank>\d+) with PID \d+ on\s+node (?P<host>\S+) exiting\s+improperly",
        kind=FailureText.OUTCOME,
        lines=2,
        unless=("host-lost",),
    ),
    Signature(
        "rank-failed",
        keys=("terminated normally, but",),
        cause="A rank ended with a code that is not 0, and mpirun ended the others; this log does not show which rank.",
        next="Read the last lines of each rank.",
        pattern="terminated normally, but",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "setpgid-race",
        keys=("Warning: setpgid(",),
        cause="A harmless race in mpirun while it started ssh: nothing is wrong.",
        next="Ignore this line.",
        pattern=r"plm:(?:rsh|ssh): Warning: setpgid\(\d+,\d+\) failed in parent",
        kind=FailureText.NOTE,
    ),
)
