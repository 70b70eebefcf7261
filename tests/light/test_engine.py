"""The engine without a network: what is sent, what stays, and what all ranks then have."""

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor, dtype  # noqa: E402

from taco_launch.light.config import LightError, read  # noqa: E402
from taco_launch.light.engine import Engine, pieces  # noqa: E402
from taco_launch.light.grid import Place, arrange, flat  # noqa: E402
from taco_launch.light.selection import largest, pack, unpack, words  # noqa: E402
from tests.light.lockstep import engines, residual, step  # noqa: E402

pytestmark = pytest.mark.e2e

TOPK = {"LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_TOPK_THRESHOLD": "0"}
TWO_D = {"LIGHT_2D_ALLREDUCE": "1"}
FP16 = {"LIGHT_TOPK_FP16": "1"}
MODES = {
    "dense": {},
    "2d": TWO_D,
    "topk": TOPK,
    "topk-fp16": {**TOPK, **FP16},
    "2d-topk": {**TWO_D, **TOPK},
    "2d-topk-fp16": {**TWO_D, **TOPK, **FP16},
    # too large for the 2D all-reduce: flat, although there are groups
    "2d-limit": {**TWO_D, **TOPK, "LIGHT_HIERARCHICAL_THRESHOLD": "3"},
}
COMPRESSED = [name for name in MODES if "topk" in name or "limit" in name]
GRIDS = [(2, 2), (4, 1), (1, 4), (2, 4)]


def gradients(ranks: int, length: int, seed: int) -> list[Tensor]:
    """Return whole numbers, whose sums 32-bit floats hold exactly; some are too large for 16 bits."""
    made_by = torch.Generator().manual_seed(seed)
    small = torch.randint(-300, 300, (ranks, length), generator=made_by)
    huge = torch.rand((ranks, length), generator=made_by) < 0.02
    return list(torch.where(huge, small * 500, small).float())


@pytest.mark.parametrize("mode", COMPRESSED)
@settings(max_examples=25, deadline=None)
@given(
    grid=st.sampled_from(GRIDS),
    length=st.integers(1, 90),
    ratio=st.sampled_from(["0.01", "0.1", "0.5", "1"]),
    steps=st.integers(1, 6),
    seed=st.integers(0, 2**31),
)
def test_nothing_is_lost(mode: str, grid: tuple[int, int], length: int, ratio: str, steps: int, seed: int) -> None:
    row = engines(*grid, {**MODES[mode], "LIGHT_TOPK_RATIO": ratio})
    sent, total = torch.zeros(length), torch.zeros(length)
    for number in range(steps):
        mine = gradients(len(row), length, seed + number)
        results = step(row, mine)
        assert all(torch.equal(results[0], other) for other in results)
        sent, total = sent + results[0] * len(row), total + sum(mine)
        assert torch.equal(sent + residual(row, length), total)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=20, deadline=None)
@given(grid=st.sampled_from([*GRIDS, (3, 2)]), length=st.integers(1, 90), seed=st.integers(0, 2**31))
def test_everything_is_the_dense_mean(mode: str, grid: tuple[int, int], length: int, seed: int) -> None:
    row = engines(*grid, {**MODES[mode], "LIGHT_TOPK_RATIO": "1"})
    mine = list(torch.randn((len(row), length), generator=torch.Generator().manual_seed(seed)))
    mean = torch.stack(mine).mean(0)
    near = 1e-3 if "fp16" in mode else 1e-6
    for result in step(row, mine):
        torch.testing.assert_close(result, mean, rtol=near, atol=near)


def test_without_error_feedback_the_rest_is_lost() -> None:
    row = engines(2, 2, {**TWO_D, **TOPK, "LIGHT_ERROR_FEEDBACK": "0", "LIGHT_TOPK_RATIO": "0.1"})
    step(row, gradients(4, 40, 0))
    assert all(not engine.residuals for engine in row)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("mode", COMPRESSED)
def test_infinity_reaches_all_ranks_and_no_residual(mode: str, bad: float) -> None:
    row = engines(2, 2, {**MODES[mode], "LIGHT_TOPK_RATIO": "0.1"})
    step(row, gradients(4, 40, 0))
    before = [engine.residuals["all"].clone() for engine in row]
    broken = gradients(4, 40, 1)
    broken[2][7] = bad
    assert all(not result.isfinite().all() for result in step(row, broken))
    assert all(torch.equal(engine.residuals["all"], held) for engine, held in zip(row, before, strict=True))


