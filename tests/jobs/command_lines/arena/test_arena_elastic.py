"""`arena submit etjob` becomes an elastic job of Horovod."""

import pytest

from taco_launch.core.errors import UsageError
from taco_launch.jobs.command_lines.arena import arena_line

RANGE = ("submit", "etjob", "--name=e", "--workers=2", "--min-workers=1", "--max-workers=4")


def read(*words: str) -> str:
    return " ".join(arena_line.read([*RANGE, *words], ()).words)


def test_a_program_of_its_own() -> None:
    assert read("--gpus=2", "--env=A=1", "python t.py --lr 1") == (
        "submit --launcher horovod --elastic --hosts 1:4 --slots-per-host 2 --name e -x A=1 -- python t.py --lr 1"
    )


def test_the_line_of_horovodrun_with_the_counts_that_arena_sets() -> None:
    counts = "-np $((${workers}*${gpus})) --min-np $((${minWorkers}*${gpus})) --max-np $((${maxWorkers} * ${gpus}))"
    line = f"horovodrun {counts} --host-discovery-script /edl/d.sh --fusion-threshold-mb 1 python t.py"
    found = arena_line.read([*RANGE, "--gpus=3", line], ())
    assert " ".join(found.words) == (
        "submit --launcher horovod --elastic --hosts 1:4 --slots-per-host 3 --name e "
        "-x HOROVOD_FUSION_THRESHOLD=1048576 -- python t.py"
    )
    assert [note.partition(" of ")[0] for note in found.notes] == ["--host-discovery-script /edl/d.sh"]


def test_a_line_in_lines_of_its_own() -> None:
    """As Arena's own example has it: a template folds the ends of the lines."""
    found = arena_line.read([*RANGE, "horovodrun\n  -np 2\n  --min-np 1\n  python t.py\n"], ())
    assert found.words[-3:] == ("--", "python", "t.py")
    assert "the line end before -np: ends the command of a shell; the lines are read as one" in found.notes


def test_other_options_of_its_line_are_kept() -> None:
    assert read("horovodrun -np 2 --tcp python t.py").endswith(
        "--hosts 1:4 --slots-per-host 1 --name e --transport tcp -- python t.py"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mpirun -np 2 python t.py",), "is a line of horovodrun or a program; this one starts with 'mpirun'"),
        (("cd x; horovodrun -np 2 python t.py | tee y",), "this one starts with 'sh'"),
        (("--max-workers=many", "python t.py"), "--min-workers and --max-workers: an elastic job requires both"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(*words)


def test_the_range_is_of_no_other_type() -> None:
    with pytest.raises(UsageError, match="--min-workers: is not a known flag of arena submit"):
        arena_line.read(["submit", "mpijob", "--name=e", "--min-workers=1", "mpirun python t.py"], ())


def test_workers_are_added_and_given_up() -> None:
    added = arena_line.read(
        ["scaleout", "etjob", "--name=e", "--count=2", "--timeout=1m", "-n", "default"], ("default",)
    )
    assert (added.words, added.notes) == (
        ("scaleout", "e", "2"),
        ("--timeout: the command does not wait for the change",),
    )
    assert arena_line.read(["scalein", "et", "e"], ()).words == ("scalein", "e", "-1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("scaleout", "mpijob", "--name=e"), "the type of the job must be etjob"),
        (("scalein", "etjob"), "--name is missing"),
        (("scalein", "etjob", "--name=e", "--count=0"), "--count 0: must be a number, at least 1"),
        (("scalein", "etjob", "--name=e", "--workers=1"), "--workers 1: is not a known flag of arena scalein"),
        (("scalein", "etjob", "--name=e", "-n", "other"), "there are no namespaces here"),
    ],
)
def test_lines_of_scaling_that_are_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        arena_line.read(words, ("default",))
