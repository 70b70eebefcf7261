"""The branches, parameters and exported launchers of a script: what its values decide is decided, the rest is named."""

import pytest

from taco_launch.core.command import shell
from taco_launch.jobs.command_lines.launcher_line import UnclearError
from taco_launch.jobs.command_lines.script_translation import translate_script
from taco_launch.jobs.command_lines.scripts.conditions import truth
from taco_launch.jobs.command_lines.shell_script import read

IN_A_CONDITION = "the script runs it only if [ -n $K ] holds; otherwise remove what it adds to the command"
NOT_READ = "the condition in line {} decides whether it runs, and its first branch is read, which this is not"
OF_ARGUMENTS = "the command has the values that are set before; arguments of the script may change them"
NEVER = "is in a branch that does not run with the values in the script"


def jobs(text: str) -> list[str]:
    """Return the line of each job."""
    return [shell((*job.options, "--", *job.program)) for _line, job in translate_script(text).jobs]


def reasons(text: str) -> list[str]:
    """Return what no job has, with the reason."""
    done = translate_script(text)
    rows = [*(row for _line, job in done.jobs for row in job.rows), *done.rows]
    return [f"{row.original}: {row.why}" for row in rows if not row.here]


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ('[ "$A" = x ]', True),
        ("[ $A != x ]", False),
        ("[[ $A == x && $N -gt 2 ]]", True),
        ("[[ $A == y || $N -le 2 ]]", False),
        ('test -z "$A"', False),
        ('[ -n "$A" ] && [ "$N" -eq 4 ]', True),
        ('! [ "$A" = y ]', True),
        ("[ $A = x -a $N = 5 ]", False),
        ("[[ $A == x* ]]", True),
        ("true", True),
        ('[ -n "$UNSET" ]', None),
        ('[ -n "${UNSET:-}" ]', None),
        ('[ "$UNSET" = x ] || [ $A = x ]', True),
        ('[ "$UNSET" = x ] && [ $A = y ]', False),
        ("[ -f x ]", None),
        ("[ $# -lt 2 ]", None),
        ("(( N > 2 ))", True),
        ("((N==5))", False),
        ("(( $N ))", True),
        ("(( N > UNSET ))", None),
        ("(( N + 1 > 2 ))", None),
        ("nvidia-smi", None),
        ("[ $A -gt 2 ]", None),
    ],
)
def test_whether_a_condition_holds(test: str, holds: bool | None) -> None:
    (found,) = (
        each.words
        for each in read(f"if {test}; then a; fi").tests.values()
        if each.words[:1] != () and not each.earlier and "if" not in each.words and each.words[-1] in (";", "\n")
    )
    assert truth(found, {"A": "x", "N": "4"}) is holds


@pytest.mark.parametrize(
    ("script", "added"),
    [
        ("if [ $M = x ]; then A+=(1); else A+=(2); fi", "1"),
        ("if [ $M = y ]; then A+=(1); elif [ $M = x ]; then A+=(2); else A+=(3); fi", "2"),
        ("if [ $M = y ]; then A+=(1); fi", ""),
        ('if [[ "$M" == "y" ]] || [[ -z "$M" ]]; then A+=(1); else A+=(2); fi', "2"),
        ("case $M in y) A+=(1);; x|z) A+=(2);; *) A+=(3);; esac", "2"),
        ("[ $M = y ] && A+=(1)", ""),
        ("[ $M = x ] && A+=(1) || A+=(2)", "1"),
        ("[ $M = y ] && A+=(1) || A+=(2)", "2"),
        ("if [ $M = x ]; then if [ $M = y ]; then A+=(1); else A+=(2); fi; fi", "2"),
    ],
)
def test_a_known_value_decides_the_branch(script: str, added: str) -> None:
    text = f"M=${{1:-x}}\nA=(0)\n{script}\nmpirun -np 2 a ${{A[@]}}"
    assert jobs(text) == [shell(("--np", "2", "--", "a", "0", *added.split()))]
    assert reasons(text) == []


@pytest.mark.parametrize("before", ["A=(0)", 'A=(--b "$C/t" 0)', "A=(\n 0 \\\n)", 'A="0"', 'A=""', "A=()"])
def test_of_an_unknown_condition_the_first_branch_is_read(before: str) -> None:
    text = f'{before}\nif [ -n "$K" ]; then\n  A+=" 1"\nelse\n  A+=" 2"\nfi\nmpirun -np 2 a ${{A[@]}}'
    text = text if before[2] == '"' else text.replace('" 1"', "(1)").replace('" 2"', "(2)")
    lines = len(before.split("\n"))
    (job,) = jobs(text)
    assert job.split()[-1] == "1"
    why = [each.rpartition(": ")[2] for each in reasons(text) if each.startswith("line ")]
    assert why == [IN_A_CONDITION, NOT_READ.format(lines + 1)]


