"""Lines of Arena's guides and of its documentation, and the command that each is here."""

import contextlib
import shlex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taco_launch.core.errors import SpecError, UsageError
from taco_launch.jobs.command_lines.arena.arena_line import FLAGS, ArenaLine, read

# As the guide on ACK's topology scheduling has it.
ACK = (
    "submit mpi --name=pytorch-topo-4-vgg16 --gpus=1 --workers=4 --gputopology=true --image=reg.example/benchmark:torch1.6.0 "
    '\'mpirun --allow-run-as-root -np "4" -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 '
    "-x LD_LIBRARY_PATH -x PATH --mca pml ob1 --mca btl_tcp_if_include eth0 --mca btl ^openib python /examples/b.py "
    "--model=vgg16'"
)
# As the guide on PyTorch jobs has it.
TORCH = (
    "submit pytorch --name=pytorch-dist --gpus=1 --workers=3 --working-dir=/root --image=reg.example/pytorch:1.5.1 "
    "--sync-mode=git --sync-source=https://example.org/u/mnist-pytorch.git --data=training-data:/mnist_data --tensorboard "
    "--logdir=/mnist_data/logs 'python /root/code/mnist-pytorch/mnist.py --epochs 10 --backend nccl'"
)
READ = {
    ACK: "submit --name pytorch-topo-4-vgg16 --gpus 1 --workers 4 --gputopology --image reg.example/benchmark:torch1.6.0 "
    "-x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=eth0 --mca pml ob1 --mca btl_tcp_if_include eth0 --mca btl '^openib' "
    "-- python /examples/b.py --model=vgg16",
    TORCH: "submit --launcher env --name pytorch-dist --gpus 1 --workers 3 --workdir /root --image reg.example/pytorch:1.5.1 "
    "--sync-mode git --sync-source https://example.org/u/mnist-pytorch.git --data training-data:/mnist_data --tensorboard "
    "--logdir /mnist_data/logs -- python /root/code/mnist-pytorch/mnist.py --epochs 10 --backend nccl",
    "submit pytorchjob --syncMode git --syncSource=git@h:a/b.git --workingDir /w --dataDir /d --gpus 0 'python a.py'": (
        "submit --launcher env --sync-mode git --sync-source git@h:a/b.git --workdir /w --data /d:/d -- python a.py"
    ),
    "submit pytorch --running-timeout 2h22m --ttl-after-finished=5s --retry 3 --clean-task-policy=Running 'x'": (
        "submit --launcher env --timeout 8520s --ttl 5s --backoff-limit 3 --clean-up running -- x"
    ),
    "submit pytorch --rdma --share-memory=8g -d a:/a -d b:/b -e A=1 --selector gpu=a100 x y": (
        "submit --launcher env --transport rdma --shm-size 8g --data a:/a --data b:/b -x A=1 --selector gpu=a100 -- x y"
    ),
    "submit pytorch --tensorboard --gputopology=false x": (
        "submit --launcher env --tensorboard --logdir /training_logs -- x"
    ),
    "submit pytorch 'cd /w && python a.py $RANK'": "submit --launcher env -- sh -c 'cd /w && python a.py $RANK'",
    "submit pytorchjob --gpus 2 --workers 2 'python a.py'": "submit --launcher env --per-host --gpus 2 --workers 2 -- python a.py",
    "submit pytorch --gpus 2 'cd /w && python a.py'": "submit --launcher env --per-host --gpus 2 -- sh -c 'cd /w && python a.py'",
    "submit pytorch --gpus 2 'torchrun a.py'": "submit --launcher env --gpus 2 -- torchrun a.py",
    # a line end before an option
    "submit mpi 'mpirun a --b 1 \n   --c=2\n-d'": "submit -- a --b 1 --c=2 -d",
    # a line that a backslash continues, and which the quotes keep
    "submit pytorch 'python a.py \\\n  --b 1 \\\n  c'": "submit --launcher env -- python a.py --b 1 c",
    "submit pytorch 'python a\nls'": "submit --launcher env -- sh -c 'python a\nls'",
    "submit pytorch 'A=1 python a.py'": "submit --launcher env -- env A=1 python a.py",
    # fewer ranks than slots, and the line's number unsaid
    "submit mpi --workers 4 --gpus 2 'mpirun -np 6 a'": "submit --np 6 -- a",
    "submit horovodjob --gpus 1 --workers 2 'horovodrun python t.py'": "submit --gpus 1 --workers 2 -- python t.py",
    "submit deepspeedjob --gpus 1 --workers 2 'deepspeed t.py'": "submit --launcher torchrun --gpus 1 --workers 2 -- python3 t.py",
    "submit pytorch --hostNetwork --model-name m 'python t.py'": "submit --launcher env -- python t.py",
    "submit pytorch 'cd /x; python t.py'": "submit --launcher env -- sh -c 'cd /x || exit; python t.py'",
    "submit mpi --workers 4 --working-dir /r 'mpirun -wdir /w --timeout 60 a'": "submit --workers 4 --workdir /w --timeout 60s -- a",
    "submit mpi --workers 4 'mpirun a'": "submit --workers 4 -- a",
    "list": "list",
    "list -A": "list",
    "get a --type pytorchjob -o yaml": "get a -o yaml",
    "logs -f a -i a-worker-0": "logs a -f --instance a-worker-0",
    "logs a -t 5 --since 2m --timestamps": "logs a -t 5 --since 2m --timestamps",
    "logs --tail=7 a --type mpijob": "logs a -t 7",
    "top node": "top node",
    "top job -n default": "top job",
    "data list": "data list",
    "delete a b --type=mpijob": "delete a b",
    "prune --since 7d": "prune --older-than 7d",
    "--loglevel info list --namespace hcc": "list",
}
REFUSED = {
    "": "a command is missing: submit, list,",
    "serve list": "arena serve is not supported by taco-launch: submit,",
    "submit": "the type of the job is missing",
    "submit tf --name a x": "arena submit tf is not supported by taco-launch",
    "submit pytorch --name a": "the command is missing",
    "submit pytorch --name": "--name: its value is missing",
    "submit pytorch --toleration all x": "--toleration all: not supported: hosts here have no taints; use --exclude HOST to leave a host out",
    "submit pytorch --device amd.com/gpu=1 x": "--device amd.com/gpu=1: not supported: slots are NVIDIA GPUs",
    "submit pytorch --priority high x": "--priority high: must be a number here, not a name of Kubernetes",
    "submit pytorch --frob 1 x": "--frob: is not a known flag of arena submit (read with the value '1')",
    "submit pytorch --frob 'python t.py'": "--frob: is not a known flag of arena submit (read with the value 'python t.py')",
    "submit rayjob 'python t.py'": "arena submit rayjob is not supported by taco-launch",
    "submit pytorch --running-timeout soon x": "--running-timeout soon: is not a time",
    "submit mpi 'python train.py'": "the command of such a job must start with a launcher",
    "submit mpi 'cd /a; mpirun a'": "the command of such a job must start with a launcher, mpirun for example; this one is a script of a shell: 'cd /a",
    "submit mpi --workers 2 'mpirun -np 8 a'": "mpirun -np 8: the workers have 2 slots",
    "submit mpi --workers= 'mpirun a'": "--workers : must be a number",
    "submit pytorch --workers two x": "--workers two: must be a number",
    f"submit mpi --gpus {'9' * 5000} 'mpirun a'": "--gpus 9999",
    f"submit pytorch --running-timeout {'9' * 5000}s x": "--running-timeout 9999",
    "submit pytorch -- -x": "-x: is an option, and the command is expected here",
    "submit mpi 'mpirun --frob a b'": "--frob a of mpirun: is no option that is known here",
    "list -n other": "--namespace other: there are no namespaces here; the accepted values are default and hcc",
    "logs a --frob=1": "--frob: is not a known flag of arena logs",
}


