"""Kinds of scripts that people publish: each is a job, or what to type instead is named."""

import pytest

from taco_launch.core.command import shell
from taco_launch.jobs.command_lines.arena import arena_line
from taco_launch.jobs.command_lines.launcher_line import UnclearError
from taco_launch.jobs.command_lines.script_translation import translate_script
from taco_launch.jobs.command_lines.shell_words import SUM, with_sums


def jobs(text: str, folder: str = "") -> list[str]:
    """Return the line of each job."""
    return [shell((*job.options, "--", *job.program)) for _line, job in translate_script(text, folder=folder).jobs]


def left(text: str) -> list[str]:
    """Return the reasons of what no job has."""
    done = translate_script(text)
    return [row.why for row in (*(row for _line, job in done.jobs for row in job.rows), *done.rows) if not row.here]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mpirun -np 2 a\nexit 0\nmpirun -np 4 b", ["--np 2 -- a"]),
        ("{ exit; }\nmpirun -np 4 b", []),
        ("(exit 1)\nmpirun -np 2 a", ["--np 2 -- a"]),
        ("[ -f x ] || exit 1\nmpirun -np 2 a", ["--np 2 -- a"]),
        ("if x; then exit; fi\nmpirun -np 2 a", ["--np 2 -- a"]),
        ("f() { exit; }\nmpirun -np 2 a", ["--np 2 -- a"]),
    ],
)
def test_what_comes_behind_an_exit_is_not_started(text: str, found: list[str]) -> None:
    assert jobs(text) == found
    assert ("the script ends here: no launcher below it is started" in left(text)) == (
        len(found) == 0 or "exit 0" in text
    )


@pytest.mark.parametrize("blanks", [" ", "\t", "   ", " # ranks of both hosts"])
def test_a_blank_behind_a_backslash_is_named(blanks: str) -> None:
    text = f"# a\nmpirun -np 2 \\{blanks}\n  ./a.out\n"
    with pytest.raises(UnclearError, match="has a blank behind the backslash") as caught:
        translate_script(text)
    assert caught.value.index == 2
    for harmless in ("mpirun -np 2 a \\ \n\necho", "mpirun -np 2 a '\\ \nb'", "mpirun -np 2 a\n# \\ \necho"):
        assert jobs(harmless)


NODES = "torchrun --nnodes 2 --nproc-per-node 4 --node-rank {} --master-addr gpu1 {}"


@pytest.mark.parametrize("end", ["\n", " &\n"])
def test_the_lines_of_several_hosts_are_one_job(end: str) -> None:
    text = end.join(NODES.format(rank, "t.py") for rank in (0, 1)) + end
    assert jobs(text) == ["--launcher torchrun --hosts 2 --slots-per-host 4 -- python3 t.py"]
    assert "is the part of another host of the job of line 1" in left(text)


@pytest.mark.parametrize(
    "other", [NODES.format(0, "t.py"), NODES.format(1, "u.py"), "torchrun --nnodes 2 --nproc-per-node 4 t.py"]
)
def test_other_lines_are_jobs_of_their_own(other: str) -> None:
    assert len(jobs(f"{NODES.format(0, 't.py')}\n{other}\n")) == 2


def test_a_loop_that_starts_the_part_of_each_host_is_one_job() -> None:
    text = "for i in $HOSTS; do srun -w $i -N1 torchrun --nnodes $N --nproc-per-node 4 --node-rank $R t.py & done\nwait"
    assert jobs(text) == ["--launcher torchrun --slots-per-host 4 -- python3 t.py"]
    reasons = left(text)
    assert "each round of the loop starts the part of one host: here one job has all of them" in reasons
    assert not any("as often as the script does" in why for why in reasons)


