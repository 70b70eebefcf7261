"""taco-launch knobs: the table, one entry, the formats, unknown names, completion."""

import contextlib
import fcntl
import json
import os
import struct
import subprocess
import sys
import termios

import click
import pytest
import yaml
from click.shell_completion import ShellComplete

from taco_launch.cli.knobs import _clause, knobs
from taco_launch.cli.main import cli
from taco_launch.core.launch.knobs import TABLE
from taco_launch.core.launch.knobs import knob as knob_rows
from tests.support.command_line import call, succeeding

LIBRARIES = tuple(dict.fromkeys(knob.library for knob in TABLE))


def test_the_table_has_them_all() -> None:
    result = succeeding("knobs")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["NAME", "DEFAULT", "WHY"]
    titles = [line for line in lines if line.endswith(":") and " " not in line.replace("Open MPI", "")]
    assert titles == [f"{knob_rows.LIBRARIES[library]}:" for library in LIBRARIES]
    by_library = {library: [knob.name for knob in TABLE if knob.library == library] for library in LIBRARIES}
    shown = [line.split()[0] for line in lines[1:] if line and line not in titles]
    assert shown == [name for names in by_library.values() for name in names]


def test_a_beginning_shows_those_with_it_each_once() -> None:
    lines = call("knobs", "light_topk", "LIGHT_", "pml").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:] if line and not line.endswith(":")] == [
        "LIGHT_TOPK_ALLREDUCE", "LIGHT_TOPK_RATIO", "LIGHT_TOPK_THRESHOLD", "LIGHT_TOPK_FP16",
        "LIGHT_2D_ALLREDUCE", "LIGHT_INTRA_SIZE", "LIGHT_HIERARCHICAL_THRESHOLD", "pml",
    ]  # fmt: skip
    assert lines[4].endswith("  Which share of the values is sent")


def test_wide_says_more() -> None:
    lines = call("knobs", "oob_tcp_if", "-o", "wide").stdout.splitlines()
    assert lines[0].split() == [
        "NAME", "LIBRARY", "DEFAULT", "VALUES", "SINCE", "UNTIL", "APPLIES", "ALIASES", "WHY", "SOURCE",
    ]  # fmt: skip
    assert "prte_if_include" in lines[1]
    assert "and the start hangs." in lines[1]


@pytest.mark.parametrize(
    ("why", "clause"),
    [
        ("Which HCAs are used. Each name is a prefix.", "Which HCAs are used"),
        ("Traffic class; on RoCE the DSCP times 4.", "Traffic class"),
        ("NVLink SHARP: 0 off.", "NVLink SHARP"),
        ("Forces a network by name, and fails where it is not available.", "Forces a network by name"),
        ("GPUDirect RDMA, before 2.4.", "GPUDirect RDMA, before 2.4"),
        ("Adds to ::1 and a.b.", "Adds to ::1 and a.b"),
    ],
)
def test_a_reason_is_shortened_to_its_first_clause(why: str, clause: str) -> None:
    assert _clause(why) == clause


