"""Scripts as people give them to a shell, Slurm, PBS or LSF: each launcher in them is a line here, and nothing is lost."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.command import shell
from taco_launch.jobs.command_lines import shell_script, shell_words
from taco_launch.jobs.command_lines.launcher_line import UnclearError
from taco_launch.jobs.command_lines.script_translation import translate_script
from tests.support.command_line import VERBS

SCRIPTS = Path(__file__).with_name("scripts")
CASES = sorted(path for path in SCRIPTS.iterdir() if path.suffix != ".yaml")


def lines(text: str) -> list[str]:
    """Return what a script is here: the line of each job, then what is left out."""
    done = translate_script(text)
    found = [f"{line}: {shell((*job.options, '--', *job.program))}" for line, job in done.jobs]
    rows = [*(row for _line, job in done.jobs for row in job.rows), *done.rows]
    return [*found, *(f"without {row.original}: {row.why}" for row in rows if not row.here)]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_a_script(path: Path) -> None:
    for _line, job in translate_script(path.read_text("utf-8")).jobs:
        with VERBS["run",].make_context("run", [*job.options, "--", *job.program]) as context:
            assert context.params["command"] == job.program
    assert lines(path.read_text("utf-8")) == yaml.safe_load(path.with_suffix(".yaml").read_text("utf-8"))


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("mpirun -np 2 a 'b c' \"d $HOME\" e\\ f", ("a", "b c", "d $HOME", "e f")),
        ("A=1; B=$A-2\nmpirun -np 2 a $A ${B} ${C:-3} '$A'", ("a", "1", "1-2", "3", "$A")),
        ("mpirun -np 2 a 2>&1 > log < /dev/null | tee x", ("a",)),
        ("x=(1 2 $(mpirun -np 9 no))\nmpirun -np 2 a \\\n  b # mpirun -np 3 c", ("a", "b")),
        ("if true; then mpirun -np 2 a; fi", ("a",)),
        ("true && FOO=`date` mpirun -np 2 a `hostname`", ("a", "$(hostname)")),
        ("cat <<'X' > f\nmpirun -np 7 no\nX\nmpirun -np 2 a", ("a",)),
        ("O=' -np 2 a '; mpirun $O b", ("a", "b")),
        ("L='mpirun -np 2'; $L a", ("a",)),
        ("O='-np 2'; mpirun $O a \"$O\" '' $E \"$E\"", ("a", "-np 2", "", "$E", "$E")),
        ('E=; mpirun $E -np 2 a $E "$E"', ("a", "")),
        ('O=(-np 2 # no\n \'a b\'); mpirun "${O[@]}" $O "${O[1]}"', ("a b", "-np", "2")),
        ('declare -a O=(-np); O+=(2 a); typeset N=(); mpirun ${O[@]} ${N[@]} "${N[@]}" b', ("a", "b")),
        ("A=1; A+=2; mpirun -np 2 a $A ${B:-$A}/c", ("a", "12", "12/c")),
        (": ${A:=1} ${B:=$A/2}; mpirun -np 2 a $B", ("a", "1/2")),
        ("for ((i=N; i>1; i--)); do true; done; n=1; ((n++)); mpirun -np 2 a $i $n", ("a", "$i", "$n")),
        ("i=1; for i in a b; do X=$i; done; mpirun -np 2 a $i $X", ("a", "$i", "$X")),
        ("A=1; if x; then A=2; fi; read B C < f; mpirun -np 2 a $A $B", ("a", "$A", "$B")),
        ("mpirun -np 2 `which a` $(command -v b) $(hostname)", ("a", "b", "$(hostname)")),
        ('mpirun -np 2 a $(./b "c d" $(e) (f) | g) h', ("a", '$(./b "c d" $(e) (f) | g)', "h")),
        ("mpirun -np 2 a &\nwait", ("a",)),
        ('A=(x "" "y z"); mpirun -np 2 a "${A[@]}" ${A[@]}', ("a", "x", "", "y z", "x", "y", "z")),
        ('A=(x y); mpirun -np 2 a "${A[*]}" ${A[*]} "b${A[@]}c"', ("a", "x y", "x", "y", "bx", "yc")),
        ('if [ -z "$A" ]; then A=1; fi; [ -z ${B} ] && B=2; mpirun -np 2 a $A $B', ("a", "1", "2")),
        ("A=1; if x; then A=2; B=3; mpirun -np 2 a $A $B; fi", ("a", "2", "3")),
        ("mkdir x && A=1; export B=2 && C=3; (D=4; mpirun -np 2 a $A $B $C $D)", ("a", "1", "2", "3", "4")),
        ("A=1; unset A; mpirun -np 2 a $A ${A:-2}", ("a", "2")),
        ("case $1 in (a) A=1;; b|c) B=2; mpirun -np 2 a $A $B;; esac", ("a", "$A", "2")),
    ],
)
def test_a_shells_grammar(text: str, program: tuple[str, ...]) -> None:
    ((_line, job),) = translate_script(text).jobs
    assert job.program == program
    assert job.options[:2] == ("--np", "2")


@pytest.mark.parametrize(
    "script",
    [
        "[ -f x ] && N=4",
        "test -f x || N=4",
        "((M > 1)) && N=4",
        "if x; then N=4; fi",
        "f() { N=4; }",
        "function f { N=4; }",
        "f() ( N=4 )",
        "(N=4)",
        "case $1 in a) N=4;; esac",
        "N=3; unset N; let N++",
        "printf -v N %d 4",
        "eval N=4",
        "select N in 4 5; do break; done",
        "N=(4); N[0]=5",
        "for i in 1 2; do mpirun -np $N a; N=4; done; exit",
    ],
)
def test_a_value_that_is_not_certain_is_not_known(script: str) -> None:
    (_line, job), *_others = translate_script(f"N=2\n{script}\nmpirun -np $N a").jobs
    assert "--np" not in job.options
    assert ("-np '$N'", "its value is computed where the script runs: set it yourself: --np N") in [
        (row.original, row.why) for row in job.left_out
    ]


@pytest.mark.parametrize(
    "text",
    [
        "sbatch -N 2 <<EOF\n#!/bin/sh\n#SBATCH -N 1 -t $T\nsrun ./a $A '\\$A'\nEOF",
        "sbatch -N 2 <<-'EOF'\n#!/bin/sh\n#SBATCH -N 1 -t 5\nsrun ./a $A '$A'\nEOF",
        "cat <<EOF | sbatch -N 2\n#!/bin/sh\n#SBATCH -N 1 -t $T\nsrun ./a $A '\\$A'\nEOF",
        "sbatch -N 2 -t $T --wrap \"srun ./a $A '\\$A'\"",
    ],
)
def test_a_script_within_a_script_is_a_job(text: str) -> None:
    done = translate_script(f"export A=1\nT=5\n{text}\n")
    ((_line, job),) = done.jobs
    assert job.options[:2] == ("--hosts", "2")
    assert {"--timeout 300s", "--hosts 2", "-x A=1"} <= {row.here for row in job.rows}
    assert job.program == ("./a", "1", "$A")
    assert done.scheduler == "Slurm"


WHAT_STANDS_THERE = "stands where the launcher's options are read, and its value is not known here: write it"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('srun "$@" sh -c a', [f"'$@' {WHAT_STANDS_THERE}"]),
        ("mpirun -np 8 $SITE_OPTIONS bash run.sh", [f"'$SITE_OPTIONS' {WHAT_STANDS_THERE}"]),
        ('A=(-n 2 a); A[1]=3; srun "${A[@]}"', [f"'${{A[@]}}' {WHAT_STANDS_THERE}"]),
        ("[ -d x ] && O='-n 2'; srun $O a", [f"'$O' {WHAT_STANDS_THERE}"]),
        ("srun ${OPTIONS} -l a", [f"'${{OPTIONS}}' {WHAT_STANDS_THERE}"]),
        ("A=($(x)); srun ${A[@]} a", [f"'$(x)' {WHAT_STANDS_THERE}"]),
        ("srun -N 2 torchrun $ARGS t.py", [f"'$ARGS' {WHAT_STANDS_THERE}"]),
        (
            "#BSUB -n 8\n#BSUB -R span[ptile=4]\nblaunch bash -c 'python t.py'",
            [
                "blaunch starts ranks, and is not read here: give the number of ranks and the program: taco-launch run --launcher env --np 8 --slots-per-host 4 -- bash -c 'python t.py'"
            ],
        ),
        (
            "bsub -n 2 blaunch sh -c 'torchrun --nnodes 2 t.py'",
            ["translate the command that it starts: taco-launch translate -- torchrun --nnodes 2 t.py"],
        ),
        (
            "export NNODES=2\nNPROC_PER_NODE=8 swift sft --model x",
            ["taco-launch run --launcher torchrun --hosts 2 --slots-per-host 8 -- swift sft --model x"],
        ),
        ("poe a -procs 2", ["poe starts ranks, and is not read here: give the number of ranks"]),
        (
            "if [ -e x ]; then L=srun; else L=mpirun; fi; $L -n 2 a",
            ["what it starts is computed where the script runs"],
        ),
        ("pbsdsh a", ["pbsdsh starts ranks, and is not read here: give the number of ranks"]),
        ("sbatch other.sh", ["sbatch submits a job: give the file that it submits: taco-launch translate other.sh"]),
    ],
)
def test_what_is_no_job_is_named(text: str, named: list[str]) -> None:
    jobs, rows = translate_script(text).jobs, translate_script(text).rows
    assert not jobs
    assert [row.original.split(":")[0].startswith("line ") for row in rows] == [True] * len(named)
    assert all(why in row.why for row, why in zip(rows, named, strict=True))


NO_INPUT = "the ranks read nothing from standard input: give them a file, or arguments"
KEPT = "each rank's output is kept separately: taco-launch logs NAME --rank N"
MADE = "the script writes this hostfile: make it first"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("echo 1 2 | mpirun -np 2 a", [f"echo 1 2 |: {NO_INPUT}"]),
        ("mpirun -np 2 a < in.txt", [f"< in.txt: {NO_INPUT}"]),
        ("mpirun -np 2 a <<X\n1\nX", [f"<< X: {NO_INPUT}"]),
        ("D=d\nmpirun -np 2 a < /dev/null 2> /dev/null | tee $D/log", [f"| tee d/log: {KEPT}"]),
        ("mpirun -np 2 a > log 2>&1", [f"> log: {KEPT}"]),
        ("mpirun -np 2 a &> log", [f"&> log: {KEPT}"]),
        ("export MASTER_ADDR=gpu1\nmpirun -np 2 a", ["MASTER_ADDR=gpu1: taco-launch sets it for every rank"]),
        (
            "N=4\ncat > ./h <<X\ngpu1 slots=$N\ngpu2 slots=2\nX\nmpirun -hostfile h -np 2 a",
            [f"line 2: cat > h: {MADE}: printf '%s\\n' 'gpu1 slots=4' 'gpu2 slots=2' > h"],
        ),
        ("x nodes > h\nmpirun -hostfile h -np 2 a", [f"line 1: x nodes > h: {MADE}"]),
    ],
)
def test_what_a_shell_does_around_a_launcher_is_named(text: str, named: list[str]) -> None:
    ((_line, job),) = translate_script(text).jobs
    assert job.program == ("a",)
    assert [f"{row.original}: {row.why}" for row in job.left_out] == named


def test_a_tilde_is_the_home_where_a_shell_reads_it() -> None:
    done = translate_script("D=~/d\nmpirun -np 2 -hostfile ~/h $D/a ~ '~/b' \"~/c\" x~/d $HOME", "/home/me")
    ((_line, job),) = done.jobs
    assert job.hostfile == "/home/me/h"
    assert job.program == ("/home/me/d/a", "/home/me", "~/b", "~/c", "x~/d", "/home/me")


@pytest.mark.parametrize(
    ("requirement", "options"),
    [
        ("span[ptile=4]", "--np 8 --slots-per-host 4"),
        ("select[x] span[hosts=1]", "--hosts 1 --slots-per-host 8"),
        ("rusage[mem=1]", "--np 8"),
    ],
)
def test_lsf_says_how_many_ranks_a_host_has(requirement: str, options: str) -> None:
    assert lines(f'#BSUB -n 8 -R "{requirement}"\nmpirun a')[0] == f"2: {options} -- a"


def test_the_text_of_eval_is_read() -> None:
    assert lines('L="mpirun -np 2"\neval "$L a"') == ["2: --np 2 -- a"]
    (left,) = lines('D="mpirun -np 2 b"\neval "$(x $D)"')
    assert "(D may be it): write it" in left


def test_a_line_of_arena_is_a_job_of_its_script() -> None:
    assert lines('arena submit mpijob --name a --workers 2 \\\n "mpirun -np 2 b"') == ["1: --name a --workers 2 -- b"]
    (left,) = lines("arena submit tfjob --name a b")
    assert "arena submit tfjob is not supported by taco-launch" in left


BY_ITSELF = "counts its ranks by its own options"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("#SBATCH -N 2\ntorchrun t.py", f"-N 2: torchrun {BY_ITSELF}"),
        ("#SBATCH -n $N\ndeepspeed t.py", f"-n '$N': deepspeed {BY_ITSELF}"),
        ("#SBATCH -N 2\npython t.py", "-N 2: python is started once, whatever the script asks for"),
        ("#SBATCH hetjob\nsrun a", "hetjob: is no option, and is not read"),
        ("#SBATCH -n 2\n#PBS -N a\nsrun a", "line 2: -N a: is of PBS, and the script is one for Slurm"),
        (
            "srun a\n#SBATCH -n 2",
            "line 2: -n 2: comes after the first command, in line 1, where Slurm reads no directives",
        ),
        ("#OAR -l nodes=2\nmpirun a", "-l nodes=2: directives of OAR are not read"),
        ("#$ -pe mpi 8-16\nmpirun a", "-pe mpi 8-16: '8-16' is not a number"),
        ("#$ -l h_rt=1h\nmpirun a", "-l h_rt=1h: is not a time, such as 5400 (seconds) or 1:30:00"),
    ],
)
def test_a_directive_that_does_not_count_is_named(text: str, named: str) -> None:
    assert [each for each in lines(text)[1:] if not each.startswith(("without --local", "without -np"))] == [
        f"without {named}"
    ]


@pytest.mark.parametrize(
    ("directive", "seconds"),
    [
        ("#PBS -l walltime=3600", 3600),
        ("#$ -l h_rt=90:00", 5400),
        ("#MSUB -l walltime=1:0:0:10", 86410),
        ("#$ -l h_rt=:30:", 1800),
    ],
)
def test_times_of_pbs_and_grid_engine_begin_at_seconds(directive: str, seconds: int) -> None:
    assert lines(f"{directive}\nmpirun -np 2 a") == [f"2: --np 2 --timeout {seconds}s -- a"]


@pytest.mark.parametrize("program", ['"$PROGRAM" "$@"', "$PROGRAM", "$HERE/a.out in.dat", "$PROGRAM --steps 3"])
def test_a_program_that_is_not_known_is_named(program: str) -> None:
    (job, *others) = lines(f"mpirun -np 2 {program}")
    assert job.startswith("1: --np 2 -- ")
    assert all(": a shell would insert a value here: write it" in each for each in others)
    assert others


def test_a_value_is_named_as_the_script_has_it() -> None:
    assert lines('mpirun -np 2 --what "$A" ./a.out')[1:] == [
        "without --what '$A': is no option that is known here, read with the value '$A'"
    ]


def test_a_launcher_in_the_background_is_a_job_beside_the_next_one() -> None:
    (monitor, job, row) = lines("srun -n 1 monitor &\nsrun -n 8 a")
    assert (monitor, job) == ("1: --np 1 -- monitor", "2: --np 8 -- a")
    assert row.startswith("without line 1: &: the script starts it beside others")


def test_what_a_condition_adds_is_named() -> None:
    done = lines("A=(-n 2)\nif [ -e x ]; then A+=(-J b); fi\nsrun ${A[@]} a")
    assert done == [
        "3: --np 2 -- a",
        "without line 2: 'A+= -J b': the command lacks what it adds: the script runs it only if [ -e x ] holds",
    ]
    done = lines("A=(-n 2)\nif [ -e x ]; then A+=(-J b); else A+=(-J c); fi\nsrun ${A[@]} a")
    assert done[0] == "3: --np 2 --name b -- a"
    assert "the script runs it only if [ -e x ] holds; otherwise remove what it adds to the command" in done[-2]


def test_what_a_loop_adds_is_not_known() -> None:
    done = lines("A=(-n 2)\nfor i in 1 2; do A+=(--label); shift; done\nsrun ${A[@]} a")
    assert done == [f"without line 3: srun '${{A[@]}}' a: '${{A[@]}}' {WHAT_STANDS_THERE}"]


def test_what_slurm_sets_in_a_shells_script_is_named() -> None:
    done = lines('srun -n 2 bash -c "export RANK=\\$SLURM_PROCID; cd \\${SLURM_TMPDIR}; a $UNSET \\$HOME"')
    assert done[1:] == [
        "without $SLURM_PROCID: SLURM_* are not set here: the ranks have RANK",
        "without $SLURM_TMPDIR: SLURM_* are not set here: write the value",
        "without $UNSET: a shell would insert a value here: write it",
    ]


@given(st.text("mpirun -np2a$(){}[]@+*'\"\\`#;|&<>=\n\t x", max_size=60))
def test_any_text_is_read(text: str) -> None:
    shell_script.read(f"#!/bin/sh\n{text}")
    if shell_script.read(text).unreadable is not None:
        return
    done = translate_script(text)
    assert not {*shell_words.MARKS} & set("".join(f"{row.original}{row.why}" for row in done.rows))
    for job in (job for _line, job in done.jobs):
        assert job.program
        rows = (f"{row.original}{row.here}{row.why}" for row in job.rows)
        assert not {*shell_words.MARKS} & set("".join((*job.options, *job.program, *rows)))


@pytest.mark.nightly
def test_what_a_script_repeats_grows_no_further_than_a_value() -> None:
    """Without a limit these lines of 100 KB would become gigabytes."""
    value = "x " * 30_000
    for script in (
        f"A='{value}'\nmpirun -np 2 ./a {'$A ' * 500}\n",
        f"A={'x' * 60_000}\nmpirun -np 2 ./a {'$A' * 20_000}\n",
    ):
        (job,) = translate_script(script).jobs
        assert sum(map(len, job[1].program)) < 1_000_000


def test_a_shell_exports_no_array() -> None:
    job, *others = lines("export A=(a b)\nmpirun -np 2 ./a\n")
    assert job == "2: --np 2 -- ./a"
    assert [each for each in others if each.endswith(": a shell exports no arrays: A")]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "python -m paddle.distributed.launch --ips a,b t.py",
            "paddle.distributed.launch starts ranks, and is not read",
        ),
        ("python3 tools/launch.py -n 2 --launcher ssh -H h python t.py", "launch.py starts the workers of a parameter"),
        ("swift sft --model m", "taco-launch run --launcher torchrun --np N -- swift sft"),
        ("llamafactory-cli train c.yaml", "--launcher torchrun --np N -- python3 -m llamafactory.launcher c.yaml"),
        ("lightning run model --devices 8 t.py", "--launcher torchrun --hosts N --slots-per-host N -x LT_CLI_USED=1"),
        ("fabric run t.py", "starts the ranks of Lightning Fabric"),
        ("ssh gpu2 'cd /x && torchrun --nnodes 2 t.py'", "translate that command alone"),
        ("ssh -p 22 $host torchrun --nnodes 2 t.py", "translate that command alone"),
        ('ssh gpu1 "torchrun --nnodes 2 t.py"', "translate that command alone"),
    ],
)
def test_what_starts_ranks_and_is_not_read_is_no_job(line: str, why: str) -> None:
    done = translate_script(line)
    assert not done.jobs
    assert why in done.rows[0].why


def test_a_script_that_the_script_writes_is_read_where_it_is_submitted() -> None:
    text = "cat > job.sh <<EOF\n#!/bin/bash\n#SBATCH -N 2\nsrun -n 4 ./a.out\nEOF\nsbatch ./job.sh\n"
    ((line, job),) = translate_script(text).jobs
    assert (line, job.options, job.program) == (4, ("--hosts", "2", "--slots-per-host", "2"), ("./a.out",))


def test_a_merge_conflict_is_named() -> None:
    with pytest.raises(UnclearError, match="marks of an unresolved merge conflict"):
        translate_script("<<<<<<< HEAD\nmpirun -np 2 a\n=======\nmpirun -np 3 a\n>>>>>>> b\n")


@pytest.mark.parametrize(
    ("directives", "line", "size"),
    [
        ("#BSUB -n 16\n#BSUB -Rspan[ptile=8] -gpu num=2", "mpirun a", "--np 16 --slots-per-host 8"),
        ("#PBS -qhigh -lselect=16:ncpus=1", "mpiexec a", "--hosts 16 --slots-per-host 1"),
        ("#PBS -l select=2:ncpus=32", "mpirun -np 64 a", "--hosts 2 --slots-per-host 32"),
        ("#PBS -l select=1:ncpus=4+2:ncpus=8", "mpirun -np 20 a", "--np 20"),
        (
            "#PBS -l select=2:model=ivy",
            "mpiexec -perhost 1 torchrun --nnodes 2 t.py",
            "--launcher torchrun --hosts 2 --slots-per-host 1",
        ),
        ("#PBS -l select=2:mpiprocs=4,network=x", "mpirun a", "--hosts 2 --slots-per-host 4"),
        ("#BSUB -nnodes 4 -alloc_flags smt4", "mpirun -np 1 -npernode 1 a", "--np 1 --slots-per-host 1"),
    ],
)
def test_the_ranks_that_a_scheduler_gives_each_host(directives: str, line: str, size: str) -> None:
    ((_line, job),) = translate_script(f"{directives}\n{line}\n").jobs
    assert " ".join(job.options) == size


@pytest.mark.parametrize(
    ("text", "original", "here", "why"),
    [
        ("#PBS -l select=2:model=ivy\nmpirun a", "-l model=ivy", "", "--gpu-model MODEL"),
        ("#PBS -l jobfs=4gb\nmpirun -np 2 a", "-l jobfs=4gb", "", "is no option that is known here"),
        ("#BSUB -nnodes 4\nmpirun -np 1 -npernode 1 a", "-nnodes 4", "", "make another number of hosts"),
        ("#BSUB -nnodes 2\nmpirun -np 4 -npernode 2 a", "-nnodes 2", "--np 4 --slots-per-host 2", ""),
        ("#BSUB -nnodes 2 -alloc_flags smt4\nmpirun -np 4 a", "-alloc_flags smt4", "", "has no such setting"),
    ],
)
def test_a_resource_has_a_row_of_its_own(text: str, original: str, here: str, why: str) -> None:
    ((_line, job),) = translate_script(text).jobs
    (row,) = [row for row in job.rows if row.original == original]
    assert (row.here, why in row.why) == (here, True)


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("#SBATCH -J a\ntorchrun --nnodes=1:2 t.py", "torchrun counts 1:2 hosts, but the script requests 1"),
        ("#SBATCH -N 2\nsrun -N 2 -n 4 torchrun --nnodes 4 t.py", "torchrun counts 4 hosts, but srun requests 2"),
        ("#SBATCH -N 2\ntorchrun --nnodes 2 t.py", ""),
        ("export A=1\ntorchrun --nnodes 2 t.py", ""),
        ("#SBATCH -n 2\ntorchrun --nnodes 2 t.py", ""),
    ],
)
def test_another_number_of_hosts_than_the_scripts_is_named(text: str, remark: str) -> None:
    ((_line, job),) = translate_script(text).jobs
    named = [row.why for row in job.rows if "is --hosts right?" in row.why]
    assert len(named) == bool(remark)
    assert all(why.startswith(remark) for why in named)