@pytest.mark.parametrize(
    ("word", "program"),
    [
        ("${@:2:($#-1)}", ("a", "${@:2:($#-1)}")),
        ("${A:-b c}", ("a", "b", "c")),
        ('${A:-"b;c"} d', ("a", "b;c", "d")),
        ("${A:-(b|c)}", ("a", "(b|c)")),
    ],
)
def test_parentheses_and_blanks_within_braces(word: str, program: tuple[str, ...]) -> None:
    text = f"mpirun -np 2 a {word}\n"
    ((_line, job), *_others) = translate_script(text).jobs
    assert job.program == program
    named = [row.original for row in job.left_out]
    assert named == [each for each in program if "$" in each]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("A * 8", "16"),
        ("1 + A*B", "17"),
        ("(1+A) * ${B}", "24"),
        ("$B - 3 - A", "3"),
        ("B / 3 * 3", "6"),
        ("((B)) % 3", "2"),
        ("-1 + 5", "4"),
    ],
)
def test_arithmetic_on_known_numbers(expression: str, value: str) -> None:
    assert with_sums(f"{SUM}(({expression}))x", {"A": "2", "B": "8"}) == f"{value}x"
    assert jobs(f"A=2\nB=8\nmpirun -np $(({expression})) a") == [f"--np {value} -- a"]


@pytest.mark.parametrize(
    "expression", ["A * C", "B / 0", "A - 5", "010 + 1", "A ** 2", "A > 1", "A +", "D", "1 - A / 3"]
)
def test_arithmetic_that_is_not_certain_is_not_known(expression: str) -> None:
    line = jobs(f"A=2\nB=8\nD=1+1\nmpirun -np 2 a $(({expression}))")
    assert (line == [f"--np 2 -- a '$(({expression}))'"]) == (expression != "1 - A / 3")


def test_the_values_of_a_loop_are_named() -> None:
    value, why = (why for why in left("for n in 1 2 4; do mpirun -np $n a $n; done") if "in turn" in why)
    assert why.endswith(": n is 1 2 4 in turn")
    assert value == "write the value: 1 2 4 in turn"
    assert jobs("for n in 4; do mpirun -np $n a; done") == ["--np 4 -- a"]
    for unknown in ("$N", "*.py", "{1..4}", "$(x)"):
        assert not any("in turn" in why for why in left(f"for n in 1 {unknown}; do mpirun -np $n a; done"))


@pytest.mark.parametrize(
    "line",
    [
        "python t.py --rank $RANK",
        "A=1 python3 t.py --num-nodes 4 --master 10.0.0.1",
        "python t.py --node ${NODE_RANK}",
        "python t.py --nnodes=2",
    ],
)
def test_a_program_that_is_started_on_each_host_is_no_job_of_one_rank(line: str) -> None:
    assert jobs(line) == []
    (why,) = left(line)
    assert "taco-launch run --launcher env --hosts " in why
    assert " --slots-per-host 1 -- sh -c " in why


@pytest.mark.parametrize(
    "line",
    ["python t.py --rank 0", "python t.py --num_nodes 5000", "python t.py --num-nodes 1", "python t.py $RANKING"],
)
def test_a_program_alone_is_a_job_of_one_rank(line: str) -> None:
    assert jobs(line)[0].startswith("--np 1 -- python t.py")


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("bash start.sh -np 4 python t.py", "start.sh"),
        ("sh -x ./start.sh", "./start.sh"),
        ("/opt/multi.sh t.py", "/opt/multi.sh"),
        ("nohup bash start.sh", "start.sh"),
    ],
)
@pytest.mark.parametrize("more", ["", "mpirun -np 2 a"])
def test_a_script_that_may_start_ranks_is_named(line: str, file: str, more: str) -> None:
    reasons = left(f"{line}\n{more}")
    assert reasons == [f"it may start ranks itself: taco-launch translate {file}"]


@pytest.mark.parametrize(
    ("line", "job"),
    [
        (
            "CUDA_VISIBLE_DEVICES=3 singularity exec --nv i.sif python t.py",
            "--np 1 --gpu-ids 3 -- singularity exec --nv i.sif python t.py",
        ),
        ("conda run -n e python3 t.py", "--np 1 -- conda run -n e python3 t.py"),
        ("A=1 nohup python t.py", "--np 1 -x A=1 -- python t.py"),
        ("env A=1 python t.py", "--np 1 -x A=1 -- python t.py"),
    ],
)
def test_a_program_behind_a_container_or_the_like(line: str, job: str) -> None:
    assert jobs(line) == [job]


