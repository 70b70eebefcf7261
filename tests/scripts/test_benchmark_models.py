"""The benchmark's own models have the real ones' parameters, and torchvision's come first where it imports."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.e2e,  # torch alone takes as long to import as hundreds of fast tests
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="cannot: there is no torch"),
]
SCRIPTS = Path(__file__).parents[2] / "scripts"

# (parameters, parameter tensors), as torchvision's documentation and models have them
REAL = {
    "resnet18": (11_689_512, 62),
    "resnet50": (25_557_032, 161),
    "resnet101": (44_549_160, 314),
    "vgg16": (138_357_544, 32),
}


@pytest.fixture
def torch() -> Any:
    return importlib.import_module("torch")


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("benchmark_models")


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Return a function that puts a torchvision of our own, with these models, before any other."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]

    def put(models: str) -> None:
        (tmp_path / "torchvision").mkdir()
        (tmp_path / "torchvision" / "__init__.py").write_text("")
        (tmp_path / "torchvision" / "models.py").write_text(models)
        monkeypatch.syspath_prepend(tmp_path)
        forget()

    yield put
    forget()


@pytest.mark.parametrize("name", REAL)
def test_parameters_are_as_many_as_the_real_ones(torch: Any, models: Any, name: str) -> None:
    with torch.device("meta"):  # shapes only
        parameters = list(models._OWN[name]().parameters())
    assert (sum(each.numel() for each in parameters), len(parameters)) == REAL[name]


@pytest.mark.parametrize("name", [*REAL, "tiny"])
@pytest.mark.parametrize("size", [32, 64])
def test_images_become_a_thousand_scores(torch: Any, models: Any, name: str, size: int) -> None:
    with torch.device("meta"):
        assert models._OWN[name]()(torch.zeros(2, 3, size, size)).shape == (2, 1000)


def test_scores_depend_on_the_image_through_every_parameter(torch: Any, models: Any) -> None:
    model = models._OWN["resnet18"]()
    model(torch.randn(2, 3, 64, 64)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_a_torchvision_that_does_not_import_is_done_without(
    torch: Any, models: Any, torchvision: Callable[[str], None]
) -> None:
    torchvision("raise RuntimeError('operator torchvision::nms does not exist')")
    assert models.build("resnet18")(torch.zeros(2, 3, 32, 32)).shape == (2, 1000)
    with pytest.raises(models.UnknownModelError, match=r"did you mean resnet50.*torchvision.* does not import"):
        models.build("resnt50")


def test_torchvisions_models_come_first(models: Any, torchvision: Callable[[str], None]) -> None:
    torchvision("""
from torch import nn

def resnet18():
    return nn.Linear(1, 2)

def wide_net():
    return nn.Linear(1, 3)

def get_model():
    raise NotImplementedError

get_model.__module__ = "torchvision.models._api"
resnet18.__module__ = wide_net.__module__ = "torchvision.models.nets"
ResNet = nn.Linear
""")
    assert models.build("resnet18").out_features == 2
    assert models.build("wide_net").out_features == 3
    assert sum(parameter.numel() for parameter in models.build("tiny").parameters()) < 1_000_000
    for name in ("get_model", "ResNet", "__name__"):
        with pytest.raises(models.UnknownModelError, match="unknown model"):
            models.build(name)
