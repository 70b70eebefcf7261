"""The variables of a script: what they are at each command, those from its scheduler, and those that its ranks have: pure."""

from collections.abc import Iterator, Mapping, Sequence

from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines import shell_script, sizes
from taco_launch.jobs.command_lines.launcher_line import Part
from taco_launch.jobs.command_lines.shell_words import FIELD, UNKNOWN



def exported(env: Mapping[str, str]) -> Iterator[Part]:
    """Yield the variables that the script exports: the ranks have them where its launcher passes all on, as Slurm's does."""
    for name, value in env.items():
        unknown = UNKNOWN in value
        same = table.parameter(name)
        use = table.REFUSED if unknown else table.MCA if same else table.ENV
        why = "its value is computed where the script runs" if unknown else ""
        yield Part(0, (f"{name}={value}",), use, same or name, value, why)


def modules(script: shell_script.ShellScript, line: int) -> tuple[str, ...]:
    """Return the modules that a script loads above a line (module load NAME, ml NAME)."""
    above = (command.words for command in script.commands if command.line < line)
    loads = (words for words in above if words[0] in ("module", "ml") and not {"unload", "rm"} & {*words})
    return tuple(name for words in loads for name in words[1:])


def counters(script: shell_script.ShellScript) -> frozenset[str]:
    """Return the variables that have another value in each round of a loop."""
    in_loops = (each for each in script.commands if each.values or script.loops & {*each.blocks})
    return frozenset(name for command in in_loops for name in shell_script.sets(command.words))


def of_scheduler(directives: Sequence[Part]) -> dict[str, str]:
    """Return the variables that Slurm sets from what its directives ask for (sbatch(1), output environment variables)."""
    counts = {part.use: part.value for part in (*directives, *sizes.of_gpus(directives))}
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


class ScriptVariables:
    """Follows the variables of a script from block to block; a value that only a condition decides is not known."""

    def __init__(self, script: shell_script.ShellScript, values: Mapping[str, str]) -> None:
        """Begin with some values."""
        self.values = {**values}
        # Those that the script tests for having no value, before it gives them one.
        self.has_default: set[str] = set()
        self._script = script
        # The blocks that the command is in, and what each of them has changed: a variable, and its value before.
        self._blocks: tuple[int, ...] = ()
        self._changed: list[dict[str, str | None]] = []
        self._sets_at = [shell_script.sets(command.words) for command in script.commands]
        self._last_set = {name: at for at, names in enumerate(self._sets_at) for name in names}

    def change(self, name: str, value: str) -> None:
        """Set a variable in the block that the command is in."""
        for changed in self._changed[-1:]:
            changed.setdefault(name, self.values.get(name))
        self.values[name] = value

    def move(self, at: int, blocks: tuple[int, ...]) -> None:
        """Leave blocks and enter others: what one changed is not known behind it, nor in one that may run again, or later."""
        same = next(
            (depth for depth, (one, other) in enumerate(zip(self._blocks, blocks, strict=False)) if one != other), None
        )
        same = min(len(self._blocks), len(blocks)) if same is None else same
        while len(self._changed) > same:
            for name, before in self._changed.pop().items():
                is_default = before is None and name in self.has_default
                if self.values[name] != before and not is_default and not is_added(before or "", self.values[name]):
                    self.change(name, f"{UNKNOWN}{name}")
                elif self._changed:
                    self._changed[-1].setdefault(name, before)
        for block in blocks[same:]:
            self._changed.append({})
            for name in self._set_later(at, block):
                self.change(name, f"{UNKNOWN}{name}")
        self._blocks = blocks

    def _set_later(self, at: int, block: int) -> list[str]:
        """Return the variables that have another value when a block runs again, or a function is called."""
        if block in self._script.functions:
            return [name for name in self.values if self._last_set.get(name, -1) >= at]
        if block not in self._script.loops:
            return []
        commands = self._script.commands
        end = next((end for end in range(at, len(commands)) if block not in commands[end].blocks), len(commands))
        return [name for name in set().union(*self._sets_at[at:end]) if name in self.values]


def is_added(before: str, value: str) -> bool:
    """Return whether a value is the one before, and more words."""
    return bool(before) and value.startswith((f"{before} ", f"{before}{FIELD}"))