def line(text: str) -> ArenaLine:
    return read(shlex.split(text), ("default", "hcc"))


@pytest.mark.parametrize("text", READ)
def test_a_line_and_the_command_here(text: str) -> None:
    assert shlex.join(line(text).words) == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_had(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        line(text)
    assert refused.value.message.startswith(REFUSED[text])


SEEDS = st.sampled_from([*map(shlex.split, READ), *map(shlex.split, REFUSED)])
PIECES = st.one_of(
    st.sampled_from(sorted(f"--{flag}" for flag in FLAGS)),
    st.sampled_from(
        ["--", "-", "-=", "mpi", "pytorch", "-x", "''", "A=1", "env", "mpirun", "mpirun -np 1", "-1", "9" * 5000]
    ),
    st.builds("--{}={}".format, st.sampled_from(sorted(FLAGS)), st.text(max_size=4)),
    st.sampled_from(["GIT_SYNC_BRANCH=x", "-eGIT_SYNC_REV=y", "--env=GIT_SYNC_REV=z"]),
    st.text(max_size=8),
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["delete", "insert", "replace", "twice", "cut"]), st.integers(0, 99), PIECES), max_size=4
)


@settings(max_examples=400)
@given(SEEDS, CHANGES)
@example(["submit", "pytorch", "-e", "GIT_SYNC_BRANCH=x", "x", "--name", "--sync-source"], [])
@example(["submit", "mpi", "--workers=", "mpirun a"], [])
@example(["submit", "pytorch", "--", "-x"], [])
def test_whatever_a_line_is_it_is_read_or_refused(seed: list[str], changes: list[tuple[str, int, str]]) -> None:
    words = list(seed)
    for what, where, piece in changes:
        at = where % (len(words) + 1)
        kept = words[at : at + 1]
        middle = {
            "delete": [],
            "insert": [piece, *kept],
            "replace": [piece],
            "twice": kept * 2,
            "cut": [w[:-1] for w in kept],
        }
        words[at : at + 1] = middle[what]
    with contextlib.suppress(UsageError, SpecError):
        assert read(words, ("default", "hcc")).words


