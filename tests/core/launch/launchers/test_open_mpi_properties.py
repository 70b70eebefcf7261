"""Whatever is asked: each option once, the command as it was given."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from taco_launch.core.launch.command_line.separator import escape, unescape
from taco_launch.core.launch.launchers import open_mpi as mpirun
from taco_launch.core.model.host.hosts import Host, Network
from taco_launch.core.model.job_facts import JobFacts
from taco_launch.core.model.jobs import NetworkOverrides, Profile
from tests.support.planned import PROFILES, WRAPPER, options_of, plan, settings


@given(st.lists(st.text(), min_size=1, max_size=6))
@example([":", "a", "::"])
def test_executed_is_the_line_with_the_wrapper_before_the_command(command: list[str]) -> None:
    made = plan(command=tuple(command))
    options = len(made.tokens) - len(command)
    assert made.argv[options:] == tuple(command)
    assert made.executed[: options + len(WRAPPER)] == (*made.argv[:options], *WRAPPER)
    wrapped = made.executed[options + len(WRAPPER) :]
    assert [unescape(word) for word in wrapped] == command
    # A lone colon would start a second program.
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


def test_the_line_can_be_pasted() -> None:
    assert mpirun.line(plan(command=("sh", "-c", "echo $RANK\n")).tokens) == (
        "mpirun -np 2 -H localhost:2 --bind-to none --map-by slot sh -c $'echo $RANK\\012'"
    )


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
        NetworkOverrides,
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
    asked: NetworkOverrides,
    network: Network,
    env: dict[str, str | None],
    mca: dict[str, str],
) -> None:
    hosts = tuple(Host(f"gpu{index}", f"gpu{index}", slots=count) for index, count in enumerate(slots))
    facts = JobFacts(root=True, openmpi=openmpi, nccl=nccl, horovod=horovod)
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
