"""Why a capture is not read is on stderr as well as in --json."""

from pathlib import Path

import pytest

from tests.support.command_line import call

GIDS = "mlx5_0 port 1 ==> ens3 (Up)\n$ ibv_devinfo -v\nhca_id: mlx5_0\n\ttransport: InfiniBand (0)\n\t\tport: 1\n\t\t\tGID[ 0]: what\n"

ROW = "$ show_gids\n{} 1 3 fe80:0000:0000:0000:0000:0000:0000:0001 v2 bond0\n"
TWO = ROW.format("mlx5_0") + ROW.format("mlx5_1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("$ nvidia-smi -L\nGPU 0: NVIDIA A100 (UUID: GPU-XXXXXXXX-XXXX)\n", "gpu.gpus: line 1: 'GPU 0: NVIDIA A100"),
        ("modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument\n", "rdma.peer_memory.loaded: modprobe"),
        (GIDS, "ibv_devinfo: line"),
        (
            "GPU 0: Quadro RTX 8000\n\t Link 0: 25.781 GB/s\n",
            "nvlink --status is not supported",
        ),
        (
            "CA 'mlx5_0'\n\tCA type: MT4123\n",
            "ibstat: the output for mlx5_0 is cut off: it shows 0 of an unknown number of ports",
        ),
        (TWO, "there are 2 captures of show_gids, and they differ"),
    ],
)
def test_the_reason_is_on_stderr(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "capture.txt"
    file.write_text(text, encoding="ascii")
    found = call("facts", "--from", str(file))
    assert said in found.stderr