def test_a_folder_of_the_hosts_under_another_path() -> None:
    line = [
        "submit",
        "mpi",
        "--name=a",
        "--workers=1",
        "--data-dir",
        "/nfs/d:/data",
        "--data-dir=/x",
        "mpirun python t.py",
    ]
    words = read(line, ("default",)).words
    assert [words[at + 1] for at, word in enumerate(words) if word == "--data"] == ["/nfs/d:/data", "/x:/x"]


def test_what_changes_nothing_is_noted_once() -> None:
    found = line("submit pytorch --cpu 4 --memory=8Gi --gang -a x=y --annotation z=1 --image-pull-secret s --type t x")
    assert found.words == ("submit", "--launcher", "env", "--", "x")
    assert [note.partition(":")[0] for note in found.notes] == [
        *("--cpu", "--memory", "--gang", "--annotation", "--image-pull-secret")
    ]


def test_gits_variables_are_no_rank_s() -> None:
    secret = "submit pytorch --sync-mode git --sync-source https://h/r.git --env=GIT_SYNC_USERNAME=u --env=GIT_SYNC_PASSWORD=p x"
    found = line(secret)
    assert found.git == (("GIT_SYNC_USERNAME", "u"), ("GIT_SYNC_PASSWORD", "p"))
    assert "-x" not in found.words
    branch = line("submit pytorch --sync-mode git --sync-source https://h/r.git -e GIT_SYNC_BRANCH=dev x")
    assert branch.words[5:7] == ("--sync-source", "https://h/r.git@dev")
    assert branch.git == ()
