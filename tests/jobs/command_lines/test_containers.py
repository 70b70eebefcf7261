"""A program that starts a container of its own: the job's image and mounts, or a row."""

import shlex

import pytest

from taco_launch.core.command import shell
from taco_launch.core.launch.command_line.nested_launcher import inner
from taco_launch.jobs.command_lines.script_translation import translate_script
from taco_launch.jobs.command_lines.translation import Translation, translate
from tests.support.command_line import VERBS

IN_IT = "--np 2 --image a/b:1 -- python t.py"
SHIFTER = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --image=docker:a/b:1\n#SBATCH --module=gpu\n"


def line(done: Translation) -> str:
    """Return a job's line, which the command line accepts."""
    VERBS["run",].make_context("run", [*done.options, "--", *done.program])
    return shell((*done.options, "--", *done.program))


def translated(text: str) -> Translation:
    words = shlex.split(text)
    launcher = inner(words)
    assert launcher is not None
    return translate(words, launcher)


@pytest.mark.parametrize(
    ("typed", "here"),
    [
        ("docker run --rm -it --gpus all --ipc=host a/b:1 python t.py", IN_IT),
        ("podman run --network host --privileged a/b:1 python t.py", IN_IT),
        ("podman-hpc run --gpu --mpi a/b:1 python t.py", IN_IT),
        ("sudo docker run a/b:1 python t.py", IN_IT),
        ("singularity exec --nv docker://a/b:1 python t.py", IN_IT),
        ("apptainer run -C docker://a/b:1 python t.py", IN_IT),
        ("shifter --image=docker:a/b:1 python t.py", IN_IT),
        (
            "docker run -v /d:/d -v /e:/f:ro,z --volume=/g:/h --mount type=bind,source=/i,target=/j,readonly a/b:1 a",
            "--np 2 --data /d:/d --data /e:/f:ro --data /g:/h --data /i:/j:ro --image a/b:1 -- a",
        ),
        (
            "docker run -e A=1 --env B=2 -w /w --shm-size=8g a/b:1 a",
            "--np 2 -x A=1 -x B=2 --workdir /w --shm-size 8g --image a/b:1 -- a",
        ),
        (
            "apptainer exec -B /d,/e:/f --env A=1,B=2 --pwd /w docker://a/b:1 a",
            "--np 2 --data /d:/d --data /e:/f -x A=1 -x B=2 --workdir /w --image a/b:1 -- a",
        ),
        ("shifter -V /d:/e --env=A=1 -i a/b:1 a", "--np 2 --data /d:/e -x A=1 --image a/b:1 -- a"),
        (
            "docker run a/b:1 torchrun --nproc-per-node 2 t.py",
            "--launcher torchrun --image a/b:1 --np 2 -- python3 t.py",
        ),
    ],
)
@pytest.mark.parametrize("launcher", ["srun -n 2", "mpirun -np 2"])
def test_a_container_is_the_jobs(launcher: str, typed: str, here: str) -> None:
    done = translated(f"{launcher} {typed}")
    assert line(done) == here
    assert typed.split(maxsplit=1)[0] in " ".join(row.original for row in done.rows) or "sudo" in typed


@pytest.mark.parametrize(
    ("typed", "row", "why"),
    [
        ("docker run -v /dev/x:/dev/x a/b:1 a", "-v /dev/x:/dev/x", "belongs to the host"),
        ("docker run -v name:/x a/b:1 a", "-v name:/x", "both absolute paths"),
        ("docker run -e 'SLURM_*' a/b:1 a", "-e 'SLURM_*'", "is no name of one variable"),
        ("docker run --env-file f a/b:1 a", "--env-file f", "-x NAME=VALUE"),
        ("docker run -e RANK=3 a/b:1 a", "-e RANK=3", "taco-launch sets it for every rank"),
        ("docker run -w . a/b:1 a", "-w .", "is no absolute path"),
    ],
)
def test_what_a_job_cannot_have_of_a_container_is_named(typed: str, row: str, why: str) -> None:
    done = translated(f"srun -n 2 {typed}")
    assert line(done) == "--np 2 --image a/b:1 -- a"
    assert [why in each.why for each in done.rows if each.original == row] == [True]


