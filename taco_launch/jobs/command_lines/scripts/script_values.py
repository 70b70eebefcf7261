"""The variables of a script: what they are at each command, those from its scheduler, and those that its ranks have: pure."""

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines import shell_script, sizes
from taco_launch.jobs.command_lines.launcher_line import Part
from taco_launch.jobs.command_lines.scripts.conditions import Branches
from taco_launch.jobs.command_lines.shell_blocks import ScriptCommand
from taco_launch.jobs.command_lines.shell_words import FIELD, QUOTED, UNKNOWN

_GPUS_OF_HOST = ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")
# Schedulers' own options for mpirun, of which the ranks here need none: they name the hosts.
OF_MPIRUN = ("NQSII_MPIOPTS", "NQSV_MPIOPTS")
_CPUS = re.compile(r"(?:-c ?|--cpus-per-task[= ])(\d+)", re.ASCII)
_USED = "the command has its value"
# A parameter of the script, whose number `shift` changes.
_PARAMETER = re.compile(rf"([${QUOTED}])(?:(\d)|\{{(\d+)(?=[:}}?=-]))")


def exported(env: Mapping[str, str], used: Collection[str] = ()) -> Iterator[Part]:
    """Yield the variables that the script exports: the ranks have them where its launcher passes all on, as Slurm's does.

    The values of those that are `used` are in the launcher's line.
    """
    for name, value in env.items():
        if name in used:
            yield Part(0, (f"{name}={value}",), table.OMITTED, name, why=_USED)
            continue
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
        "PJM_MPI_PROC": ranks,
        "PJM_NODE": nodes,
    }
    for part in directives:
        if cpus := _CPUS.fullmatch(" ".join(part.words)):
            values["SLURM_CPUS_PER_TASK"] = cpus[1]
        if part.use == table.GPUS and "per-task" not in part.words[0]:
            values |= dict.fromkeys(
                _GPUS_OF_HOST if "gpus-per-node" in part.words[0] else _GPUS_OF_HOST[:1], part.value
            )
        elif part.use == table.ALL_GPUS:
            values["SLURM_GPUS"] = part.value
    return {name: value for name, value in values.items() if value} | dict.fromkeys(OF_MPIRUN, "")


