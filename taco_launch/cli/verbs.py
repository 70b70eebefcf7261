"""The verbs of the command line by name and help; each is loaded when it is called, since `--help` needs none of them."""

import importlib
from collections.abc import Iterator, Sequence

import click

# In which module a verb is, and the first sentence of its help.
_VERBS = {
    "bench": ("bench.bench", "Measure workloads, compare ways to run them, and see what was measured."),
    "delete": ("jobs.wait_stop_delete", "Stop jobs if they still run, and remove their records and logs."),
    "exec": (
        "jobs.execute",
        "Run COMMAND on the host of a running job's rank, in its environment and folder, and exit with its code.",
    ),
    "explain": (
        "jobs.explain",
        "Explain the failures in a log: each known text with its cause and what to do, the first failure first.",
    ),
    "facts": (
        "cluster.facts",
        "Show what hosts are: system, network, docker, GPUs, topology, RDMA, the training image.",
    ),
    "get": (
        "jobs.list_get_top",
        "Show one job: its state and why, its parts and their hosts; why it waits, host by host.",
    ),
    "inventory": (
        "cluster.inventory",
        "Check an inventory, or a hostfile, and show its hosts with all defaults filled in.",
    ),
    "knobs": ("knobs", "Show what NCCL, Horovod, LightCC, Open MPI and UCX can be told, and where that is from."),
    "lab": (
        "cluster.lab",
        "Make hosts of containers on this machine, to try everything on: systemd, sshd, a registry, faults.",
    ),
    "list": (
        "jobs.list_get_top",
        "List all jobs, the newest first; NODE is where a job is now, N/A where it waits or has ended.",
    ),
    "logs": ("jobs.logs", "Print a job's output: of all ranks, each line behind HOST/RANK, or of some."),
    "metrics": (
        "cluster.metrics",
        "Tell jobs, queues and slots as metrics: on stdout, in a file, or to whoever scrapes them.",
    ),
    "nightly": ("nightly.nightly", "Measure a matrix every night, and see how the nights go."),
    "place": ("jobs.place", "Show which GPUs of a host a job would get, and the two sets that came next."),
    "prune": (
        "jobs.list_get_top",
        "Remove the records and logs of your jobs that ended longer ago than TIME, and list them.",
    ),
    "resume": (
        "jobs.suspend",
        "Have suspended jobs wait for their slots again, each as if it had just been submitted.",
    ),
    "run": ("jobs.run", "Run COMMAND as a job: start it, follow its output, exit with its code."),
    "setup": ("cluster.setup", "Make hosts able to train, stage by stage, and prove it."),
    "stop": ("jobs.wait_stop_delete", "Stop jobs: TERM, then KILL after the grace time."),
    "submit": ("jobs.run", "Start COMMAND as a job and return; it goes on by itself."),
    "suspend": (
        "jobs.suspend",
        "Take jobs off their slots: what runs is ended as by stop, and starts from its beginning after `resume`.",
    ),
    "teardown": (
        "cluster.teardown",
        "Take back what setup made on hosts: the container, its unit, keys and files, the agent, settings of docker.",
    ),
    "top": ("jobs.list_get_top", "Show who has how many GPUs (slots, on hosts without any): by host, or by job."),
    "trust": ("cluster.trust", "Show the SSH host keys of hosts (all without HOST), ask, and keep the new ones."),
    "wait": ("jobs.wait_stop_delete", "Wait for a job's end and exit with its code."),
}


# What an agent of this machine does for a verb, and what may not stand before COMMAND then: a job elsewhere, or none.
_AHEAD = {"run": "submit", "submit": "submit"}
_NOT_AHEAD = ("-i", "--inventory", "--dry-run", "-h", "--help", "--schema")


def operation_to_prestart(name: str, arguments: Sequence[str]) -> str:
    """Return which operation of the local agent a verb will call, "" where that is not known yet.

    That agent starts before the verb is imported, so that both import at the same time; without a call it ends.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "" if any(word.startswith(_NOT_AHEAD) for word in own) else _AHEAD.get(name, "")


class Verb(click.Command):
    """What stands for a verb in the list of all."""

    def __init__(self, name: str, module: str, text: str) -> None:
        """Know where it is."""
        super().__init__(name, help=text)
        self._module = module

    def load(self) -> click.Command:
        """Import the verb."""
        module = importlib.import_module(f"taco_launch.cli.{self._module}")
        found = (
            value for value in vars(module).values() if isinstance(value, click.Command) and value.name == self.name
        )
        return next(found)


def all_verbs() -> Iterator[Verb]:
    """Yield every verb."""
    for name, (module, text) in _VERBS.items():
        yield Verb(name, module, text)
