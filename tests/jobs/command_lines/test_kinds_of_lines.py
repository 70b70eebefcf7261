"""Syntax around a launcher, or in the place of its values: read as a shell reads it, or named."""

import re
import shlex
import time

import pytest
from click.testing import CliRunner

from taco_launch.cli.main import cli
from taco_launch.core.command import shell
from taco_launch.core.errors import UsageError
from taco_launch.jobs import translate as flow
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines import shell_script
from taco_launch.jobs.command_lines.script_translation import translate_script
from taco_launch.jobs.command_lines.scripts import function_calls
from tests.support.shown_commands import loaded


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


@pytest.mark.parametrize(("tasks", "is_named"), [("-N 2 --ntasks=16", True), ("-n 8", False), ("-N 1 -n 1", False)])
def test_mpirun_that_srun_starts_several_times(tasks: str, is_named: bool) -> None:
    line = f"srun {tasks} mpirun -np 8 a"
    assert jobs(line) == ["--np 8 -- a"]
    assert any("starts it 16 times" in why for why in reasons(line).values()) == is_named


def test_an_elastic_line_without_slots_says_what_makes_it_elastic() -> None:
    why = reasons("horovodrun --min-np 4 --max-np 12 --host-discovery-script ./d.sh python t.py")
    assert all("--elastic --hosts MIN:MAX" in why[part] for part in ("--min-np 4", "--max-np 12")), why


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


TRAIN = 'run() { local n=$1 lr=${2:-0.5}; shift 2; torchrun --nproc_per_node=$n t.py $lr "$@"; }\n'
WITH = "--launcher torchrun --np {} -- python3 t.py {}"


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ("run 4 0.1", [WITH.format(4, "0.1")]),
        ("run 4 0.1 --a 'b c'\nrun 8 1", [WITH.format(4, "0.1 --a 'b c'"), WITH.format(8, "1")]),
        ("N=2\nrun $N", [WITH.format(2, "0.5")]),
        ("N=2\nrun ${N} $N | tee log", [WITH.format(2, "2")]),
        ("main() { run 4 $1; run 8 $1; }\nmain 3", [WITH.format(4, "3"), WITH.format(8, "3")]),
        ('main() { run 4 $1; }\nmain "$@"', [WITH.format(4, "'$lr'")]),
        ("function main { run $1 2; }\nmain 4", [WITH.format(4, "2")]),
        ('run "$@"', ["--launcher torchrun --hosts 1 -- python3 t.py 0.5 '$@'"]),
    ],
)
def test_a_function_is_read_with_the_arguments_of_each_call(calls: str, found: list[str]) -> None:
    assert jobs(TRAIN + calls) == found


def test_shift_in_a_function_takes_the_arguments_of_the_script_that_it_is_given() -> None:
    assert jobs('f() { shift; mpirun -np 2 a $1 "$@"; }\nf x "$@"') == ["--np 2 -- a '$1' '$@'"]
    assert jobs('f() { shift 2; mpirun -np 2 a $1; }\nf x "$@"') == ["--np 2 -- a '${2}'"]


def test_the_condition_of_a_function_is_that_of_its_call() -> None:
    text = "f() { if [ $1 -gt 2 ]; then M=--big; else M=--small; fi; mpirun -np $1 a $M; }\nf 2\nf 4"
    assert jobs(text) == ["--np 2 -- a --small", "--np 4 -- a --big"]
    assert reasons(text).keys() == {"-np 2", "-np 4"}


def test_a_function_that_is_called_for_a_reason_has_it() -> None:
    assert "it is in a loop or a condition" in "".join(reasons("f() { mpirun -np 2 a; }\nif x; then f; fi").values())
    assert jobs("f() { A=1 mpirun -np $1 a; }\nB=2 f 4") == ["--np 4 -x B=2 -x A=1 -- a"]
    assert jobs("usage() { exit 1; }\n[ $# -lt 1 ] && usage\nmpirun -np 2 a") == ["--np 2 -- a"]


@pytest.mark.parametrize("line", ["torchrun t.py", "$PYTHON -m torch.distributed.run t.py", "f"])
def test_a_branch_that_starts_ranks_and_exits_is_read(line: str) -> None:
    begin = "f() { $PYTHON -m torch.distributed.run t.py; }\n" if line == "f" else ""
    text = f"PYTHON=python3\n{begin}if [ $K != 1 ]; then {line}; exit 0; fi\nexit 1"
    assert [job.rpartition(" -- ")[2] for job in jobs(text)] == ["python3 t.py"]


