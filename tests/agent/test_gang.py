"""Why a job has no place: slots that others have or that are too few (exit code 4), or hosts that failed (5)."""

from pathlib import Path

import pytest

from taco_launch.agent.folders import JobFolder
from taco_launch.agent.gang import Gang
from taco_launch.model.hosts import Host
from taco_launch.model.jobs import JobSpec
from taco_launch.model.plans import HostSlots

FULL = "/var/lib/taco-launch/jobs/j: No space left on device"
HELD = "2 of 2 slots held by job l4 (since 10:00)"
LIST = "ask for fewer with --np, for other hosts with -H, or see who runs what: taco-launch list"
CHECK = "taco-launch setup --check tells what is wrong there; or leave {} out with -H"


@pytest.mark.parametrize(
    ("np", "failed", "busy", "code", "message", "hint"),
    [
        (6, ["n2"], [], 5, f"n2 cannot be used: {FULL}", CHECK.format("it")),
        (None, ["n2"], [], 5, f"n2 cannot be used: {FULL}", CHECK.format("it")),
        (4, ["n2", "n3"], [], 5, f"2 hosts cannot be used\n  n2: {FULL}\n  n3: {FULL}", CHECK.format("them")),
        (7, ["n2"], [], 4, f"7 ranks do not fit: 4 slots free\n  n2: {FULL}", LIST),
        (6, ["n2"], ["n3"], 4, f"6 ranks do not fit: 2 slots free\n  n2: {FULL}\n  n3: {HELD}", LIST),
        (
            4,
            [],
            ["n1", "n2", "n3"],
            4,
            "4 ranks do not fit: 0 slots free" + "".join(f"\n  n{n}: {HELD}" for n in (1, 2, 3)),
            LIST,
        ),
    ],
)
def test_who_is_to_blame(
    np: int | None, failed: list[str], busy: list[str], code: int, message: str, hint: str, tmp_path: Path
) -> None:
    hosts = tuple(Host(name, name, slots=2) for name in ("n1", "n2", "n3"))
    spec = JobSpec("j", ("true",), hosts, np=np, head="n1")
    gang = Gang(JobFolder(tmp_path), "agent.pyz", spec, "id", lambda: True, lambda: None)
    gang._unusable = dict.fromkeys(failed, FULL)
    usable = [HostSlots(host.name, 2) for host in hosts if host.name not in failed]
    held = dict.fromkeys(busy, HELD)
    assert gang._is_short([entry for entry in usable if entry.host not in held], held)
    error = gang._refusal(usable, held)
    assert (error.exit_code, error.message, error.hint) == (code, message, hint)