@pytest.mark.parametrize(
    "typed",
    [
        "singularity exec i.sif python t.py",
        "ch-run i -- a",
        "enroot start i a",
        "apptainer run ./i.sif a",
        "docker run a/b:1",
    ],
)
def test_a_container_that_is_not_the_jobs_has_a_row(typed: str) -> None:
    done = translated(f"srun -n 2 {typed}")
    assert line(done) == f"--np 2 -- {typed}"
    assert ["starts a container of its own for each rank" in row.why for row in done.left_out] == [True]


@pytest.mark.parametrize("option", ["--image i", "--image=i"])
def test_the_image_of_shifter_in_a_script(option: str) -> None:
    text = SHIFTER.replace("--image=docker:a/b:1", option)
    ((_line, job),) = translate_script(f"{text}srun --ntasks-per-node=4 shifter --env A=1 python t.py").jobs
    assert line(job) == "--hosts 2 --slots-per-host 4 --image i -x A=1 -- python t.py"
    ((_line, job),) = translate_script(f"{text}srun --ntasks-per-node=4 python t.py").jobs
    assert line(job) == "--hosts 2 --slots-per-host 4 -- python t.py"
    assert "only what shifter starts runs in it" in [row.why for row in job.left_out]


def test_a_container_around_a_launcher_in_a_script() -> None:
    ((_line, job),) = translate_script("docker run --rm -v /d:/d a/b:1 torchrun --nproc-per-node 2 t.py").jobs
    assert line(job) == "--launcher torchrun --np 2 --data /d:/d --image a/b:1 -- python3 t.py"
    ((_line, job),) = translate_script("docker run a/b:1 bash -c 'torchrun --nproc-per-node 2 t.py'").jobs
    assert line(job) == "--launcher torchrun --np 2 --image a/b:1 -- python3 t.py"
    ((_line, job),) = translate_script("singularity exec --nv i.sif bash -c 'cd /x && torchrun t.py'").jobs
    assert line(job) == "--launcher torchrun --workdir /x --np 1 -- singularity exec --nv i.sif python3 t.py"
    assert not translate_script("docker run a/b:1 bash t.sh").jobs


def test_of_several_mounts_those_that_are_known_stay() -> None:
    ((_line, job),) = translate_script("srun -n 2 --container-mounts=/a:/b,$DATA:/c,/dev/shm:/x a.out").jobs
    assert line(job) == "--np 2 --data /a:/b -- a.out"
    assert [row.why.partition(":")[0] for row in job.left_out] == ["$DATA", "/dev/shm"]


@pytest.mark.parametrize("image", ["/x/i.sqsh", "./i.sqsh"])
def test_a_file_is_no_image(image: str) -> None:
    done = translated(f"srun -n 2 --container-image {image} --container-mounts /d,/e:/f a")
    assert line(done) == "--np 2 --data /d:/d --data /e:/f -- a"
    assert ["requires an image of a registry" in row.why for row in done.left_out] == [True]


@pytest.mark.parametrize(
    ("gpus", "options"), [("'\"device=0,1\"'", "--gpu-ids 0,1 "), ("device=3", "--gpu-ids 3 "), ("all", ""), ("2", "")]
)
def test_the_gpus_of_a_container_are_chosen_by_their_numbers(gpus: str, options: str) -> None:
    ((_line, job),) = translate_script(f"docker run --gpus {gpus} a/b:1 torchrun --nproc-per-node 2 t.py").jobs
    assert line(job) == f"--launcher torchrun --np 2 {options}--image a/b:1 -- python3 t.py"
    assert [row.why for row in job.rows if "--gpus" in row.original] == [
        "" if options else "each slot of a host is one of its GPUs"
    ]