def test_residuals_are_without_the_scale_of_the_loss() -> None:
    plain, scaled = (engines(2, 2, {**TWO_D, **TOPK, "LIGHT_TOPK_RATIO": "0.1"}) for _ in range(2))
    for number, scale in enumerate((1024.0, 512.0, 4096.0)):
        mine = gradients(4, 40, number)
        results = step(scaled, [gradient * scale for gradient in mine], torch.tensor(scale))
        assert torch.equal(results[0], step(plain, mine)[0] * scale)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", MODES)
def test_16_bit_gradients(mode: str, kind: dtype) -> None:
    row = engines(2, 2, {**MODES[mode], "LIGHT_TOPK_RATIO": "1"})
    mine = [torch.randn(33, generator=torch.Generator().manual_seed(rank)).to(kind) for rank in range(4)]
    result = step(row, mine)[0]
    assert result.dtype == kind
    torch.testing.assert_close(result.float(), torch.stack(mine).float().mean(0), rtol=2e-2, atol=2e-2)


def test_sums_that_16_bits_cannot_hold() -> None:
    row = engines(2, 2, TWO_D)
    assert step(row, [torch.full((8,), 60000.0, dtype=torch.float16)] * 4)[0].tolist() == [60000.0] * 8


@settings(max_examples=15, deadline=None)
@given(length=st.integers(1 << 16, 1 << 18), share=st.floats(1e-4, 0.5), seed=st.integers(0, 2**31))
def test_the_selection_is_that_of_topk(length: int, share: float, seed: int) -> None:
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed))  # no two are equal
    values = (order + 1).float() * torch.where(order % 2 == 0, 1, -1)
    number = max(1, int(length * share))
    assert set(largest(values, number).tolist()) == set(torch.topk(values.abs(), number).indices.tolist())


@pytest.mark.parametrize("fill", [0.0, 1.0, float("nan")])
def test_a_selection_has_its_size_where_values_are_equal(fill: float) -> None:
    values = torch.full((100_000,), fill)
    assert len(set(largest(values, 1000).tolist())) == 1000


def test_values_where_the_sample_has_none() -> None:
    values = torch.zeros(100_000)
    values[1::6] = 5.0  # the sample is of every sixth
    values[3] = float("nan")
    chosen = largest(values, 900)
    assert len(set(chosen.tolist())) == 900
    assert bool((values[chosen] != 0).all())
    assert 3 in chosen.tolist()


@pytest.mark.parametrize("fp16", [False, True])
@pytest.mark.parametrize("number", [1, 2, 7])
def test_a_message_is_read_as_it_was_written(number: int, fp16: bool) -> None:
    index, values = torch.arange(number) * 1000, torch.linspace(-1e6, 1e-3, number)
    message, sent = pack(index, values, fp16)
    assert len(message) == words(number, fp16)
    read_index, read_values = unpack(message, number, fp16)
    assert torch.equal(read_index, index)
    assert torch.equal(read_values, sent)
    assert bool(read_values.isfinite().all())


def test_thresholds_are_those_of_the_guide() -> None:
    config = read({"LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_2D_ALLREDUCE": "1"})
    assert [config.compresses(size) for size in (1048575, 1048576)] == [False, True]
    assert [config.reduces_2d(size) for size in (1073741824, 1073741825)] == [True, False]
    assert config.describe().startswith(
        "LIGHT_2D_ALLREDUCE=1 LIGHT_INTRA_SIZE=8 LIGHT_HIERARCHICAL_THRESHOLD=1073741824"
    )


def test_without_variables_nothing_is_on() -> None:
    config = read({"PATH": "/bin"})
    assert not config.compresses(1 << 40)
    assert not config.reduces_2d(1)


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"LIGHT_TOPK_RATIO": "0"}, "above 0, at most 1"),
        ({"LIGHT_TOPK_RATIO": "nan"}, "above 0, at most 1"),
        ({"LIGHT_TOPK_ALLREDUCE": "true"}, "0 or 1"),
        ({"LIGHT_INTRA_SIZE": "0"}, "1 or larger"),
        ({"LIGHT_TOPK_THRESHOLD": "1MiB"}, "an integer"),
        ({"LIGHT_TOPK_TRESHOLD": "1"}, "unknown: LIGHT_TOPK_TRESHOLD"),
    ],
)
def test_what_is_no_value(environ: dict[str, str], text: str) -> None:
    with pytest.raises(LightError, match=text):
        read(environ)


