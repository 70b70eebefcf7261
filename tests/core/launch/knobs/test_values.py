"""Values of knobs: which pass as they are, which are refused and why, and what people's forms become."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.launch.knobs import TABLE, Knob
from taco_launch.core.launch.knobs.values import normalise, verbatim

RIGHT = """
NCCL_DEBUG=INFO
NCCL_DEBUG=info
NCCL_DEBUG=
NCCL_DEBUG=ATTN
NCCL_DEBUG_SUBSYS=INIT,NET,ENV
NCCL_DEBUG_SUBSYS=^coll,ALL
NCCL_DEBUG_FILE=/tmp/nccl.%h.%p
NCCL_DEBUG_TIMESTAMP_FORMAT=
NCCL_IB_DISABLE=0
NCCL_SOCKET_IFNAME=bond0
NCCL_SOCKET_IFNAME=eth1
NCCL_SOCKET_IFNAME==ens1f0,eth0
NCCL_SOCKET_IFNAME=^docker,lo
NCCL_SOCKET_IFNAME=^=docker0
NCCL_IB_GID_INDEX=3
NCCL_IB_GID_INDEX=-1
NCCL_NET_GDR_LEVEL=0
NCCL_NET_GDR_LEVEL=2
NCCL_NET_GDR_LEVEL=9
NCCL_NET_GDR_LEVEL=5
NCCL_NET_GDR_LEVEL=P2C
NCCL_NET_GDR_LEVEL=PXB
NCCL_P2P_LEVEL=NVL
NCCL_NET_GDR_READ=-2
NCCL_IB_HCA=mlx5
NCCL_IB_HCA=mlx5_0
NCCL_IB_HCA=mlx5_10
NCCL_IB_HCA==mlx5_1
NCCL_IB_HCA=^=mlx5_1,mlx5_4
NCCL_IB_HCA==mlx5_0:1,mlx5_1:1
NCCL_IB_HCA=mlx5_0::0:0
NCCL_IB_HCA=rocep175s0f1
NCCL_IB_TIMEOUT=22
NCCL_IB_TIMEOUT=0
NCCL_IB_TIMEOUT=40
NCCL_IB_RETRY_CNT=7
NCCL_IB_TC=0x6a
NCCL_IB_ADDR_RANGE=10.1.0.0/16
NCCL_IB_ADDR_RANGE=fd00::/8
NCCL_NET=ib
NCCL_NET=AWS Libfabric
NCCL_NTHREADS=512
NCCL_ALGO=RING
NCCL_ALGO=^tree
NCCL_ALGO=ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring
NCCL_ALGO=allreduce:^tree
NCCL_PROTO=simple,LL
NCCL_RAS_ADDR=[::1]:28028
NCCL_RAS_TIMEOUT_FACTOR=0.5
NCCL_PSK=abcdefghijklmnopqrstuvwxyz012345
NCCL_MAX_NRINGS=4
NCCL_THREAD_THRESHOLDS=anything goes
NCCL_NOT_IN_THE_TABLE=whatever
HOROVOD_FUSION_THRESHOLD=0
HOROVOD_FUSION_THRESHOLD=67108864
HOROVOD_FUSION_THRESHOLD=2147483648
HOROVOD_CYCLE_TIME=0
HOROVOD_CYCLE_TIME=3.5
HOROVOD_CYCLE_TIME=.5
HOROVOD_CYCLE_TIME=1e-1
HOROVOD_HIERARCHICAL_ALLREDUCE=1
HOROVOD_LOG_LEVEL=DEBUG
HOROVOD_CONTROLLER=mpi
HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE=1
LIGHT_TOPK_RATIO=1
LIGHT_TOPK_RATIO=0.01
LIGHT_TOPK_THRESHOLD=2097152
LIGHT_INTRA_SIZE=8
pml=ob1
pml=^ucx
btl=self,vader,tcp
btl=^openib
btl=^openib,self
btl=tcp
btl=self,tcp,my_own
pml=ob2
mtl=psm3
coll=^hcoll
plm=slurm
btl_tcp_if_include=eth0,10.0.0.0/16
btl_tcp_if_exclude=127.0.0.1/8,sppp
btl_tcp_sndbuf=1m
oob_tcp_dynamic_ipv4_ports=40000-40999,50000
oob_tcp_keepalive_time=-1
btl_base_verbose=max
oob_base_verbose=none
plm_base_verbose=100
btl_base_verbose=-1
NCCL_BLOCKING_WAIT=true
NCCL_BLOCKING_WAIT=
NCCL_TESTS_MIN_BW=10G
btl_tcp_links=1k
orte_keep_fqdn_hostnames=t
prte_keep_fqdn_hostnames=true
btl_vader_single_copy_mechanism=none
btl_vader_single_copy_mechanism=3
plm_rsh_args=-p 12222 -o BatchMode=yes
OMPI_ALLOW_RUN_AS_ROOT=1
UCX_RNDV_THRESH=8kb
UCX_LOG_LEVEL=diag
PATH=
"""

# (given, what is wrong with it, the hint)
WRONG = [
    ("HOROVOD_HIERARCHICAL_ALLREDUCE=true", "Horovod reads this number with strtol: 'true' is 0, which is off",
     "write 1, or --knob HOROVOD_HIERARCHICAL_ALLREDUCE=true"),
    ("HOROVOD_AUTOTUNE=1x", "'1x' is 1, which is on", "must be 0 or 1"),
    ("HOROVOD_AUTOTUNE=2", "must be 0 or 1", ""),
    ("HOROVOD_FUSION_THRESHOLD=64M", "'64M' is 64 bytes", "write 67108864, or --knob HOROVOD_FUSION_THRESHOLD=64M"),
    ("HOROVOD_FUSION_THRESHOLD=-1", "must be a whole number of bytes from 0", ""),
    ("HOROVOD_FUSION_THRESHOLD=99999999999999999999", "is too large: Horovod stores it in 63 bits", ""),
    ("HOROVOD_CYCLE_TIME=1ms", "with strtof: '1ms' is 1 milliseconds", "write 1, or"),
    ("HOROVOD_CYCLE_TIME=0.5s", "'0.5s' is 0.5 milliseconds", "write 500, or"),
    ("HOROVOD_CYCLE_TIME=nan", "'nan' is 0 milliseconds", ""),
    ("HOROVOD_CYCLE_TIME=1e999", "is too large", ""),
    ("HOROVOD_CYCLE_TIME=", "is empty, which Horovod does not treat as unset", ""),
    ("HOROVOD_STALL_CHECK_TIME_SECONDS=1.5", "'1.5' is 1 seconds", "must be a whole number of seconds"),
    ("HOROVOD_STALL_CHECK_TIME_SECONDS=4294967296", "31 bits", ""),
    ("HOROVOD_LOG_LEVEL=loud", "must be trace, debug", ""),
    ("HOROVOD_TIMELINE=~/trace", "does not expand ~", "write the absolute path"),
    ("NCCL_NET_GDR_LEVEL=pxb", "in upper case; anything else it ignores without a message",
     "write PXB, or --knob NCCL_NET_GDR_LEVEL=pxb"),
    ("NCCL_NET_GDR_LEVEL=NODE", "NCCL knows LOC (never), PIX, PXB, PHB, SYS", "write PHB"),
    ("NCCL_NET_GDR_LEVEL=-1", "starts with -: NCCL ignores it", "write LOC for never"),
    ("NCCL_NET_GDR_LEVEL=+2", "starts with +: NCCL ignores it", "write 2"),
    ("NCCL_NET_GDR_LEVEL=010", "as octal: 010 is not 10", "write 10"),
    ("NCCL_NET_GDR_LEVEL=7x", "5 and more for SYS, in upper case", ""),
    ("NCCL_IB_TIMEOUT=" + "9" * 5000, "has 5000 characters", ""),
    ("HOROVOD_CYCLE_TIME=" + "9" * 5000 + "ms", "has 5002 characters", ""),
    ("NCCL_NET_GDR_LEVEL=NVL", "NCCL knows", ""),
    ("NCCL_IB_RETRY_CNT=13", "must be 0 to 7: the value has three bits", ""),
    ("NCCL_IB_SL=16", "must be a whole number from 0 to 15", ""),
    ("NCCL_IB_TC=256", "must be", ""),
    ("NCCL_IB_GID_INDEX=-2", "must be", ""),
    ("NCCL_IB_TIMEOUT=022", "starts with 0 as octal: 022 is not 22", "write 22"),
    ("NCCL_IB_TIMEOUT=22s", "'22s' is 22", ""),
    ("NCCL_IB_DISABLE=false", "strtoll: 'false' is 0, which is off", "write 0, or --knob NCCL_IB_DISABLE=false"),
    ("NCCL_IB_DISABLE=yes", "'yes' is 0, which is off", "write 1, or"),
    ("NCCL_BUFFSIZE=8MiB", "'8MiB' is 8 bytes", "write 8388608, or"),
    ("NCCL_NTHREADS=100", "must be 64, 128, 256 or 512", ""),
    ("NCCL_DEBUG=VERBOSE", "with any other word it logs nothing at all", ""),
    ("NCCL_DEBUG_SUBSYS=INIT,NETT", "'NETT' is not one of", ""),
    ("NCCL_DEBUG_SUBSYS=INIT,^COLL", "'^COLL' is not one of", "at the very start"),
    ("NCCL_DEBUG_FILE=~/nccl.%p", "NCCL does not expand ~", "write the absolute path"),
    ("NCCL_SOCKET_FAMILY=af_inet", "in exactly this spelling: NCCL ignores anything else", "write AF_INET, or"),
    ("NCCL_IB_CUDA_SUPPORT=1", "NCCL stopped reading it in 2.4", "use NCCL_NET_GDR_LEVEL"),
    ("NCCL_IB_GDR_LEVEL=2", "stopped reading it in 2.4", "use NCCL_NET_GDR_LEVEL"),
    ("NCCL_TREE_THRESHOLD=1", "stopped reading it in 2.5", "use NCCL_ALGO"),
    ("NCCL_IB_HCA=mlx5_1", "is a prefix: mlx5_1 also includes mlx5_10 to mlx5_19", "write =mlx5_1"),
    ("NCCL_IB_HCA=mlx5_0,mlx5_2:1", "mlx5_2 also includes", "write =mlx5_0,mlx5_2:1"),
    ("NCCL_IB_HCA=mlx5_bond_1", "mlx5_bond_1 also includes", "write =mlx5_bond_1"),
    ("NCCL_IB_HCA=mlx5_11", "mlx5_11 also includes mlx5_110", "write =mlx5_11"),
    ("NCCL_IB_HCA=^mlx5_1", "mlx5_1 also excludes mlx5_10", "write ^=mlx5_1"),
    ("NCCL_IB_HCA==mlx5_0,=mlx5_1", "'=mlx5_1': ^ and = may only stand at the start", "write =mlx5_0,mlx5_1"),
    ("NCCL_IB_HCA=mlx5_0,^mlx5_1", "'^mlx5_1': ^ and = may only stand", "not both"),
    ("NCCL_IB_HCA==^mlx5_0", "^ first, and apply to all of it", "not both"),
    ("NCCL_IB_HCA==mlx5_0,", "has an empty item in place of the name of an HCA", ""),
    ("NCCL_IB_HCA==", "has an empty item in place of the name of an HCA", ""),
    ("NCCL_IB_HCA==mlx5_0, mlx5_1", "' mlx5_1' has a space in it", ""),
    ("NCCL_IB_HCA==mlx5_0:0", "ports are counted from 1", "mlx5_0 alone"),
    ("NCCL_IB_HCA==mlx5_0:a", "'mlx5_0:a' is not HCA[:PORT[:RAIL[:PLANE]]]", ""),
    ("NCCL_IB_HCA==mlx5_0:1:1:1:1", "is not HCA", ""),
    ("NCCL_IB_HCA==" + ",".join(f"mlx5_{index}" for index in range(33)), "names 33 HCAs", ""),
    ("NCCL_SOCKET_IFNAME=eth0,=eth1", "'=eth1'", "write =eth0,eth1"),
    ("NCCL_SOCKET_IFNAME=eth0,,eth1", "has an empty item in place of the name of an interface", ""),
    ("NCCL_SOCKET_IFNAME=eth0/24", "is not an interface", ""),
    ("NCCL_SOCKET_IFNAME=10.0.0.1", "'10.0.0.1' is an address, and NCCL requires names of interfaces", "=bond0"),
    ("NCCL_SOCKET_IFNAME==eth0,fe80::1", "'fe80::1' is an address", ""),
    ("NCCL_SOCKET_IFNAME=10.0.0.0/16", "'10.0.0.0/16' is a network", ""),
    ("NCCL_ALGO=rong", "'rong' is not one of Ring, Tree", ""),
    ("NCCL_ALGO=ring;tree", "'tree' has no FUNCTION: in front", "such as"),
    ("NCCL_ALGO=allredcue:ring", "'allredcue' is not one of broadcast", ""),
    ("NCCL_PROTO=LL64", "'LL64' is not one of LL", ""),
    ("NCCL_IB_ADDR_RANGE=10.0.0.0", "is not a network", "10.0.0.0/16"),
    ("NCCL_RAS_ADDR=localhost", "is not HOST:PORT", ""),
    ("NCCL_RAS_ADDR=localhost:0", "is not HOST:PORT", ""),
    ("NCCL_RAS_TIMEOUT_FACTOR=0", "must be a number above 0", ""),
    ("NCCL_PSK=short", "is shorter than 32 characters", ""),
    ("LIGHT_TOPK_RATIO=0", "must be a number above 0, at most 1", ""),
    ("LIGHT_TOPK_RATIO=1.1", "must be a number above 0, at most 1", ""),
    ("LIGHT_TOPK_RATIO=1%", "how LightCC reads any other value is not documented", ""),
    ("LIGHT_2D_ALLREDUCE=on", "must be 0 or 1", "write 1, or --knob LIGHT_2D_ALLREDUCE=on"),
    ("LIGHT_TOPK_THRESHOLD=2M", "must be a whole number of bytes", "write 2097152, or"),
    ("LIGHT_INTRA_SIZE=0", "must be a whole number from 1", ""),
    ("LIGHT_INTRA_SIZE=", "is empty", ""),
    ("btl=tcp,^openib", "has a ^ inside", "include or exclude"),
    ("btl=tcp, self", "' self' is not a component", "did you mean 'self'?"),
    ("btl=tcp,se+lf,x", "'se+lf' is not a component of btl", "did you mean 'self'?"),
    ("btl=self,a.b", "'a.b' is not a component: lower-case letters", ""),
    ("btl=self,tpc", "'tpc' is not a component of btl", "did you mean 'tcp'?"),
    ("btl=^openbi", "'openbi' is not a component of btl", "did you mean 'openib'?"),
    ("btl=self,TCP", "'TCP' is not a component of btl", "did you mean 'tcp'?"),
    ("pml=obi", "'obi' is not a component of pml", "did you mean 'ob1'?"),
    ("smsc=^cna", "'cna' is not a component of smsc", "did you mean 'cma'?"),
    ("btl_tcp_if_include=^docker0", "without ^ and =", ""),
    ("btl_tcp_if_include=10.0.0.1", "is an address", "write 10.0.0.1/32"),
    ("btl_tcp_if_include=10.0.0.0/40", "is not a network", ""),
    ("btl_tcp_if_include=eth0,", "nothing between two commas", ""),
    ("btl_tcp_if_include=a_name_of_an_interface", "is neither an interface nor a network", ""),
    ("btl_tcp_links=2x", "Open MPI reads this number as C does: '2x' is 2", ""),
    ("btl_tcp_port_min_v4=65536", "must be a whole number from 1 to 65535", ""),
    ("oob_tcp_dynamic_ipv4_ports=40999-40000", "neither a port nor a range", ""),
    ("orte_keep_fqdn_hostnames=yes", "Open MPI 5 reads 'yes' as off", "write 1, or --knob orte_keep"),
    ("btl_vader_single_copy_mechanism=CMA", "must be cma, xpmem", "write cma, or"),
    ("plm_rsh_args=-i '/my key'", "does not interpret quotes", ""),
    ("OMPI_ALLOW_RUN_AS_ROOT=true", "must be 1", ""),
    ("pml=", "is empty", ""),
    ("btl_base_verbose=loud", "must be none, error, component, warn, info, trace, debug, max, or a number from -1", ""),
    ("btl_base_verbose=1k", "must be none, error", ""),
    ("plm_base_verbose=101", "or a number from -1 to 100", ""),
    ("oob_tcp_keepalive_time=2m", "Open MPI reads '2m' as 2 times 1048576 seconds",
     "write 120, or --knob oob_tcp_keepalive_time=2m"),
    ("oob_tcp_keepalive_intvl=1k", "'1k' as 1 times 1024 seconds", "must be a whole number of seconds"),
    ("oob_tcp_keepalive_time=20s", "'20s' is 20 seconds", "write 20, or --knob oob_tcp_keepalive_time=20s"),
]  # fmt: skip

NORMAL = [
    ("HOROVOD_FUSION_THRESHOLD", "64MiB", "67108864"),
    ("HOROVOD_FUSION_THRESHOLD", "64M", "67108864"),
    ("HOROVOD_FUSION_THRESHOLD", " 64 mb ", "67108864"),
    ("HOROVOD_FUSION_THRESHOLD", "1.5GiB", "1610612736"),
    ("HOROVOD_FUSION_THRESHOLD", "0", "0"),
    ("HOROVOD_FUSION_THRESHOLD", "100b", "100"),
    ("HOROVOD_HIERARCHICAL_ALLREDUCE", "true", "1"),
    ("HOROVOD_HIERARCHICAL_ALLREDUCE", "OFF", "0"),
    ("HOROVOD_CYCLE_TIME", "1ms", "1"),
    ("HOROVOD_CYCLE_TIME", "0.5s", "500"),
    ("HOROVOD_CYCLE_TIME", "100us", "0.1"),
    ("HOROVOD_STALL_CHECK_TIME_SECONDS", "2min", "120"),
    ("HOROVOD_STALL_CHECK_TIME_SECONDS", "1h", "3600"),
    ("HOROVOD_STALL_CHECK_TIME_SECONDS", "5000ms", "5"),
    ("HOROVOD_LOG_LEVEL", "DEBUG", "debug"),
    ("NCCL_SOCKET_RETRY_SLEEP_MSEC", "1s", "1000"),
    ("oob_tcp_keepalive_time", "2m", "120"),
    ("oob_tcp_keepalive_time", "30s", "30"),
    ("HOROVOD_CYCLE_TIME", "1m", "60000"),
    ("oob_base_verbose", "MAX", "max"),
    ("btl_tcp_sndbuf", "1m", "1048576"),
    ("NCCL_NET_GDR_LEVEL", "pxb", "PXB"),
    ("NCCL_DEBUG", "info", "INFO"),
    ("NCCL_DEBUG_SUBSYS", "^init, net", "^INIT,NET"),
    ("NCCL_NET", "socket", "Socket"),
    ("NCCL_NET", "my-plugin", "my-plugin"),
    ("NCCL_IB_HCA", "=mlx5_1", "=mlx5_1"),
    ("NCCL_BUFFSIZE", "8MiB", "8388608"),
    ("LIGHT_TOPK_THRESHOLD", "2m", "2097152"),
    ("LIGHT_2D_ALLREDUCE", "yes", "1"),
    ("orte_keep_fqdn_hostnames", "yes", "1"),
    ("btl_vader_single_copy_mechanism", "None", "none"),
    ("NOT_IN_THE_TABLE", " 64M ", " 64M "),
]


def refusal(check: Callable[[str, str], object], name: str, text: str) -> tuple[str, str] | None:
    """Return the problem and the hint with which a value is refused, None where it passes."""
    try:
        check(name, text)
    except ValueError as error:
        problem, hint = error.args
        return problem, hint
    return None


def split(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


@pytest.mark.parametrize("given", RIGHT.split("\n")[1:-1])
def test_right_values_pass(given: str) -> None:
    verbatim(*split(given))


@pytest.mark.parametrize(("given", "problem", "hint"), WRONG)
def test_wrong_values_are_refused_with_the_reason(given: str, problem: str, hint: str) -> None:
    found = refusal(verbatim, *split(given))
    assert found
    assert problem in found[0]
    assert hint in found[1]
    assert bool(hint) or "write" not in found[1]


@pytest.mark.parametrize(("name", "text", "value"), NORMAL)
def test_what_people_write_becomes_what_the_library_reads(name: str, text: str, value: str) -> None:
    assert normalise(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("NCCL_IB_HCA", "mlx5_1"),
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "0.5s"),
        ("HOROVOD_FUSION_THRESHOLD", "64 apples"),
        ("HOROVOD_FUSION_THRESHOLD", "64bib"),
        ("HOROVOD_FUSION_THRESHOLD", "64s"),
        ("HOROVOD_FUSION_THRESHOLD", "0.3b"),
        ("HOROVOD_CYCLE_TIME", "1M"),
        ("HOROVOD_AUTOTUNE", "maybe"),
        ("NCCL_IB_RETRY_CNT", "13"),
        ("NCCL_IB_CUDA_SUPPORT", "1"),
        ("NCCL_NET_GDR_LEVEL", "node"),
        ("NCCL_DEBUG", "verbose"),
    ],
)
def test_what_cannot_be_meant_stays_refused(name: str, text: str) -> None:
    assert refusal(normalise, name, text)


TEXTS = st.one_of(
    st.text(max_size=12),
    st.from_regex(re.compile(r"[\^=]{0,2}[a-zA-Z0-9_.,:;/%~+-]{0,20}"), fullmatch=True),
    st.from_regex(re.compile(r"[0-9]{1,22}\.?[0-9]{0,3} ?[a-zA-Z]{0,4}"), fullmatch=True),
)


@given(st.sampled_from(TABLE), TEXTS)
def test_a_value_is_refused_or_its_normal_form_passes_and_stays(knob: Knob, text: str) -> None:
    found = refusal(normalise, knob.name, text)
    if found:
        assert found[0]
        return
    value = normalise(knob.name, text)
    verbatim(knob.name, value)
    assert normalise(knob.name, value) == value


@given(st.sampled_from([knob for knob in TABLE if knob.kind not in ("switch", "words")]), TEXTS)
def test_what_passes_as_it_is_passes_as_a_knob_and_changes_its_case_at_most(knob: Knob, text: str) -> None:
    scaled = knob.library == "openmpi" and knob.unit == "bytes" and text[-1:].isalpha()  # Open MPI reads 1m as well
    if refusal(verbatim, knob.name, text) is None and text == text.strip() and not scaled:
        assert normalise(knob.name, text).lower() == text.lower()


@given(st.integers(0, 2**40))
def test_sizes_with_and_without_a_unit_agree(size: int) -> None:
    assert normalise("HOROVOD_FUSION_THRESHOLD", f"{size}KiB") == str(size * 1024)
    assert normalise("HOROVOD_FUSION_THRESHOLD", str(size)) == str(size)