@pytest.mark.parametrize(
    ("script", "program"),
    [
        ("if [ -f x ]; then A+=' 1'; fi", "0"),
        ("[ -f x ] && A+=' 1'", "0"),
        ("[ -f x ] || A+=' 1'", "0"),
        ("if [ -f x ]; then A+=' 1'; elif [ -f y ]; then A+=' 2'; fi", "0"),
        ("case $1 in y) A+=' 1';; z) A+=' 2';; esac", "0"),
        ("if [ -f x ]; then if [ -f y ]; then A+=' 1'; else A+=' 2'; fi; fi", "0"),
        ("[ -f x ] && A+=' 1' || A+=' 2'", "0 1"),
        ("case $1 in y) A+=' 1';; *) A+=' 2';; esac", "0 1"),
        ("if [ -f x ]; then A+=' 1'; mpirun -np 2 a $A; exit; fi", "0 1"),
        ("if [ -f x ]; then source x; A+=' 1'; fi; A+=' 2'", "0 2"),
    ],
)
def test_what_a_condition_may_add_is_left_out_where_no_other_branch_runs(script: str, program: str) -> None:
    assert jobs(f"A=0\n{script}\nmpirun -np 2 a $A")[0] == f"--np 2 -- a {program}"
    lacks = [each for each in reasons(f"A=0\n{script}\nmpirun -np 2 a $A") if "the command lacks what it adds" in each]
    assert bool(lacks) == (program != "0 1" or "exit" in script)


def test_a_value_that_an_unknown_condition_chooses_is_not_known() -> None:
    assert jobs("N=2\nif [ -e x ]; then N=3; else N=4; fi\nmpirun -np 2 a $N") == ["--np 2 -- a '$N'"]
    assert jobs("if [ -e x ]; then N=3; mpirun -np $N a; else N=4; mpirun -np $N a; fi") == [
        "--np 3 -- a",
        "--np 4 -- a",
    ]
    added = "A=0\nif [ -e x ]; then A+=' 1'; else A+=' 2'; mpirun -np 2 a $A; fi"
    assert jobs(added) == ["--np 2 -- a 0 2"]


def test_a_branch_that_ends_the_script_is_not_the_one_that_is_read() -> None:
    text = 'A=0\nif [ -z "$1" ]; then\necho usage\nexit 1\nelse A+=" 1"; fi\nmpirun -np 2 a $A'
    assert jobs(text) == ["--np 2 -- a 0 1"]
    assert jobs("A=x\nif [ $A = x ]; then echo no; exit 1; fi\nmpirun -np 2 a") == ["--np 2 -- a"]


def test_a_launcher_in_a_branch_that_does_not_run_is_named() -> None:
    text = "W=0\nif [ $W -eq 1 ]; then\n  mpirun -np 4 a\nelse\n  mpirun -np 2 a\nfi"
    assert jobs(text) == ["--np 2 -- a"]
    assert reasons(text) == [f"line 3: mpirun -np 4 a: {NEVER}"]
    unknown = text.replace("W=0\n", "\n")
    assert jobs(unknown) == ["--np 4 -- a", "--np 2 -- a"]


@pytest.mark.parametrize(
    "loop",
    [
        "while [[ $# -gt 0 ]]; do case $1 in -n) N=$2; shift 2;; -h) usage; exit 0;; *) exit 1;; esac; done",
        'while getopts "n:h" opt; do case $opt in n) N=$OPTARG;; *) exit 1;; esac; done; shift $((OPTIND-1))',
        'for arg in "$@"; do case $arg in --np=*) N="${arg#*=}";; esac; done',
        "for arg; do case $arg in --np=*) N=${arg#*=};; esac; done",
        "for arg do case $arg in --np=*) N=${arg#*=};; esac; done",
        'while test $# -gt 0; do if [ "$1" = "-n" ]; then N=$2; fi; shift; done',
        'if [ "$1" = "-n" ]; then N=$2; shift 2; fi',
        'f() { while [ "$1" ]; do N=$2; shift; done; }; f "$@"',
    ],
)
def test_the_default_of_an_option_holds_and_is_named(loop: str) -> None:
    assert jobs(f"N=4\n{loop}\nmpirun -np $N a") == ["--np 4 -- a"]
    assert f"line 2: N=4: {OF_ARGUMENTS}" in reasons(f"N=4\n{loop}\nmpirun -np $N a")
    assert jobs(f"N=\n{loop}\nmpirun -np 2 a $N") == ["--np 2 -- a '$N'"]
    assert jobs(f'N=\n{loop}\n[ -z "$N" ] && N=3\nmpirun -np $N a') == ["--np 3 -- a"]


