"""taco-launch knobs: the table, one entry, the formats, unknown names, completion."""

import json

import click
import pytest
import yaml
from click.shell_completion import ShellComplete

from taco_launch.cli.knobs import knobs
from taco_launch.cli.main import cli
from taco_launch.launch.knobs import TABLE
from tests.cli.test_cli import call


def test_the_table_has_them_all() -> None:
    result = call("knobs")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["NAME", "LIBRARY", "DEFAULT", "VALUES", "SINCE", "WHY"]
    assert [line.split()[0] for line in lines[1:]] == [knob.name for knob in TABLE]


def test_a_beginning_shows_those_with_it_each_once() -> None:
    lines = call("knobs", "light_topk", "LIGHT_", "pml").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        "LIGHT_TOPK_ALLREDUCE", "LIGHT_TOPK_RATIO", "LIGHT_TOPK_THRESHOLD", "LIGHT_TOPK_FP16",
        "LIGHT_2D_ALLREDUCE", "LIGHT_INTRA_SIZE", "LIGHT_HIERARCHICAL_THRESHOLD", "pml",
    ]  # fmt: skip
    assert "one in a hundred" in lines[2]


def test_wide_says_more() -> None:
    lines = call("knobs", "oob_tcp_if", "-o", "wide").stdout.splitlines()
    assert lines[0].split()[-4:] == ["UNTIL", "APPLIES", "ALIASES", "SOURCE"]
    assert "prte_if_include" in lines[1]


def test_one_name_is_shown_whole() -> None:
    assert call("knobs", "NCCL_IB_RETRY_CNT").stdout.splitlines() == [
        "Name:       NCCL_IB_RETRY_CNT",
        "Library:    nccl",
        "Given with: --knob NCCL_IB_RETRY_CNT=VALUE or -x NCCL_IB_RETRY_CNT=VALUE",
        "Values:     0 to 7: it has three bits",
        "Read:       as a C number (strtoll): '64M' is 64, '0x10' is 16, '010' is 8",
        "Default:    7",
        "Since:      2.1.15",
        "Applies:    where NCCL goes by IB verbs (InfiniBand or RoCE)",
        (
            "Why:        How often a message is sent again. It has three bits: 13, which is seen in some documents,"
            " does not fit."
        ),
        "Source:     NCCL 2.32, env.rst",
    ]


def test_an_alias_shows_the_entry_of_its_knob() -> None:
    lines = call("knobs", "prte_keep_fqdn_hostnames").stdout.splitlines()
    assert lines[0] == "Name:       orte_keep_fqdn_hostnames"
    assert lines[1] == "Aliases:    prte_keep_fqdn_hostnames"
    assert "--mca orte_keep_fqdn_hostnames VALUE" in lines[3]


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
    [("NCCL_IB_HAC", "did you mean NCCL_IB_HCA?"), ("XYZZY", "taco-launch knobs shows all names")],
)
def test_an_unknown_name(name: str, hint: str) -> None:
    result = call("knobs", "NCCL_DEBUG", name)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"error: no knob begins with '{name}'\nhint: {hint}\n"


def test_names_are_completed() -> None:
    completion = ShellComplete(cli, {}, "taco-launch", "_TACO_LAUNCH_COMPLETE")
    found = completion.get_completions(["knobs"], "LIGHT_T")
    assert [item.value for item in found] == [
        "LIGHT_TOPK_ALLREDUCE", "LIGHT_TOPK_RATIO", "LIGHT_TOPK_THRESHOLD", "LIGHT_TOPK_FP16",
    ]  # fmt: skip
    assert isinstance(knobs, click.Command)