class ScriptVariables:
    """Follows the variables of a script from block to block; a value that only a condition decides is not known."""

    def __init__(self, script: shell_script.ShellScript, values: Mapping[str, str]) -> None:
        """Begin with some values."""
        self.values = {**values}
        self._shifted = 0
        # Those that the script tests for having no value, before it gives them one.
        self.has_default: set[str] = set()
        self._script = script
        # The blocks that the command is in, and what each of them has changed: a variable, and its value before.
        self._blocks: tuple[int, ...] = ()
        self._changed: list[dict[str, str | None]] = []
        self.branches = Branches(script, self.values)
        # For each condition that is left: a variable, its value before, that of the first branch, and whether it is known.
        self._outcomes: dict[int, dict[str, tuple[str | None, str | None, bool]]] = {}
        self._sets_at = [shell_script.sets(command.words) for command in script.commands]
        self._last_set = {name: at for at, names in enumerate(self._sets_at) for name in names}

    def change(self, name: str, value: str) -> None:
        """Set a variable in the block that the command is in."""
        for changed in self._changed[-1:]:
            changed.setdefault(name, self.values.get(name))
        self.values[name] = value

    def shift(self, count: str) -> None:
        """Have $1 stand for a later parameter of the script, as `shift` does."""
        self._shifted += int(count) if count.isdecimal() else 0

    def _parameters(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return words that have the parameters by their numbers at the script's start."""

        def number(match: re.Match[str]) -> str:
            text = str(int(match[2] or match[3]) + self._shifted) if (match[2] or match[3]) != "0" else "0"
            return f"{match[1]}{{{text}{'}' if match[2] else ''}"

        return tuple(_PARAMETER.sub(number, word) for word in words) if self._shifted else words

    def follow(self, at: int, command: ScriptCommand) -> tuple[ScriptCommand, bool]:
        """Move to a command; return it without the branches that run in any case, and whether it is in none that does not."""
        outside = (*itertools.takewhile(lambda block: block not in self.branches.of_arguments, command.blocks),)
        while undecided := next((block for block in outside if not self.branches.is_decided(block)), 0):
            self._move(at, self._kept(command.blocks[: command.blocks.index(undecided)]), undecided)
            self.branches.runs(undecided)
        kept = self._kept(command.blocks)
        skipped = next((block for block in command.blocks if self.branches.runs(block) is False), 0)
        self._move(at, kept[: kept.index(skipped)] if skipped else kept, skipped)
        is_conditional = command.is_conditional and (bool(kept) or not command.blocks)
        is_chained = command.is_chained and command.blocks[-1] in kept
        words = self._parameters(command.words)
        return replace(
            command, words=words, blocks=kept, is_conditional=is_conditional, is_chained=is_chained
        ), not skipped

    def _kept(self, blocks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(block for block in blocks if self.branches.runs(block) is not True)

    def _move(self, at: int, blocks: tuple[int, ...], upcoming: int) -> None:
        """Leave blocks and enter others: what one changed is not known behind it, nor in one that may run again, or later.

        `upcoming` is the block that is entered next, 0 for none.
        """
        families = {self.branches.family(block) for block in (*blocks, upcoming)}
        self._settle(families.union(map(self.branches.family, self._blocks)))
        same = next(
            (depth for depth, (one, other) in enumerate(zip(self._blocks, blocks, strict=False)) if one != other), None
        )
        same = min(len(self._blocks), len(blocks)) if same is None else same
        while len(self._changed) > same:
            self._leave(self._blocks[len(self._changed) - 1], self._changed.pop())
            self._settle(families)
        for block in blocks[same:]:
            self._changed.append({})
            for name in self._set_later(at, block):
                self.change(name, f"{UNKNOWN}{name}")
        self._blocks = blocks

    def _leave(self, block: int, changed: Mapping[str, str | None]) -> None:
        """Note what a branch changed, and have the variables as they were before it."""
        family = self.branches.family(block)
        outcome = self._outcomes.setdefault(family, {})
        for name, before in changed.items():
            value = self.values[name]
            is_default = before is None and name in self.has_default
            is_one = value == before or is_default or is_added(before, value)
            is_taken = (block == family and not self.branches.is_optional(block)) or is_default
            of_first = value if is_taken else before
            of_first, was_one = outcome.get(name, (before, of_first, True))[1:]
            outcome[name] = (before, of_first, is_one and was_one)
            self._put(name, before)

    def _settle(self, families: Collection[int]) -> None:
        """Set what the branches of a condition changed, once all are left: to the first branch's value, or to an unknown one."""
        for family in [each for each in self._outcomes if each not in families]:
            for name, (before, value, is_one) in self._outcomes.pop(family).items():
                for changed in self._changed[-1:]:
                    changed.setdefault(name, before)
                self._put(name, value if is_one else f"{UNKNOWN}{name}")

    def _put(self, name: str, value: str | None) -> None:
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def _set_later(self, at: int, block: int) -> list[str]:
        """Return the variables that have another value when a block runs again, or a function is called."""
        if block in self._script.functions:
            return [name for name in self.values if self._last_set.get(name, -1) >= at]
        if block not in self._script.loops:
            return []
        commands = self._script.commands
        end = next((end for end in range(at, len(commands)) if block not in commands[end].blocks), len(commands))
        return [name for name in set().union(*self._sets_at[at:end]) if name in self.values]


def is_added(before: str | None, value: str) -> bool:
    """Return whether a value is the one before, and more words."""
    return before == "" or (before is not None and value.startswith((f"{before} ", f"{before}{FIELD}")))
