"""How near HCAs are to the GPUs of a set, against every way to give each GPU one of its own."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.model.host.hardware import Topology
from taco_launch.core.placement.bandwidth import DEFAULT
from taco_launch.core.placement.mesh import NEAR, GpuMesh, mesh_of

LINKS = st.sampled_from([*NEAR, "SYS"])


def mesh(near: list[list[str]]) -> GpuMesh:
    """Return GPUs on NVSwitch with the link of each to each HCA."""
    links = [[*("X" if one == other else "NV2" for other in range(len(near))), *row] for one, row in enumerate(near)]
    gpus, hcas = (f"GPU{gpu}" for gpu in range(len(near))), (f"mlx5_{hca}" for hca in range(len(near[0])))
    return mesh_of(Topology(tuple(gpus), tuple(hcas), tuple(map(tuple, links))), DEFAULT)


@given(st.integers(1, 4), st.integers(0, 4), st.data())
def test_an_hca_of_its_own(gpus: int, hcas: int, data: st.DataObject) -> None:
    near = [[data.draw(LINKS) for _hca in range(hcas)] for _gpu in range(gpus)]
    places = [*range(hcas), *(hcas for _gpu in range(gpus))]  # as many that have none
    for words, found in enumerate(mesh(near).with_hcas(range(gpus)), 1):
        assert found == max(
            sum(place < hcas and near[gpu][place] in NEAR[:words] for gpu, place in enumerate(given))
            for given in permutations(places, gpus)
        )


def test_an_hca_is_given_up_for_another() -> None:
    near = [["PIX", "PIX", "SYS"], ["SYS", "SYS", "PIX"], ["PIX", "SYS", "PIX"]]
    assert mesh(near).with_hcas(range(3)) == (3, 3, 3, 3)


def test_nodes_and_links() -> None:
    links = (("X", "NV4", "PHB"), ("NV4", "X", "SYS"), ("PHB", "SYS", "X"))
    found = mesh_of(Topology(("GPU0", "GPU1", "GPU2"), (), links, ("0-7", "0-7", "8-15"), (None, "0", None)), DEFAULT)
    assert found.nodes == ("0-7", "0", "8-15")
    assert found.links((0, 2, 1)) == ("PHB", "SYS", "NV4")
    assert found.links((0, 1)) == ("NV4",)
    assert found.links(()) == ()
    assert found.linked((0, 1, 2)) == 100 + 10 + 6
