"""Directives and variables of schedulers other than Slurm."""

import pytest

from taco_launch.core.command import shell
from taco_launch.jobs.command_lines import launcher_options as table
from taco_launch.jobs.command_lines.script_translation import ScriptTranslation, translate_script
from tests.support.script_rows import reasons


def line(done: ScriptTranslation) -> str:
    ((_line, job),) = done.jobs
    return shell((*job.options, "--", *job.program))


@pytest.mark.parametrize(
    ("directives", "launcher", "job"),
    [
        ("-L node=2,elapse=1:00:00\n#PJM --mpi proc=16", "mpirun", "--hosts 2 --slots-per-host 8 --timeout 3600s -- a"),
        ("-L node=2:noncont -N x -j", "mpirun -np ${PJM_NODE}", "--hosts 2 --slots-per-host 1 --name x -- a"),
        ("--rsc-list node=4\n#PJM --mpi max-proc-per-node=2", "mpirun", "--hosts 4 --slots-per-host 2 -- a"),
        ("--mpi proc=16 -x A=1", "mpirun -np ${PJM_MPI_PROC}", "--np 16 -x A=1 -- a"),
        ("--mail-list a@b.org -m e", "mpirun -np 2", "--np 2 --notify mailto:a@b.org -- a"),
    ],
)
def test_what_fujitsus_scheduler_asks_for(directives: str, launcher: str, job: str) -> None:
    assert line(translate_script(f"#!/bin/sh\n#PJM {directives}\n{launcher} a\n")) == job


def test_nqsv_gives_mpirun_its_hosts() -> None:
    text = "#PBS -b 2\n#PBS -T openmpi\n#PBS -l elapstim_req=60\nmpirun $NQSV_MPIOPTS -npernode 4 ${NQSII_MPIOPTS} bash a.sh\n"
    done = translate_script(text)
    assert line(done) == "--hosts 2 --slots-per-host 4 --timeout 60s -- bash a.sh"
    assert reasons(done)["line 4: '$NQSII_MPIOPTS'"] == "the hosts of the scheduler's job: taco-launch chooses them"


@pytest.mark.parametrize("file", ["$PBS_NODEFILE", "${PJM_O_NODEINF}", "$LSB_DJOB_HOSTFILE", "$SLURM_JOB_NODELIST"])
def test_the_schedulers_list_of_hosts_is_not_to_be_written(file: str) -> None:
    assert "the inventory has the hosts here" in "".join(
        reasons(translate_script(f"mpirun -np 2 --hostfile {file} a")).values()
    )
    unknown = translate_script("mpirun -np 2 --hostfile $HOSTS a")
    assert reasons(unknown)["--hostfile '$HOSTS'"] == "its value is computed where the script runs: set it yourself"


@pytest.mark.parametrize("option", ["-c 4", "-c4", "--cpus-per-task=4", "--cpus-per-task 4"])
def test_slurm_tells_how_many_cpus_a_rank_has(option: str) -> None:
    done = translate_script(f"#SBATCH {option}\nexport OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun -n 2 a\n")
    assert line(done) == "--np 2 -x OMP_NUM_THREADS=4 -- a"


def test_a_number_of_ranks_that_is_not_known_is_named_with_the_one_that_is_used() -> None:
    done = translate_script("#PBS -l select=2:mpiprocs=4\nmpirun -np $(wc -l < x) a\n")
    assert line(done) == "--hosts 2 --slots-per-host 4 -- a"
    assert reasons(done)["-np '$(wc -l < x)'"].endswith("; --hosts 2 --slots-per-host 4 is what the script asks for")
    assert not reasons(translate_script("mpirun -np $(x) -npernode 2 a"))["-np '$(x)'"].endswith("asks for")