def on_a_terminal(width: int, *args: str) -> list[str]:
    """Return the lines that a terminal of this width is sent."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environ = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    environ |= {"NO_COLOR": "1", "PAGER": "cat"}
    with subprocess.Popen([sys.executable, "-m", "taco_launch", *args], stdout=slave, env=environ) as process:
        os.close(slave)
        text = b""
        # Linux ends the reading of a terminal that nobody writes to any more with EIO
        with contextlib.suppress(OSError):
            while chunk := os.read(master, 65536):
                text += chunk
    os.close(master)
    assert process.returncode == 0
    assert text.endswith(b"\n")
    return text.decode().splitlines()


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_is_cut_to_the_width_of_a_terminal(width: int) -> None:
    lines = on_a_terminal(width, "knobs")
    assert max(map(len, lines)) <= width
    assert {line.split()[0] for line in lines if line} >= {knob.name for knob in TABLE}
    assert any(line.endswith("...") for line in lines)


def test_a_terminal_too_narrow_for_names_gets_them_whole() -> None:
    lines = on_a_terminal(20, "knobs", "orte_keep", "orte_tag")
    assert lines[-2].split() == ["orte_keep_fqdn_hostnames", "0", "Keeps", "h..."]


def test_one_name_is_shown_whole() -> None:
    assert call("knobs", "NCCL_IB_RETRY_CNT").stdout.splitlines() == [
        "Name:       NCCL_IB_RETRY_CNT",
        "Library:    nccl",
        "Given with: --knob NCCL_IB_RETRY_CNT=7 or -x NCCL_IB_RETRY_CNT=7",
        "Values:     0 to 7: the value has three bits",
        "Read:       as a C number (strtoll): '64M' is 64, '0x10' is 16, '010' is 8",
        "Default:    7",
        "Since:      2.1.15",
        "Applies:    where NCCL uses IB verbs (InfiniBand or RoCE)",
        (
            "Why:        How often a message is sent again. The value has three bits: 13, which is seen in some documents,"
            " does not fit."
        ),
        "Source:     NCCL 2.32, env.rst",
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NCCL_DEBUG", "--knob NCCL_DEBUG=INFO or -x NCCL_DEBUG=INFO"),
        ("NCCL_PSK", "--knob NCCL_PSK=VALUE or -x NCCL_PSK=VALUE"),
        ("OMPI_ALLOW_RUN_AS_ROOT", "exported in the shell that starts taco-launch"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "exported in the shell that starts taco-launch"),
        ("HOROVOD_START_TIMEOUT", "nothing in taco-launch: it starts mpirun, not horovodrun"),
        ("mca_base_env_list", "-x NAME=VALUE instead"),
    ],
)
def test_how_it_is_given(name: str, said: str) -> None:
    assert f"\nGiven with: {said}\n" in call("knobs", name).stdout


def test_a_name_that_is_read_no_more_is_not_offered() -> None:
    text = call("knobs", "NCCL_IB_CUDA_SUPPORT").stdout
    assert "Given with:" not in text
    assert "\nInstead:    NCCL_NET_GDR_LEVEL\n" in text


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("nccl_ib_hca", "NCCL_IB_HCA"),
        ("NCCL_IB_HC", "NCCL_IB_HCA"),
        ("topk_ratio", "LIGHT_TOPK_RATIO"),
        ("OMPI_MCA_btl", "btl"),
        ("PRTE_MCA_plm_ssh_args", "plm_rsh_args"),
    ],
)
def test_what_only_one_has_is_shown_whole(given: str, name: str) -> None:
    text = call("knobs", given).stdout
    assert text.startswith(f"Name:       {name}\n")
    assert text.endswith("\n")
    (found,) = json.loads(call("knobs", given, "--json").stdout)["knobs"]
    assert found["name"] == name


@pytest.mark.parametrize("args", [[], ["LIGHT_"], ["NCCL_NET"], ["-o", "wide"], ["--json"], ["-o", "yaml"]])
def test_every_output_ends_in_one_newline(args: list[str]) -> None:
    text = call("knobs", *args).stdout
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_an_alias_shows_the_entry_of_its_knob() -> None:
    lines = call("knobs", "prte_keep_fqdn_hostnames").stdout.splitlines()
    assert lines[0] == "Name:       orte_keep_fqdn_hostnames"
    assert lines[1] == "Aliases:    prte_keep_fqdn_hostnames"
    assert "--mca orte_keep_fqdn_hostnames 1" in lines[3]


@pytest.mark.parametrize("option", [["--json"], ["-o", "json"], ["-o", "yaml"]])
def test_data(option: list[str]) -> None:
    text = call("knobs", "HOROVOD_FUSION_THRESHOLD", *option).stdout
    (found,) = (yaml.safe_load if "yaml" in option else json.loads)(text)["knobs"]
    assert next(iter(found)) == "name"
    assert found["name"] == "HOROVOD_FUSION_THRESHOLD"
    assert (found["library"], found["unit"], found["default"]) == ("horovod", "bytes", "134217728")
    assert found["values"] == "a whole number of bytes from 0"
    assert found["source"] == "Horovod 0.28, common/operations.cc"


def test_data_of_all() -> None:
    found = json.loads(call("knobs", "--json").stdout)["knobs"]
    assert [knob["name"] for knob in found] == [knob.name for knob in TABLE]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("NCCL_IB_HAC", "did you mean NCCL_IB_HCA?"), ("XYZZY", "list all knobs: taco-launch knobs")],
)
def test_an_unknown_name(name: str, hint: str) -> None:
    result = call("knobs", "NCCL_DEBUG", name)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"error: no knob matches '{name}'\nhint: {hint}\n"


def test_names_are_completed() -> None:
    completion = ShellComplete(cli, {}, "taco-launch", "_TACO_LAUNCH_COMPLETE")
    found = completion.get_completions(["knobs"], "LIGHT_T")
    assert [item.value for item in found] == [
        "LIGHT_TOPK_ALLREDUCE", "LIGHT_TOPK_RATIO", "LIGHT_TOPK_THRESHOLD", "LIGHT_TOPK_FP16",
    ]  # fmt: skip
    assert completion.get_completions(["knobs"], "fusion") == []
    assert isinstance(knobs, click.Command)
