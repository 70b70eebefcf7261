"""Name each field of a JobRequest in one table: its option, its key in a job file, and what its value may be.

An option is called like its field (`stall_timeout`, `--stall-timeout`), and so is a key (`slotsPerHost`), unless the table
names another. To add a field: its type and comment in core/model/job_request.py, its row here, its option in cli/options.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from taco_launch.core.model.jobs import MOST_PRIORITY, MOST_RETRIES
from taco_launch.core.model.launchers import LAUNCHERS
from taco_launch.hosts.inventory.schema.names import MAX_SLOTS
from taco_launch.jobs.request.sizes import MOST_HOSTS

# Sections of a job file.
TOP, POLICY, SCHEDULING = (), ("runPolicy",), ("runPolicy", "schedulingPolicy")
_SLOTS, _HOSTS = (1, MAX_SLOTS), (1, MOST_HOSTS)
_MOST_SECONDS = 1_000_000_000
_LIMIT, _SPAN = (0.001, _MOST_SECONDS), (0, _MOST_SECONDS)


class JobField(NamedTuple):
    """How a field is called, and what it may be."""

    name: str
    # How the command line reads it: as it is ("value"), on or not said ("flag"), or by code of its own ("").
    reads: str = "value"
    option: str = ""
    # The parameter of click, where it is not called like the field.
    parameter: str = ""
    key: str = ""
    # The section of a job file that has it; None: its value has a form of its own there, or no file has it.
    section: tuple[str, ...] | None = TOP
    # The least and the most.
    limits: tuple[float, int] | None = None
    choices: Collection[str] = ()

    @property
    def written_option(self) -> str:
        """How people write its option."""
        return self.option or f"--{self.name.replace('_', '-')}"

    @property
    def written_key(self) -> str:
        """How people write its key in a job file."""
        first, *rest = self.name.split("_")
        return self.key or first + "".join(word.capitalize() for word in rest)


# fmt: off
FIELDS = (
    JobField("name"),
    JobField("np", limits=(1, 1_000_000)),
    JobField("hosts", parameter="host_count", limits=_HOSTS),
    JobField("slots_per_host", limits=_SLOTS),
    JobField("workers", limits=_HOSTS),
    JobField("gpus", limits=_SLOTS),
    JobField("slots_per_worker", limits=_SLOTS),
    JobField("procs_per_gpu", limits=_SLOTS),
    JobField("mps", "flag"),
    JobField("launcher", choices=LAUNCHERS),
    JobField("per_host", "flag"),
    JobField("host", "", "-H"),
    JobField("gpu_ids"),
    JobField("gpu_models", "", "--gpu-model", key="gpuModel"),
    JobField("exclude", ""),
    JobField("selectors", "", "--selector", section=None),
    JobField("exclusive", "flag"),
    JobField("gpu_topology", option="--gputopology", parameter="gputopology"),
    JobField("env", "", "-x", section=None),
    JobField("knobs", "", "--knob", section=None),
    JobField("mca", "", section=None),
    JobField("allow_unknown_knobs", "flag"),
    JobField("profile"),
    JobField("transport", choices=("auto", "tcp", "rdma")),
    JobField("interface"),
    JobField("gdr"),
    JobField("light"),
    JobField("queue", section=SCHEDULING),
    JobField("priority", section=SCHEDULING, limits=(-MOST_PRIORITY, MOST_PRIORITY)),
    JobField("queue_timeout", key="scheduleTimeoutSeconds", section=SCHEDULING, limits=_SPAN),
    JobField("no_wait", "flag", section=None),
    JobField("suspend", "flag", section=POLICY),
    JobField("grace", key="gracePeriodSeconds", section=POLICY, limits=_SPAN),
    JobField("timeout", key="activeDeadlineSeconds", section=POLICY, limits=_LIMIT),
    JobField("stall_timeout", key="stallTimeoutSeconds", section=POLICY, limits=_LIMIT),
    JobField("silence_timeout", key="silenceTimeoutSeconds", section=POLICY, limits=_LIMIT),
    JobField("host_loss_timeout", key="hostLossTimeoutSeconds", section=POLICY, limits=_LIMIT),
    JobField("log_max_bytes", limits=(4096, 1 << 50)),
    JobField("progress"),
    JobField("clean_up", "", key="cleanPodPolicy", section=None),
    JobField("restart", "", key="restartPolicy", section=None),
    JobField("backoff_limit", section=POLICY, limits=(0, MOST_RETRIES)),
    JobField("backoff", key="backoffSeconds", section=POLICY, limits=_SPAN),
    JobField("retry_on", section=POLICY, choices=("any", "same-host")),
    JobField("fail_on", section=POLICY, choices=("nan",)),
    JobField("ttl", key="ttlSecondsAfterFinished", section=POLICY, limits=_SPAN),
    JobField("agent_log", "flag"),
    JobField("strict", "flag"),
    JobField("notify"),
    JobField("replace", "flag"),
    JobField("signal", section=POLICY),
    JobField("tensorboard", "flag"),
    JobField("logdir"),
    JobField("tensorboard_grace", key="tensorboardGraceSeconds", limits=_SPAN),
    JobField("sync", section=None),
    JobField("sync_max"),
    JobField("config_files", "", "--config-file", section=None),
    JobField("env_files", "", "--env-file", section=None),
    JobField("image"),
    JobField("worker_image"),
    JobField("image_from"),
    JobField("data", ""),
    JobField("shm_size", section=None),
    JobField("workdir", key="workingDir"),
)
# fmt: on
BY_NAME: Mapping[str, JobField] = {each.name: each for each in FIELDS}
OPTIONS: Mapping[str, str] = {each.name: each.written_option for each in FIELDS}


def of_section(section: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of a section of a job file by their keys."""
    return {each.written_key: each.name for each in FIELDS if each.section == section}


def parameters(reads: str) -> dict[str, str]:
    """Return click's parameters by their fields, of those that the command line reads in a way."""
    return {each.name: each.parameter or each.name for each in FIELDS if each.reads == reads}