def test_the_other_branch_than_the_launchers_is_named() -> None:
    text = "if [ -f x ]; then mpirun -np 2 a; else python b.py; fi\npython c.py\n"
    named = reasons(translate_script(text))
    assert named["line 1: python b.py"].endswith("in the place of the launcher in line 1")
    assert named["line 2: python c.py"].startswith("it runs once")


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("#flux: -N2 -n8\n# flux: -t 1.5h\nmpirun a", "--hosts 2 --slots-per-host 4 --timeout 5400s -- a"),
        ("#FLUX: -N2\nflux run -n 3 a", "--np 3 -- a"),
        ("#flux: -N 2 -n 8\nflux run a", "--np 1 -- a"),
        ("bsub -n 8 -R 'span[ptile=4]' mpirun ./a.out -n 2", "--np 8 --slots-per-host 4 -- ./a.out -n 2"),
        ("salloc -N 2 -n 16 srun a", "--hosts 2 --slots-per-host 8 -- a"),
        ("#SBATCH -N 2 --ntasks-per-node=4\nibrun -o 0 a", "--hosts 2 --slots-per-host 4 -- a"),
        ('#BSUB -n 32\n#BSUB -R "span[ptile=8]"\n#BSUB -a mpich2\nmpirun.lsf a', "--np 32 --slots-per-host 8 -- a"),
        ("#PBS -l select=2:mpiprocs=36\nmpiexec_mpt -n 72 a", "--np 72 --slots-per-host 36 -- a"),
        ("#SBATCH -n 8\nmpprun --pass='-x 1' a", "--np 8 -- a"),
    ],
)
def test_the_launchers_of_other_schedulers(text: str, job: str) -> None:
    assert line(translate_script(text)) == job


HYDRA = "--launcher hydra --np"


@pytest.mark.parametrize(
    ("text", "job"),
    [
        (
            "mpirun_rsh -ssh -np 2 -hostfile $PBS_NODEFILE -export A=1 B=2 numactl -l a",
            f"{HYDRA} 2 -x A=1 -x B=2 -- numactl -l a",
        ),
        ("mpirun_rsh -np 4 n0 n0 n1 n1 A=1 ./a", f"{HYDRA} 4 -H n0:2,n1:2 -x A=1 -- ./a"),
        ("mpirun_rsh -np 4 -hosts a,b ./a", f"{HYDRA} 4 -H a:2,b:2 -- ./a"),
        ("mpirun_rsh -np 2 python t.py x", f"{HYDRA} 2 -- python t.py x"),
        ("mpirun_rsh -np 2 numactl -l ./a", f"{HYDRA} 2 -- numactl -l ./a"),
        ("mpiexec.mpirun_rsh -n 2 ./a", f"{HYDRA} 2 -- ./a"),
    ],
)
def test_what_mpirun_rsh_has_before_its_program(text: str, job: str) -> None:
    assert line(translate_script(text)) == job


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mpirun_rsh -np 1 xhpl input", "'xhpl' may be the program, or the first of the hosts"),
        ("mpirun_rsh -np 2 -hostfile h A=1", "'A=1' is no program"),
        ("mpirun_rsh -config c -hostfile h", "'-config' may start several programs"),
    ],
)
def test_a_line_of_mpirun_rsh_without_a_program_is_refused(text: str, why: str) -> None:
    done = translate_script(text)
    assert not done.jobs
    assert next(iter(reasons(done).values())).startswith(why)


def test_a_flux_directive_that_cannot_be_read_is_named() -> None:
    assert reasons(translate_script("#flux: -t soon\nmpirun -np 2 a"))["-t soon"].startswith("is not a time of Flux")


@pytest.mark.parametrize(
    ("asked", "size", "names"),
    [
        ("nodes=4:ppn=8:B", "--hosts 4 --slots-per-host 8", ["-l B"]),
        ("nodes=4:gpu:ppn=8", "--hosts 4 --slots-per-host 8", ["-l gpu"]),
        ("nodes=2:ppn=4:gpus=1:shared", "--hosts 2 --slots-per-host 4", ["-l shared"]),
    ],
)
def test_properties_of_hosts_are_named(asked: str, size: str, names: list[str]) -> None:
    done = translate_script(f"#PBS -l {asked}\nmpirun ./a")
    assert line(done) == f"{size} -- ./a"
    assert [part for part, why in reasons(done).items() if "--selector" in why] == names


