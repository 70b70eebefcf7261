"""The verbs of the command line by name and help; each is loaded when it is called, since `--help` needs none of them."""

import importlib
from collections.abc import Iterator, Sequence
from typing import NoReturn

import click

from taco_launch.cli.options.option_groups import LateCommand
from taco_launch.core.errors import no_lab

# In which group of the help and in which module a verb is, and the first sentence of its help: whole at 80 columns.
_VERBS = {
    "run": ("Jobs", "jobs.run", "Run a job, follow its output and exit with its code."),
    "submit": ("Jobs", "jobs.run", "Start a job in the background and print its name."),
    "list": ("Jobs", "jobs.job_queries", "List jobs, newest first; ended ones come last."),
    "get": ("Jobs", "jobs.job_queries", "Show one job: state, reason, hosts, progress, where the time went."),
    "logs": ("Jobs", "jobs.logs", "Print the output of a job."),
    "wait": ("Jobs", "jobs.job_actions", "Wait for jobs to end and exit with the job's code."),
    "report": ("Jobs", "report", "Write the report of a job as one page."),
    "stacks": ("Jobs", "jobs.stacks", "Show the line of code that each rank of a running job is on."),
    "support": ("Jobs", "support", "Collect a job's record, logs and stacks in one archive."),
    "exec": ("Jobs", "jobs.execute", "Run a command next to a rank of a running job."),
    "shell": ("Jobs", "jobs.execute", "Open a shell next to a rank of a running job."),
    "cp": ("Jobs", "jobs.copy", "Copy files between this machine and a job."),
    "forward": ("Jobs", "jobs.forward", "Forward a port of a rank's host to this machine."),
    "tensorboard": ("Jobs", "jobs.forward", "Open a job's TensorBoard on this machine."),
    "top": ("Jobs", "jobs.job_queries", "Show GPU or slot usage by host or by job."),
    "stop": ("Jobs", "jobs.job_actions", "Stop jobs: TERM, then KILL after the grace time."),
    "suspend": ("Jobs", "jobs.job_actions", "Stop jobs and free their slots until they are resumed."),
    "resize": ("Jobs", "jobs.job_actions", "Change how many hosts an elastic job uses at most."),
    "resume": ("Jobs", "jobs.job_actions", "Queue suspended jobs again."),
    "delete": ("Jobs", "jobs.job_actions", "Stop jobs and delete their records and logs."),
    "prune": ("Jobs", "jobs.job_queries", "Delete the records and logs of your old jobs."),
    "init": ("Hosts", "hosts.init", "Write a first inventory from the names of your hosts."),
    "inventory": ("Hosts", "hosts.inventory", "Check an inventory or a hostfile and show its hosts."),
    "trust": ("Hosts", "hosts.trust", "Show and store the SSH host keys of hosts."),
    "facts": ("Hosts", "hosts.facts", "Show the hardware and software of hosts."),
    "check": ("Hosts", "hosts.check", "Check whether hosts are healthy: GPUs, links, memory, disks."),
    "setup": ("Hosts", "hosts.setup", "Set up hosts for training, stage by stage, and verify it."),
    "host": ("Hosts", "hosts.host", "Drain hosts for maintenance, and open them to jobs again."),
    "teardown": ("Hosts", "hosts.teardown", "Remove what setup made on hosts."),
    "image": ("Hosts", "hosts.image", "Build images for jobs, and list their containers."),
    "data": ("Hosts", "hosts.data", "List the data sets that jobs may name."),
    "translate": (
        "Jobs",
        "translate",
        "Translate another launcher's command, script or manifest.",
    ),
    "arena": ("Jobs", "arena", "Run an Arena command as Arena's documentation writes it."),
    "bench": ("Benchmarks and nightly runs", "bench.bench", "Run benchmarks, compare variants, query the history."),
    "nightly": ("Benchmarks and nightly runs", "bench.nightly", "Detect performance regressions with nightly runs."),
    "notify": (
        "Benchmarks and nightly runs",
        "notify",
        "Try out the addresses that get messages.",
    ),
    "lab": ("Lab", "hosts.lab", "Run a rehearsal cluster of containers on this machine."),
    "explain": ("Tools", "jobs.explain", "Explain the failures in a log: cause and next step."),
    "knobs": ("Tools", "knobs", "List tuning variables of NCCL, Horovod, Open MPI and UCX."),
    "place": ("Tools", "jobs.place", "Show which GPUs of a host a job would get."),
    "doctor": ("Tools", "doctor", "Check this machine: Python, ssh, Docker, mpirun, inventory."),
    "help": ("Tools", "help_topics", "Explain a topic, such as exit-codes, or a command."),
    "version": ("Tools", "doctor", "Show the versions of taco-launch, its agent and libraries."),
    "export": ("Tools", "hosts.export", "Write what other programs need, such as an ssh configuration or alert rules."),
    "metrics": ("Tools", "hosts.metrics", "Export jobs, queues, slots and nightly runs as Prometheus metrics."),
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


class Verb(LateCommand):
    """What stands for a verb in the list of all."""

    def __init__(self, name: str, module: str, text: str) -> None:
        """Name the module that has it."""
        super().__init__(name, help=text)
        self._module = module

    def load(self) -> click.Command:
        """Import the verb."""
        try:
            module = importlib.import_module(f"taco_launch.cli.{self._module}")
        except ImportError as error:
            if not (error.name or "").startswith("taco_launch.lab"):
                raise
            return _LabMissing(error, self.name, self.help)
        found = (
            value for value in vars(module).values() if isinstance(value, click.Command) and value.name == self.name
        )
        return next(found)


class _LabMissing(click.Command):
    """Stands for the lab where it is not installed: it has a help text, and refuses the rest."""

    def __init__(self, error: ImportError, name: str | None, text: str | None) -> None:
        """Keep why."""
        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(name, help=text, context_settings=anything)
        self._error = error

    def invoke(self, ctx: click.Context) -> NoReturn:  # noqa: ARG002 - click gives it
        """Refuse to run.

        Raises:
            TacoLaunchError: what to type to install it.
        """
        raise no_lab(self._error)


def all_verbs() -> Iterator[Verb]:
    """Yield every verb."""
    for name, (_group, module, text) in _VERBS.items():
        yield Verb(name, module, text)


def group_of(name: str) -> str:
    """Return the group of the help that lists a verb."""
    return _VERBS[name][0] if name in _VERBS else "Tools"
