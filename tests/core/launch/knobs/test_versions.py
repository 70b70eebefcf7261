"""Knobs that a declared version does not read: not yet, no more, or better left out; and those it does."""

import pytest

from taco_launch.core.launch.knobs.remarks import by_version, remarks

OLD = {"nccl": "2.9.9", "openmpi": "4.1.4", "horovod": "0.25.0"}
NEW = {"nccl": "2.27.3", "openmpi": "5.0.11", "horovod": "0.28.1"}
GUIDE = (
    "NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_IB_GID_INDEX", "NCCL_NET_GDR_LEVEL", "LIGHT_INTRA_SIZE",
    "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "LIGHT_2D_ALLREDUCE", "LIGHT_TOPK_ALLREDUCE", "btl", "pml",
    "btl_tcp_if_include", "PATH", "UCX_TLS",
)  # fmt: skip
ADDED, REMOVED = "Open MPI 4.1.4 does not read it: it was added in 5.0", "no longer reads it: it was removed in 5.0"


@pytest.mark.parametrize(
    ("versions", "name", "said"),
    [
        (OLD, "NCCL_IB_ADDR_RANGE", "NCCL 2.9.9 does not read it: it was added in 2.21"),
        (OLD, "NCCL_NET", "NCCL 2.9.9 does not read it: it was added in 2.10"),
        (OLD, "HOROVOD_TORUS_ALLREDUCE", "Horovod 0.25.0 does not read it: it was added in 0.26"),
        (OLD, "smsc", ADDED),
        (OLD, "prte_keep_fqdn_hostnames", f"{ADDED}; write orte_keep_fqdn_hostnames"),
        (NEW, "orte_keep_fqdn_hostnames", f"Open MPI 5.0.11 {REMOVED}; write prte_keep_fqdn_hostnames"),
        (NEW, "orte_tag_output", f"Open MPI 5.0.11 {REMOVED} (5.0: --output tag)"),
        ({"openmpi": "5"}, "btl_openib_allow_ib", f"Open MPI 5 {REMOVED}"),
        (NEW, "NCCL_IB_GID_INDEX", "NCCL 2.27.3 finds the index of each host by itself: better omit it"),
        ({"nccl": "2.21"}, "NCCL_IB_GID_INDEX", "NCCL 2.21 finds the index of each host by itself: better omit it"),
        ({"nccl": "2.22.1"}, "NCCL_IB_FIFO_TC", "NCCL 2.22.1 does not read it: it was added in 2.22.3"),
    ],
)
def test_what_a_version_does_not_read(versions: dict[str, str], name: str, said: str) -> None:
    assert by_version(((name, "3"),), versions) == (f"{name}: {said}",)


@pytest.mark.parametrize(
    ("versions", "name"),
    [
        (NEW, "NCCL_IB_ADDR_RANGE"),
        (NEW, "HOROVOD_TORUS_ALLREDUCE"),
        (NEW, "smsc"),
        (NEW, "prte_keep_fqdn_hostnames"),
        (NEW, "plm_rsh_args"),
        (OLD, "plm_ssh_args"),
        (OLD, "orte_keep_fqdn_hostnames"),
        (OLD, "NCCL_IB_GID_INDEX"),
        ({"nccl": "2.22"}, "NCCL_IB_FIFO_TC"),  # 2.22.3 may be meant
        ({"nccl": "2"}, "NCCL_IB_ADDR_RANGE"),
        ({}, "NCCL_IB_ADDR_RANGE"),
        ({"openmpi": "4.1.4"}, "NCCL_IB_ADDR_RANGE"),
        (OLD, "NCCL_BLOCKING_WAIT"),
    ],
)
def test_what_it_reads_or_nobody_knows(versions: dict[str, str], name: str) -> None:
    assert by_version(((name, "1"),), versions) == ()


def test_a_gid_index_that_is_none_is_left_alone() -> None:
    assert by_version((("NCCL_IB_GID_INDEX", "-1"),), NEW) == ()
    assert len(by_version((("NCCL_IB_GID_INDEX", None),), NEW)) == 1


@pytest.mark.parametrize("value", ["3", None])
def test_the_gid_index_is_spoken_of_once(value: str | None) -> None:
    pairs = (("NCCL_IB_GID_INDEX", value),)
    assert len(remarks(pairs) + by_version(pairs, NEW)) == 1


def test_the_guides_line_on_its_own_stack_has_nothing_that_is_not_read() -> None:
    assert by_version(tuple((name, "1") for name in GUIDE), OLD) == ()


def test_remarks_come_in_the_order_of_the_knobs() -> None:
    found = by_version((("NCCL_NET", "IB"), ("NCCL_DEBUG", "INFO"), ("smsc", "cma")), OLD)
    assert [remark.partition(":")[0] for remark in found] == ["NCCL_NET", "smsc"]


@pytest.mark.parametrize("versions", [{}, OLD])
@pytest.mark.parametrize(
    ("name", "newest"),
    [
        ("NCCL_NOT_IN_THE_TABLE", "NCCL up to 2.32"),
        ("HOROVOD_NEW", "Horovod up to 0.28"),
        ("LIGHT_THEME", "LightCC of TACO Training 0.3"),
    ],
)
def test_a_name_that_a_newer_library_may_have(versions: dict[str, str], name: str, newest: str) -> None:
    said = f"{name}: not known to taco-launch, which knows {newest}: it is passed on unchanged"
    assert by_version(((name, "1"),), versions) == (said,)


def test_names_of_plugins_and_of_programs_are_theirs() -> None:
    assert by_version((("NCCL_OFI_X", "1"), ("TORCH_NCCL_NEW", "1"), ("MY_OWN", "1")), {}) == ()
