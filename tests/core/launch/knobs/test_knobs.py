"""The table of knobs: nothing is missing or said twice, each row is whole, and names are found as people write them."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.launch import knobs
from taco_launch.core.launch.knobs import TABLE, Knob
from taco_launch.core.launch.knobs.values import normalise, verbatim

LINES = (Path(__file__).parent / "cases" / "names.txt").read_text("utf-8").splitlines()
NAMES = tuple(line for line in LINES if not line.startswith("#"))
KINDS = {
    "switch", "integer", "number", "word", "words", "verbosity", "level", "hca", "interfaces", "functions", "components", "networks",
    "ports", "cidr", "endpoint", "path", "options", "key", "text",
}  # fmt: skip
# Defaults that are told of by somebody else: what stands there is not read back by the library.
TOLD = {"plm_rsh_agent", "coll_tuned_allreduce_algorithm", "pml_ucx_devices"}


def test_the_table_knows_every_name_of_the_guides_and_documents() -> None:
    assert [name for name in NAMES if knobs.find(name) is None] == []
    assert [name for name, count in Counter(NAMES).items() if count > 1] == []


def test_no_name_or_alias_stands_for_two_knobs() -> None:
    names = Counter(name for knob in TABLE for name in (knob.name, *knob.aliases))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("knob", TABLE, ids=lambda knob: knob.name)
def test_each_row_is_whole(knob: Knob) -> None:
    assert knob.kind in KINDS
    assert knob.unit in ("", "bytes", "ms", "s")
    assert knob.why.endswith(".")
    assert knob.source
    assert knob.allowed
    assert bool(knob.choices) or knob.kind not in ("word", "words", "level", "functions", "components")
    assert knob.low is None or knob.high is None or knob.low < knob.high
    assert knob.instead == "" or (knobs.find(knob.instead) and knob.until)
    assert knob.mca == (knob.library == "openmpi" and not knob.name.startswith("OMPI_"))


@pytest.mark.parametrize(
    "knob", [knob for knob in TABLE if knob.default and knob.name not in TOLD], ids=lambda k: k.name
)
def test_each_default_is_a_right_value(knob: Knob) -> None:
    verbatim(knob.name, knob.default)
    assert normalise(knob.name, knob.default).lower() == knob.default.strip().lower()


@pytest.mark.parametrize("knob", TABLE, ids=lambda k: k.name)
def test_each_example_is_a_right_value(knob: Knob) -> None:
    if knob.example != "VALUE" and not knob.instead:
        verbatim(knob.name, knob.example)
        assert knob.example != knob.default or knob.kind != "switch"


@pytest.mark.parametrize(
    ("name", "example"),
    [
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_IB_DISABLE", "1"),
        ("NCCL_RAS_ENABLE", "0"),
        ("NCCL_IB_HCA", "=mlx5_0"),
        ("NCCL_IB_TIMEOUT", "20"),
        ("NCCL_MAX_CTAS", "1"),
        ("NCCL_DEBUG_FILE", "VALUE"),
        ("NCCL_PSK", "VALUE"),
        ("pml_ucx_devices", "VALUE"),  # a shell would take the * for itself
        ("btl", "VALUE"),
    ],
)
def test_example(name: str, example: str) -> None:
    assert knobs.matching(name)[0].example == example


def test_an_alias_is_the_same_knob() -> None:
    assert knobs.find("prte_keep_fqdn_hostnames") is knobs.find("orte_keep_fqdn_hostnames")
    assert knobs.find("plm_ssh_args") is knobs.find("plm_rsh_args")


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("NCCL_NET", ["NCCL_NET"]),
        ("nccl_net", ["NCCL_NET"]),
        ("Prte_Keep_Fqdn_Hostnames", ["orte_keep_fqdn_hostnames"]),
        ("fusion", ["HOROVOD_FUSION_THRESHOLD", "HOROVOD_DISABLE_GROUP_FUSION"]),
        ("OMPI_MCA_btl", ["btl"]),  # as the environment has it
        ("nothing", []),
    ],
)
def test_matching(asked: str, names: list[str]) -> None:
    assert [knob.name for knob in knobs.matching(asked)] == names


def test_matching_by_beginning_or_any_part() -> None:
    assert {knob.name for knob in knobs.matching("nccl_net_gdr_")} == {
        "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_NET_GDR_C2C",
    }  # fmt: skip
    assert "orte_launch_agent" in {knob.name for knob in knobs.matching("prte_")}
    assert knobs.matching("") == TABLE
    assert "NCCL_NET_GDR_LEVEL" in {knob.name for knob in knobs.matching("GDR")}
    # a part is looked for only where nothing starts with it
    assert all(knob.name.startswith("pml") for knob in knobs.matching("pml_"))


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("OMPI_MCA_btl", "btl"), ("PRTE_MCA_plm_ssh_agent", "plm_ssh_agent"), ("PMIX_MCA_gds", "gds"),
        ("OMPI_MCA_", "OMPI_MCA_"), ("btl", "btl"), ("NCCL_NET", "NCCL_NET"),
    ],
)  # fmt: skip
def test_an_mca_parameter_as_the_environment_has_it(name: str, bare: str) -> None:
    assert knobs.parameter(name) == bare


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NCCL_IB_HAC", "NCCL_IB_HCA"),
        ("nccl_ib_gid_indx", "NCCL_IB_GID_INDEX"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("HOROVOD_FUSION_TRESHOLD", "HOROVOD_FUSION_THRESHOLD"),
        ("LIGHT_TOP_K_RATIO", "LIGHT_TOPK_RATIO"),
        ("btl_tcp_include", "btl_tcp_if_include"),
        ("HOROVOD_FUSION", "HOROVOD_FUSION_THRESHOLD"),
        ("NCCL_IB_GID", "NCCL_IB_GID_INDEX"),
        ("NCCL_SOCKET_IFACE", "NCCL_SOCKET_IFNAME"),
        # too far: what all names of a library share says nothing
        ("NCCL_FOO", ""),
        ("NCCL_", ""),
        ("HOROVOD_X", ""),
        ("NCCL_IB", ""),
        ("XYZZY", ""),
    ],
)
def test_near(name: str, near: str) -> None:
    assert knobs.closest(name) == near


@pytest.mark.parametrize(
    ("name", "slip"),
    [
        ("btl_tcp_if_inlcude", "btl_tcp_if_include"),
        ("btl_tcp_if_includ", "btl_tcp_if_include"),
        ("btl_tcp_if_incllude", "btl_tcp_if_include"),
        ("btl_tcp_if_includa", "btl_tcp_if_include"),
        ("blt_tcp_if_include", "btl_tcp_if_include"),
        ("BTL_tcp_if_include", "btl_tcp_if_include"),
        ("UCX_NET_DEVICE", "UCX_NET_DEVICES"),
        ("bt1_tcp_if_include", "btl_tcp_if_include"),
        # these exist, and the table has not all of them
        ("btl_tcp_if_include", ""),
        ("btl_tcp_disable_family", ""),
        ("btl_tcp_port_min_v5", ""),
        ("btl_tcp_link5", ""),
        ("bml", ""),
        ("rml", ""),
        ("coll_tuned_allgather_algorithm", ""),
        ("pml_base_verbose", ""),
        ("UCX_RC_TLS", ""),
        ("HOROVD_AUTOTUNE", "HOROVOD_AUTOTUNE"),
        ("NCLL_DEBUG", "NCCL_DEBUG"),
        ("TORCH_NCCL_BLOCKING_WAIT", ""),
    ],
)
def test_slip(name: str, slip: str) -> None:
    assert knobs.one_typo_away(name) == slip


@given(st.sampled_from(NAMES), st.data())
def test_any_letter_left_out_of_a_long_name_is_a_slip(name: str, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(name) - 1))
    typed = name[:index] + name[index + 1 :]
    if name[index].isdigit() or len(typed) < 6 or knobs.find(typed) or typed.endswith("_base_verbose"):
        return
    assert knobs.one_typo_away(typed)


@pytest.mark.parametrize(
    ("name", "strict"),
    [
        ("NCCL_FOO", True),
        ("HOROVOD_X", True),
        ("LIGHT_X", True),
        ("nccl_debug", True),
        ("nccl_foo", False),
        ("NCCL_FASTRAK_ENABLE_HOTPATH_LOGGING", False),
        ("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", False),
        ("NCCL_IBEXT_DISABLE", False),
        ("NCCL_OFI_TUNER_TYPE", False),
        ("NCCL_TUNER_CONFIG_PATH", False),
        ("NCCL_USE_BLOCKING", False),
        ("OFI_NCCL_PROTOCOL", False),
        ("light_mode", False),
        ("UCX_FOO", False),
        ("TORCH_NCCL_BLOCKING_WAIT", False),
        ("btl_foo", False),
        ("PATH", False),
    ],
)
def test_strict(name: str, strict: bool) -> None:
    assert knobs.must_be_known(name) is strict


def test_how_a_library_reads_a_knob_is_said() -> None:
    reads = {
        name: knobs.matching(name)[0].reads
        for name in ("HOROVOD_AUTOTUNE", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "NCCL_PSK")
    }
    assert "strtol" in reads["HOROVOD_AUTOTUNE"]
    assert "strtoll" in reads["NCCL_IB_DISABLE"]
    assert "^ excludes" in reads["NCCL_IB_HCA"]
    assert reads["NCCL_PSK"] == ""
