"""Inventories of Ansible: those in `ansible_ini/` and `ansible_yaml/` give the hosts or the message beside them."""

import json
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.errors import SpecError
from taco_launch.core.model.host.hosts import Inventory
from taco_launch.hosts.inventory.load import parse
from tests.support.document_cases import Cases, check_refused, stem

INI = Cases(Path(__file__).with_name("ansible_ini"), ".ini")
YAML = Cases(Path(__file__).with_name("ansible_yaml"), ".yml")


def told(inventory: Inventory) -> dict[str, Any]:
    hosts = [
        [host.name, host.address, host.port, host.user, host.identity_file, host.connection] for host in inventory.hosts
    ]
    return {
        "cluster": inventory.cluster,
        "hosts": hosts,
        "groups": {name: list(members) for name, members in inventory.groups},
    }


@pytest.mark.parametrize("case", [*INI.good, *YAML.good], ids=stem)
def test_good(case: Path) -> None:
    inventory = parse(case.read_bytes(), f"/etc/{case.name}")
    assert told(inventory) == json.loads(case.with_suffix(".json").read_text("utf-8"))


@pytest.mark.parametrize("case", [*INI.bad, *YAML.bad], ids=stem)
def test_bad(case: Path) -> None:
    check_refused(case, lambda data: parse(data, f"inventory{case.suffix}"))


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    assert INI.unmatched() == YAML.unmatched() == set()


def test_no_password_is_shown() -> None:
    for case in (*INI.bad, *YAML.bad):
        assert "hunter2" not in case.with_suffix(".txt").read_text("utf-8")


@pytest.mark.parametrize("letters", [1, 5, 200])
def test_many_letters_are_refused_in_time(letters: int) -> None:
    text = f"[gpus]\n{'[a:z]' * letters} x=1\n"
    if letters == 1:
        assert len(parse(text.encode(), "inventory").hosts) == 26
    else:
        with pytest.raises(SpecError, match=r"means more than 10000 hosts|longer than any host name"):
            parse(text.encode(), "inventory")
