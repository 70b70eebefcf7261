"""The line of mpiexec.hydra: hosts, ranks and variables, what only the agent gets, and the ssh of its proxies."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.launch.command_line.env import proxy_agent, rank_of
from taco_launch.core.launch.plan import plan
from taco_launch.core.model.host.hosts import Container, Host, Network
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import LaunchPlan, Placement, Share
from tests.support.planned import AUTO, FAR

WRAPPER = ("/py", "-I", "-S", "/agent.pyz", "rank", "/job", "--")
EQUAL = Placement((Share("gpu1", 2), Share("gpu2", 2)), "so")
UNEQUAL = Placement((Share("gpu2", 3), Share("gpu1", 1)), "so")


def spec(**fields: Any) -> JobSpec:
    network = fields.pop("network", Network("bond0"))
    return JobSpec(
        "j", ("a.out", ":", "--x"), FAR, head="gpu1", profile=AUTO, network=network, launcher="hydra", **fields
    )


def made(job: JobSpec, placement: Placement = EQUAL, folder: str = "/job") -> LaunchPlan:
    return plan(job, "id1", placement, JobFacts(root=False), WRAPPER, folder, 4242)


def test_hosts_with_equal_numbers_of_ranks_stand_on_the_line() -> None:
    words = made(spec()).argv
    assert words[:7] == ("mpiexec.hydra", "-hosts", "gpu1,gpu2", "-ppn", "2", "-np", "4")
    assert words[7:12] == ("-iface", "bond0", "-genv", "FI_TCP_IFACE", "bond0")
    assert words[-3:] == ("a.out", ":", "--x")


def test_others_stand_in_a_file() -> None:
    found = made(spec(), UNEQUAL)
    assert found.argv[:5] == ("mpiexec.hydra", "-machinefile", "/job/machinefile", "-np", "4")
    assert found.files[0].text == "gpu2:3\ngpu1:1\n"


def test_one_machine_needs_no_hosts() -> None:
    job = replace(spec(), hosts=(Host("here", "127.0.0.1", connection="local"),), head="here")
    found = made(job, Placement((Share("here", 2),), "so"))
    assert found.argv[:3] == ("mpiexec.hydra", "-np", "2")
    assert found.files == ()
    assert "HYDRA_LAUNCHER_EXEC" not in dict(found.env)


def test_another_program() -> None:
    assert made(spec(mpirun="/opt/intel/bin/mpiexec.hydra")).argv[0] == "/opt/intel/bin/mpiexec.hydra"


def test_a_given_value_is_in_no_argv_that_is_executed() -> None:
    found = made(spec(env=(("TOKEN", "secret"), ("HOME", None)), mca=(("btl", "tcp"),)))
    assert found.argv.count("secret") == 1
    assert "secret" not in " ".join(found.executed)
    assert "HOME" not in found.argv, "all of mpiexec's environment reaches the ranks"
    assert "--mca btl: not used" in " ".join(found.warnings)
    assert found.executed[-4:] == ("--", "a.out", "::", ":--x")


def test_ports() -> None:
    env = dict(made(spec(network=Network("bond0", port_range=(40000, 40100)))).env)
    assert (env["MPIEXEC_PORT_RANGE"], env["I_MPI_PORT_RANGE"]) == ("40000:40100", "40000:40100")


@pytest.mark.parametrize("container", [None, Container("image", ssh_port=2222)])
def test_proxies_start_behind_the_agent(tmp_path: Path, container: Container | None) -> None:
    """Run the script as Hydra does, with an ssh that says what it was started with."""
    found = made(spec(container=container))
    script = found.files[-1]
    assert script.mode == 0o700
    assert dict(found.env)["HYDRA_LAUNCHER_EXEC"] == dict(found.env)["I_MPI_HYDRA_BOOTSTRAP_EXEC"] == script.path
    for name, text in (("ssh", '#!/bin/sh\nprintf "<%s>" "$@"\n'), ("script", script.text)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o700)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", **dict(proxy_agent(("/py", "/agent.pyz", "proxy", "/job", "--")))}
    words = ("-x", "-q", "gpu2", '"/opt/hydra_pmi_proxy"', "--id", "a b")
    said = subprocess.run([tmp_path / "script", *words], env=env, capture_output=True, text=True, check=True).stdout
    port = "<-p><2222>" if container else ""
    told = '<-x><-q><gpu2></py></agent.pyz><proxy></job><--><"/opt/hydra_pmi_proxy"><--id><a b>'
    assert said == port + told


def test_the_number_of_a_rank() -> None:
    own = {"PMI_RANK": "3", "MPI_LOCALRANKID": "1", "PMI_SIZE": "4", "RANK": "7", "LOCAL_RANK": "7", "WORLD_SIZE": "8"}
    assert rank_of(own) == (3, 1, 4)
