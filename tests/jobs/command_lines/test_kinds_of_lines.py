"""What people write around a launcher, or in the place of its values: it is read as a shell reads it, or named."""

import shlex

import pytest

from taco_launch.core.command import shell
from taco_launch.jobs import translate as flow
from taco_launch.jobs.command_lines.script_translation import translate_script


def jobs(text: str) -> list[str]:
    """Return the line of each job."""
    return [shell((*job.options, "--", *job.program)) for _line, job in translate_script(text).jobs]


def reasons(text: str) -> dict[str, str]:
    """Return what each part of a script is here, and why, by the part."""
    done = translate_script(text)
    rows = (*(row for _line, job in done.jobs for row in job.rows), *done.rows)
    return {row.original: row.why for row in rows}


@pytest.mark.parametrize(
    "line",
    [
        'runuser mpi -l -c "mpirun -np 2 ./a b"',
        'runuser --login --command="mpirun -np 2 ./a b" mpi',
        "runuser -u mpi -- mpirun -np 2 ./a b",
        'su mpi -c "mpirun -np 2 ./a b"',
        'su - mpi -s /bin/bash -c "exec mpirun -np 2 ./a b"',
        'sudo su mpi -lc "mpirun -np 2 ./a b"',
        "gosu mpi mpirun -np 2 ./a b",
        'sudo -u mpi bash -c "mpirun -np 2 ./a b"',
        'bash -c "mpirun -np 2 ./a b"',
    ],
)
def test_a_command_of_another_user_is_read(line: str) -> None:
    assert jobs(line) == ["--np 2 -- ./a b"]
    (job,) = flow.of_line(shlex.split(line)).jobs
    assert (*job.options, *job.program) == ("--np", "2", "./a", "b")
    is_named = any("as the user who starts the job" in why for why in reasons(line).values())
    assert is_named == (line.split(maxsplit=1)[0] in ("runuser", "su", "gosu") or " su " in line)


@pytest.mark.parametrize("line", ["su mpi", "su - mpi -c ls", "runuser mpi", "gosu mpi ls"])
def test_another_user_without_a_launcher_starts_no_job(line: str) -> None:
    assert jobs(line) == []


@pytest.mark.parametrize(
    ("sets", "ranks"),
    [
        ("let N=4", "4"),
        ("((N=8))", "8"),
        ("M=2; let N=M*3", "6"),
        ('M=2; let "N = $M + 1"', "3"),
        ("((M = 2, N = M * 2))", "4"),
        ('N=${N:-"${M:-${K:-5}}"}', "5"),
        ('if [ "x$N" = "x" ]; then N=3; fi', "3"),
        ('if [ "$N" == "" ]; then N=3; fi', "3"),
        ("if [[ ! $N ]]; then N=3; fi", "3"),
        ("if [[ -z ${N:-} || 1 == 2 ]]; then N=3; fi", "3"),
    ],
)
def test_what_a_script_sets(sets: str, ranks: str) -> None:
    assert jobs(f"{sets}\nmpirun -np $N a") == [f"--np {ranks} -- a"]


@pytest.mark.parametrize("sets", ["let N=K+1", "((N = K ? 1 : 2))", "N=1; ((N += 1))", "N=2; let N--"])
def test_arithmetic_that_only_a_shell_knows_is_named(sets: str) -> None:
    assert jobs(f"{sets}\nmpirun -np $N a") == ["-- a"]


@pytest.mark.parametrize(
    "text",
    ["if [[ $A == 1 || $B == 2 ]]; then M=1; fi", "[[ $A =~ ^(a|b)$ ]] && M=1", "for ((i=0;i<N;i++)); do M=1; done"],
)
def test_what_is_in_a_test_is_no_command(text: str) -> None:
    assert {*reasons(f"{text}\nmpirun -np 2 a")} == {"-np 2"}


def test_a_test_that_no_line_closes_ends_with_its_line() -> None:
    assert jobs("[[ $A == 1\nmpirun -np 2 a") == ["--np 2 -- a"]


def test_a_variable_that_is_not_exported_is_named_with_its_value() -> None:
    why = reasons("A=1\n: ${B:=2}\nexport C=3\nmpirun -np 2 -x A -x B -x C -x D a")
    assert "does not export it: -x A=1 if" in why["-x A"]
    assert "does not export it: -x B=2 if" in why["-x B"]
    assert why["-x D"] == "the ranks have the value in your environment"
    assert why["-x C"] == "C=3 overrides it"


@pytest.mark.parametrize("line", ["mpirun -np 2 -x 'A=$B' p", "env 'A=$B' mpirun -np 2 p", "'A=$B' mpirun -np 2 p"])
def test_a_shell_would_put_in_the_value_of_a_typed_line(line: str) -> None:
    (job,) = flow.of_line(shlex.split(line)).jobs
    assert job.options == ("--np", "2")
    assert [row.why for row in job.rows if "$B" in row.original] == [
        "its value is computed where the script runs: set it yourself"
    ]


@pytest.mark.parametrize("name", ["PATH", "LD_LIBRARY_PATH"])
def test_a_variable_that_is_set_to_itself_adds_nothing(name: str) -> None:
    for line in (f"{name}=${name} mpirun -np 2 p", f"mpirun -x {name}=${{{name}}} -np 2 p"):
        (job,) = flow.of_line(line.split()).jobs
        assert job.options == ("--np", "2")
        assert jobs(line) == ["--np 2 -- p"]
    (job,) = flow.of_line(("mpirun", "-np", "2", "-x", "A=$A", "p")).jobs
    assert job.options == ("--np", "2", "-x", "A")


def test_the_home_of_root_is_data_that_no_job_mounts() -> None:
    why = reasons("docker run -v /root/code:/code -v /etc:/e i mpirun -np 2 /code/a")
    assert "add --data FOLDER:/code" in why["-v /root/code:/code"]
    assert "belongs to the host" in why["-v /etc:/e"]
