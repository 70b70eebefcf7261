"""check: its table, what is told of findings, exit codes, JSON, JUnit XML and history."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from taco_launch.cli.main import cli
from taco_launch.core.errors import HostError
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent
from taco_launch.core.model.host.facts import Disk, Firewall, HostFacts
from taco_launch.core.model.host.health import MemoryErrors, Xid
from taco_launch.core.model.slots import Drain, Override
from taco_launch.hosts import drains
from taco_launch.hosts.fanout import Answer, Fanout
from tests.support.command_line import call
from tests.support.host_facts import GIB, checked, known

INVENTORY = 'cluster: played\nhosts:\n  gpu[1-3]: {address: "10.0.0.[1-3]"}\n'
REFUSED = Answer[HostFacts](
    "gpu3", error=HostError("gpu3: no TCP connection to 10.0.0.3:22: Connection refused", "ssh gpu3")
)


def facts(number: int, **health: Any) -> HostFacts:
    return checked(f"gpu{number}", **health)


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Call `check` on three hosts that give these answers."""
    monkeypatch.setenv("TACO_LAUNCH_STATE", str(tmp_path / "state"))
    (tmp_path / "cluster.yaml").write_text(INVENTORY)
    monkeypatch.setattr(drains, "read", lambda fanout: tuple(Answer(each.name) for each in fanout.transports))

    def run(answers: Sequence[Answer[HostFacts]], *args: str) -> Result:
        def gather(
            _fanout: Fanout, subjects: Sequence[str], report: Callable[[Answer[HostFacts]], None], **_: object
        ) -> tuple[Answer[HostFacts], ...]:
            assert subjects[0] == "health", "the others' time lies between its two looks"
            for answer in answers:
                report(answer)
            return tuple(answers)

        monkeypatch.setattr("taco_launch.hosts.check.gather", gather)
        return CliRunner().invoke(cli, ["-i", str(tmp_path / "cluster.yaml"), "check", *args])

    return run


def leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a folder that is then removed."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()


def answer(number: int, **health: Any) -> Answer[HostFacts]:
    return Answer(f"gpu{number}", facts(number, **health))


def test_a_host_that_no_job_reaches_is_a_fault_with_what_to_type(checks: Callable[..., Result], tmp_path: Path) -> None:
    wall = Firewall("nftables", True, "nftables does not let everything in: drop", ((1, 21), (23, 65535)))
    closed = facts(3)
    closed = replace(
        closed,
        network=replace(known(closed.network), firewalls=(wall,)),
    )
    done = checks([answer(1), answer(2), Answer("gpu3", closed)])
    typed = f"taco-launch -i {tmp_path / 'cluster.yaml'}"
    assert "container" not in INVENTORY
    assert "firewall" not in done.stdout, "without a container jobs use no other host"
    (tmp_path / "cluster.yaml").write_text(f"{INVENTORY}container: {{image: x}}\n")
    done = checks([answer(1), answer(2), Answer("gpu3", closed)])
    assert done.exit_code == 3
    assert "gpu3: fault: firewall: no other host can connect to TCP 12222 (the container's sshd) and " in done.stdout
    assert f"{{firewall: manage}} in the inventory, then: {typed} setup\n" in done.stdout
    assert f"{typed} setup --check shows why" in done.stdout, "the hint on the missing container"


LOST = (Xid(79, "0000:07:00", 1800.0, "GPU has fallen off the bus."),)


def test_hosts_that_are_alike_are_one_line(checks: Callable[..., Result]) -> None:
    done = checks([answer(1), answer(2), answer(3)])
    assert done.exit_code == 0, done.output
    header, line = done.stdout.splitlines()
    assert header.split() == ["HOSTS", "GPU", "RDMA", "SYSTEM"]
    assert line.split() == ["gpu[1-3]", "ok", "ok", "ok"]


def test_a_fault_is_told_with_what_to_do(checks: Callable[..., Result]) -> None:
    done = checks([answer(1), answer(2, xids=LOST, memory=Absent("no EDAC driver")), answer(3)])
    assert done.exit_code == 3
    assert done.stdout.splitlines()[1:] == [
        "gpu[1,3]  ok     ok    ok",
        "gpu2      fault  ok    ok, 1 not possible",
        "",
        "gpu2: fault: Xid: Xid 79 on GPU 7 2 h ago (RESTART_BM): GPU has fallen off the bus.",
        "  next: drain the host and reboot it; if it comes back, check power and riser, then have the GPU replaced",
        "gpu2: not possible: memory errors: no EDAC driver",
    ]
    assert "[NVIDIA Xid catalog" in checks([answer(1, xids=LOST)], "-o", "wide").stdout