def test_hosts_whose_ranks_are_scrambled() -> None:
    places = [Place("a", 0), Place("b", 0), Place("b", 1), Place("a", 1)]
    grid = arrange(places, 8, two_d=True)
    assert (grid.inner, grid.outer, grid.remark) == (((0, 3), (1, 2)), ((0, 1), (3, 2)), "")


def test_two_hosts_on_one_machine() -> None:
    grid = arrange([Place("a", 0), Place("a", 1), Place("a", 0), Place("a", 1)], 2, two_d=True)
    assert (grid.hosts, grid.inner) == (2, ((0, 1), (2, 3)))


def test_groups_within_hosts() -> None:
    grid = arrange([Place(host, rank) for host in "ab" for rank in range(4)], 2, two_d=True)
    assert (grid.hosts, grid.inner) == (2, ((0, 1), (2, 3), (4, 5), (6, 7)))


@pytest.mark.parametrize(
    ("ranks", "intra", "two_d", "inner_size", "remark"),
    [
        ((2, 1), 8, True, 1, "hosts have 1 to 2 ranks"),
        ((4, 4), 3, True, 4, "LIGHT_INTRA_SIZE=3 does not divide"),
        ((2, 2), 8, False, 1, "LIGHT_2D_ALLREDUCE=1 would send less"),
        ((1, 1), 8, False, 1, ""),
    ],
)
def test_a_grid_that_is_not_as_configured_is_said(
    ranks: tuple[int, ...], intra: int, two_d: bool, inner_size: int, remark: str
) -> None:
    places = [Place(str(host), rank) for host, number in enumerate(ranks) for rank in range(number)]
    grid = arrange(places, intra, two_d)
    assert grid.inner_size == inner_size
    assert remark in grid.remark
    assert bool(remark) == bool(grid.remark)


def test_pieces_are_full_when_they_reach_the_size() -> None:
    assert pieces([10, 10, 30, 5, 5], 20) == [2, 1, 2]
    assert pieces([10, 10, 30], 0) == [1, 1, 1]
    assert pieces([], 20) == []


def test_warm_up_sends_everything() -> None:
    row = engines(2, 1, {**TOPK, "LIGHT_TOPK_WARMUP_STEPS": "3", "LIGHT_TOPK_RATIO": "0.1"})
    sparse = []
    for number in range(4):
        result = step(row, [torch.arange(1.0, 41.0)] * 2)[0]
        sparse.append((number + 2, int((result == 0).sum())))
    assert sparse == [(2, 0), (3, 0), (4, 36), (5, 36)]


def test_a_checkpoint_continues() -> None:
    environ = {**TWO_D, **TOPK, "LIGHT_TOPK_RATIO": "0.1"}
    row, again = engines(2, 2, environ), engines(2, 2, environ)
    step(row, gradients(4, 40, 0))
    for one, other in zip(row, again, strict=True):
        assert other.load_state_dict(one.state_dict())
        assert (one.warms_up(), other.step) == (False, 2)
        other.begin_step()
        assert other.warms_up(), "the first step of a process sends all"
    assert torch.equal(residual(again, 40), residual(row, 40))


def test_a_checkpoint_of_other_ranks_is_dropped() -> None:
    environ = {**TOPK, "LIGHT_TOPK_WARMUP_STEPS": "5", "LIGHT_TOPK_RATIO": "0.1"}
    row, fewer = engines(4, 1, environ), engines(2, 1, environ)
    for number in range(6):
        step(row, gradients(4, 40, number))
    assert row[0].residuals
    assert not fewer[0].load_state_dict(row[0].state_dict())
    assert (fewer[0].residuals, fewer[0].step, fewer[0].warms_up()) == ({}, 7, True)


def test_predicted_bytes_of_resnet50() -> None:
    size = 102_228_128
    one = {mode: engines(2, 2, MODES[mode])[0].bytes_per_step([size], 4) for mode in ("topk", "2d-topk", "2d")}
    assert one["2d"] == {"dense": 153_342_192, "light": 102_228_128}
    assert one["2d-topk"]["light"] == pytest.approx(size * 0.02, rel=1e-3)
    assert one["topk"]["light"] == pytest.approx(size * 0.06, rel=1e-3)
    assert Engine(read(MODES["topk"]), flat(4, 1)).bytes_per_step([size], 4) == {"dense": 0, "light": 0}