@pytest.mark.parametrize(
    "loop",
    [
        'for f in "$@"; do N=3; mpirun -np 2 b $f; done',
        "while [ $# -gt 0 ]; do N=3; mpirun -np 2 b $1; shift; done",
    ],
)
def test_a_loop_that_starts_a_job_for_each_argument_is_read(loop: str) -> None:
    started = jobs(f"N=4\n{loop}\nmpirun -np 2 a $N")
    assert [each.split()[3] for each in started] == ["b", "a"]
    assert not any(OF_ARGUMENTS in each for each in reasons(f"N=4\n{loop}\nmpirun -np 2 a $N"))


@pytest.mark.parametrize(
    ("script", "program"),
    [
        ("NAME=$1\nshift\nN=$1\nshift\nmpirun -np 2 a $NAME $N $1", "a '$NAME' '$N' '${3}'"),
        ("A=${1:?usage}\nshift 2\nmpirun -np 2 a $A $2 ${1:-x}", "a '$A' '${4}' x"),
        ("while [ $# -gt 0 ]; do shift; done\nmpirun -np 2 a $1", "a '$1'"),
        ("f() { shift; }\nmpirun -np 2 a $1 $0 '$1'", "a '$1' '$0' '$1'"),
    ],
)
def test_shift_moves_the_parameters(script: str, program: str) -> None:
    assert jobs(script) == [f"--np 2 -- {program}"]


SLURM = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:4\n"
LAUNCHER = 'export LAUNCHER="python -m torch.distributed.run --nproc_per_node 4 \\\n --nnodes $SLURM_NNODES --master_addr $X"\n'


@pytest.mark.parametrize(
    ("script", "program"),
    [
        (
            LAUNCHER + "export CMD=\"t.py --a 1\n --b $B\"\nsrun bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD'",
            "python t.py --a 1 --b '$B'",
        ),
        (LAUNCHER + 'srun --jobid $SLURM_JOBID bash -c \'${LAUNCHER} t.py "{\\"a\\"}"\'', "python t.py '{\"a\"}'"),
        ("export N=2 G=4\nsrun bash -c 'torchrun --nnodes $N --nproc_per_node $G t.py'", "python3 t.py"),
    ],
)
def test_exported_values_are_put_into_a_shells_text(script: str, program: str) -> None:
    (line,) = jobs(SLURM + script)
    options, _, job = line.partition(" -- ")
    assert (options.replace("-x N=2 -x G=4 ", ""), job) == ("--launcher torchrun --hosts 2 --slots-per-host 4", program)


def test_a_text_without_a_launcher_stays() -> None:
    (line,) = jobs("export A=3\nsrun -n 2 bash -c 'echo $A; python t.py $B'")
    assert line == "--np 2 -x A=3 -- bash -c 'echo $A; python t.py $B'"


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("x=${A/b\ntorchrun t.py", 1),
        ("\ntorchrun --nproc_per_node 4 ${X/code/t.py --a ${B}/c", 2),
        ('torchrun t.py "${A:-${B}"', 1),
    ],
)
def test_an_open_brace_is_one_error(script: str, line: int) -> None:
    with pytest.raises(UnclearError, match=r"has a \$\{ that is never closed") as caught:
        translate_script(script)
    assert caught.value.index == line
    for closed in ("torchrun t.py ${A:-\nb}", "torchrun t.py '${A'", "torchrun t.py \\${A", "torchrun t.py # ${A"):
        assert jobs(closed)


SIZES = "#!/bin/bash\n#SBATCH --nodes=4\n"


