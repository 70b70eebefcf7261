"""facts: captured outputs as a user hands them in, and this machine; what is wrong is said, and nothing is lost."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from taco_launch.cli.main import cli
from taco_launch.cli.output import host_errors
from taco_launch.core.command import shell
from taco_launch.core.errors import HostError, UsageError
from taco_launch.core.model.host.fact_value import Unknown
from taco_launch.core.model.host.facts import HostFacts
from taco_launch.core.model.host.hardware import Rdma
from taco_launch.hosts.fanout import Answer, Fanout
from tests.conftest import Taco
from tests.support.command_line import call, succeeding
from tests.support.host_facts import host
from tests.support.machines import bond
from tests.support.paths import TESTS
from tests.support.raisers import raiser

TOPO = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-7\nGPU1\tNV2\t X \t0-7\n"
CASES = TESTS / "core/facts/cases/captured"
GIDS = """DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV
---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---
mlx5_0\t1\t2\t0000:0000:0000:0000:0000:ffff:0a00:0001\t10.0.0.1  \tv1\tbond0
mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a00:0001\t10.0.0.1  \tv2\tbond0
n_gids_found=2
"""


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    folder = tmp_path / "captures"
    folder.mkdir()
    (folder / "topo.txt").write_text(TOPO)
    return folder


def test_a_captured_topology(captures: Path) -> None:
    done = succeeding("facts", "--from", str(captures / "topo.txt"), "--json")
    told = json.loads(done.stdout)
    assert told["topology"]["links"] == [["X", "NV2"], ["NV2", "X"]]
    assert (told["topology"]["gpus"], told["topology"]["nics"]) == (["GPU0", "GPU1"], [])
    assert "1x NV2" in call("facts", "--from", str(captures / "topo.txt")).stdout


def test_standard_input() -> None:
    done = call("facts", "--from", "-", "--json", stdin=GIDS)
    assert json.loads(done.stdout)["gid"] | {"why": ""} == {"hca": "mlx5_0", "port": 1, "gid_index": 3, "why": ""}
    assert "GID index: 3 on mlx5_0:1" in call("facts", "--from", "-", stdin=GIDS).stdout


def test_why_no_gid_is_right_is_a_warning() -> None:
    done = call("facts", "--from", str(CASES / "show_gids_ipv6_only.txt"))
    assert "gid: bnxt_re0:1: NCCL would choose GID index 0, which cannot work (link-local" in done.stderr
    assert "-x NCCL_IB_ADDR_FAMILY=AF_INET6 or -x NCCL_IB_GID_INDEX=3" in done.stderr


def test_nothing_is_understood(captures: Path) -> None:
    (captures / "hello.txt").write_text("hello\n")
    for more in ((), ("--json",)):
        done = call("facts", "--from", str(captures / "hello.txt"), *more)
        assert done.exit_code == 1
        assert "warning: hello.txt: " in done.stderr
        assert "error: none of the captured outputs is of a known kind" in done.stderr
    assert [entry["where"] for entry in json.loads(done.stdout)["unknown"]] == ["hello.txt"]


def test_odd_files_beside_captures_are_named_and_passed_over(captures: Path) -> None:
    (captures / "gone").symlink_to("no such file")
    os.mkfifo(captures / "pipe")
    done = succeeding("facts", "--from", str(captures), "--json")
    told = json.loads(done.stdout)
    assert told["topology"]["gpus"] == ["GPU0", "GPU1"]
    assert {entry["where"]: entry["reason"] for entry in told["unknown"]} == {
        "gone": "No such file or directory",
        "pipe": "a FIFO, not a regular file",
    }
    assert "warning: pipe: a FIFO, not a regular file" in done.stderr


def test_only_what_is_asked_for_of_captures(captures: Path) -> None:
    done = call("facts", "--from", str(captures), "--only", "gpu", "--json")
    assert (done.exit_code, json.loads(done.stdout)["topology"]) == (1, None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--from {topo} gpu1", "cannot be combined with --from"),
        ("--from {topo} --container train", "cannot be combined with --from"),
        ("--from {topo} -i lab", "cannot be combined with --from"),
        ("--from /no/such/file", "/no/such/file"),
        ("--only gpus", "subjects: system, network, docker, gpu"),
    ],
)
def test_what_is_refused(captures: Path, words: str, said: str) -> None:
    done = call("facts", *words.format(topo=captures / "topo.txt").split())
    assert (done.exit_code, said in done.stderr) == (2, True)


def test_this_machine_without_a_terminal_or_standard_input(taco: Taco) -> None:
    done = taco.ok("facts", "--only", "system", "--json", stdin=None, preexec_fn=lambda: os.close(0))
    (host,) = json.loads(done.stdout)["hosts"]
    assert host["system"]["kernel"] == os.uname().release
    asked = taco("facts", "--ask-sudo-password", input="")
    assert (asked.returncode, "there is no terminal to ask on" in asked.stderr) == (2, True)


def test_an_inventory_of_the_environment_is_nothing_to_captures(captures: Path) -> None:
    env = {"TACO_LAUNCH_INVENTORY": "/no/such/inventory"}
    assert call("facts", "--from", str(captures), env=env).exit_code == 0
    refused = call("-i", "lab", "facts", "--from", str(captures), env=env)
    assert (
        refused.exit_code,
        "-i cannot be combined with --from" in refused.stderr,
    ) == (
        2,
        True,
    )


# --- several hosts, played --------------------------------------------------------------------------------------------

INVENTORY = """cluster: played
hosts:
  gpu[1-4]: {address: "10.0.0.[1-4]"}
