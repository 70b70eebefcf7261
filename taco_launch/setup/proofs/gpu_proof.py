"""Prove that training containers have the GPUs of their hosts: `nvidia-smi -L` says the same on both sides."""

from collections.abc import Callable, Iterator, Mapping

from taco_launch.core.command import Command
from taco_launch.core.errors import HostError, last_line
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host import paths
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.core.signatures.known.system import KEEPS_GPUS, words
from taco_launch.hosts.fanout import Fanout
from taco_launch.hosts.inventory.ranges import fold
from taco_launch.hosts.remote.transport import Transport
from taco_launch.setup.files import gpu_devices
from taco_launch.setup.model.ops import ProofFailure

# A driver without persistence mode takes seconds for each GPU.
_SECONDS = 120
# $1 is the container. Both sides are told by what they say, and a last line with their exit code.
_LOOK = """docker container inspect --format '{{.State.Running}}' "$1" 2>/dev/null || echo gone
nvidia-smi -L 2>&1
echo "exit code $?"
docker exec "$1" nvidia-smi -L 2>&1
echo "exit code $?"
"""
_END = "exit code "
# What NVML says where the devices are there, and the container may not use them.
_LOST = "Failed to initialize NVML: Unknown Error"


@dataclass(frozen=True)
class _Side:
    """What nvidia-smi said on one side: its lines, and 0 or how it failed."""

    lines: tuple[str, ...]
    code: str

    @property
    def why(self) -> str:
        return self.lines[-1] if self.lines else f"nvidia-smi ended with {_END}{self.code}"


def same_gpus(
    inventory: Inventory, fanout: Fanout, facts: Mapping[str, HostFacts], report: Callable[[str], None]
) -> tuple[ProofFailure, ...]:
    """Prove it for those hosts of `facts` that have GPUs and whose container runs; give what is wrong.

    Who names the GPUs of containers himself (`container.env`) knows what they have.
    """
    container = inventory.container
    if container is None or gpu_devices.VISIBLE in dict(container.env):
        return ()
    names = [host.name for host in inventory.hosts if host.name in facts and gpu_devices.gpus(host, facts[host.name])]
    if not names:
        return ()
    report(f"verify: checking that the container of {fold(names)} has the GPUs of its host")
    flaws: list[ProofFailure] = []
    for answer in fanout.only(names).each(lambda host: _probe_both_sides(host, paths.container(inventory.cluster))):
        if answer.error is not None:
            said = answer.error.message.removeprefix(f"{answer.host}: ")
            flaws.append(ProofFailure((answer.host,), "cannot list its GPUs", said, answer.error.hint or ""))
        elif answer.value is not None:
            flaws += _differences(answer.host, inventory.cluster, *answer.value)
    return tuple(flaws)


def _probe_both_sides(host: Transport, container: str) -> tuple[_Side, _Side] | None:
    """Ask both sides; None where the container does not run, which others tell.

    Raises:
        HostError: the answer is cut off, or as `Transport.run` does.
    """
    result = host.run(Command(("/bin/sh", "-c", _LOOK, "gpus", container), sudo=True, timeout=_SECONDS))
    running, *lines = result.stdout.decode("utf-8", "replace").splitlines() or [""]
    ends = [number for number, line in enumerate(lines) if line.startswith(_END)]
    if result.exit_code or len(ends) != 2:
        raise HostError(f"{host.name}: {last_line(result.stderr) or 'the answer is cut off'}")
    sides = (lines[: ends[0]], lines[ends[0]]), (lines[ends[0] + 1 : ends[1]], lines[ends[1]])
    outside, inside = (
        _Side(tuple(line.strip() for line in said if line.strip()), end.removeprefix(_END)) for said, end in sides
    )
    return (outside, inside) if running == "true" else None


def _differences(host: str, cluster: str, outside: _Side, inside: _Side) -> Iterator[ProofFailure]:
    unit = paths.unit(cluster)
    again = f"on {host}, when no job runs: systemctl restart {unit}; then run this command again"
    if outside.code != "0":
        yield ProofFailure(
            (host,), "cannot list its GPUs", outside.why, f"on {host}: nvidia-smi -L; dmesg | grep -i nvrm"
        )
    elif inside.code != "0":
        cause, _ = words("gpu-access-lost", host=host)
        lost = _LOST in inside.why
        why, hint = (f"{inside.why}. {cause}", f"{again}. {KEEPS_GPUS}") if lost else (inside.why, again)
        yield ProofFailure((host,), "gives its container no GPUs", why, hint)
    elif outside.lines != inside.lines:
        less = [line for line in outside.lines if line not in inside.lines]
        more = [line for line in inside.lines if line not in outside.lines]
        told = [f"it lacks {less[0]}"] if less else []
        told += [f"it has {more[0]}"] if more else []
        counts = f"{len(inside.lines)} in the container, {len(outside.lines)} on the host"
        yield ProofFailure(
            (host,),
            "gives its container different GPUs than the host has",
            f"{counts}: {', and '.join(told) or 'in another order'}",
            again,
        )
