"""Tasks of SkyPilot: the job of their `run`, with their hosts, GPUs and variables."""

import pytest

from taco_launch.core.errors import UsageError
from taco_launch.jobs import translate as flow
from taco_launch.jobs.translate import Translated

RUN = "torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE --node_rank=$SKYPILOT_NODE_RANK t.py $LR $KEY"


def task(text: str) -> Translated:
    return flow.of_file(text.encode(), "task.yaml")


def reasons(done: Translated) -> dict[str, str]:
    return {row.original: row.why for row in (*(row for job in done.jobs for row in job.rows), *done.rows)}


@pytest.mark.parametrize("accelerators", ["A100:8", "{A100: 8}", "[A100:8, H100:8]", "{A100: 8, H100: 8}"])
def test_a_task_is_the_job_of_its_run(accelerators: str) -> None:
    done = task(
        f"name: my task\nnum_nodes: 2\nresources: {{accelerators: {accelerators}, cloud: aws, image_id: docker:org/i:1}}\n"
        f"envs: {{LR: 0.1, KEY: }}\nworkdir: .\nsetup: pip install x\nfile_mounts: {{/data: s3://b}}\nrun: |\n  {RUN}\n"
    )
    (job,) = done.jobs
    assert job.options == (
        *(
            "--name",
            "my-task",
            "--sync",
            ".",
            "--image",
            "org/i:1",
            "--launcher",
            "torchrun",
            "--hosts",
            "2",
            "--slots-per-host",
            "8",
        ),
        *("-x", "LR=0.1"),
    )
    assert job.program == ("python3", "t.py", "0.1", "$KEY")
    why = reasons(done)
    assert why["$KEY"] == "a shell would insert a value here: write it"
    assert "--gpu-model A100" in why["resources.accelerators: A100:8"]
    assert {"setup: pip install x", "file_mounts: /data", "workdir: .", "resources.cloud: aws"} <= {*why}


def test_an_image_of_a_cloud_is_named() -> None:
    done = task("resources: {image_id: ami-1}\nrun: mpirun -np 2 a\n")
    assert done.jobs[0].options == ("--np", "2")
    assert "resources.image_id: ami-1" in reasons(done)


def test_a_launcher_that_does_not_count_the_tasks_hosts_is_named() -> None:
    done = task("num_nodes: 2\nrun: torchrun --nproc_per_node=8 t.py\n")
    assert "--hosts 2?" in reasons(done)["num_nodes: 2"]


def test_a_program_that_all_hosts_run_is_refused_with_what_to_type() -> None:
    with pytest.raises(UsageError, match="each of 2 hosts runs python") as caught:
        task("num_nodes: 2\nresources: {accelerators: 'H100:4'}\nrun: python t.py\n")
    assert caught.value.hint == (
        "taco-launch run --launcher env --per-host --hosts 2 --slots-per-host 4 -- python t.py"
    )


def test_a_program_on_one_host_has_one_gpu_and_a_row_for_the_others() -> None:
    done = task("resources: {accelerators: 'H100:4'}\nrun: python t.py\n")
    assert done.jobs[0].options == ("--np", "1")
    assert "--per-host --hosts 1 --slots-per-host 4" in reasons(done)["resources.accelerators"]


@pytest.mark.parametrize("nodes", ["true", "0", "two", "9" * 5000])
def test_what_is_not_a_number_of_hosts_is_named(nodes: str) -> None:
    done = task(f"num_nodes: {nodes}\nresources: {{accelerators: 'A100:{'9' * 5000}'}}\nrun: mpirun -np 2 a\n")
    assert done.jobs[0].options == ("--np", "2")
    assert reasons(done)["num_nodes"] == "is not a number of hosts: --hosts N"
