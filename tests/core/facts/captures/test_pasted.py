"""Captures as people paste them: what pasting adds changes nothing, and lines that a terminal has wrapped are refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from taco_launch.core.facts.captures.recognise import recognise
from taco_launch.core.model.host.fact_value import Absent, Unknown

FOLDER = Path(__file__).parents[1] / "cases" / "captured"
# Those whose last line has no end are cut off there, which is part of what is read.
CAPTURES = sorted(
    path.stem
    for path in FOLDER.glob("*.txt")
    if (text := path.read_text("utf-8")).endswith("\n")
    and not any(isinstance(capture.value, (Absent, Unknown)) for capture in recognise(text))
)
DRESSES: dict[str, Callable[[str], str]] = {
    "quoted": lambda text: "".join(f"> {line}\n" for line in text.split("\n")),
    "quoted twice": lambda text: "".join(f">> {line}\n" for line in text.split("\n")),
    "a comment of C": lambda text: "".join(f" * {line}\n" for line in text.split("\n")),
    "a comment of C++": lambda text: "".join(f"// {line}\n" for line in text.split("\n")),
    "indented": lambda text: "".join(f"    {line}\n" if line.strip() else "\n" for line in text.split("\n")),
    "in a list": lambda text: "".join(f"\t  {line}\n" for line in text.split("\n")),
    "other blanks": lambda text: text.replace("  ", " \u00a0"),
    "no width": lambda text: "\u200b" + text,
    "fenced": lambda text: f"```\n{text}```\n",
    "fenced as a shell's": lambda text: f"  ```console\n{text}  ```\n",
    "windows": lambda text: text.replace("\r", "").replace("\n", "\r\n"),
}


def matrix(gpus: int, nics: int) -> str:
    """Return a matrix as nvidia-smi prints it, each column of eight characters."""
    names = [*(f"GPU{number}" for number in range(gpus)), *(f"NIC{number}" for number in range(nics))]
    rows = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "", "GPU NUMA ID"])]
    for one in names:
        links = [" X " if one == other else "NV18" if {one[0], other[0]} == {"G"} else "SYS" for other in names]
        rows.append("\t".join([one, *links, *(["0-79", "0", "", "N/A"] if one[0] == "G" else [])]))
    return "\n".join([*rows, "", "Legend:", "", "  X    = Self", ""])


@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize("stem", CAPTURES)
def test_what_pasting_adds_changes_nothing(stem: str, dress: str) -> None:
    text = (FOLDER / f"{stem}.txt").read_text("utf-8")
    assert recognise(DRESSES[dress](text)) == recognise(text)


@pytest.mark.parametrize("escape", ["", "^[", "\u241b"])
def test_escape_sequences_that_have_lost_their_first_character(escape: str) -> None:
    text = matrix(8, 2)
    header, _, rest = text.partition("\n")
    assert recognise(f"\t{escape}[4m{header.strip()}{escape}[0m\n{rest}") == recognise(text)


@pytest.mark.parametrize("gpus", [2, 8, 16])
@pytest.mark.parametrize("nics", [0, 1, 9])
def test_a_wrapped_matrix_is_refused_at_any_width(gpus: int, nics: int) -> None:
    whole = matrix(gpus, nics).expandtabs()
    (right,) = recognise(whole)
    longest = max(map(len, whole.split("\n")))
    for width in range(16, longest):
        rows = [line[at : at + width] for line in whole.split("\n") for at in range(0, max(len(line), 1), width)]
        found = recognise("\n".join(rows) + "\n")
        assert found == (right,) or any(isinstance(capture.value, Unknown) for capture in found), (width, found)
    assert not isinstance(right.value, Unknown)
