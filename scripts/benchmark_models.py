"""The models of the synthetic benchmark: torchvision's where it imports, else the few of our own.

The own ones follow the papers (ResNet: arXiv 1512.03385, VGG: arXiv 1409.1556) and have exactly as many parameters, in
as many tensors, as torchvision's: what is communicated is the same. Runs in training images: Python 3.8, torch 1.11.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

CLASSES = 1000  # ImageNet's, which all parameter counts are quoted for


class UnknownModelError(Exception):
    """There is no model of that name; the text says which there are."""


def build(name: str) -> nn.Module:
    """Return a model that maps a batch of images (N x 3 x S x S) to N x 1000 scores, with random weights.

    Raises:
        UnknownModelError: Neither torchvision (where it imports) nor this file has it.
    """
    makers = {**_OWN, **_torchvision_models()} if name != "tiny" else _OWN
    if name not in makers:
        close = difflib.get_close_matches(name, makers, n=3)
        known = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(_OWN)}"
        theirs = "torchvision has more" if len(makers) > len(_OWN) else "torchvision, which has more, does not import"
        raise UnknownModelError(f"unknown model {name!r}: {known}; {theirs}")
    model: nn.Module = makers[name]()
    return model


def _torchvision_models() -> dict[str, Callable[[], Any]]:
    """Return torchvision's classification models, none where it does not import."""
    try:
        models = importlib.import_module("torchvision.models")
    except (ImportError, OSError, RuntimeError):  # RuntimeError: a torchvision built for GPUs beside a CPU torch
        return {}
    return {
        name: maker
        for name, maker in vars(models).items()
        if name.islower() and callable(maker) and not maker.__module__.startswith("torchvision.models._")
    }


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution with batch normalisation, which makes a bias useless."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class _Residual(nn.Module):
    """Adds what a block computes to its input, which is projected where the shapes differ."""

    def __init__(self, block: nn.Sequential, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        same = stride == 1 and inputs == outputs
        self.block = block
        self.shortcut = nn.Identity() if same else _convolution(inputs, outputs, 1, stride)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.block(images) + self.shortcut(images))


def _basic(inputs: int, width: int, stride: int) -> _Residual:
    block = nn.Sequential(_convolution(inputs, width, 3, stride), nn.ReLU(inplace=True), _convolution(width, width, 3))
    return _Residual(block, inputs, width, stride)


def _bottleneck(inputs: int, width: int, stride: int) -> _Residual:
    """Return the block of the deep ResNets, its stride in the 3 x 3 convolution as torchvision has it."""
    block = nn.Sequential(
        _convolution(inputs, width, 1),
        nn.ReLU(inplace=True),
        _convolution(width, width, 3, stride),
        nn.ReLU(inplace=True),
        _convolution(width, 4 * width, 1),
    )
    return _Residual(block, inputs, 4 * width, stride)


def _resnet(block: Callable[[int, int, int], _Residual], expansion: int, depths: tuple[int, ...]) -> nn.Module:
    layers: list[nn.Module] = [_convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)]
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for index in range(depth):
            layers.append(block(channels, width, 2 if stage and not index else 1))
            channels = width * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def _vgg16() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    features = channels * 7 * 7
    for _ in range(2):
        layers += [nn.Linear(features, 4096), nn.ReLU(inplace=True), nn.Dropout()]
        features = 4096
    return nn.Sequential(*layers, nn.Linear(features, CLASSES))


def _tiny() -> nn.Module:
    """Return a network small enough for tests on a CPU."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, CLASSES)
    )


_OWN: dict[str, Callable[[], nn.Module]] = {
    "resnet18": lambda: _resnet(_basic, 1, (2, 2, 2, 2)),
    "resnet50": lambda: _resnet(_bottleneck, 4, (3, 4, 6, 3)),
    "resnet101": lambda: _resnet(_bottleneck, 4, (3, 4, 23, 3)),
    "vgg16": _vgg16,
    "tiny": _tiny,
}