def test_a_warning_does_not_change_the_exit_code_and_a_silent_host_does(checks: Callable[..., Result]) -> None:
    assert checks([answer(1, memory=(MemoryErrors("mc0", 5000, 0),))]).exit_code == 0
    done = checks([answer(1, xids=LOST), answer(2), REFUSED])
    assert done.exit_code == 5
    assert "gpu1: fault: Xid" in done.stdout
    assert "error: gpu3: no TCP connection" in done.stderr


def test_documents_and_history(checks: Callable[..., Result], tmp_path: Path) -> None:
    file = tmp_path / "health.xml"
    done = checks([answer(1), answer(2, xids=LOST), REFUSED], "--json", "--junit", str(file))
    told = json.loads(done.stdout)
    assert [(each["host"], each["level"]) for each in told["hosts"]] == [("gpu1", "ok"), ("gpu2", "fault")]
    (found,) = [each for each in told["hosts"][1]["checks"] if each["name"] == "Xid"]
    assert (found["level"], found["group"], bool(found["hint"] and found["source"])) == ("fault", "gpu", True)
    assert told["failed"][0]["host"] == "gpu3"
    suites = {suite.get("name"): suite for suite in ET.parse(file).getroot()}
    assert [(suites[name].get("failures"), suites[name].get("errors")) for name in ("gpu1", "gpu2", "gpu3")] == [
        ("0", "0"), ("1", "0"), ("0", "1"),
    ]  # fmt: skip
    (line,) = (tmp_path / "state" / "checks.jsonl").read_text().splitlines()
    kept = json.loads(line)["hosts"]
    assert (kept["gpu1"], [each[:2] for each in kept["gpu2"]]) == ([], [["fault", "Xid"]])


def test_a_folder_that_is_not_there_is_refused_before_a_host_is_asked() -> None:
    done = call("check", "--junit", "/no/such/folder/health.xml")
    assert (done.exit_code, "/no/such/folder" in done.stderr) == (2, True)


HEALTH = 'container: {image: "nvcr.io/nvidia/pytorch:25.01-py3"}\nhealth: {drain: [Xid, disk space]}\n'
FULL_DISK = (Disk("/", "ext4", 100 * GIB, 0),)


opened: dict[str, Override] = {}


@pytest.fixture
def records(tmp_path: Path, checks: object, monkeypatch: pytest.MonkeyPatch) -> dict[str, Drain]:
    """Drains that `check --drain` reads and writes instead of those on hosts."""
    assert checks is not None  # which wrote another inventory
    (tmp_path / "cluster.yaml").write_text(INVENTORY + HEALTH)
    kept: dict[str, Drain] = {}
    opened.clear()
    monkeypatch.setattr(
        drains, "read", lambda fanout: tuple(Answer(each.name, kept.get(each.name)) for each in fanout.transports)
    )
    monkeypatch.setattr(
        drains,
        "overrides",
        lambda fanout: tuple(Answer(each.name, opened.get(each.name)) for each in fanout.transports),
    )
    monkeypatch.setattr(
        drains,
        "keep_override",
        lambda transport, override: (
            opened.pop(transport.name) if override is None else opened.update({transport.name: override})
        ),
    )
    monkeypatch.setattr(drains, "write", lambda _fanout, new, _report: kept.update(new) or ())
    monkeypatch.setattr(
        drains, "resume", lambda fanout, _report: [kept.pop(each.name) for each in fanout.transports] and ()
    )
    return kept


def sick(number: int, *, full: bool = False) -> Answer[HostFacts]:
    """Answer with a container that runs, and a full disk or none."""
    found = replace(facts(number), docker=NOT_ASKED)
    disks = FULL_DISK if full else known(found.system).disks
    return Answer(found.host, replace(found, system=replace(known(found.system), disks=disks)))


def test_the_policy_drains_after_the_second_fault_and_opens_after_the_second_check_without_it(
    checks: Callable[..., Result], records: dict[str, Drain]
) -> None:
    bad, well = [sick(1), sick(2, full=True), sick(3, full=True)], [sick(1), sick(2), sick(3)]
    assert "drained" not in checks(bad, "--drain").stdout
    assert not records
    done = checks(bad, "--drain")
    assert done.exit_code == 3
    drained, refused, more = done.stdout.splitlines()[-3:]
    assert drained == "gpu2: drained until its cause is gone: policy: disk space: / has 0 B free of 100.0 GiB"
    assert refused.startswith("gpu3: not drained, the policy may keep 1 of 3 hosts drained (share: 20 %), and 1 are: ")
    assert more.startswith("  next: taco-launch host list")
    assert (list(records), records["gpu2"].policy, records["gpu2"].kind) == (["gpu2"], True, "user")
    assert checks(well, "--drain").exit_code == 0
    assert list(records) == ["gpu2"]
    done = checks(well, "--drain", "--json")
    assert [(each["event"], each["host"]) for each in json.loads(done.stdout)["drains"]] == [("resumed", "gpu2")]
    assert not records