INNER = "torchrun --nnodes 2 t.py"


@pytest.mark.parametrize(
    "line",
    [
        f"ssh gpu1 'tmux new-session -d -s a \"cd /x && {INNER}\"'",
        f'ssh -p 22 $h "nohup {INNER} > log &"',
        f"ssh gpu1 \"bash -c '{INNER}'\"",
        f"ssh gpu1 bash -lc \"'{INNER}'\"",
        f"pdsh -w gpu1,gpu2 'source e && {INNER}'",
    ],
)
def test_the_launcher_that_ssh_starts_is_named(line: str) -> None:
    assert jobs(line) == []
    assert f"list the hosts with -H: taco-launch translate -- {INNER}" in left(line)[0]


@pytest.mark.parametrize(
    ("line", "job"),
    [
        (
            "srun $T --nnodes 2 --nproc_per_node 4 t.py",
            "--launcher torchrun --hosts 2 --slots-per-host 4 -- python3 t.py",
        ),
        ("/opt/bin/torchrun-2.4 --nproc-per-node=4 t.py", "--launcher torchrun --np 4 -- python3 t.py"),
        ("$T --nproc-per-node=4 t.py", "--launcher torchrun --np 4 -- python3 t.py"),
        ("$P -m torch.distributed.run --nproc-per-node=4 t.py", "--launcher torchrun --np 4 -- python t.py"),
    ],
)
def test_a_launcher_is_known_by_its_options(line: str, job: str) -> None:
    assert jobs(line) == [job]
    for other in ("torchrun --nnodes $N --nproc_per_node 4 t.py", "srun -n 2 $P --steps 4"):
        assert "is read as torchrun, whose options follow it" not in left(other)


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("mpirun -np 2 a --rank PMI_RANK", "--launcher hydra "),
        ("export I_MPI_FABRICS=shm\nmpirun -np 2 a", "--launcher hydra "),
        ("MPICH_ASYNC_PROGRESS=1 mpiexec -n 2 a", "--launcher hydra "),
        ("export I_MPI_FABRICS=shm\nmpirun --mca btl tcp -np 2 a", ""),
        ("mpirun -np 2 a --rank OMPI_COMM_WORLD_RANK", ""),
    ],
)
def test_mpich_is_known_by_its_variables(text: str, launcher: str) -> None:
    assert jobs(text)[0].startswith(f"{launcher}--np 2")


@pytest.mark.parametrize(
    "folder",
    [
        *("$(dirname $0)", '"$(dirname "$0")"', "`dirname $0`", "$(dirname -- ${BASH_SOURCE[0]})"),
        '"$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )"',
        '$(cd "$(dirname "$0")"; pwd -P)',
    ],
)
def test_the_folder_of_the_script(folder: str) -> None:
    text = f"D={folder}\nmpirun -np 2 python $D/t.py"
    assert jobs(text, "jobs") == ["--np 2 -- python jobs/t.py"]
    assert jobs(text) == ["--np 2 -- python '$(...)/t.py'"]
    assert jobs(f"#SBATCH -n 2\n{text}", "jobs") == ["--np 2 -- python '$(...)/t.py'"]


def test_the_folder_that_a_script_is_started_in() -> None:
    assert jobs("mpirun -np 2 $PWD/a --data=$(pwd)/d $PWD") == ["--np 2 -- ./a --data=./d '$PWD'"]
    assert jobs("cd /x\nmpirun -np 2 $PWD/a") == ["--workdir /x --np 2 -- '$PWD/a'"]


def test_flags_of_arena_before_its_verb() -> None:
    line = "arena --loglevel info -n default submit pytorch --name a --workers 2 python t.py --workers 7"
    assert jobs(line) == ["--launcher env --name a --workers 2 -- python t.py --workers 7"]
    assert arena_line.translation(line.split()[1:]).program == ("python", "t.py", "--workers", "7")