@pytest.mark.parametrize(
    "text",
    [
        "f() { mpirun -np 2 a; }\nf() { mpirun -np 4 b; }\nf",  # which of the two is not followed
        "f() { f; mpirun -np 2 a; }\nf",
    ],
)
def test_a_function_that_is_not_followed_is_named(text: str) -> None:
    assert "is a function of the script: what it starts is read where it stands" in reasons(text).values()


@pytest.mark.parametrize("name", ["/opt/bin/mympirun", "mpiexec.lam", "yhrun"])
def test_a_launcher_that_is_not_read_is_named(name: str) -> None:
    assert jobs(f"{name} -np 2 ./a") == []
    (why,) = reasons(f"{name} -np 2 ./a").values()
    assert why.startswith(f"{name.rpartition('/')[2]} starts ranks, and is not read here")
    assert reasons("mpirun -np 2 a\n./mpirun.sh x")["line 2: ./mpirun.sh x"].startswith("it may start ranks itself")


def test_a_script_that_is_written_and_submitted_by_its_input() -> None:
    text = "N=4\ncat > j <<EOF\n#BSUB -W 30\nmpirun -np $(($N*2)) a $(($1*2)) $(id -u)\nEOF\nbsub < j\n"
    assert jobs(text) == ["--np 8 --timeout 1800s -- a '$(($1*2))' '$(id -u)'"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("jsrun -n 2 <path/to/executable> <input file> > out.txt", "<path/to/executable>, <input file>"),
        ("mpirun -np 2 <exe>", "<exe>"),
        ("srun -n 2 <your program> -v", "<your program>"),
        ("P=REPLACE_WITH_PATH\nsrun $P --nnodes 1 --x=YOUR_KEY t.py", "REPLACE_WITH_PATH, YOUR_KEY"),
    ],
)
def test_a_program_that_is_to_be_filled_in_is_refused(line: str, named: str) -> None:
    assert jobs(line) == []
    (why,) = (why for original, why in reasons(line).items() if original.startswith("line "))
    assert why.endswith(f"is a placeholder, and no program: replace what is to be filled in: {named}")


def test_options_and_arguments_that_are_to_be_filled_in_are_named() -> None:
    text = "#BSUB -P <allocation ID>\nmpirun -np <n> -H <host1>,<host2> ./a <input file> <in >out"
    assert jobs(text) == ["-- ./a '<input file>'"]
    why = reasons(text)
    assert why["-np '<n>'"] == "is a placeholder: write the value: --np N"
    assert why["-H '<host1>,<host2>'"] == why["<input file>"] == "is a placeholder: write the value"
    assert why["-P '<allocation ID>'"] == "the queue of taco-launch has no such setting"
    assert jobs("mpirun -np 2 ./a <in.lj> out.lj\nmpirun -np 2 ./a <in >out") == ["--np 2 -- ./a"] * 2


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("mpirun -np 32 - H s1:4,s2:4 python a.py", "-H"),
        ("mpirun -- np 4 ./a", "--np"),
        ("mpirun -np 2 \u2013x A ./a", "-x"),
        ("torchrun \u2014nproc_per_node 2 a.py", "-nproc_per_node"),
    ],
)
def test_an_option_that_a_blank_or_another_dash_breaks_is_named(line: str, word: str) -> None:
    with pytest.raises(UsageError) as error:
        flow.of_line(line.split())
    assert str(error.value.hint).startswith(f"write {word}")


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("flux run -N1 -n24 a", "--hosts 1 --slots-per-host 24 -- a"),
        ("srun -N 1 -n 24 a", "--hosts 1 --slots-per-host 24 -- a"),
        ("lrun -N 1 -T 4 a", "--hosts 1 --slots-per-host 4 -- a"),
        ("flux run -N 2 -n 24 a", "--hosts 2 --slots-per-host 12 -- a"),
        ("srun -N 1 a", "--np 1 -- a"),  # one rank is on one host
        ("#PBS -l select=2:ncpus=16 -l place=pack\nmpiexec -n 32 a", "--hosts 1 --slots-per-host 32 -- a"),
        ("#PBS -l place=pack\n#PBS -l select=2:mpiprocs=16\nmpiexec a", "--hosts 1 --slots-per-host 32 -- a"),
        ("#PBS -l select=2:mpiprocs=16 -l place=scatter\nmpiexec a", "--hosts 2 --slots-per-host 16 -- a"),
    ],
)
def test_the_hosts_that_are_asked_for_stay(text: str, job: str) -> None:
    assert jobs(text) == [job]