"""
Play = Callable[[Callable[[Answer[HostFacts]], None]], None]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Call `facts` on four hosts whose answers `play` gives."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "cluster.yaml").write_text(INVENTORY)

    def call(play: Play, *args: str) -> Result:
        def gather(
            _fanout: Fanout, _subjects: Sequence[str], report: Callable[[Answer[HostFacts]], None], **_: object
        ) -> None:
            play(report)

        monkeypatch.setattr("taco_launch.cli.hosts.facts.gather", gather)
        return CliRunner().invoke(cli, ["-i", str(tmp_path / "cluster.yaml"), "facts", *args])

    return call


def refused(number: int) -> Answer[HostFacts]:
    said = f"gpu{number}: no TCP connection to 10.0.0.{number}:22: Connection refused"
    return Answer(f"gpu{number}", error=HostError(said, f"ssh gpu{number}"))


def test_errors_that_differ_in_whose_they_are_stand_once(played: Callable[..., Result]) -> None:
    def play(report: Callable[[Answer[HostFacts]], None]) -> None:
        report(Answer("gpu2", host("gpu2")))
        for number in (4, 3, 1):
            report(refused(number))

    table = played(play)
    assert table.exit_code == 5
    assert table.stderr == (
        "error: gpu[1,3-4]: no TCP connection to 10.0.0.[1,3-4]:22: Connection refused\nhint: ssh gpu1\n"
    )
    assert table.stdout.endswith("\nNo answer: gpu[1,3-4]\n")
    told = json.loads(played(play, "--json").stdout)["failed"]
    assert told == [
        {
            "host": f"gpu{number}",
            "error": f"gpu{number}: no TCP connection to 10.0.0.{number}:22: Connection refused",
            "hint": f"ssh gpu{number}",
        }
        for number in (1, 3, 4)
    ]


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (
            ["gpu1: 127.0.0.1:2201: it does not talk", "gpu2: 127.0.0.1:2202: it does not talk"],
            ["gpu[1-2]: 127.0.0.1:[2201-2202]: it does not talk"],
        ),
        (
            ["gpu1: no address for n1.site: unknown", "gpu2: no address for n2.site: unknown"],
            ["gpu[1-2]: no address for n[1-2].site: unknown"],
        ),
        (["gpu1: fe80::1:22: no", "gpu2: fe80::2:22: no"], ["gpu[1-2]: fe80::[1-2]:22: no"]),
        (["gpu1: exit code 1", "gpu2: exit code 2"], ["gpu1: exit code 1", "gpu2: exit code 2"]),
        (["gpu1: gpu11 is down", "gpu2: gpu11 is down"], ["gpu[1-2]: gpu11 is down"]),
    ],
)
def test_what_is_folded_of_errors(texts: list[str], shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    answers = [Answer[None](f"gpu{number}", error=HostError(text)) for number, text in enumerate(texts, 1)]
    host_errors.show(answers, {"gpu1": "n1.site", "gpu2": "n2.site"})
    assert capsys.readouterr().err == "".join(f"error: {line}\n" for line in shown)


def test_errors_that_differ_in_their_logs_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [
        Answer[None](
            f"gpu{n}", error=HostError(f"gpu{n}: create: no room", f"make some; its whole output: /l/gpu{n}.log")
        )
        for n in (1, 2)
    ]
    host_errors.show(answers, {"gpu1": "n1.site", "gpu2": "n2.site"})
    folded = "error: gpu[1-2]: create: no room\nhint: make some; its whole output: /l/, one file per host\n"
    assert capsys.readouterr().err == folded
    host_errors.show(answers[1:], {"gpu2": "n2.site"})
    assert capsys.readouterr().err.endswith("its whole output: /l/gpu2.log\n")


def test_ctrl_c_shows_what_came(played: Callable[..., Result]) -> None:
    def play(report: Callable[[Answer[HostFacts]], None]) -> None:
        report(Answer("gpu3", host("gpu3")))
        report(refused(2))
        raise KeyboardInterrupt

    table = played(play)
    assert table.exit_code == 130
    assert "8x NVIDIA A100-SXM4-40GB" in table.stdout
    assert "error: gpu[1,4]: interrupted\n" in table.stderr
    assert "error: gpu2: no TCP connection" in table.stderr
    told = json.loads(played(play, "-o", "json").stdout)
    assert [entry["host"] for entry in told["hosts"]] == ["gpu3"]
    assert [entry["host"] for entry in told["failed"]] == ["gpu1", "gpu2", "gpu4"]


def test_a_part_of_an_answer_is_shown_and_called_incomplete(played: Callable[..., Result]) -> None:
    def play(report: Callable[[Answer[HostFacts]], None]) -> None:
        for number in (1, 2):
            report(Answer(f"gpu{number}", host(f"gpu{number}")))
        for number in (3, 4):
            error = HostError(f"gpu{number}: incomplete: waited 120 s", f"ssh gpu{number} uptime")
            report(Answer(f"gpu{number}", host(f"gpu{number}"), error))

    table = played(play)
    assert (table.exit_code, table.stderr) == (5, "error: gpu[3-4]: incomplete: waited 120 s\nhint: ssh gpu3 uptime\n")
    assert table.stdout.endswith("\nIncomplete: gpu[3-4]\n")
    assert "No answer" not in table.stdout
    told = json.loads(played(play, "--json").stdout)
    assert (len(told["hosts"]), [entry["host"] for entry in told["failed"]]) == (4, ["gpu3", "gpu4"])


@pytest.mark.parametrize("words", [("-o", "wide", "--json"), ("--json", "-o", "wide")])
def test_one_form_at_a_time(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, ["facts", *words])
    assert (done.exit_code, str(done.exception)) == (1, "-o and --json cannot be combined")
    before = CliRunner().invoke(cli, ["--json", "facts", "--from", "-", "-o", "wide"], input=TOPO)
    assert "GPU to GPU" in before.stdout


# --- what has changed since --------------------------------------------------------------------------------------------


def test_changes_since_a_file_or_a_folder(played: Callable[..., Result], tmp_path: Path) -> None:
    def play(driver: str) -> Play:
        def answers(report: Callable[[Answer[HostFacts]], None]) -> None:
            for number in (1, 2, 3, 4):
                report(Answer(f"gpu{number}", host(f"gpu{number}", driver if number > 2 else "535.104.05")))

        return answers

    before = played(play("535.104.05"), "--json")
    (tmp_path / "old").mkdir()
    file = tmp_path / "old/facts.json"
    file.write_text(before.stdout)
    same = played(play("535.104.05"), "--compare", str(file))
    assert (same.exit_code, same.stdout, same.stderr) == (0, "", "nothing has changed on gpu[1-4]\n")
    other = played(play("550.54.15"), "--compare", str(file.parent))
    assert other.exit_code == 3
    assert other.stdout.splitlines() == [
        "gpu[3-4]: gpu.driver.loaded: 535.104.05 -> 550.54.15",
        "gpu[3-4]: gpu.driver.installed: 535.104.05 -> 550.54.15",
    ]
    told = json.loads(played(play("550.54.15"), "--compare", str(file), "--json").stdout)["changes"]
    assert told[0] == {"host": "gpu3", "where": "gpu.driver.loaded", "before": "535.104.05", "after": "550.54.15"}
    (tmp_path / "old/later.json").write_text(before.stdout)
    twice = played(play("535.104.05"), "--compare", str(file.parent)).exception
    assert str(twice).startswith(f"{file.parent}: two files contain host gpu1: facts.json and later.json")
    one = json.loads(before.stdout)
    del one["hosts"][0]
    file.write_text(json.dumps(one))
    less = played(play("535.104.05"), "--compare", str(file))
    assert (less.exit_code, less.stderr.splitlines()) == (
        0,
        [f"warning: {file} has no facts of gpu1", "nothing has changed on gpu[2-4]"],
    )


def test_a_change_is_seen_however_long_the_value(played: Callable[..., Result], tmp_path: Path) -> None:
    def play(*modules: str, ofed: str = "a") -> Play:
        facts = host("gpu1")
        assert isinstance(facts.rdma, Rdma)
        many = tuple(f"module_{number}" for number in range(40))
        changed = replace(facts, rdma=replace(facts.rdma, modules=(*many, *modules), ofed="long" * 40 + ofed))
        return lambda report: report(Answer("gpu1", changed))

    file = tmp_path / "facts.json"
    file.write_text(played(play("nvidia_peermem"), "--json").stdout)
    lines = played(play("nv_peer_mem", ofed="b"), "--compare", str(file)).stdout.splitlines()
    assert "gpu1: rdma.modules: - nvidia_peermem, + nv_peer_mem" in lines
    (ofed,) = [line for line in lines if "rdma.ofed" in line]
    old, _, new = ofed.partition(": rdma.ofed: ")[2].partition(" -> ")
    assert (old, new) == (f"...{'long' * 5}a", f"...{'long' * 5}b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello", "is not valid JSON"),
        ("{}", "is not the output of taco-launch facts --json"),
        (None, "holds no .json file"),
    ],
)
def test_a_file_that_is_no_document_is_refused_before_hosts_are_asked(
    played: Callable[..., Result], tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "old"
    path.mkdir() if text is None else path.write_text(text)
    done = played(raiser(AssertionError()), "--compare", str(path))
    assert isinstance(done.exception, UsageError)
    assert words in str(done.exception)
    if text == "hello":
        typed = shell(("taco-launch", "-i", str(tmp_path / "cluster.yaml"), "facts", "--json"))
        assert done.exception.hint == f"create it with: {typed} > facts.json"


def test_a_job_goes_by_tcp_where_a_host_has_no_rdma(played: Callable[..., Result]) -> None:
    def play(report: Callable[[Answer[HostFacts]], None]) -> None:
        for number in (1, 2):
            facts = bond(number)
            assert isinstance(facts.rdma, Rdma)
            assert isinstance(facts.rdma.hcas, tuple)
            (hca,) = facts.rdma.hcas
            state = "DOWN" if number == down else "ACTIVE"
            ports = tuple(replace(port, state=state) for port in hca.ports)
            report(Answer(facts.host, replace(facts, rdma=replace(facts.rdma, hcas=(replace(hca, ports=ports),)))))

    down = 0
    assert "NCCL_IB_HCA" in played(play).stdout
    down = 2
    shown = played(play).stdout
    assert "  transport  TCP    RDMA is not available on every host: gpu2: mlx5_" in shown
    assert "NCCL_IB_" not in shown


def test_verdicts_stand_below_the_facts(played: Callable[..., Result]) -> None:
    def play(report: Callable[[Answer[HostFacts]], None]) -> None:
        for number in (1, 2, 3, 4):
            report(Answer(f"gpu{number}", host(f"gpu{number}", "535.86.10" if number == 3 else "535.104.05")))

    done = played(play)
    assert "\n  ok: driver, MIG, ECC, RDMA ports, " in done.stdout
    assert "gpu3: warning: versions: driver 535.86.10 (3 with 535.104.05)" in done.stdout
    assert "\nHosts that differ:\n  gpu3: driver 535.86.10, 3 others 535.104.05\n" in done.stdout
    (first, *_) = json.loads(played(play, "--json").stdout)["hosts"]
    assert [(each["name"], each["level"]) for each in first["health"]][:4] == [
        ("driver", "ok"),
        ("MIG", "ok"),
        ("ECC", "ok"),
        ("RDMA ports", "ok"),
    ]


def test_gpus_that_cannot_be_asked_are_one_line(played: Callable[..., Result]) -> None:
    def play(report: Callable[[Answer[HostFacts]], None]) -> None:
        for number in (1, 2, 3):
            facts = host(f"gpu{number}")
            report(Answer(facts.host, facts if number == 1 else replace(facts, gpu=Unknown("NVIDIA-SMI has failed"))))

    for words in ((), ("-o", "wide")):
        lines = played(play, *words).stdout.partition("\nHealth:\n")[2].splitlines()
        silent = (
            "  gpu[2-3]: not possible: MIG, ECC, row remapping, persistence, clocks, temperature, PCIe width: "
            "NVIDIA-SMI has failed"
        )
        assert silent in lines, "nothing was judged, so nobody's rule is named"
        assert any(line.startswith("  ok: driver, RDMA ports, ") for line in lines)


def test_a_known_output_that_cannot_be_read_is_not_called_unknown(tmp_path: Path) -> None:
    capture = tmp_path / "devinfo.txt"
    capture.write_text("\tstate:\tPORT_ACTIVE (4)\n\tlink_layer:\tEthernet\n")
    done = call("facts", "--from", str(capture))
    assert done.exit_code == 1
    assert "ibv_devinfo starts in the middle of a device" in done.stderr
    assert "error: none of the captured outputs could be read" in done.stderr


def test_gpus_are_placed_by_a_matrix_without_rows_of_hcas(tmp_path: Path) -> None:
    capture = TESTS / "core/facts/cases/captured/topo_without_rows_of_hcas.txt"
    saved = tmp_path / "facts.json"
    saved.write_text(call("facts", "--from", str(capture), "--json").stdout)
    for source in (capture, saved):
        lines = call("place", "--topology", str(source), "--gpus", "2", "--model", "A100-SXM4").stdout.splitlines()
        assert lines[1].split()[:2] == ["chosen", "0,1"]
