"""The JSON document of a host: every subject in its place, and what is not known listed with a reason."""

import json
from dataclasses import replace

from taco_launch.core.facts.rdma.hcas import HcaStatement, build
from taco_launch.core.facts.reports.document import document
from taco_launch.core.model.host.fact_value import Absent, Unknown
from taco_launch.core.model.host.hardware import Gpus, Rdma
from tests.support.fleet import gids, hca, mapped, roce, with_hcas
from tests.support.host_facts import host, known


def test_the_keys_are_always_there() -> None:
    found = document(host("gpu1"))
    assert list(found) == [
        *("host", "simulated", "asked", "system", "network", "docker", "gpu", "topology", "rdma", "image"),
        *("gid", "gids", "distances", "health", "unknown"),
    ]
    assert json.loads(json.dumps(found)) == found


def test_unknown_and_absent_are_null_and_unknown_is_listed() -> None:
    base = host("gpu1", driver="535.104.05")
    assert isinstance(base.gpu, Gpus)
    gpu = replace(known(base.gpu.gpus)[1], memory=Unknown("[Unknown Error]"), mig=Absent("[N/A]"))
    driver = replace(base.gpu.driver, loaded=Unknown("mismatch"), cuda=Unknown("not asked: no tool says"))
    found = document(replace(base, gpu=Gpus(driver, (known(base.gpu.gpus)[0], gpu), (), (), ("GPU 2 is lost",))))
    assert found["gpu"]["driver"]["loaded"] is None
    assert found["gpu"]["gpus"][1]["memory"] is None
    assert found["gpu"]["gpus"][1]["mig"] is None
    assert [one for one in found["unknown"] if one["where"].startswith("gpu")] == [
        {"where": "gpu.driver.loaded", "reason": "mismatch"},
        {"where": "gpu.gpus[1].memory", "reason": "[Unknown Error]"},
        {"where": "gpu.gpus", "reason": "GPU 2 is lost"},
    ]


def test_a_subject_that_nobody_asked_for_is_not_listed() -> None:
    none = Unknown("not asked")
    found = document(
        replace(host("gpu1"), system=none, network=none, docker=none, gpu=none, topology=none, rdma=none, image=none)
    )
    assert found["unknown"] == []
    assert {key for key, value in found.items() if value} == {"host"}


def test_the_gid_is_that_of_the_hca_a_job_would_use() -> None:
    down = roce("mlx5_9", "eth9", "10.9.0.1", state="DOWN")
    found = document(
        with_hcas("gpu1", roce("mlx5_2", "eth2", "10.1.0.1", 4), roce("mlx5_10", "eth10", "10.2.0.1"), down)
    )
    assert found["gid"] == {
        "hca": "mlx5_2",
        "port": 1,
        "gid_index": 5,
        "why": "RoCE v2, 10.1.0.1 on eth2: the lowest such index",
    }
    assert [(one["hca"], one["gid_index"]) for one in found["gids"]] == [("mlx5_2", 5), ("mlx5_10", 3)]


def test_a_gid_of_an_hca_without_a_name_is_given_and_whose_it_is_unknown() -> None:
    unnamed = build(
        [HcaStatement("", 0, 3, "gid", mapped("10.0.0.1"), "x"), HcaStatement("", 0, 3, "type", "RoCE v2", "x")]
    )
    found = document(with_hcas("gpu1", *unnamed))
    assert [hca["name"] for hca in found["rdma"]["hcas"]] == ["unnamed"]
    assert (found["gid"]["gid_index"], found["gid"]["hca"], found["gid"]["port"]) == (3, None, None)
    assert {"gid.hca", "gid.port"} <= {one["where"] for one in found["unknown"]}


def test_infiniband_has_no_gid_and_nothing_unknown() -> None:
    found = document(with_hcas("gpu1", hca("mlx5_0", gids=gids("10.0.0.1", "ib0"))))
    assert found["gid"] is None
    assert found["gids"] == []
    assert [one for one in found["unknown"] if "gid" in one["where"]] == []


def test_a_port_without_an_address_has_a_reason() -> None:
    found = document(with_hcas("gpu1", roce("mlx5_0", "eth0", "10.0.0.1", gids=gids("10.0.0.1", "eth0")[:2])))
    assert found["gid"] is None
    assert found["gids"] == []
    assert [one["where"] for one in found["unknown"]] == ["gid", "gids[0]"]
    assert all("its interface has no IPv4 address" in one["reason"] for one in found["unknown"])


def test_places_are_named_by_what_they_hold() -> None:
    base = with_hcas("gpu1", hca("mlx5_7", rate=Unknown("rate 'x'")), hca("mlx5_8"))
    assert isinstance(base.rdma, Rdma)
    assert {"where": "rdma.hcas[mlx5_7].ports[1].rate", "reason": "rate 'x'"} in document(base)["unknown"]


def test_files_that_were_not_read_are_listed() -> None:
    found = document(replace(host("gpu1"), unread=(("a/notes.txt", "is not an output that is known"),)))
    assert found["unknown"][-1] == {"where": "a/notes.txt", "reason": "is not an output that is known"}
