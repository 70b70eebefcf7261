"""The mpirun line, word for word; what is executed is the same line with the wrapper before the command."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.errors import UsageError
from taco_launch.inventory import profile
from taco_launch.launch import mpirun
from taco_launch.launch.decide import CONDITIONS, VALUES, decide, version
from taco_launch.launch.env import JOB_ID, JOB_NAME
from taco_launch.launch.needs import needs
from taco_launch.launch.replace import Option
from taco_launch.launch.separator import escape, unescape
from taco_launch.model.facts import Facts, HostFacts
from taco_launch.model.hosts import Container, Host, Network
from taco_launch.model.jobs import Asked, JobSpec
from taco_launch.model.plans import HostSlots, LaunchPlan
from taco_launch.model.profiles import Entry, Profile
from taco_launch.placement import place

LOCAL = Host("me", "127.0.0.1", slots=2, connection="local")
FAR = (Host("gpu1", "10.0.0.1", slots=8), Host("gpu2", "10.0.0.2", slots=8))
WRAPPER = ("/py", "-I", "-S", "/agent.pyz", "rank", "/job", "--")
BINDING = ("--bind-to", "none", "--map-by", "slot")
AUTO = profile.load("auto", "", {})
BOND = Network(interface="bond0")
RDMA = Network(interface="bond0", rdma="on")
LIGHTCC = Container("image", provides=("lightcc",))


def plan(facts: Facts | None = None, folder: str = "/job", **fields: Any) -> LaunchPlan:
    defaults = {"name": "j", "command": ("true",), "hosts": (LOCAL,), "head": "me", "profile": AUTO}
    spec = JobSpec(**{**defaults, **fields})
    placement = place(spec.np, [HostSlots(host.name, host.slots or 0) for host in spec.hosts])
    return mpirun.plan(spec, "id1", placement, facts or Facts(root=False, openmpi="4.1.4"), WRAPPER, folder)


def settings(made: LaunchPlan) -> dict[str, str]:
    """Give what -x and MCA options of a line set."""
    words = made.argv
    env = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "-x"]
    mca = [
        (words[at + 1], words[at + 2]) for at, word in enumerate(words) if word in ("--mca", "--prtemca", "--pmixmca")
    ]
    return {**{name: value for name, _equals, value in env}, **dict(mca)}


def options_of(made: LaunchPlan) -> list[Option]:
    """Cut the line between mpirun and the command into its options."""
    tokens = [token for token in made.tokens if token.why != "the job's command"][1:]
    options, at = [], 0
    while at < len(tokens):
        word = tokens[at].text
        count = 1 if word == "--allow-run-as-root" else 3 if word.endswith("mca") else 2
        options.append(Option(tuple(tokens[at : at + count])))
        at += count
    return options


def missing(made: LaunchPlan) -> list[str]:
    """Give what was left out for want of a fact."""
    return [warning.partition(": left out, since ")[0] for warning in made.warnings if ": left out, since " in warning]


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        pytest.param({}, ("mpirun", "-np", "2", "-H", "localhost:2", *BINDING), id="smallest"),
        pytest.param(
            {"facts": Facts(root=True, openmpi="4.1.4"), "np": 1},
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
    assert made.executed == (*options, *WRAPPER, "true")
    assert missing(made) == []


def test_open_mpi_5_is_given_nothing_of_4() -> None:
    domains = tuple(Host(f"gpu{number}.example", "x", slots=1) for number in (1, 2))
    four = settings(plan(hosts=domains, network=Network(interface="bond0", port_range=(40000, 40099))))
    five = settings(plan(Facts(False, openmpi="5.0.7"), hosts=FAR, network=BOND))
    assert {name for name in four if name.startswith(("orte_", "oob_"))} == {
        "orte_keep_fqdn_hostnames",
        "oob_tcp_if_include",
        "oob_tcp_dynamic_ipv4_ports",
    }
    assert four["oob_tcp_dynamic_ipv4_ports"] == "40000-40011"
    assert four["btl_tcp_port_min_v4"] == "40012"
    assert four["btl_tcp_port_range_v4"] == "88"
    assert not {name for name in five if name.startswith(("orte_", "btl_vader", "plm_rsh"))}
    assert five["btl_tcp_if_include"] == "bond0"
    assert five["btl"] == "^ofi"  # openib is gone


def test_a_version_nobody_knows_is_missing_not_guessed() -> None:
    made = plan(Facts(False), hosts=FAR, network=BOND)
    assert missing(made) == ["btl, oob_tcp_if_include"]
    assert not {"orte_keep_fqdn_hostnames", "btl"} & settings(made).keys()
    # One host: no option depends on it but the one that the host's facts have to call for.
    assert missing(plan(Facts(False))) == []


def test_ranks_that_may_not_read_each_others_memory() -> None:
    def single_copy(*, allowed: bool | None, openmpi: str) -> dict[str, str]:
        host = HostFacts("me", slots=2, single_copy=allowed)
        return settings(plan(Facts(False, openmpi=openmpi, hosts=(host,))))

    assert single_copy(allowed=False, openmpi="4.1.4") == {"btl_vader_single_copy_mechanism": "none"}
    assert single_copy(allowed=True, openmpi="4.1.4") == {}
    assert single_copy(allowed=None, openmpi="4.1.4") == {}
    assert "btl_vader_single_copy_mechanism" not in single_copy(allowed=False, openmpi="5.0.7")


def gids(nccl: str | None, *indexes: int | None, **network: Any) -> LaunchPlan:
    hosts = tuple(
        HostFacts(host.name, gid_index=index) for host, index in zip(FAR, indexes, strict=False) if index is not None
    )
    return plan(
        Facts(False, openmpi="4.1.4", nccl=nccl, hosts=hosts), hosts=FAR, network=Network("bond0", "on", **network)
    )


def test_the_gid_index_where_nccl_needs_it() -> None:
    assert settings(gids("2.9.9", 3, 3))["NCCL_IB_GID_INDEX"] == "3"
    assert settings(gids("2.20.5", 5, 5))["NCCL_IB_GID_INDEX"] == "5"
    assert "NCCL_IB_GID_INDEX" not in settings(gids("2.21", 3, 3))
    differ = gids("2.9.9", 3, 5)
    assert "NCCL_IB_GID_INDEX" not in settings(differ)
    assert dict(differ.host_env) == {"gpu1": (("NCCL_IB_GID_INDEX", "3"),), "gpu2": (("NCCL_IB_GID_INDEX", "5"),)}
    assert gids("2.21.5", 3, 5).host_env == ()
    assert settings(gids(None, gid_index=3))["NCCL_IB_GID_INDEX"] == "3"
    assert missing(gids(None, 3, 3)) == ["NCCL_IB_GID_INDEX"]
    assert missing(gids("2.9.9", 3)) == ["NCCL_IB_GID_INDEX"]
    assert any("show_gids" in warning for warning in gids("2.9.9", 3).warnings)


@pytest.mark.parametrize(
    ("asked", "network", "wanted"),
    [
        (Asked(), BOND, {}),
        (Asked(), RDMA, {"NCCL_NET": "IB"}),
        (Asked(transport="auto"), RDMA, {}),
        (Asked(transport="tcp"), RDMA, {"NCCL_IB_DISABLE": "1"}),
        (Asked(), Network("bond0", "off"), {"NCCL_IB_DISABLE": "1"}),
        (Asked(gdr=True), BOND, {"NCCL_NET_GDR_LEVEL": "PXB"}),
        (Asked(gdr=False), Network("bond0", gdr="on"), {"NCCL_NET_GDR_LEVEL": "LOC"}),
        (Asked(), Network("bond0", gdr="off"), {"NCCL_NET_GDR_LEVEL": "LOC"}),
    ],
)
def test_the_transport(asked: Asked, network: Network, wanted: dict[str, str]) -> None:
    found = settings(plan(Facts(False, openmpi="4.1.4", nccl="2.27.3"), hosts=FAR, asked=asked, network=network))
    assert {name: found[name] for name in found if name.startswith(("NCCL_NET", "NCCL_IB"))} == wanted


def test_the_interface_is_the_users_or_the_inventorys_or_a_fact() -> None:
    facts = Facts(
        False, openmpi="4.1.4", hosts=(HostFacts("gpu1", interface="eth9"), HostFacts("gpu2", interface="eth9"))
    )
    found = [
        plan(facts, hosts=FAR, network=BOND, asked=Asked(interface="ib0")),
        plan(facts, hosts=FAR, network=BOND),
        plan(facts, hosts=FAR),
    ]
    for made, name, source in zip(found, ("ib0", "bond0", "eth9"), ("user", "inventory", "fact"), strict=True):
        assert settings(made)["btl_tcp_if_include"] == settings(made)["oob_tcp_if_include"] == name
        assert settings(made)["NCCL_SOCKET_IFNAME"] == f"={name}"
        assert {token.source for token in made.tokens if token.text.endswith(name)} == {source}
    assert missing(plan(hosts=FAR)) == ["NCCL_SOCKET_IFNAME, btl_tcp_if_include, oob_tcp_if_include"]
    own = plan(hosts=FAR, env=(("NCCL_SOCKET_IFNAME", "=ib0"),), mca=(("btl_tcp_if_include", "ib0"),))
    assert missing(own) == ["oob_tcp_if_include"]


def test_light_is_the_guides_combination() -> None:
    with_it = plan(hosts=FAR, network=BOND, asked=Asked(light=True), container=LIGHTCC)
    assert {name: value for name, value in settings(with_it).items() if name.startswith(("LIGHT_", "HOROVOD_"))} == {
        "HOROVOD_FUSION_THRESHOLD": "0",
        "HOROVOD_CYCLE_TIME": "0",
        "LIGHT_INTRA_SIZE": "8",
        "LIGHT_2D_ALLREDUCE": "1",
        "LIGHT_TOPK_ALLREDUCE": "1",
        "LIGHT_TOPK_THRESHOLD": "2097152",
    }
    assert any("lossy" in warning for warning in with_it.warnings)
    assert not any("nothing will read" in warning for warning in with_it.warnings)
    without = plan(hosts=FAR, network=BOND, asked=Asked(light=True))
    assert any("nothing will read" in warning for warning in without.warnings)
    assert not {name for name in settings(without) if name.startswith("HOROVOD_")}
    uneven = plan(hosts=FAR, np=12, network=BOND, asked=Asked(light=True))
    assert "LIGHT_INTRA_SIZE" not in settings(uneven)
    assert any("unequal" in warning for warning in uneven.warnings)
    assert any("one host" in warning for warning in plan(asked=Asked(light=True)).warnings)


def test_2d_alone_is_horovods_torus_where_nothing_reads_the_other() -> None:
    def found(horovod: str | None = "0.28.1", **fields: Any) -> list[str]:
        facts = Facts(False, openmpi="4.1.4", horovod=horovod)
        made = plan(facts, **{"hosts": FAR, "network": BOND, "env": (("LIGHT_2D_ALLREDUCE", "1"),), **fields})
        return [name for name in settings(made) if name.startswith(("LIGHT_", "HOROVOD_"))]

    assert found() == ["HOROVOD_TORUS_ALLREDUCE"]
    assert found(env=(("LIGHT_INTRA_SIZE", "8"), ("LIGHT_2D_ALLREDUCE", "1"))) == ["HOROVOD_TORUS_ALLREDUCE"]
    unchanged = ["LIGHT_2D_ALLREDUCE"]
    assert found(np=12) == ["LIGHT_2D_ALLREDUCE"]
    assert found("0.25.0") == found(None) == found(container=LIGHTCC) == found(hosts=(LOCAL,)) == unchanged
    assert found(env=(("LIGHT_INTRA_SIZE", "4"), *((name, "1") for name in unchanged))) == [
        "LIGHT_INTRA_SIZE",
        *unchanged,
    ]
    assert found(env=(("LIGHT_2D_ALLREDUCE", "0"),)) == unchanged
    both = (("LIGHT_2D_ALLREDUCE", "1"), ("LIGHT_TOPK_ALLREDUCE", "1"))
    assert found(env=both) == ["LIGHT_2D_ALLREDUCE", "LIGHT_TOPK_ALLREDUCE"]


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


def test_what_the_environment_holds_and_the_line_overrides() -> None:
    inherited = (
        ("NCCL_DEBUG", "TRACE"),
        ("NCCL_IB_TC", "106"),
        ("OMPI_MCA_pml", "ucx"),
        ("OMPI_MCA_btl", "^openib,ofi"),
    )
    facts = Facts(False, environment=inherited, openmpi="4.1.4")
    said = plan(facts, hosts=FAR, network=BOND).warnings
    assert [warning.split()[0] for warning in said if "your environment" in warning] == ["NCCL_DEBUG=WARN", "--mca"]
    asked = plan(facts, hosts=FAR, network=BOND, env=(("NCCL_DEBUG", "INFO"),), mca=(("pml", "cm"),)).warnings
    assert not [warning for warning in asked if "your environment" in warning]


def test_without_hosts_on_the_line_mpirun_reads_ours_as_its_default() -> None:
    bare = Profile("bare", (Entry(("-np", "{np}"), "ranks"),))
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


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"asked": Asked(interface="eth0")}, ["--interface changes nothing on the line on one host"]),
        ({"asked": Asked(transport="rdma", gdr=True)}, ["--transport rdma changes", "--gdr changes"]),
        ({"asked": Asked(transport="auto")}, []),
        ({"hosts": FAR, "asked": Asked(transport="rdma", interface="ib0", gdr=False)}, []),
        (
            {"hosts": FAR, "asked": Asked(transport="tcp"), "network": RDMA, "profile": "taco-bare-metal"},
            ["--transport tcp: nothing on the line keeps NCCL off RDMA; -x NCCL_IB_DISABLE=1"],
        ),
        (
            {"hosts": FAR, "network": BOND, "asked": Asked(gdr=True), "profile": "ack"},
            ["--gdr changes", "the line names no hosts"],
        ),
        (
            {"hosts": FAR, "network": BOND, "asked": Asked(transport="tcp", gdr=True)},
            ["GPUDirect RDMA is asked for, and so is TCP"],
        ),
        (
            {"hosts": FAR, "network": BOND, "asked": Asked(gdr=False), "env": (("NCCL_NET_GDR_LEVEL", "SYS"),)},
            ["-x NCCL_NET_GDR_LEVEL=SYS undoes -x NCCL_NET_GDR_LEVEL=LOC (no GPUDirect RDMA; --no-gdr)"],
        ),
        (
            {"hosts": FAR, "network": BOND, "env": (("NCCL_SOCKET_IFNAME", "=eth0"),)},
            ["NCCL_SOCKET_IFNAME==eth0 and bond0 for MPI differ: --interface sets all places"],
        ),
        ({"hosts": FAR, "network": BOND, "mca": (("btl_tcp_if_include", "10.0.0.0/16"),)}, []),
    ],
)
def test_what_is_asked_and_comes_to_nothing_is_said(fields: dict[str, Any], said: list[str]) -> None:
    if "profile" in fields:
        fields = {**fields, "profile": profile.load(fields["profile"], "", {})}
    warnings = plan(Facts(False, openmpi="4.1.4", nccl="2.27.3"), **fields).warnings
    ours = [
        warning
        for warning in warnings
        if not warning.startswith(("NCCL_IB_DISABLE=0", "NCCL_IB_GID", "NCCL_SOCKET_IFNAME, "))
    ]
    assert len(ours) == len(said), ours
    assert all(warning.startswith(start) for warning, start in zip(ours, said, strict=True))


def test_an_option_that_takes_words_away_changes_the_line() -> None:
    guide: dict[str, Any] = {
        "hosts": FAR,
        "np": 8,
        "head": "gpu1",
        "network": Network("bond0", "on", 3),
        "profile": PROFILES[1],
    }
    made = plan(asked=Asked(transport="tcp", interface="eth0"), **guide)
    assert made.warnings == ()


def test_a_declared_gid_index_stands_unless_tcp_is_asked_for() -> None:
    def found(nccl: str | None = "2.9.9", gid_index: int | None = 3, **fields: Any) -> str | None:
        network = Network("bond0", gid_index=gid_index)
        made = plan(Facts(False, openmpi="4.1.4", nccl=nccl), hosts=FAR, network=network, **fields)
        return settings(made).get("NCCL_IB_GID_INDEX") or ",".join(missing(made)) or None

    assert found() == found(None) == "3"
    assert found(asked=Asked(transport="tcp")) is None
    assert found(gid_index=None) == "NCCL_IB_GID_INDEX"  # too old to find it, and nobody says which it is
    assert found(None, None) is None
    assert found("2.21.5", None) is None


def test_a_network_by_name_only_where_nccl_reads_it() -> None:
    def net(nccl: str | None) -> bool:
        return "NCCL_NET" in settings(plan(Facts(False, openmpi="4.1.4", nccl=nccl), hosts=FAR, network=RDMA))

    assert (net("2.9.9"), net("2.10.3"), net(None)) == (False, True, True)


def test_every_word_has_its_source_and_its_reason() -> None:
    made = plan(
        Facts(True, openmpi="4.1.4"), np=2, mpirun="/x/mpirun", env=(("A", None), ("B", "1")), command=("a", "b")
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
    with pytest.raises(UsageError, match="no '_'"):
        plan(hosts=underscore, network=BOND)
    assert "a_b:1,c:1" in plan(Facts(False, openmpi="5.0.11"), hosts=underscore, network=BOND).argv


def test_unequal_hosts() -> None:
    hosts = (Host("a", "a", slots=3), Host("b", "b", slots=1), Host("c", "c", slots=4))
    made = plan(hosts=hosts, np=7, network=BOND)
    assert made.argv[4] == "a:3,b:1,c:3"


def test_what_has_to_be_asked() -> None:
    spec = JobSpec("j", ("true",), (LOCAL,), profile=AUTO)
    assert [fact.split()[0] for fact in needs(spec)] == ["version", "GPUs"]
    far = JobSpec("j", ("true",), FAR, profile=AUTO, versions=(("openmpi", "4.1"),))
    assert needs(far) == ()
    assert needs(JobSpec("j", ("true",), (Host("a", "a"),), profile=Profile())) == ("slots of a",)


def test_every_name_is_decided_or_missing() -> None:
    spec = JobSpec("j", ("true",), (LOCAL,), profile=AUTO)
    made = decide(spec, place(None, [HostSlots("me", 2)]), Facts(False), "")
    assert made.conditions.keys() | made.missing.keys() == CONDITIONS.keys() | {"interface", "gid_index"}
    assert made.values.keys() <= VALUES.keys()


@pytest.mark.parametrize(
    ("text", "numbers"), [("4.1.4", (4, 1, 4)), ("5.0.7rc1", (5, 0, 7)), ("2.9.9+cuda", (2, 9, 9)), ("", ())]
)
def test_version(text: str, numbers: tuple[int, ...]) -> None:
    assert version(text) == numbers


@given(st.lists(st.text(), min_size=1, max_size=6))
@example([":", "a", "::"])
def test_executed_is_the_line_with_the_wrapper_before_the_command(command: list[str]) -> None:
    made = plan(command=tuple(command))
    options = len(made.tokens) - len(command)
    assert made.argv[options:] == tuple(command)
    assert made.executed[: options + len(WRAPPER)] == (*made.argv[:options], *WRAPPER)
    wrapped = made.executed[options + len(WRAPPER) :]
    assert [unescape(word) for word in wrapped] == command
    # A lone colon would begin a second program.
    assert ":" not in wrapped


@given(st.text() | st.text(":-a", max_size=5))
def test_escape_is_undone(word: str) -> None:
    assert unescape(escape(word)) == word
    # Neither the start of a second program nor an option that mpirun might take.
    assert escape(word) != ":"
    assert not (escape(word).startswith("-") and len(escape(word)) > 2)


def test_escape_touches_colons_and_long_options_only() -> None:
    given = ["", ":", "::", "a:", ":a", " :", "x", "-c", "-", "--", "--mca", ":--mca", "-mca", "--map-by=slot", "a--b"]
    wanted = [
        "",
        "::",
        ":::",
        "a:",
        ":a",
        " :",
        "x",
        "-c",
        "-",
        "--",
        ":--mca",
        "::--mca",
        ":-mca",
        ":--map-by=slot",
        "a--b",
    ]
    assert [escape(word) for word in given] == wanted


def test_what_mpirun_takes_from_a_program_is_said() -> None:
    made = plan(command=("train.py", "--epochs", "1", "--mca", "a", "b", "--map-by", "slot", ":"))
    (said,) = made.warnings
    assert said.startswith("--mca, --map-by, :: run by taco-launch")
    assert plan(command=("--mca", "--epochs")).warnings == ()


def test_a_range_of_ports_that_is_too_small() -> None:
    def said(first: int, last: int, np: int) -> list[str]:
        made = plan(hosts=FAR, np=np, network=Network(interface="bond0", port_range=(first, last)))
        return [warning for warning in made.warnings if "port_range" in warning]

    assert said(40000, 40000, 16)
    assert said(40000, 40007, 16)
    assert not said(40000, 40008, 16)
    assert not said(40000, 40000, 8)


def test_open_mpi_5_and_the_guides_single_dashes() -> None:
    guide = PROFILES[1]
    facts = Facts(False, openmpi="5.0.11")
    assert any(
        warning.startswith("-bind-to, -map-by: ") for warning in plan(facts, profile=guide, network=RDMA).warnings
    )
    assert not any("two dashes" in warning for warning in plan(profile=guide, network=RDMA).warnings)
    assert not any("two dashes" in warning for warning in plan(facts).warnings)


def test_an_exclude_of_the_environment_stands_against_our_include() -> None:
    facts = Facts(False, openmpi="4.1.4", environment=(("OMPI_MCA_btl_tcp_if_exclude", "docker0"),))
    assert any("unset it" in warning for warning in plan(facts, hosts=FAR, network=BOND).warnings)
    assert not any("unset it" in warning for warning in plan(facts).warnings)


def test_the_line_can_be_pasted() -> None:
    assert mpirun.line(plan(command=("sh", "-c", "echo $RANK\n")).tokens) == (
        "mpirun -np 2 -H localhost:2 --bind-to none --map-by slot sh -c $'echo $RANK\\012'"
    )


PROFILES = [AUTO, *(profile.load(name, "", {}) for name in ("taco-bare-metal", "ack"))]
NAMES = st.sampled_from(["NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "PATH", "LIGHT_2D_ALLREDUCE", "MINE"])
PARAMETERS = st.sampled_from(
    ["pml", "btl", "btl_tcp_if_exclude", "oob_tcp_if_include", "prte_keep_fqdn_hostnames", "mine"]
)
VERSIONS = st.none() | st.sampled_from(["2.9.9", "2.21.5", "4.0", "4.1.4", "5.0.11", "0.28.1"])


@given(
    chosen=st.sampled_from(PROFILES),
    slots=st.lists(st.integers(1, 8), min_size=1, max_size=70),
    openmpi=VERSIONS,
    nccl=VERSIONS,
    horovod=VERSIONS,
    asked=st.builds(
        Asked,
        transport=st.sampled_from([None, "auto", "tcp", "rdma"]),
        interface=st.sampled_from([None, "eth0"]),
        gdr=st.sampled_from([None, True, False]),
        light=st.booleans(),
    ),
    network=st.builds(
        Network,
        interface=st.sampled_from(["auto", "bond0"]),
        rdma=st.sampled_from(["auto", "on", "off"]),
        gid_index=st.none() | st.integers(0, 255),
        gdr=st.sampled_from(["auto", "on", "off"]),
        port_range=st.none() | st.just((40000, 41000)),
    ),
    env=st.dictionaries(NAMES, st.none() | st.sampled_from(["1", "x y"])),
    mca=st.dictionaries(PARAMETERS, st.sampled_from(["1", "x y"])),
)
def test_whatever_is_asked(
    *,
    chosen: Profile,
    slots: list[int],
    openmpi: str | None,
    nccl: str | None,
    horovod: str | None,
    asked: Asked,
    network: Network,
    env: dict[str, str | None],
    mca: dict[str, str],
) -> None:
    hosts = tuple(Host(f"gpu{index}", f"gpu{index}", slots=count) for index, count in enumerate(slots))
    facts = Facts(root=True, openmpi=openmpi, nccl=nccl, horovod=horovod)
    more: dict[str, Any] = {
        "profile": chosen,
        "asked": asked,
        "network": network,
        "env": tuple(env.items()),
        "mca": tuple(mca.items()),
    }
    made = plan(facts, hosts=hosts, head="gpu0", **more)
    # Each option once, under whatever name: mpirun refuses some of them twice, and of others the last wins.
    keys = [option.key for option in options_of(made)]
    assert len(set(keys)) == len(keys)
    assert all(
        token.why and token.source in {"user", "inventory", "fact", "profile", "default", "launcher"}
        for token in made.tokens
    )
    assert not any("{" in token.text for token in made.tokens)
    # Hosts and their ranks are told in one way, and all of them.
    told = [made.argv[at + 1] for at, word in enumerate(made.argv) if word == "-H"]
    files = [file.text for file in made.files]
    assert len(told) + len(files) == 1
    assert (told + files)[0] in (
        ",".join(f"gpu{index}:{count}" for index, count in enumerate(slots)),
        "".join(f"gpu{index} slots={count}\n" for index, count in enumerate(slots)),
    )
    # What the user gave is there, but for the one variable that may become Horovod's own.
    found = settings(made)
    for name, value in {**mca, **{name: value or "" for name, value in env.items()}}.items():
        assert found.get(name, "1" if "HOROVOD_TORUS_ALLREDUCE" in found else None) == value
    interfaces = {found[name].lstrip("=") for name in ("btl_tcp_if_include", "NCCL_SOCKET_IFNAME") if name in found}
    assert interfaces <= {asked.interface or network.interface, *mca.values(), *(value or "" for value in env.values())}


def numbered(count: int) -> tuple[Host, ...]:
    return tuple(Host(f"gpu{index}", f"gpu{index}", slots=1) for index in range(count))


@pytest.mark.parametrize("openmpi", ["4.1.4", "5.0.11"])
@pytest.mark.parametrize(("count", "concurrent"), [(63, None), (64, "64"), (256, "256"), (257, "256")])
def test_many_hosts(openmpi: str, count: int, concurrent: str | None) -> None:
    made = plan(Facts(False, openmpi=openmpi), hosts=numbered(count), head="gpu0", network=BOND)
    found = settings(made)
    rsh = "plm_rsh" if openmpi[0] == "4" else "plm_ssh"
    assert found.get(f"{rsh}_num_concurrent") == concurrent
    assert found.get(f"{rsh}_no_tree_spawn") == (None if concurrent is None else "1")
    assert ("--hostfile" in made.argv) == (concurrent is not None) == ("-H" not in made.argv)


def test_one_host_that_is_not_the_head() -> None:
    far: dict[str, Any] = {
        "hosts": FAR,
        "np": 8,
        "network": Network("bond0", port_range=(40000, 40100)),
        "container": LIGHTCC,
    }
    there = plan(head="gpu2", **far)
    assert settings(there).keys() == {"PATH", "LD_LIBRARY_PATH", "oob_tcp_if_include", "oob_tcp_dynamic_ipv4_ports"}
    assert "OMPI_MCA_plm_rsh_args" in dict(there.env)
    here = plan(head="gpu1", **far)
    assert settings(here) == {}
    assert "OMPI_MCA_plm_rsh_args" not in dict(here.env)


def test_the_library_path_is_handed_on_where_it_is_set() -> None:
    def found(*environment: tuple[str, str], **fields: Any) -> bool:
        facts = Facts(False, environment, "4.1.4")
        where: dict[str, Any] = {"hosts": (LOCAL, *FAR), "np": 4, **fields}
        return "LD_LIBRARY_PATH" in settings(plan(facts, network=BOND, **where))

    assert found(("LD_LIBRARY_PATH", "/x"))
    assert not found()
    assert not found(hosts=FAR, head="gpu1", np=9)
    assert found(hosts=FAR, head="gpu1", np=9, container=LIGHTCC)


def test_the_callers_own_ssh_arguments_are_kept() -> None:
    inherited = (("OMPI_MCA_plm_rsh_args", "-i /k"), ("OMPI_MCA_orte_base_help_aggregate", "1"))
    made = dict(plan(Facts(False, inherited, "4.1.4"), hosts=FAR, head="gpu1", network=BOND, container=LIGHTCC).env)
    assert made["OMPI_MCA_plm_rsh_args"] == "-i /k -p 12222"
    assert made["PRTE_MCA_plm_ssh_args"] == "-p 12222"
    assert made["OMPI_MCA_orte_base_help_aggregate"] == "1"


def test_logins_and_ports_that_a_pasted_line_has_not_are_named() -> None:
    odd = (Host("a", "a", slots=1, user="bob"), Host("b", "b", slots=1, port=2222), Host("c", "c", slots=1))
    said = [warning for warning in plan(hosts=odd, head="a", network=BOND).warnings if "~/.ssh/config" in warning]
    assert [warning.partition(":")[0] for warning in said] == ["a and 1 more"]
    assert not [warning for warning in plan(hosts=FAR, network=BOND).warnings if "~/.ssh/config" in warning]


def test_each_host_its_own_gid_index_is_said() -> None:
    assert any("differs from host to host (gpu1 3, gpu2 5)" in warning for warning in gids("2.9.9", 3, 5).warnings)


@pytest.mark.parametrize(
    ("names", "head", "kept"),
    [
        (("n1.rack1.example", "n2"), "n1.rack1.example", False),
        (("n1", "n2.rack1.example"), "n1", True),
        (("n1.rack1.example", "n2"), "n2", True),
        (("n1", "10.0.0.2"), "n1", False),
        (("n1", "n2"), "n1", False),
    ],
)
def test_names_with_a_domain_are_kept_where_another_host_has_one(names: tuple[str, ...], head: str, kept: bool) -> None:
    made = plan(hosts=tuple(Host(name, name, slots=1) for name in names), head=head, network=BOND)
    assert ("orte_keep_fqdn_hostnames" in settings(made)) == kept