@pytest.mark.parametrize(
    ("script", "size"),
    [
        ("#SBATCH --gpus=32\n#SBATCH --ntasks-per-gpu=1\nsrun a", "--hosts 4 --slots-per-host 8"),
        ("#SBATCH -G 32\n#SBATCH --ntasks-per-gpu=1\nsrun -n $SLURM_NPROCS a", "--hosts 4 --slots-per-host 8"),
        ("#SBATCH --gpus-per-node=2\n#SBATCH --ntasks-per-gpu=2\nsrun a", "--hosts 4 --slots-per-host 4"),
        (
            "#SBATCH --gres=gpu:a100:2\n#SBATCH --ntasks-per-gpu=1\nsrun -n $SLURM_NTASKS a",
            "--hosts 4 --slots-per-host 2",
        ),
        (
            "#SBATCH -G 32\n#SBATCH --ntasks-per-node=1\nsrun a",
            "--launcher env --per-host --hosts 4 --slots-per-host 8",
        ),
        (
            "#SBATCH --gpus-per-node=2\nsrun torchrun --nnodes 4 --nproc-per-node $SLURM_GPUS_PER_NODE t.py",
            "--launcher torchrun --hosts 4 --slots-per-host 2",
        ),
    ],
)
def test_ranks_are_counted_by_gpus(script: str, size: str) -> None:
    assert [job.partition(" -- ")[0] for job in jobs(SIZES + script)] == [size]
    done = translate_script(SIZES + script)
    sizes = {row.here for _line, job in done.jobs for row in job.rows if "--slots-per-host" in row.here}
    assert all(size.endswith(here) for here in sizes)


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR"])
@pytest.mark.parametrize(
    "line", ["export {}=4\nsrun -n 2 a", "{}=4 srun -n 2 a", "mpirun -np 2 -x {}=4 a", "srun -n 2 --export=ALL,{}=4 a"]
)
def test_a_variable_that_each_rank_has_is_left_out(name: str, line: str) -> None:
    text = line.format(name)
    assert jobs(text) == ["--np 2 -- a"]
    assert any(each.endswith(": taco-launch sets it for every rank") for each in reasons(text))


def test_a_variable_that_run_refuses_is_left_out() -> None:
    text = "export OMPI_MCA_plm_rsh_args=x OMPI_MCA_btl=tcp\nmpirun -np 2 a"
    assert jobs(text) == ["--np 2 --mca btl tcp -- a"]
    assert any("write --mca plm_rsh_args" in each for each in reasons(text))


def test_a_placeholder_stays_and_is_named() -> None:
    text = "mpirun -np 2 a --out /x/<YOUR_NAME>/y --in <path-to-data> <f >g"
    assert jobs(text) == ["--np 2 -- a --out '/x/<YOUR_NAME>/y' --in '<path-to-data>'"]
    assert "<YOUR_NAME>: is a placeholder: write the value" in reasons(text)


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ('if [ -f x ]; then A="$A --resume x"; fi\nmpirun -np 2 a $A', "A=$A --resume x"),
        ('if [ -f x ]; then A="--resume x"; fi\nmpirun -np 2 a ${A}', "A=--resume x"),
        ('[ -f x ] && A+=" --resume x"\nmpirun -np 2 a $A', "A+= --resume x"),
        ('if [ -f x ]; then A+=(--resume x); fi\nmpirun -np 2 a "${A[@]}"', "A+= --resume x"),
    ],
)
def test_what_a_condition_adds_to_a_variable_without_a_value_is_named(text: str, added: str) -> None:
    assert jobs(text) == ["--np 2 -- a"]
    assert reasons(text) == [
        f"line 1: '{added}': the command lacks what it adds: the script runs it only if [ -f x ] holds"
    ]


def test_a_value_that_only_a_condition_gives_is_not_known() -> None:
    assert jobs("if [ -f x ]; then A=x; fi\nmpirun -np 2 a $A") == ["--np 2 -- a '$A'"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "mpirun -np 2 a && mpirun -np 2 b",
            ["line 1: mpirun -np: the script runs it only if this succeeds: mpirun -np 2 a"],
        ),
        (
            "mpirun -np 2 a || mpirun -np 2 b",
            ["line 1: mpirun -np: the script runs it only if this fails: mpirun -np 2 a"],
        ),
        (
            "mpirun -np 2 a || exit 1\nmpirun -np 2 b",
            ["line 2: mpirun -np: the script runs it only if this succeeds: mpirun -np 2 a"],
        ),
        ("[ -f x ] || exit 1\nmpirun -np 2 a\nmpirun -np 2 b", []),
        ("cd . && mpirun -np 2 a; mpirun -np 2 b", []),
    ],
)
def test_a_launcher_that_requires_another_one_is_named(text: str, told: list[str]) -> None:
    assert jobs(text) == ["--np 2 -- a", "--np 2 -- b"]
    assert reasons(text) == told