def test_no_mark_is_in_a_message_about_arena() -> None:
    line = 'arena submit mpijob --name=$1 --workers 2 --image $2 "mpirun -np 2 a $B"'
    assert jobs(line) == ["--workers 2 -- a '$B'"]
    done = translate_script(line)
    rows = [*(row for _line, job in done.jobs for row in job.rows), *done.rows]
    assert not any("\ue000" in row.original + row.why or "\\ue000" in row.original + row.why for row in rows)
    assert [row.original for row in rows] == ["--name=$1", "--image $2", "mpirun -np 2 a $B"]
    (why,) = left('arena submit mpijob --workers=$2 "mpirun -np 2 a"')
    assert why.startswith("--workers=$2: its value is computed where the script runs")
    (why,) = left('arena submit mpijob --name=$1 "$PWD/start.sh"')
    assert why == "its launcher is in $PWD/start.sh (taco-launch translate start.sh)"


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("#SBATCH --gpus=4 --gpus-per-task=1\nsrun a", "--np 4 -- a"),
        ("#SBATCH --gpus=4\n#SBATCH --gpus-per-task=2\nsrun a", "--np 2 -- a"),
        ("#SBATCH --gpus=4 --gpus-per-task=1 -n 2\nsrun a", "--np 2 -- a"),
        ("#SBATCH --exclusive -n 2\nsrun a", "--np 2 --exclusive -- a"),
        ("srun --exclusive=user -n2 a", "--np 2 --exclusive -- a"),
    ],
)
def test_what_slurm_asks_for(text: str, job: str) -> None:
    assert jobs(text) == [job]


def test_a_constraint_of_slurm_is_named_with_what_is_like_it() -> None:
    (why,) = left("srun -n2 --constraint=v100 a")
    assert "--gpu-model MODEL" in why


@pytest.mark.parametrize(
    ("nodes", "is_told"), [("--nnodes 2", True), ("--nnodes $N", True), ("--nnodes 1", False), ("", False)]
)
def test_a_host_that_starts_alone_among_several_is_named(nodes: str, is_told: bool) -> None:
    assert any("which of the two is meant?" in why for why in left(f"torchrun --standalone {nodes} t.py")) == is_told


@pytest.mark.parametrize(
    ("before", "mpirun", "is_hydra"),
    [
        ("module load gcc/12 mpich/4.1", "mpirun", True),
        ("ml intel-mpi", "mpirun", True),
        ("module load impi/2021", "mpirun", True),
        ("module add mvapich2", "mpirun", True),
        ("module load openmpi\nmodule swap openmpi cray-mpich", "mpirun", True),
        ("module load mpich\nmodule load openmpi/5", "mpirun", False),
        ("module unload mpich", "mpirun", False),
        ("module load openmpi", "mpirun", False),
        ("", "/usr/lib64/mpich/bin/mpirun", True),
        ("", "/opt/intel/oneapi/mpi/2021.9/bin/mpirun", True),
        ("", "/opt/mvapich2-2.3/bin/mpirun", True),
        ("", "/opt/openmpi/bin/mpirun", False),
        ("module load mpich", "mpirun --bind-to none", False),
    ],
)
def test_modules_and_the_path_of_mpirun_name_its_mpi(before: str, mpirun: str, is_hydra: bool) -> None:
    launcher = "--launcher hydra " if is_hydra else ""
    assert jobs(f"{before}\n{mpirun} -np 4 /data/mpich/a.out") == [f"{launcher}--np 4 -- /data/mpich/a.out"]


def test_a_module_that_is_loaded_later_does_not_count() -> None:
    assert jobs("mpirun -np 2 a\nmodule load mpich") == ["--np 2 -- a"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("parallel --sshloginfile hosts -j 1 './work --rank {}' ::: 0 1", "parallel"),
        ("parallel -S gpu1,gpu2 ./work ::: 0 1", "parallel"),
        ("while read H; do ssh $H './work' & done < hosts; wait", "ssh"),
        ("for h in $HOSTS; do ssh -p 22 $h ./work; done", "ssh"),
        ("pdsh -w gpu1,gpu2 ./work", "pdsh"),
        ("nohup clush -a ./work", "clush"),
    ],
)
def test_what_runs_a_command_on_each_host_is_named(line: str, name: str) -> None:
    assert jobs(line) == []
    (reason,) = left(line)
    assert reason.startswith(f"{name} runs a command on each of several hosts.")
    assert "--launcher env --hosts N --slots-per-host 1" in reason


