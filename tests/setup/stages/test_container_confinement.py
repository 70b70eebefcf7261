"""What a rank can do to its host and to other containers, and that set-up says so."""

from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.model.host.fact_value import Unknown
from taco_launch.core.model.host.facts import ContainerState
from tests.support.host_facts import known
from tests.support.training import defined, ready

NAME = "taco-launch-hcc"


@pytest.mark.parametrize(
    ("container", "security", "said"),
    [
        ({"pid": "host"}, ("apparmor", "seccomp"), ""),
        (
            {"pid": "host"},
            ("seccomp",),
            "anyone who runs a rank can become root on this host; remove container.pid: host",
        ),
        ({"sys_ptrace": True, "pid": "host"}, ("apparmor",), ""),
        ({"sys_ptrace": True}, ("seccomp",), ""),
        ({"pid": "host"}, ("userns",), ""),
        ({"pid": "host"}, Unknown("no answer"), ""),
        ({}, ("seccomp",), ""),
    ],
)
def test_what_a_rank_can_do_where_no_profile_confines_it(container: dict[str, Any], security: Any, said: str) -> None:
    facts = ready()
    made = defined(replace(facts, docker=replace(known(facts.docker), security=security)), **container)
    remarks = [remark for remark in made.remarks if "AppArmor" in remark]
    assert (bool(remarks), said in "".join(remarks)) == (bool(said), True)
    assert ("--pid=host" in made.options) == (container.get("pid") == "host")
    assert ("--cap-add=SYS_PTRACE" in made.options) == container.get("sys_ptrace", False)


@pytest.mark.parametrize(
    ("container", "names", "said"),
    [
        ({"pid": "host"}, (), ""),
        (
            {"pid": "host"},
            ("web", "db"),
            "can become root in other containers of this host (db, web); remove container.pid: host",
        ),
        ({"pid": "host"}, ("a", "b", "c", "d", "e"), "(a, b, c, d, ...)"),
        ({}, ("web",), ""),
    ],
)
def test_what_a_rank_can_do_to_other_containers_is_said(
    container: dict[str, Any], names: tuple[str, ...], said: str
) -> None:
    """Docker-default lets the processes that it confines trace and signal each other."""
    facts = ready()
    ours = ContainerState(NAME, "train:1", "running", (("taco-launch.cluster", "hcc"),))
    others = (ContainerState(name, "web:1", "running", ()) for name in names)
    docker = replace(known(facts.docker), security=("apparmor", "seccomp"), containers=(ours, *others))
    remarks = [each for each in defined(replace(facts, docker=docker), **container).remarks if "container.pid" in each]
    assert (bool(remarks), said in "".join(remarks)) == (bool(said), True)
