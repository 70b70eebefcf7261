"""Loops and arrays of jobs: what has another value in each round is named with all of them."""

import pytest

from taco_launch.jobs.command_lines.script_translation import translate_script
from tests.support import script_rows

LIST = "LRS=(0.1 0.01 'a b')\n"


def reasons(text: str) -> dict[str, str]:
    """Return what no job of a script has, with the reason."""
    return script_rows.reasons(translate_script(text))


@pytest.mark.parametrize(
    ("directive", "name", "elements"),
    [
        ("#SBATCH --array=0-2", "SLURM_ARRAY_TASK_ID", "0-2"),
        ("#SBATCH -a [0-2]", "SLURM_ARRAY_TASK_ID", "0-2"),
        ("#PBS -J 0-2", "PBS_ARRAY_INDEX", "0-2"),
        ("#PBS -t 0-2", "PBS_ARRAYID", "0-2"),
        ("#$ -t 0-2", "SGE_TASK_ID", "0-2"),
        ("#BSUB -J x[0-2]", "LSB_JOBINDEX", "0-2"),
        ("#SBATCH --array=2,0,1", "SLURM_ARRAY_TASK_ID", "2 0 1"),
    ],
)
def test_the_values_of_an_array_are_named(directive: str, name: str, elements: str) -> None:
    order = elements if " " in elements else "0 1 2"
    values = " ".join(["0.1", "0.01", "a b"][int(at)] for at in order.split())
    for word in (f"${{LRS[${name}]}}", f"${{LRS[{name}]}}", f"${{LRS[$(({name} + 1 - 1))]}}"):
        named = reasons(f'{directive}\n{LIST}mpirun -np 2 a "{word}"\n')
        assert named[word] == f"write the value: {values} in turn, as {name} is {elements}"
    named = reasons(f'{directive}\n{LIST}L=${{LRS[${name}]}}\nmpirun -np 2 a "$L" ${name}\n')
    assert named[f"${name}"] == f"write the value: {elements} in turn"


def test_what_an_array_does_not_say_is_not_guessed() -> None:
    for directive in ("", "#SBATCH --array=$N\n", "#SBATCH --array=0-500\n"):
        named = reasons(f"{directive}{LIST}mpirun -np 2 a ${{LRS[$SLURM_ARRAY_TASK_ID]}}\n")
        assert "in turn" not in "".join(named.values())


def test_a_limit_of_elements_at_a_time_and_the_elements_of_a_name_have_a_row() -> None:
    assert reasons("#SBATCH --array=0-3%2\nsrun a\n")["%2"].startswith("starts at most 2 elements at a time")
    done = translate_script("#BSUB -J sweep[1-3]%2\nmpirun -np 2 a\n")
    assert done.jobs[0][1].options == ("--np", "2", "--name", "sweep")
    assert [row.original for row in done.rows] == ["[1-3]", "%2"]


@pytest.mark.parametrize(
    ("sets", "values"),
    [
        ("case $m in bert) B=8;; *) B=64;; esac", "8 64 64"),
        ("if [ $m = gpt ]; then B=1; else B=2; fi", "2 1 2"),
        ("B=run_$m", "run_bert run_gpt run_t5"),
        ("B=${m}_1", "bert_1 gpt_1 t5_1"),
    ],
)
def test_what_a_loop_decides_is_named_for_each_round(sets: str, values: str) -> None:
    text = f"for m in bert gpt t5; do {sets}; mpirun -np 2 a $B; done"
    assert f"write the value: {values} in turn, as m is bert gpt t5" in reasons(text).values()


def test_a_round_that_starts_another_line_leaves_the_value_open() -> None:
    text = "for m in x y; do if [ $m = x ]; then mpirun -np 2 a $m; else mpirun -np 2 b; fi; done"
    assert reasons(text)["$m"] == "a shell would insert a value here: write it"


def test_elements_and_length_of_an_array() -> None:
    text = 'A=(x \'y z\' "")\nI=1\nmpirun -np 2 a ${A[0]} ${A[$I]} "${A[I]}" "${A[2]}" ${#A[@]} ${A[9]} ${B[0]}\n'
    ((_line, job),) = translate_script(text).jobs
    assert job.program == ("a", "x", "y", "z", "y z", "", "3", "${B[0]}")
    unknown = "A=($(hosts) x)\nB=(x $C)\nmpirun -np 2 a ${A[0]} ${A[1]} ${A[7]} ${B[0]} ${B[1]}\n"
    ((_line, job),) = translate_script(unknown).jobs
    assert job.program == ("a", "${A[0]}", "${A[1]}", "${A[7]}", "x", "${B[1]}")
