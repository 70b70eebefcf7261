"""The variables that a script has from its scheduler, and those that its ranks have from it: pure."""

from collections.abc import Iterator, Mapping, Sequence

from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import Part
from taco_launch.jobs.command_lines.shell_words import UNKNOWN

# A job has these of its own.
_MEETS_AT = ("MASTER_ADDR", "MASTER_PORT")


def exported(env: Mapping[str, str]) -> Iterator[Part]:
    """Yield the variables that the script exports: the ranks have them where its launcher passes all on, as Slurm's does."""
    for name, value in env.items():
        if name in _MEETS_AT:
            yield Part(0, (f"{name}={value}",), table.OMITTED, name, why=table.MEETS)
            continue
        unknown = UNKNOWN in value
        use = table.REFUSED if unknown else table.ENV
        yield Part(
            0, (f"{name}={value}",), use, name, value, "its value is computed where the script runs" if unknown else ""
        )


def of_scheduler(directives: Sequence[Part]) -> dict[str, str]:
    """Return the variables that Slurm sets from what its directives ask for (sbatch(1), output environment variables)."""
    counts = {part.use: part.value for part in directives}
    nodes, each, ranks = (counts.get(use, "") for use in (table.NODES, table.EACH, table.RANKS))
    if not ranks and nodes.isdecimal():
        ranks = str(int(nodes) * int(each or "1"))
    values = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS": ranks, "SLURM_NPROCS": ranks}
    values |= {
        "SLURM_NTASKS_PER_NODE": each,
        "PBS_NUM_NODES": nodes,
        "PBS_NUM_PPN": each,
        "LSB_DJOB_NUMPROC": ranks,
        "NSLOTS": ranks,
    }
    return {name: value for name, value in values.items() if value}
