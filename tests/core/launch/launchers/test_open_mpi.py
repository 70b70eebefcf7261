"""The mpirun line, word for word; what is executed is the same line with the wrapper before the command."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from taco_launch.core.errors import UsageError
from taco_launch.core.launch.command_line.decisions import daemon_ports
from taco_launch.core.launch.command_line.env import JOB_ID, JOB_NAME
from taco_launch.core.model.host.hosts import Container, Host, Network
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import Profile, ProfileOption
from taco_launch.core.model.plans import LaunchPlan
from tests.support.planned import BINDING, BOND, FAR, LIGHTCC, LOCAL, WRAPPER, missing, plan, settings


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        pytest.param({}, ("mpirun", "-np", "2", "-H", "localhost:2", *BINDING), id="smallest"),
        pytest.param(
            {"facts": JobFacts(root=True, openmpi="4.1.4"), "np": 1},
            ("mpirun", "-np", "1", "-H", "localhost:1", "--allow-run-as-root", *BINDING),
            id="root",
        ),
        pytest.param(
            {"env": (("A", None), ("B", "two words"), ("C", "")), "mca": (("x", "y z"),)},
            (
                *("mpirun", "-np", "2", "-H", "localhost:2", *BINDING),
                *("-x", "A", "-x", "B=two words", "-x", "C=", "--mca", "x", "y z"),
            ),
            id="user",
        ),
        pytest.param(
            {"hosts": FAR, "head": "gpu1", "np": 12, "mpirun": "/opt/ompi/bin/mpirun", "network": BOND},
            (
                *("/opt/ompi/bin/mpirun", "-np", "12", "-H", "gpu1:8,gpu2:4", *BINDING),
                *("-x", "PATH", "-x", "NCCL_DEBUG=WARN", "-x", "NCCL_SOCKET_IFNAME==bond0"),
                *("--mca", "pml", "ob1", "--mca", "coll", "^hcoll", "--mca", "btl", "^openib,ofi"),
                *("--mca", "btl_tcp_if_include", "bond0"),
                *("--mca", "oob_tcp_if_include", "bond0"),
            ),
            id="two-hosts",
        ),
    ],
)
def test_the_auto_line(fields: dict[str, Any], options: tuple[str, ...]) -> None:
    made = plan(**fields)
    assert made.argv == (*options, "true")
    given = {f"{name}={value}" for name, value in fields.get("env", ()) if value is not None}
    assert made.executed == (*_without(options, given), *WRAPPER, "true")
    assert missing(made) == []


def _without(options: tuple[str, ...], given: Collection[str]) -> list[str]:
    """Leave out what the agent gives to the ranks, since everybody sees argv."""
    at = [place for place, word in enumerate(options) if word in given]
    return [word for place, word in enumerate(options) if place not in at and place + 1 not in at]


def test_open_mpi_5_is_given_nothing_of_4() -> None:
    domains = tuple(Host(f"gpu{number}.example", "x", slots=1) for number in (1, 2))
    four = settings(plan(hosts=domains, network=Network(interface="bond0", port_range=(40000, 40099))))
    five = settings(plan(JobFacts(False, openmpi="5.0.7"), hosts=FAR, network=BOND))
    assert {name for name in four if name.startswith(("orte_", "oob_"))} == {
        "orte_keep_fqdn_hostnames",
        "oob_tcp_if_include",
        "oob_tcp_dynamic_ipv4_ports",
        "oob_tcp_dynamic_ipv6_ports",
    }
    assert four["oob_tcp_dynamic_ipv6_ports"] == four["oob_tcp_dynamic_ipv4_ports"]
    six = tuple(replace(host, address="fd00::1") for host in domains)
    assert "oob_tcp_dynamic_ipv6_ports" not in settings(
        plan(hosts=six, network=Network(interface="bond0", port_range=(40000, 40099)))
    )
    first, second = (int(port) for port in four["oob_tcp_dynamic_ipv4_ports"].split(","))
    assert 40000 <= first < second <= 40011
    assert four["btl_tcp_port_min_v4"] == "40012"
    assert four["btl_tcp_port_range_v4"] == "88"
    assert not {name for name in five if name.startswith(("orte_", "btl_vader", "plm_rsh"))}
    assert five["btl_tcp_if_include"] == "bond0"
    assert five["btl"] == "^ofi"  # openib is gone


def test_mpirun_gets_two_ports_that_nobody_has() -> None:
    for name in ("a", "b", "c", "vgg16"):
        chosen = daemon_ports(name, 40000, 40031)
        assert len(chosen) == 2
        assert set(chosen) <= {40000, 40001, 40002, 40003}
        assert daemon_ports(name, 40000, 40031, {40001, 40002}) == (40000, 40003)
        assert daemon_ports(name, 40000, 40031, {40000, 40001, 40003}) == (40002,)
        assert daemon_ports(name, 40000, 40031, set(range(40000, 40004))) == ()
    assert len({daemon_ports(name, 40000, 40031) for name in "abcdefgh"}) > 1
    network = Network(interface="bond0", port_range=(40000, 40031))
    known = JobFacts(False, openmpi="4.1.4", daemon_ports=(40002, 40003))
    assert settings(plan(known, hosts=FAR, network=network))["oob_tcp_dynamic_ipv4_ports"] == "40002,40003"


def test_the_user_goes_before_us_in_our_place() -> None:
    ours = plan(hosts=FAR, network=BOND)
    env, mca = (("NCCL_DEBUG", "INFO"), ("PATH", None)), (("btl_tcp_if_exclude", "lo"), ("pml", "ucx"), ("new", "1"))
    made = plan(hosts=FAR, network=BOND, env=env, mca=mca)
    words = [word for word in made.argv if word != "true"]
    expected = [*ours.argv[:-1], "--mca", "new", "1"]
    for old, new in (
        ("NCCL_DEBUG=WARN", "NCCL_DEBUG=INFO"),
        ("ob1", "ucx"),
        ("btl_tcp_if_include", "btl_tcp_if_exclude"),
    ):
        expected[expected.index(old)] = new
    expected[expected.index("btl_tcp_if_exclude") + 1] = "lo"
    assert words == expected
    assert {token.source for token in made.tokens if token.text in ("NCCL_DEBUG=INFO", "ucx", "lo", "new")} == {"user"}


def test_a_parameter_is_known_under_both_generations_names() -> None:
    found = settings(plan(hosts=FAR, network=BOND, mca=(("prte_if_include", "eth0"),)))
    assert found["prte_if_include"] == "eth0"
    assert "oob_tcp_if_include" not in found


def test_without_hosts_on_the_line_mpirun_reads_ours_as_its_default() -> None:
    bare = Profile("bare", (ProfileOption(("-np", "{np}"), "ranks"),))
    made = plan(hosts=FAR, profile=bare)
    assert made.argv == ("mpirun", "-np", "16", "true")
    env = dict(made.env)
    assert env["OMPI_MCA_orte_default_hostfile"] == env["PRTE_MCA_prte_default_hostfile"] == "/job/hostfile"
    assert [(file.path, file.text) for file in made.files] == [("/job/hostfile", "gpu1 slots=8\ngpu2 slots=8\n")]


def test_the_mark_is_set_for_the_launcher() -> None:
    made = plan()
    assert {(JOB_NAME, "j"), (JOB_ID, "id1")} <= set(made.env)
    assert made.files == ()


def test_few_ranks_say_each_for_itself_what_failed() -> None:
    few, many = (dict(plan(hosts=(Host("me", "x", slots=65, connection="local"),), np=np).env) for np in (64, 65))
    names = {"OMPI_MCA_orte_base_help_aggregate", "PRTE_MCA_prte_base_help_aggregate"}
    assert {few[name] for name in names} == {"0"}
    assert not names & many.keys()


def test_ssh_is_told_the_containers_port() -> None:
    env = dict(plan(hosts=FAR, network=BOND, container=Container("image", ssh_port=2200)).env)
    assert env["OMPI_MCA_plm_rsh_args"] == env["PRTE_MCA_plm_ssh_args"] == "-p 2200"
    assert "OMPI_MCA_plm_rsh_args" not in dict(plan(hosts=FAR, network=BOND).env)
    assert "OMPI_MCA_plm_rsh_args" not in dict(plan(container=LIGHTCC).env)


def test_every_word_has_its_source_and_its_reason() -> None:
    made = plan(
        JobFacts(True, openmpi="4.1.4"), np=2, mpirun="/x/mpirun", env=(("A", None), ("B", "1")), command=("a", "b")
    )
    assert all(token.why for token in made.tokens)
    assert [(token.text, token.source) for token in made.tokens] == [
        ("/x/mpirun", "inventory"),
        ("-np", "user"),
        ("2", "user"),
        ("-H", "launcher"),
        ("localhost:2", "launcher"),
        ("--allow-run-as-root", "fact"),
        *((word, "default") for word in BINDING),
        *((word, "user") for word in ("-x", "A", "-x", "B=1", "a", "b")),
    ]
    assert [token.source for token in plan().tokens[:3]] == ["default", "default", "default"]


def test_an_ipv6_address_is_no_name_for_mpirun() -> None:
    with pytest.raises(UsageError, match="IPv6") as caught:
        plan(hosts=(Host("fd00::1", "fd00::1", slots=1),))
    assert 'address: "fd00::1"' in str(caught.value.hint)
    assert plan(hosts=(Host("::1", "::1", slots=1, connection="local"),)).argv[4] == "localhost:1"


def test_names_that_mpirun_reads_as_something_else() -> None:
    with pytest.raises(UsageError, match="me and myself are both this machine"):
        plan(hosts=(LOCAL, Host("myself", "x", slots=1, connection="local")))
    underscore = (Host("a_b", "a_b", slots=1), Host("c", "c", slots=1))
    with pytest.raises(UsageError, match="not accept '_'"):
        plan(hosts=underscore, network=BOND)
    assert "a_b:1,c:1" in plan(JobFacts(False, openmpi="5.0.11"), hosts=underscore, network=BOND).argv


def test_unequal_hosts() -> None:
    hosts = (Host("a", "a", slots=3), Host("b", "b", slots=1), Host("c", "c", slots=4))
    made = plan(hosts=hosts, np=7, network=BOND)
    assert made.argv[4] == "a:3,c:4"


def test_the_callers_own_ssh_arguments_are_kept() -> None:
    inherited = (("OMPI_MCA_plm_rsh_args", "-i /k"), ("OMPI_MCA_orte_base_help_aggregate", "1"))
    made = dict(plan(JobFacts(False, inherited, "4.1.4"), hosts=FAR, head="gpu1", network=BOND, container=LIGHTCC).env)
    assert made["OMPI_MCA_plm_rsh_args"] == "-i /k -p 12222"
    assert made["PRTE_MCA_plm_ssh_args"] == "-p 12222"
    assert made["OMPI_MCA_orte_base_help_aggregate"] == "1"


SESSIONS = {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"}


def sessions(made: LaunchPlan) -> set[str]:
    return {value for name, value in made.env if name in SESSIONS}


def test_a_job_has_session_folders_of_its_own() -> None:
    made = plan(hosts=FAR, head="gpu1", network=BOND)
    assert dict(made.env).keys() >= SESSIONS
    assert sessions(made) == {"/job/mpi"}
    assert sessions(plan(folder="")) == {"<folder of the job>/mpi"}, "a dry run shows it"
    longest = "/" + "j" * (107 - len("//mpi/ompi.me.4294967295/pid.4194304/pmix-4194304"))
    assert sessions(plan(folder=longest)) == {f"{longest}/mpi"}
    assert sessions(plan(folder=f"{longest}j")) == set(), "a path of a socket has 107 bytes at most"


@pytest.mark.parametrize(
    "fields",
    [
        {"mca": (("orte_tmpdir_base", "/scratch"),)},
        {"mca": (("orte_remote_tmpdir_base", "/scratch"),)},
        {"env": (("PRTE_MCA_prte_tmpdir_base", "/scratch"),)},
        {"facts": JobFacts(False, (("OMPI_MCA_orte_local_tmpdir_base", "/scratch"),), "4.1.4")},
    ],
    ids=["option", "other-hosts", "variable", "inherited"],
)
def test_session_folders_are_where_the_user_has_them(fields: dict[str, Any]) -> None:
    assert sessions(plan(**fields)) == set()