@pytest.mark.parametrize(
    "text",
    [
        "flux run -n 2 -x a",
        "#$ -l excl=TRUE\nmpirun -np 2 a",
        "#BSUB -x\nmpirun -np 2 a",
        "#PBS -l place=scatter:excl\nmpirun -np 2 a",
    ],
)
def test_hosts_without_other_jobs_are_kept(text: str) -> None:
    assert jobs(text) == ["--np 2 --exclusive -- a"]


def test_a_request_that_keeps_no_host_free_is_named() -> None:
    assert reasons("#$ -l excl=0\nmpirun -np 2 a")["-l excl=0"] == "asks for no host of its own"
    assert reasons("#PBS -l place=free\nmpirun -np 2 a")["-l place=free"] == "taco-launch chooses the hosts"


def test_the_arguments_of_mpirun_are_read_by_its_options() -> None:
    line = (
        'horovodrun -np 2 --binding-args="--map-by socket --bind-to core" --mpi-args="--report-bindings -x A=1 -np 9" a'
    )
    assert jobs(line) == ["--np 2 -x A=1 -- a"]
    why = reasons(line)
    assert why["--map-by socket"] == why["--bind-to core"] == why["--report-bindings"] == "the profile decides it"
    assert why["-np 9"] == "horovodrun counts its ranks by its own options"


def test_what_the_tables_advise_is_an_option_here() -> None:
    for kind, why in {(kind, each.why) for kind, options in table.OPTIONS.items() for each in options.values()}:
        verbs = ("run", "submit", *cli.commands.keys() & {*re.findall(r"taco-launch ([a-z]+)", why)})
        known = {name for verb in verbs for param in loaded(cli.commands[verb]).params for name in param.opts}
        named = re.findall(r"(?<![\w-])--?[A-Za-z][a-z-]*", why.replace("--num_processes", ""))
        assert {*named} <= {*known, "-i"}, (kind, why)


def test_a_size_that_is_to_be_set_fits_the_one_that_is_known() -> None:
    why = reasons("#BSUB -nnodes 2\njsrun -n $N a")["-n '$N'"]
    assert why.endswith("set it yourself: --slots-per-host N, the ranks of each host")


@pytest.mark.parametrize(("gpus", "is_one"), [(6, True), (7, False)])
def test_the_tasks_of_a_resource_set_share_its_gpus(gpus: int, is_one: bool) -> None:
    text = f"#BSUB -nnodes 2\njsrun --np 12 --rs_per_host 1 --gpu_per_rs {gpus} a"
    assert jobs(text) == ["--hosts 2 --slots-per-host 6 -- a"] * is_one
    assert any("is a task with several GPUs" in why for why in reasons(text).values()) != is_one


def test_a_count_of_a_chunk_that_is_not_known_has_no_default() -> None:
    text = "#PBS -l select=2:mpiprocs=$N\nmpiexec a"
    assert jobs(text) == ["--hosts 2 -- a"]
    assert "mpiprocs=1" not in reasons(text)


@pytest.mark.parametrize(
    ("text", "found", "named"),
    [
        ("mpirun -np 2 a &\nmpirun -np 4 b", ["--np 2 -- a", "--np 4 -- b"], "line 1: &"),
        ("srun -n 8 a &\nsrun -n 1 b &\nwait", ["--np 8 -- a", "--np 1 -- b"], "lines 1, 2: &"),
        ("for i in 1 2; do srun -n 1 a & done", ["--np 1 -- a"], "line 1: &"),
        ("mpirun -np 2 a &\nwait", ["--np 2 -- a"], ""),
    ],
)
def test_launchers_at_the_same_time_are_jobs_and_named(text: str, found: list[str], named: str) -> None:
    assert jobs(text) == found
    by_sign = {original: why for original, why in reasons(text).items() if original.endswith("&")}
    assert "".join(by_sign) == named
    assert all("submit in the place of run" in why for why in by_sign.values())


CHECK = "a check, without effect on the job: left out"


