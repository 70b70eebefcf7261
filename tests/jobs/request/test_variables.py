"""-x, --knob and --mca: what they amount to, and every fault in words, without values of names that nobody knows."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import USAGE, SpecError
from taco_launch.core.model.host.hosts import Host, Inventory
from taco_launch.core.model.job_request import JobRequest
from taco_launch.hosts.inventory.schema.names import interface
from taco_launch.jobs.request import variables
from taco_launch.jobs.request.caller import here
from taco_launch.jobs.request.resolve import resolve
from taco_launch.jobs.request.variables import Variables, check, pairs
from tests.support.paths import TESTS

FOLDER = TESTS / "core/launch/knobs/cases"
# blocks of two lines: the option as it was given, and the fault
CASES = [tuple(block.split("\n")) for block in (FOLDER / "asked.txt").read_text("utf-8").strip("\n").split("\n\n")]
HERE = {"PATH": "/bin", "NCCL_DEBUG": "info", "API_TOKEN": "t0psecret", "NCCL_IB_HCA": "mlx5_1"}


def faults(
    env: tuple[str, ...] = (),
    knobs: tuple[str, ...] = (),
    mca: tuple[tuple[str, str], ...] = (),
    *,
    allow_unknown: bool = False,
) -> list[str]:
    with pytest.raises(SpecError) as caught:
        check(pairs(env), pairs(knobs), mca, HERE, allow_unknown=allow_unknown)
    assert caught.value.exit_code == USAGE
    assert str(caught.value).startswith("command line: ")
    return [str(fault) for fault in caught.value.faults]


def test_nothing() -> None:
    assert check((), (), (), {}, allow_unknown=False) == Variables()


def test_each_goes_where_it_belongs_in_the_order_it_was_given() -> None:
    found = check(
        pairs(("PATH", "NCCL_DEBUG", "API_TOKEN=x=y", "NCCL_IB_GID_INDEX=3")),
        pairs(
            (
                "HOROVOD_FUSION_THRESHOLD=64MiB",
                "plm_rsh_num_concurrent=256",
                "NCCL_NET_GDR_LEVEL=pxb",
                "UCX_TLS=rc,self,sm",
            )
        ),
        (("pml", "ob1"), ("btl", "^openib"), ("some_unknown_parameter", "any thing")),
        HERE,
        allow_unknown=False,
    )
    assert found.env == (
        ("PATH", None),
        ("NCCL_DEBUG", None),
        ("API_TOKEN", "x=y"),
        ("NCCL_IB_GID_INDEX", "3"),
        ("HOROVOD_FUSION_THRESHOLD", "67108864"),
        ("NCCL_NET_GDR_LEVEL", "PXB"),
        ("UCX_TLS", "rc,self,sm"),
    )
    assert found.mca == (
        ("plm_rsh_num_concurrent", "256"),
        ("pml", "ob1"),
        ("btl", "^openib"),
        ("some_unknown_parameter", "any thing"),
    )


def test_the_same_twice_is_taken_once() -> None:
    found = check(
        pairs(("NCCL_DEBUG=info", "NCCL_DEBUG", "A=1", "A=1")),
        pairs(("NCCL_CROSS_NIC=0", "NCCL_CROSS_NIC=0")),
        (("orte_keep_fqdn_hostnames", "1"), ("prte_keep_fqdn_hostnames", "1")),
        HERE,
        allow_unknown=False,
    )
    assert found.env == (("NCCL_DEBUG", "info"), ("A", "1"), ("NCCL_CROSS_NIC", "0"))
    assert found.mca == (("orte_keep_fqdn_hostnames", "1"),)


@pytest.mark.parametrize(("given", "fault"), CASES)
def test_a_fault_in_words(given: str, fault: str) -> None:
    option, _, text = given.partition(" ")
    name, _, value = text.partition(" ")
    if option == "--mca":
        assert faults(mca=((name, value),)) == [fault]
    else:
        assert (faults(env=(text,)) if option == "-x" else faults(knobs=(text,))) == [fault]
    assert "s3cret" not in fault


def test_what_a_terminal_obeys_and_what_nothing_can_hold() -> None:
    assert faults(env=("NCCL_DEBUG=\x1b[31m",))[0].startswith("-x: 'NCCL_DEBUG=\\x1b[31m': NCCL knows VERSION")
    assert faults(knobs=("NCCL_TOPO_FILE=a\0b",)) == [
        "--knob: 'NCCL_TOPO_FILE': its value holds a NUL byte, which no environment can hold"
    ]
    assert faults(mca=(("foo_bar", "a\0b"), ("", "1"))) == [
        "--mca: 'foo_bar': its value holds a NUL byte, which no command line can hold",
        "--mca: '': is not the name of an MCA parameter: letters, digits and '_'",
    ]


def test_one_name_with_two_values() -> None:
    assert faults(
        env=("A=1", "A=2", "NCCL_DEBUG", "NCCL_DEBUG=WARN", "NCCL_CROSS_NIC=1"), knobs=("NCCL_CROSS_NIC=2",)
    ) == [
        "-x: 'A': was given another value before (keep one of them)",
        "-x: 'NCCL_DEBUG': was given another value before (keep one of them)",
        "--knob: 'NCCL_CROSS_NIC': was given another value with -x (keep one of them)",
    ]
    assert faults(
        knobs=("pml=ob1",), mca=(("pml", "ucx"), ("orte_keep_fqdn_hostnames", "1"), ("prte_keep_fqdn_hostnames", "0"))
    ) == [
        "--mca: 'pml': was given another value with --knob (keep one of them)",
        (
            "--mca: 'prte_keep_fqdn_hostnames': is the same as orte_keep_fqdn_hostnames, which was given another value"
            " before (keep one of them)"
        ),
    ]


def test_include_and_exclude_exclude_each_other_under_any_name() -> None:
    mca = (("prte_if_exclude", "docker0"), ("oob_tcp_if_include", "eth0"))
    assert faults(mca=mca) == [
        "--mca: 'oob_tcp_if_include': cannot be combined with prte_if_exclude (keep one of them)"
    ]


def test_all_faults_come_at_once_in_the_order_of_the_options() -> None:
    found = faults(env=("NCCL_IB_HAC=1", "NOT_SET"), knobs=("XYZZY=1", "NCCL_IB_SL=99"), mca=(("pml", ""),))
    assert [fault.partition(":")[0] for fault in found] == ["-x", "-x", "--knob", "--knob", "--mca"]


@pytest.mark.parametrize("network", ["10.0.0.0/24", "10.0.0.7/24", "fd00::/64"])
def test_a_network_is_no_interface_and_where_one_may_stand_is_told(network: str) -> None:
    with pytest.raises(SpecError) as caught:
        interface(network)
    (fault,) = caught.value.faults
    assert (
        fault.hint
        == f"to name a network instead: --mca btl_tcp_if_include {network} --mca oob_tcp_if_include {network}"
    )


def test_several_interfaces_are_named_by_variables_and_parameters() -> None:
    with pytest.raises(
        SpecError,
        match="for several interfaces: -x NCCL_SOCKET_IFNAME==eth0,eth1 --mca btl_tcp_if_include eth0",
    ):
        interface("eth0,eth1")


@pytest.mark.parametrize("text", ["eth0/24", "a_name_of_an_interface", "", "10.0.0.0/40", "fd00:1:2:3:4:5:6:7"])
def test_other_words_that_are_no_interface_have_no_such_hint(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        interface(text)
    assert caught.value.faults[0].hint == ""


def test_names_of_plugins_pass_without_the_switch() -> None:
    given = ("NCCL_FASTRAK_USE_LLCM=1", "NCCL_OFI_X=yes", "OFI_NCCL_PROTOCOL=RDMA", "NCCL_BLOCKING_WAIT=true")
    assert len(check(pairs(given), (), (), {}, allow_unknown=False).env) == len(given)


def test_unknown_names_are_let_through_on_request_and_wrong_values_are_not() -> None:
    found = check(
        pairs(("NCCL_IB_HAC=1", "nccl_debug=x", "NCLL_DEBUG=1")),
        pairs(("HOROVOD_NEW=1",)),
        (("btl_tcp_if_inlcude", "eth0"),),
        {},
        allow_unknown=True,
    )
    assert found.env == (("NCCL_IB_HAC", "1"), ("nccl_debug", "x"), ("NCLL_DEBUG", "1"), ("HOROVOD_NEW", "1"))
    assert found.mca == (("btl_tcp_if_inlcude", "eth0"),)
    assert len(faults(env=("NCCL_IB_SL=99",), knobs=("XYZZY=1",), allow_unknown=True)) == 2


@given(
    st.lists(st.text(max_size=30)), st.lists(st.text(max_size=30)), st.lists(st.tuples(st.text(max_size=20), st.text()))
)
def test_anything_is_taken_whole_or_refused_as_a_spec_error(
    env: list[str], knobs: list[str], mca: list[tuple[str, str]]
) -> None:
    try:
        found = check(pairs(env), pairs(knobs), mca, HERE, allow_unknown=False)
    except SpecError as error:
        lines = str(error).split("\n")
    else:
        lines = []
        assert len(found.env) <= len(env) + len(knobs)
        assert all(value for _, value in found.mca)
    assert all(line.isprintable() for line in lines)


# --- Files of variables: docker's form, checked as -x is, and no value in a message


ENVIRON = {"HOME": "/root", "NCCL_DEBUG": "WARN"}


def read(tmp_path: Path, *texts: "str | bytes") -> dict[str, "str | None"]:
    paths = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.env"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        paths.append(str(path))
    return variables.read(paths, ENVIRON, allow_unknown=False)[0]


def test_lines(tmp_path: Path) -> None:
    text = '\ufeff# a comment\n\nA=1\n  B = two = 2 \nC="as it is"\nHOME\nNOT_SET\nNCCL_DEBUG=INFO\r\nD=\nA=last\n'
    with pytest.raises(SpecError):  # `B ` is not a name
        read(tmp_path, text)
    found = read(tmp_path, text.replace("B = two", "B= two"))
    assert found == {"A": "last", "B": " two = 2 ", "C": '"as it is"', "HOME": None, "NCCL_DEBUG": "INFO", "D": ""}


def test_a_later_file_goes_before_an_earlier_one(tmp_path: Path) -> None:
    assert read(tmp_path, "A=1\nB=1\n", "B=2\n") == {"A": "1", "B": "2"}


def test_a_note_names_what_is_not_set_unless_it_has_a_value_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "job.env"
    file.write_text("HOME\nGIVEN\n\nLATER\nMISSING\nLATER=1\nhunter2+hunter2\n")
    notes: list[str] = []
    request = JobRequest(command=("true",), env=(("GIVEN", "1"),), env_files=(str(file),))
    spec = resolve(request, Inventory("c", "gpu1", (Host("gpu1", "10.0.0.1"),)), here(ENVIRON, notes.append))
    assert notes == [f"note: {file}: line 5: MISSING is not set here, so the ranks do not get it"]
    assert spec.env == (("HOME", None), ("LATER", "1"), ("GIVEN", "1"))


def test_all_faults_at_once_without_values(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        read(tmp_path, "A B=hunter2\nNCCL_DEBUG=hunter2\nfine=1\n=hunter2\nNCCL_DEBUGG=hunter2\nbad line\n")
    assert [fault.path for fault in error.value.faults] == ["line 1", "line 2", "line 4", "line 5", "line 6"]
    assert "hunter2" not in str(error.value)


def test_what_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="line 2: is not UTF-8"):
        read(tmp_path, b"A=1\nB=\xff\n")
    with pytest.raises(SpecError, match="--env-file: file not found: /nowhere"):
        variables.read(["/nowhere"], ENVIRON, allow_unknown=False)


@given(st.binary(max_size=60))
def test_whatever_stands_there_is_variables_or_an_error(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            found, _unset = variables.read([file.name], ENVIRON, allow_unknown=True)
        except SpecError:
            return
    assert all("=" not in name and "\0" not in f"{name}{value}" for name, value in found.items())
