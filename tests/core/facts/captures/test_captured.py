"""Every file in `cases/captured` gives the output beside it: what `taco-launch facts --from FILE --json` prints.

The files are written after the tools' documented formats and captures of them. Nulls and empty lists are left out of
the documents.
"""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from taco_launch.core.facts.captures.captured import read, understood
from taco_launch.core.facts.reports.document import document
from taco_launch.core.model.host.fact_value import Unknown
from taco_launch.core.model.host.facts import HostFacts
from tests.support.host_facts import known

FOLDER = Path(__file__).parents[1] / "cases" / "captured"
FILES = sorted(FOLDER.glob("*.txt"))
CORPUS = os.environ.get("TACO_LAUNCH_CORPUS")
CORPUS_FILES = sorted(path for path in Path(CORPUS).rglob("*") if path.is_file()) if CORPUS else []


def told(facts: HostFacts) -> dict[str, Any]:
    found = document(facts)
    del found["asked"], found["health"]  # what follows from the rest, and is tested in test_document.py, test_health.py
    return {**pruned(found), "understood": understood(facts)}


def pruned(value: Any) -> Any:
    if isinstance(value, dict):
        parts = {key: pruned(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in (None, [], {})}
    return [pruned(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_case(file: Path) -> None:
    (facts,) = read([(file.name, file.read_bytes())])
    assert told(facts) == json.loads(file.with_suffix(".json").read_text("utf-8"))


def test_each_case_has_one_expectation_and_no_expectation_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {
        f"{file.stem}{end}" for file in FILES for end in (".txt", ".json")
    }


def case(name: str) -> bytes:
    return (FOLDER / f"{name}.txt").read_bytes()


def test_the_files_of_a_folder_are_one_host_and_sub_folders_are_others() -> None:
    found = read(
        [
            ("gpu2/a.txt", case("query_two_gpus")),
            ("gpu10/topo", case("topo_old_soc")),
            ("gpu2/b", case("topo_underlined_crlf")),
            ("gpu2/sys/class/infiniband/mlx5_0/ports/1/state", b"4: ACTIVE\n"),
            ("gpu2/sys/class/infiniband/mlx5_0/device/net/bond0/mtu", b"1500\n"),
            ("gpu2/sys/class/infiniband/mlx5_0/device/numa_node", b"1\n"),
            ("gpu2/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", b"0\n"),
            ("alone/infiniband/mlx5_1/fw_ver", b"20.31.1014\n"),
        ]
    )
    assert [facts.host for facts in found] == ["alone", "gpu2", "gpu10"]
    _, gpu2, gpu10 = found
    assert isinstance(known(gpu2.gpu).gpus, tuple)
    (hca,) = known(known(gpu2.rdma).hcas)
    assert (hca.name, hca.interfaces, hca.numa, hca.ports[0].state) == ("mlx5_0", ("bond0",), 1, "ACTIVE")
    assert not gpu2.unread
    assert gpu10.gpu == Unknown("not asked")


def test_a_copy_of_sysfs_has_gids_only_of_slots_in_use() -> None:
    port = "mlx5_0/ports/1"
    (facts,) = read(
        [
            (f"{port}/state", b"4: ACTIVE\n"),
            (f"{port}/link_layer", b"Ethernet\n"),
            (f"{port}/rate", b"100 Gb/sec (4X EDR)\n"),
            (f"{port}/gids/0", b"fe80:0000:0000:0000:0000:0000:0000:0000\n"),
            (f"{port}/gids/1", b"0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
            (f"{port}/gid_attrs/types/1", b"RoCE v2\n"),
            (f"{port}/gid_attrs/ndevs/1", b"bond0\n"),
            (f"{port}/gids/2", b"0000:0000:0000:0000:0000:0000:0000:0000\n"),
        ]
    )
    found = document(facts)
    assert facts.host == "captured"
    assert found["gid"]["gid_index"] == 1
    assert found["rdma"]["hcas"][0]["ports"][0]["gids"] == [
        {"index": 1, "gid": "0000:0000:0000:0000:0000:ffff:0a00:0001", "type": "RoCE v2", "netdev": "bond0"}
    ]


def test_captures_that_contradict_each_other_are_unknown() -> None:
    (facts,) = read([("topo1", case("topo_old_soc")), ("topo2", case("topo_names_out_of_order"))])
    assert facts.topology == Unknown("there are 2 captures of topo -m, and they differ")
    gids, other = (
        case("show_gids_bond"),
        case("show_gids_bond").replace(b"0a00:000b", b"0a00:000c").replace(b".11", b".12"),
    )
    (facts,) = read([("before", gids), ("after", other)])
    found = document(facts)
    assert found["gid"] is None
    assert "there are 2 captures of show_gids, and they differ" in found["unknown"][0]["reason"]


def test_a_good_capture_stands_and_the_bad_one_is_named() -> None:
    (facts,) = read([("a", case("topo_old_soc")), ("b", case("topo_p2p")), ("c", case("unknown_text"))])
    assert facts.topology == read([("a", case("topo_old_soc"))])[0].topology
    assert [file for file, _ in facts.unread] == ["c", "b"]


def test_a_saved_answer_of_the_probe_is_a_host_by_itself() -> None:
    answer = (
        b"motd\nN0 probe 1 1700000000.5\nN0 begin gpu.list\n" + case("list_mig") + b"\nN0 end gpu.list 0\nN0 done 1\n"
    )
    found = read([("rack1/gpu7.probe", answer), ("rack1/topo", case("topo_old_soc"))])
    assert [facts.host for facts in found] == ["rack1", "gpu7"]
    assert len(known(known(found[1].gpu).gpus)) == 2
    assert understood(found[1])


def test_what_no_capture_says_was_not_asked() -> None:
    (facts,) = read([("lsmod", case("lsmod"))])
    peer, none = known(facts.rdma).peer_memory, Unknown("not asked: no captured output shows it")
    assert (peer.exists, peer.comes_back, peer.clients, peer.dmabuf, known(facts.rdma).devices) == (none,) * 5
    (facts,) = read([("query", case("query_two_gpus"))])
    assert known(facts.gpu).driver.installed == none


def test_subjects_of_another_host_were_not_asked() -> None:
    topo, lsmod = read([("gpu1/topo", case("topo_old_soc")), ("gpu2/lsmod", case("lsmod"))])
    assert topo.rdma == topo.gpu == lsmod.topology == lsmod.gpu == Unknown("not asked")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(case("lsmod")), "is compressed (gzip)"),
        (case("lsmod").decode().encode("utf-16"), "is UTF-16"),
        (json.dumps(document(read([("gids", case("show_gids_bond"))])[0])).encode(), "JSON output of taco-launch"),
        (b'{"hosts": [], "differences": [], "fabric": null, "failed": []}', "JSON output of taco-launch"),
        (
            b'{"name": "mlx5_0"}',
            "not the output of a supported command",
        ),
        (b"[" * 100_000, "is longer than 8192 characters"),
    ],
    ids=["gzip", "utf-16", "of one host", "of several hosts", "other JSON", "deep JSON"],
)
def test_a_file_that_is_no_output_is_called_what_it_is(content: bytes, reason: str) -> None:
    (facts,) = read([("file", content)])
    assert not understood(facts)
    ((file, why),) = facts.unread
    assert file == "file"
    assert reason in why


def test_no_file_is_no_host() -> None:
    assert read([]) == ()


@pytest.mark.skipif(CORPUS is None, reason="cannot: TACO_LAUNCH_CORPUS names no folder of captures")
@pytest.mark.parametrize("file", CORPUS_FILES, ids=str)
def test_corpus(file: Path) -> None:
    """Each file is understood, or the reason why it is not is told."""
    for facts in read([(file.name, file.read_bytes())]):
        assert understood(facts) or document(facts)["unknown"]