@pytest.mark.parametrize(
    "line",
    [
        *("srun hostname", "srun -l -n 2 nvidia-smi", "flux run env | grep A | sort", "srun python --version"),
        *("mpirun -np 2 numactl --hardware", "srun bash -c 'echo $RANK; hostname'", "srun which python"),
        "srun hostname | python3 sorted.py",
    ],
)
def test_a_check_is_no_job_beside_a_program(line: str) -> None:
    for real in ("mpirun -np 4 a", "srun -n 4 a"):
        assert jobs(f"{line}\n{real}") == ["--np 4 -- a"]
        (named,) = (original for original, why in reasons(f"{line}\n{real}").items() if original.startswith("line 1"))
        assert reasons(f"{line}\n{real}")[named] == CHECK
    assert len(jobs(line)) == 1 or "python3" in line
    assert jobs(f"{line}\nsrun $X b c") == []


def test_what_is_no_check_stays_a_job() -> None:
    for line in ("srun bash -c 'hostname; ./b'", "srun python b.py", "srun ./echo.sh"):
        assert len(jobs(f"{line}\nsrun -n 4 a")) == 2
    assert jobs("srun hostname\npython t.py") == ["--np 1 -- python t.py"]


def test_a_launcher_that_prepares_the_hosts_is_no_job_beside_a_program() -> None:
    for line in ("srun pip install x", "srun python -m pip install x", "srun mkdir -p /d"):
        assert jobs(f"{line}\nsrun -n 4 a") == ["--np 4 -- a"]
        assert reasons(f"{line}\nsrun -n 4 a")[f"line 1: {line}"].startswith("it prepares the hosts, and is no job")


@pytest.mark.parametrize("line", ["mpirun -np 2 {}", "[[ {} ]]"])
def test_a_line_of_many_words_is_read_in_linear_time(line: str) -> None:
    def seconds(count: int) -> float:
        begun = time.process_time()
        shell_script.read(line.format("a " * count))
        return time.process_time() - begun

    assert seconds(20_000) < 25 * max(seconds(2_000), 0.005)


def test_a_dash_is_no_program_of_a_job() -> None:
    done = CliRunner().invoke(cli, ["run", "--dry-run", "--", "-", "H", "s1:4", "a"])
    assert isinstance(done.exception, UsageError)
    assert "a blank divides the option -H" in done.exception.message


def test_a_line_that_only_redirects_is_named() -> None:
    (why,) = (why for each, why in reasons("mpirun -np 2 a\n<in >out").items() if each == "line 2: < in > out")
    assert why == "redirects, but no command is before it: does it continue the line above?"
    assert {*reasons(": > f\n> f\n(:) < f\nmpirun -np 2 a")} == {"-np 2"}


def test_a_comment_behind_a_directive_is_no_part_of_it() -> None:
    assert [*reasons("#PBS -l mem=1gb // memory\nmpirun -np 2 a")] == ["-l mem=1gb", "-np 2"]


@pytest.mark.parametrize("program", ["./launch.sh 4 8", "bash ./launch.sh 4 8"])
def test_a_script_of_arena_that_may_start_ranks_is_to_be_translated(program: str) -> None:
    line = f"arena submit mpi --name n --gpus=8 --workers=4 --image=i -e A=1 {program}"
    with pytest.raises(UsageError) as error:
        flow.of_line(line.split())
    assert str(error.value) == "./launch.sh: may start ranks itself, and is read on its own"
    hint = (
        "translate the script: taco-launch translate ./launch.sh. Its ranks run on 4 workers with 8 GPUs each; add {}"
    )
    assert error.value.hint == hint.format("--name n --image i -x A=1")


def test_arguments_of_a_launcher_with_an_open_quote_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be read: No closing quotation"):
        flow.of_line(("deepspeed", "--launcher", "openmpi", "--launcher_args", "-x 'A", "t.py"))


@pytest.mark.parametrize(
    "functions",
    [
        "".join(f"{name}() {{ {inner} {'$@ ' * 1000}; }}\n" for name, inner in ("fg", "gh", "ha")) + "f a b",
        "f() {\n" + "echo a\n" * 1900 + "}\n" + "f\n" * 1900,
    ],
)
def test_calls_that_would_become_too_much_are_not_read(functions: str) -> None:
    script = shell_script.read(f"{functions}\nmpirun -np 2 a\n")
    assert len(function_calls.inlined(script).commands) < 6000
    assert jobs(f"{functions}\nmpirun -np 2 a\n") == ["--np 2 -- a"]


def test_the_first_shell_of_a_line() -> None:
    assert shell_script.shell_at(("time", "bash", "-c", "a", "sh", "-c", "b")) == 1
    assert shell_script.shell_at(("bash", "-c", "a", "sh", "-c", "b"), 1) == 3
    assert shell_script.shell_at(("time", "bash", "-c")) == 3