def test_what_a_launcher_without_a_size_starts_is_said() -> None:
    ((_line, job),) = translate_script("accelerate launch t.py").jobs
    (row,) = job.rows
    assert (row.original, row.here) == ("accelerate launch", "--hosts 1")
    assert row.why.startswith("it starts a rank on each GPU of one host, unless `accelerate config` set")
    ((_line, job),) = translate_script("#SBATCH --gres=gpu:4\ndeepspeed t.py").jobs
    given = {row.original: (row.here, row.why) for row in job.rows}
    assert given["deepspeed"] == ("--np 4", "it starts a rank on each GPU that the script requests")


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("/e/bin/torchrun --nproc_per_node 2 t.py", "-x PATH=/e/bin:/usr/bin:/bin"),
        ("A=1 /e/bin/accelerate launch --num_processes 2 t.py", "the ranks use the torchrun and python3 of their PATH"),
        ("/e/bin/mpirun -np 2 ./a", "for this one, write in the inventory: mpirun: /e/bin/mpirun"),
    ],
)
def test_the_folder_of_a_launcher_is_named(typed: str, why: str) -> None:
    (told,) = (told for word, told in reasons(translate_script(typed)).items() if word.startswith("/e/bin/"))
    assert why in told


def test_threads_of_pbs_are_a_variable() -> None:
    done = translate_script("#PBS -V -l select=2:ncpus=4:mpiprocs=2:ompthreads=2\nmpirun ./a")
    assert line(done) == "--hosts 2 --slots-per-host 2 -x OMP_NUM_THREADS=2 -- ./a"


def test_variables_of_a_c_shell() -> None:
    done = translate_script("#!/bin/csh\nsetenv OMP_NUM_THREADS 4\nsetenv A 'b c'\nmpirun -np 2 ./a")
    assert line(done) == "--np 2 -x OMP_NUM_THREADS=4 -x 'A=b c' -- ./a"


@pytest.mark.parametrize(
    ("asked", "torchrun", "size"),
    [
        ("--gres=gpu:2 --nodes=1", "torchrun --nproc_per_node gpu", "--np 2"),
        ("--gpus=4", "torchrun --standalone --nproc-per-node=gpu", "--np 4"),
        ("--nodes=3 --gpus=6", "torchrun --nnodes 3 --nproc_per_node=auto", "--hosts 3 --slots-per-host 2"),
        (
            "--nodes=3 --gpus-per-node=2",
            "srun torchrun --nnodes 3 --nproc_per_node=auto",
            "--hosts 3 --slots-per-host 2",
        ),
        ("--nodes=3 --gpus-per-node=2", "torchrun --nproc_per_node=cpu", "--hosts 1"),
        ("--nodes=1", "torchrun --nproc_per_node=gpu", "--hosts 1"),
        ("--nodes=2 --gpus=3", "torchrun --nnodes 2 --nproc_per_node=gpu", "--hosts 2"),
        ("--nodes=2 --gres=gpu:4", "deepspeed", "--np 4"),
        ("--nodes=1 --gpus-per-node=2", "accelerate launch", "--np 2"),
        ("--nodes=2", "accelerate launch", "--hosts 1"),
        ("--gres=gpu:4", "accelerate launch --num_machines 1", "--np 4"),
        ("--nodes=2", "accelerate launch --num_machines 1", "--hosts 1"),
        ("--nodes=2 --gres=gpu:4", "accelerate launch --num_machines 2", "--hosts 2"),
        ("--gres=gpu:4", "accelerate launch --num_processes 3", "--np 3"),
        ("--gres=gpu:4", "deepspeed --hostfile h", ""),
    ],
)
def test_a_rank_on_each_gpu_is_one_on_each_that_the_script_requests(asked: str, torchrun: str, size: str) -> None:
    done = translate_script(f"#SBATCH {asked}\n{torchrun} t.py")
    assert line(done).replace("  ", " ") == f"--launcher torchrun {size} -- python3 t.py".replace("  ", " ")


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        ("--nodes=2", "--hosts 2 --slots-per-host 1"),
        ("--nodes=2 --ntasks-per-node=4", "--hosts 2 --slots-per-host 4"),
        ("--nodes=2 --exclusive", "--hosts 2 --exclusive"),
    ],
)
def test_slurm_gives_a_node_one_task_by_default(asked: str, size: str) -> None:
    done = translate_script(f"#SBATCH {asked}\nmpirun ./a")
    assert line(done) == f"{size} -- ./a"
    assert any(row.why == table.ONE_TASK for _line, job in done.jobs for row in job.rows) is size.endswith(" 1")
