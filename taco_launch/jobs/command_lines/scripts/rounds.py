"""Follow the loops of a script and its arrays of jobs: the values that a variable has in turn. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.launcher_line import Part
from taco_launch.jobs.command_lines.translation import INSERTS, Row, Translation

MOST = 32  # rounds that are followed one by one
_ELEMENTS = re.compile(r"(?P<first>\d{1,6})(?:-(?P<last>\d{1,6})(?::(?P<step>[1-9]\d{0,5}))?)?", re.ASCII)
# A scheduler's option for an array of jobs, and the variable that has the number of the element.
_ARRAYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Slurm": (("-a", "--array"), ("SLURM_ARRAY_TASK_ID",)),
    "PBS": (("-J", "-t"), ("PBS_ARRAY_INDEX", "PBS_ARRAYID")),
    "SGE": (("-t",), ("SGE_TASK_ID",)),
    "LSF": (("-J",), ("LSB_JOBINDEX",)),
}
_OF_NAME = re.compile(r".*\[(?P<elements>[^\]]*)\](?P<limit>%\d+)?")

Jobs = Sequence[tuple[int, Translation]]


def of_array(scheduler: str, directives: Sequence[Part]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the variables that number the elements of an array of jobs, with their values."""
    options, names = _ARRAYS.get(scheduler, ((), ()))
    for part in directives:
        elements = _elements(scheduler, part) if part.words[0].partition("=")[0] in options else ()
        if elements:
            yield from ((name, elements) for name in names)


def remarks(scheduler: str, directives: Sequence[Part]) -> Iterator[Row]:
    """Yield what the option for an array has beside its elements, and a name with elements, which only LSF has."""
    options = _ARRAYS.get(scheduler, ((), ()))[0]
    for part in directives:
        if part.words[0].partition("=")[0] in options:
            match = _OF_NAME.fullmatch(part.words[-1])
            if match and scheduler == "LSF":
                yield Row(f"[{match['elements']}]", "", table.ONE_EACH)
            limit = part.words[-1].partition("%")[2]
            if limit.isdecimal():
                why = f"starts at most {limit} elements at a time: here each job waits in the queue until its slots are free"
                yield Row(f"%{limit}", "", why)


def _elements(scheduler: str, part: Part) -> tuple[str, ...]:
    text = part.words[-1].rpartition("=")[2]
    if scheduler == "LSF":
        text = match["elements"] if (match := _OF_NAME.fullmatch(text)) else ""
    numbers: list[int] = []
    for piece in text.partition("%")[0].strip("[]").split(","):
        match = _ELEMENTS.fullmatch(piece)
        if match is None:
            return ()
        first, last = int(match["first"]), int(match["last"] or match["first"])
        numbers += range(first, min(last, first + 10 * MOST * int(match["step"] or "1")) + 1, int(match["step"] or "1"))
    return tuple(map(str, numbers))


def in_turn(jobs: Jobs, name: str, values: Sequence[str], rounds: Sequence[Jobs]) -> Iterator[tuple[int, Translation]]:
    """Yield jobs, of which a word that is not known has its values in turn, as the rounds of a variable's values have them."""
    by_line = [dict(each) for each in rounds]
    for line, job in jobs:
        same = [each[line] for each in by_line if line in each]
        same = [each for each in same if len(each.program) == len(job.program)]
        if len(same) < len(rounds):
            yield line, job
            continue
        rows = tuple(_of_rounds(row, job, name, values, same) for row in job.rows)
        yield line, replace(job, rows=rows)


def _of_rounds(row: Row, job: Translation, name: str, values: Sequence[str], rounds: Sequence[Translation]) -> Row:
    """Return the row of a word that is not known, with the values that the rounds have for it, where they have them."""
    if row.why == INSERTS and row.original in job.program:
        at = job.program.index(row.original)
        words = [each.program[at] for each in rounds]
        is_known = not any(Row(word, "", INSERTS) in each.rows for word, each in zip(words, rounds, strict=True))
        where = "" if words == [*values] else f", as {name} is {shown(values)}"
        return replace(row, why=f"write the value: {shown(words)} in turn{where}") if is_known else row
    is_number = row.original == f"${name}" and not row.here
    return replace(row, why=f"write the value: {shown(values)} in turn") if is_number else row


def shown(values: Sequence[str]) -> str:
    """Return values as a person writes them: numbers that follow each other as the first and the last."""
    first, count = values[0], len(values)
    if (
        count > 2
        and first.isdecimal()
        and [*values] == [str(number) for number in range(int(first), int(first) + count)]
    ):
        return f"{first}-{values[-1]}"
    return " ".join(values)
