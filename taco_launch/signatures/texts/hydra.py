"""What Hydra, the launcher of MPICH and Intel MPI, and libfabric below them print. Source: MPICH's src/pm/hydra, ch4/netmod/ofi."""

from taco_launch.signatures.entry import FailureText, Signature

HYDRA = (
    Signature(
        "hydra-program-missing",
        ("execvp error on file",),
        "Hydra cannot start {program} on {host}: {why}.",
        "Give its full path, or ./NAME for a program of the present folder. It has to be there on every host: ls -l "
        "{program} on {host}.",
        r"(?:\[proxy:[\d:]+@(?P<host>[^\]\s]+)\][^\r\n]*)?execvp error on file (?P<program>\S+) \((?P<why>[^)\r\n]+)\)",
    ),
    Signature(
        "hydra-bootstrap",
        ("Unable to run bstrap_proxy", "Error setting up the bootstrap proxies"),
        "Intel MPI's mpiexec could not start its proxy on {host}[[code? (exit code {code})]]. It uses ssh, or inside a Slurm "
        "job srun.",
        "Try by hand what it does: ssh {host} true. export I_MPI_HYDRA_BOOTSTRAP=ssh (or slurm) says what to use, "
        "I_MPI_HYDRA_DEBUG=1 shows the command.",
        r"Unable to run bstrap_proxy on (?P<host>[\w.-]+)(?: \(pid \d+, exit code (?P<code>\d+)\))?"
        r"|Error setting up the bootstrap proxies",
    ),
    Signature(
        "hydra-connect",
        ("unable to connect from",),
        "Hydra's proxy on {host} cannot connect back to mpiexec on {peer} ({why}): a firewall, or a name that means "
        "another address there.",
        "On {host}: getent hosts {peer}. Name the network: mpiexec -iface NAME; open ports: MPIEXEC_PORT_RANGE=20000:20100 "
        "(Intel MPI: I_MPI_PORT_RANGE).",
        r'unable to connect from "(?P<host>[^"\r\n]+)" to "(?P<peer>[^"\r\n]+)" \((?P<why>[^)\r\n]+)\)',
    ),
    Signature(
        "hydra-rank-ended",
        ("BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",),
        "[[rank?Rank {rank}||A process]] on {host} ended badly ([[why?{why}||exit code {code}]]).",
        "Read that rank's own lines before this point. Signal 9 (exit code 137) is a KILL, most often because memory ran out: "
        "dmesg -T on {host}; signal 11 (139) is a segmentation fault.",
        r"BAD TERMINATION OF ONE OF YOUR[^\r\n]*\s+=\s+(?:RANK (?P<rank>\d+) )?PID \d+ RUNNING AT (?P<host>\S+)\s+=\s+"
        r"(?:EXIT CODE|EXIT STATUS|KILLED BY SIGNAL): (?P<code>\d+)(?: \((?P<why>[^)\r\n]+)\))?",
        kind=FailureText.OUTCOME,
        lines=4,
    ),
    Signature(
        "intelmpi-no-pmi",
        ("PMI server not found",),
        "Intel MPI's ranks do not know each other: the program was started without mpiexec, or by an srun without "
        "the path of its PMI library.",
        "Start it with mpiexec.hydra; or under srun --mpi=pmi2: export I_MPI_PMI_LIBRARY= the path of Slurm's libpmi2.so.",
        r"PMI server not found",
        kind=FailureText.FALLBACK,
    ),
    Signature(
        "ofi-no-network",
        ("OFI ",),
        "MPI found no network on {host} that its libfabric can use ({what}: {why}).",
        "fi_info -l lists the providers of that host. FI_PROVIDER=tcp shows whether the rest works; FI_LOG_LEVEL=warn says why "
        "another one, such as verbs or psm3, is left out.",
        r"OFI (?:call )?(?P<what>\w+(?: \w+)*)(?:\(\))? failed \((?:[^():\r\n]*:)+ *(?P<why>[^():\r\n]+)\)",
    ),
    Signature(
        "ofi-mismatch",
        ("Mismatched address format: remote EP",),
        "The hosts use different networks of libfabric: {host}'s addresses are of another format than the other host's.",
        "The same provider on all hosts: -x FI_PROVIDER=verbs, or tcp. Without libfabric: --mca mtl ^ofi --mca pml ob1 (or ucx).",
        r"(?:(?P<host>[\w.-]+):rank\d+: +)?Mismatched address format: remote EP",
    ),
    Signature(
        "mpich-failed",
        ("Fatal error in ",),
        "[[rank?Rank {rank}||A rank]] of MPICH or Intel MPI ended in {call}: {why}.",
        "The last line of its error stack is the reason. FI_PROVIDER=tcp (Intel MPI: I_MPI_FABRICS=shm:ofi) shows whether it is the network's.",
        r"(?:\(rank (?P<rank>\d+) in comm \w+\): )?Fatal error in (?P<call>\w+): (?P<why>[^\r\n]*?)(?:, error stack:?)?[ .:]*(?=$)",
        kind=FailureText.FALLBACK,
    ),
)