def test_a_host_that_a_person_opened_in_spite_of_a_fault_is_left_alone_until_the_fault_was_gone(
    checks: Callable[..., Result], records: dict[str, Drain]
) -> None:
    bad, well = [sick(1), sick(2, full=True), sick(3)], [sick(1), sick(2), sick(3)]
    opened["gpu2"] = Override("ann@ctl", 1.0, (("disk space", "/ has N free of N"),))
    for _check in range(3):
        done = checks(bad, "--drain")
        assert done.stdout.splitlines()[-1] == (
            "gpu2: not drained for disk space: ann@ctl opened it with host resume --force"
        )
    assert not records
    checks(well, "--drain")
    assert not opened
    checks(bad, "--drain")
    checks(bad, "--drain")
    assert list(records) == ["gpu2"]


def test_drained_hosts_are_shown_with_the_reason_whether_they_have_a_fault_or_not(
    checks: Callable[..., Result],
) -> None:
    dust = Drain("ann@ctl", 1.0, "dust")
    hosts = [answer(1, drain=dust), answer(2, drain=dust, xids=LOST), answer(3)]
    done = checks(hosts)
    assert done.exit_code == 3
    header, *rows = (line.split() for line in done.stdout.splitlines()[:4])
    assert (header[-1], [(row[0], row[-1]) for row in rows]) == (
        "STATUS", [("gpu1", "drained"), ("gpu2", "drained"), ("gpu3", "-")],
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["gpu1: drained by ann@ctl: dust", "gpu2: drained by ann@ctl: dust"]
    found = json.loads(checks(hosts, "--json").stdout)["hosts"]
    assert [each["drain"] and each["drain"]["reason"] for each in found] == ["dust", "dust", None]


def test_what_the_policy_did_is_posted(
    checks: Callable[..., Result], records: dict[str, Drain], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[tuple[str, dict[str, Any]]] = []

    def post(url: str, event: dict[str, Any]) -> str:
        posted.append((url, event))
        return "no route"

    monkeypatch.setattr("taco_launch.hosts.drain_policy.deliver", post)
    where = "https://chat.example.com/hook"
    (tmp_path / "cluster.yaml").write_text(INVENTORY + HEALTH.replace("]}", f"], after: 1, notify: '{where}'}}"))
    done = checks([sick(1), sick(2), sick(3)], "--drain")
    assert (done.exit_code, posted, records) == (0, [], {})
    leave(tmp_path, monkeypatch)
    done = checks([sick(1), sick(2, full=True), sick(3)], "--drain")
    assert "warning: health.notify: the message was not delivered: no route" in done.stderr
    ((url, told),) = posted
    assert (url, told["name"], told["event"], told["hosts"]) == (where, "played", "health", ["gpu2"])
    assert told["reason"].startswith("gpu2: drained until its cause is gone: policy: disk space")
    assert told["events"][0]["event"] == "drained"
    assert told["next"] == [f"taco-launch -i {tmp_path}/cluster.yaml host list"]


def test_a_host_whose_record_cannot_be_read_is_an_error(
    checks: Callable[..., Result], records: dict[str, Drain], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not records
    failed = (Answer[Drain | None]("gpu1"), Answer[Drain | None]("gpu2", error=HostError("gpu2: no sudo")))
    monkeypatch.setattr(drains, "read", lambda _fanout: failed)
    done = checks([sick(1), sick(2), REFUSED], "--drain")
    assert done.exit_code == 5
    assert done.stderr.count("error: ") == 2, "one for each host"
    assert "error: gpu2: no sudo" in done.stderr


def test_drain_requires_a_policy_and_all_hosts(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(INVENTORY)
    done = call("-i", str(file), "check", "--drain")
    assert done.exit_code == 2
    assert "does not say which faults drain a host" in done.stderr
    assert "health: {drain: [Xid, ECC, lost GPUs, disk space], after: 2, share: 20}" in done.stderr
    file.write_text(INVENTORY + "health: {drain: [faults]}\n")
    assert "the inventory has no container" in call("-i", str(file), "check", "--drain").stderr
    file.write_text(INVENTORY + HEALTH)
    assert "--drain: checks all hosts" in call("-i", str(file), "check", "gpu1", "--drain").stderr


def test_a_folder_that_was_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster.yaml").write_text(INVENTORY)
    leave(tmp_path, monkeypatch)
    done = call("-i", str(tmp_path / "cluster.yaml"), "check", "--junit", "health.xml")
    assert (done.exit_code, done.stderr) == (2, "error: the current folder is gone\nhint: cd to one that exists\n")