@pytest.mark.parametrize(
    "line", ["parallel -j 4 ./work ::: 0 1", "ssh $H ./work", "for i in 1 2; do ssh gpu1 ./w; done"]
)
def test_a_command_on_one_host_runs_once(line: str) -> None:
    assert left(line) == ["it runs once, on the first host: run it yourself, or in the program"]


COUNTED = "torchrun --nnodes 2 --nproc-per-node 4 {} {}"
ONE_JOB = "each round of the loop starts the part of one host: here one job has all of them"


@pytest.mark.parametrize(
    ("loop", "rank", "is_one"),
    [
        ("R=0\nfor h in $HOSTS; do {}; R=$((R+1)); done", "$R", True),
        ("for i in $(seq 0 1); do {}; done", "$i", True),
        ("while read H; do {}; let R++; done < f", "${R}", True),
        ("for lr in 1 2; do {}; done", "$SLURM_NODEID", False),
        ("if [ $R = 0 ]; then {}; fi", "$R", False),
    ],
)
def test_a_loop_that_counts_the_hosts_is_one_job(loop: str, rank: str, is_one: bool) -> None:
    text = loop.format(COUNTED.format(f"--node-rank {rank}", "t.py"))
    assert jobs(text) == ["--launcher torchrun --hosts 2 --slots-per-host 4 -- python3 t.py"]
    assert (ONE_JOB in left(text)) == is_one


def test_options_of_a_launcher_behind_its_program_are_named() -> None:
    why = "is behind the program, which reads it and torchrun does not: is it meant to be before the program?"
    assert left(COUNTED.format("", "t.py --node_rank=1 --lr 1")) == [why]
    assert why not in left(COUNTED.format("--node-rank 0", "t.py --node_rank=1"))
    assert left(COUNTED.format("", "t.py --lr 1 node-rank")) == []


@pytest.mark.parametrize(
    ("line", "job"),
    [
        ("accelerate launch --num_processes 2 $1", "--launcher torchrun --np 2 -- python3 '$1'"),
        ("deepspeed --num_gpus 2 --no_local_rank $MAIN", "--launcher torchrun --np 2 -- python3 '$MAIN'"),
        ("accelerate launch --num_processes 2 $DIR/start.sh", "--launcher torchrun --np 2 -- '$DIR/start.sh'"),
        ("accelerate launch --num_processes 2 --no_python $1", "--launcher torchrun --np 2 -- '$1'"),
    ],
)
def test_a_program_that_is_a_variable_is_one_of_python(line: str, job: str) -> None:
    assert jobs(line) == [job]


def test_the_words_of_a_message_about_a_missing_argument_are_no_program() -> None:
    assert jobs("N=${1:?number of ranks}\nmpirun -np $N python t.py") == ["-- python t.py"]
    assert jobs('C="${4:?C not set}"\nsrun -n 2 --container-image $C a.out') == ["--np 2 -- a.out"]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("srun -N 8 torchrun --nproc_per_node 4 t.py", 8),
        ("#SBATCH -N 3\nsrun python -m torch.distributed.launch --nproc_per_node 4 t.py", 3),
        ("srun -N 2 torchrun --standalone --nproc_per_node 4 t.py", 2),
        ("srun -N 2 torchrun --nnodes 2 --nproc_per_node 4 t.py", 0),
        ("srun -N 1 torchrun --nproc_per_node 4 t.py", 0),
    ],
)
def test_a_launcher_of_one_host_that_srun_starts_on_several(line: str, count: int) -> None:
    words = [why for why in left(line) if "each is a job of its own" in why]
    assert bool(words) == bool(count)
    assert all(f"--hosts {count} --slots-per-host 4" in each for each in words)


