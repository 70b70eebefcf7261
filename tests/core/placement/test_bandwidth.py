"""What a link carries, by the names that nvidia-smi gives GPUs."""

import pytest

from taco_launch.core.placement.bandwidth import DEFAULT, KNOWN, figures_of


@pytest.mark.parametrize(
    ("name", "link", "gbps"),
    [
        ("Tesla P100-SXM2-16GB", "NV1", 20),
        ("Tesla V100-SXM2-32GB", "NV2", 50),
        ("Tesla V100-SXM3-32GB", "NV6", 150),
        ("NVIDIA A100-SXM4-80GB", "NV12", 300),
        ("NVIDIA A800-SXM4-80GB", "NV8", 200),
        ("NVIDIA H100 80GB HBM3", "NV18", 450),
        ("NVIDIA H20", "NV18", 450),
        ("NVIDIA B200", "NV18", 900),
        ("NVIDIA RTX A6000", "NV4", 56.25),
        ("NVIDIA GeForce RTX 3090", "NV4", 56.25),
        ("A4500", "NV4", 56.25),
        ("Tesla T4", "PIX", 12),
        ("NVIDIA GeForce RTX 4090", "PIX", 24),
        ("NVIDIA GeForce RTX 5090", "PIX", 48),
        ("NVIDIA L40S", "PIX", 24),
        ("NVIDIA L4", "SYS", 10),
        ("NVIDIA A10G", "NODE", 18),
        ("NVIDIA H200", "PHB", 40),
        ("NVIDIA RTX 6000 Ada Generation", "PXB", 22),
        ("Quadro RTX 6000", "PXB", 11),
    ],
)
def test_figures(name: str, link: str, gbps: float) -> None:
    figures = figures_of(name)
    assert figures is not None
    assert figures.gbps(link) == gbps


def test_unknown_models_and_known_ones() -> None:
    assert figures_of("NVIDIA Q9000") is None
    assert figures_of("") is None
    assert all(figures_of(name) for name in KNOWN)
    paths = [DEFAULT.gbps(path) for path in ("NV1", "PIX", "PXB", "PHB", "NODE", "SYS")]
    assert paths == sorted(paths, reverse=True) == [25, 12, 11, 10, 9, 6]
    with pytest.raises(KeyError):
        DEFAULT.gbps("OK")