def test_tasks_of_each_node_stay_a_limit() -> None:
    assert jobs("#SBATCH -n 64\n#SBATCH --ntasks-per-node 4\nsrun a.out") == ["--np 64 --slots-per-host 4 -- a.out"]


def test_folders_of_pushd_and_popd() -> None:
    assert jobs("pushd a\nmpirun -np 2 x\npopd\nmpirun -np 2 y") == ["--workdir a --np 2 -- x", "--np 2 -- y"]


@pytest.mark.parametrize(("text", "line"), [("mpirun -np 4 'a\n", 1), ('echo\necho "a\nmpirun -np 2 a\n', 2)])
def test_a_quote_without_an_end_is_named(text: str, line: int) -> None:
    with pytest.raises(UnclearError, match="quote that is never closed") as caught:
        translate_script(text)
    assert caught.value.index == line


def test_a_file_that_the_script_writes_with_its_own_lines_is_named() -> None:
    why = "the script writes ds.json with its own lines: write that file before the job starts"
    assert why in left("cat > ds.json <<EOF\n{}\nEOF\nmpirun -np 2 a --config ds.json")
    assert why not in left("cat > hosts <<EOF\nh1\nEOF\nmpirun --hostfile hosts -np 2 a")


def test_a_cluster_of_ray_is_none_of_ours() -> None:
    text = "srun bash -c 'pip install x && ray start --head' &\nsrun --overlap ray job submit -- python t.py"
    assert jobs(text) == []
    assert [why.split(":")[0] for why in left(text)] == [
        "ray start makes a cluster of Ray, which starts its own workers",
        "ray job submits a job",
    ]


@pytest.mark.parametrize(
    ("line", "job"),
    [
        ("srun -N 2 bash -c 'source e; {}'", "--launcher torchrun --hosts 2 --slots-per-host 4 -- python3 t.py"),
        (
            "bash -lc 'cd /x; ./build.sh; {}'",
            "--launcher torchrun --workdir /x --hosts 2 --slots-per-host 4 -- python3 t.py",
        ),
        (
            "cd /a; bash -c 'cd b && {}'",
            "--launcher torchrun --workdir /a/b --hosts 2 --slots-per-host 4 -- python3 t.py",
        ),
        (
            "docker run a/b:1 sh -c 'export A=1 B=$C; C=2 {}; echo'",
            "--launcher torchrun --hosts 2 --slots-per-host 4 -x A=1 -x C=2 --image a/b:1 -- python3 t.py",
        ),
    ],
)
def test_a_script_around_one_launcher(line: str, job: str) -> None:
    text = line.format("torchrun --nnodes 2 --nproc-per-node 4 t.py")
    assert jobs(text) == [job]
    assert not any("does more than that" in why for why in left(text))


@pytest.mark.parametrize(
    "line",
    [
        "srun -n 2 bash -c 'mpirun -np 2 a; mpirun -np 4 b'",
    ],
)
def test_a_script_around_several_launchers_or_an_unclear_one_is_named(line: str) -> None:
    assert jobs(line) == []
    assert any("does more than that" in why or "not known here" in why for why in left(line))


def test_what_a_script_sets_behind_set_a_is_exported() -> None:
    for on, off in (("set -a", "set +a"), ("set -euxa", "set +a"), ("set -o allexport", "set +o allexport")):
        text = f"{on}\nA=1\nsource .env\nB=$A\n{off}\nC=2\nmpirun -np 2 a"
        assert jobs(text) == ["--np 2 -x A=1 -x B=1 -- a"]
        assert any("the ranks have the variables that it sets" in why for why in left(text))
    assert jobs("set -eu\nA=1\nmpirun -np 2 a") == ["--np 2 -- a"]


@pytest.mark.parametrize(("line", "named"), [("time mpirun -np 2 a", "time"), ("time -p mpirun -np 2 a", "time -p")])
def test_time_before_a_launcher_is_named(line: str, named: str) -> None:
    ((_line, job),) = translate_script(line).jobs
    assert [row.original for row in job.rows if not row.here] == [named]
    assert jobs(f"time {{\n{line}\n}}") == jobs(line)
