"""place: offline, of what nvidia-smi printed or facts; what cannot be placed is said, and nothing is guessed silently."""

import io
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from taco_launch.cli.main import cli
from taco_launch.core.errors import PlacementError, SpecError, UsageError
from taco_launch.hosts import read_captures
from tests.support.placement_machines import ABOUT, FOLDER

DGX1V = str(FOLDER / "dgx1v.txt")
MODEL = ABOUT["dgx1v"]["model"]
KEYS = ["gpus", "ring", "bottleneck_gbps", "sum_gbps", "why", "alternatives"]
LISTED = "".join(
    f"GPU {gpu}: {model} (UUID: GPU-{gpu:08x}-aaaa-bbbb-cccc-000000000000)\n"
    for gpu, model in enumerate(["Tesla V100-SXM2-32GB"] * 2 + ["Tesla P100-SXM2-16GB"] * 6)
)


def place(*args: str, text: str = "") -> Result:
    return CliRunner().invoke(cli, ["place", *args], input=text)


def refused(*args: str, text: str = "") -> UsageError | SpecError | PlacementError:
    error = place(*args, text=text).exception
    assert isinstance(error, UsageError | SpecError | PlacementError), error
    return error


def told(*args: str, text: str = "") -> dict[str, Any]:
    done = place(*args, "--json", text=text)
    assert done.exit_code == 0, done.exception
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_json_has_these_keys() -> None:
    done = place("--topology", DGX1V, "--gpus", "4", "--model", MODEL, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert list(found) == KEYS
    assert found["gpus"] == [0, 1, 2, 3]
    assert found["ring"] == [0, 3, 2, 1]
    assert (found["bottleneck_gbps"], found["sum_gbps"]) == (25.0, 225.0)
    assert [each["gpus"] for each in found["alternatives"]] == [[4, 5, 6, 7], [0, 3, 4, 7]]
    assert all(list(each) == KEYS[:-1] for each in found["alternatives"])


def test_a_table() -> None:
    done = place("--topology", DGX1V, "--gpus", "2", "--model", "v100")
    head, chosen, *lost = done.stdout.splitlines()
    assert head.split() == ["GPUS", "RING", "GB/S", "SUM", "WHY"]
    assert chosen.split()[:5] == ["chosen", "0,3", "0-3", "50", "50"]
    assert [line.split()[0] for line in lost[:2]] == ["lost", "lost"]
    assert "25 GB/s per NVLink, PCIe 3.0" in lost[-1]


def test_a_pipe_is_read_as_long_as_somebody_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_captures, "_WRITER_SECONDS", 0.2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    message = refused("--topology", str(pipe), "--gpus", "4").message
    assert message == f"{pipe}: is a pipe, and nothing was written to it within 0.2 s"
    matrix = Path(DGX1V).read_bytes()

    def write(pause: float) -> None:
        with pipe.open("wb") as file:
            for part in (matrix[:100], matrix[100:]):
                time.sleep(pause)
                file.write(part)
                file.flush()

    for pause in (0.0, 0.3):
        writer = threading.Thread(target=write, args=(pause,))
        writer.start()
        assert read_captures.read((pipe,), io.BytesIO())[0] == (("pipe", matrix),)
        writer.join()
    made = f"cat {shlex.quote(DGX1V)} | exec {shlex.quote(sys.executable)} -m taco_launch place --topology /dev/fd/0 --gpus 4"
    done = subprocess.run(["sh", "-c", made], capture_output=True, text=True, check=True)  # as <(...) is
    assert "chosen  0,1,2,3" in done.stdout
    endless = subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE)
    assert endless.stdout is not None
    with endless, endless.stdout as end:
        message = refused("--topology", f"/dev/fd/{end.fileno()}", "--gpus", "4").message
    assert message.endswith("larger than 16 MiB, so it is not a capture")


@pytest.mark.parametrize(
    ("machine", "model", "link"),
    [
        ("dgx1v", "H100", "NV1"),
        ("dgx1v", "A100", "NV1"),
        ("dgx1v", "T4", "NV1"),
        ("a100x8", "V100", "NV12"),
        ("h100x8", "A100", "NV18"),
        *((name, about["model"].removeprefix("NVIDIA "), "") for name, about in ABOUT.items()),
    ],
)
def test_a_model_that_has_no_such_links(machine: str, model: str, link: str) -> None:
    """Is taken at the user's word, and said."""
    done = place("--topology", str(FOLDER / f"{machine}.txt"), "--gpus", "1", "--model", model)
    told = f"warning: --model {model}: GPUs of this model have no {link} links, but those in "
    assert (done.exit_code, done.stderr[: len(told)]) == (0, told if link else "")


def test_standard_input_and_a_model_that_is_not_told() -> None:
    text = Path(DGX1V).read_text("utf-8")
    done = place("--topology", "-", "--gpus", "3", "--free", "0,4-6", text=text)
    assert done.exit_code == 0
    assert "warning: standard input does not show the GPU model" in done.stderr
    assert done.stdout.splitlines()[1].split()[1] == "4,5,6"


def test_facts_that_were_saved(tmp_path: Path) -> None:
    """Of one host and of several; the models that they tell decide, and what was edited is refused."""
    folder = tmp_path / "gpu1"
    folder.mkdir()
    (folder / "topo.txt").write_text(Path(DGX1V).read_text("utf-8"))
    (folder / "list.txt").write_text(LISTED)
    facts = CliRunner().invoke(cli, ["facts", "--from", str(folder), "--json"])
    one = json.loads(facts.stdout)
    saved = tmp_path / "facts.json"
    for document, source in (
        (one, saved),
        ({"hosts": [one], "differences": [], "fabric": None}, saved),
        (None, folder),
    ):
        saved.write_text(json.dumps(document))
        assert refused("--topology", str(source), "--gpus", "2").message.endswith(
            "the GPUs are not all of one model: Tesla V100-SXM2-32GB: GPU 0,1; Tesla P100-SXM2-16GB: GPU 2,3,4,5,6,7"
        )
        assert told("--topology", str(source), "--gpus", "2", "--model", "v100")["bottleneck_gbps"] == 25
        assert told("--topology", str(source), "--gpus", "2", "--model", "P100")["bottleneck_gbps"] == 40
        assert told("--topology", str(source), "--gpus", "2", "--free", "4-7")["gpus"] == [4, 7]
        assert "no free GPU" in refused("--topology", str(source), "--gpus", "1", "--model", "A100").message
        assert refused("--topology", str(source), "--gpus", "3", "--model", "v100").exit_code == 4
    saved.write_text(
        json.dumps({"hosts": [{**one, "host": "gpu1"}, {**one, "host": "gpu2"}], "differences": [], "fabric": None})
    )
    assert "describes 2 hosts: gpu[1-2]" in refused("--topology", str(saved), "--gpus", "1").message
    saved.write_text(json.dumps({**one, "topology": None, "unknown": [{"where": "topology", "reason": "no driver"}]}))
    assert "topology is not known: no driver" in refused("--topology", str(saved), "--gpus", "1").message
    for row, column, link in ((1, 0, "NV2"), (3, 3, "SYS"), (0, 0, "OK"), (0, 1, "X")):
        broken = json.loads(json.dumps(one))
        broken["topology"]["links"][row][column] = link
        saved.write_text(json.dumps(broken))
        assert (
            "is not the output of `taco-launch facts --json" in refused("--topology", str(saved), "--gpus", "1").message
        )
    saved.write_text("{}")
    assert refused("--topology", str(saved), "--gpus", "1").exit_code == 2


def test_mig_is_refused(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text((FOLDER / "desktop_phb.txt").read_text("utf-8"))
    uuid = "GPU-0000000{}-aaaa-bbbb-cccc-000000000000"
    rows = [f"{gpu}, {uuid.format(gpu)}, NVIDIA A30, {mig}\n" for gpu, mig in enumerate(["Enabled", "Disabled"])]
    (tmp_path / "query.csv").write_text("index, uuid, name, mig.mode.current\n" + "".join(rows))
    error = refused("--topology", str(tmp_path), "--gpus", "1")
    assert "GPU 0: MIG mode is on" in error.message
    assert error.hint == "omit it: --free 1"
    assert told("--topology", str(tmp_path), "--gpus", "1", "--free", "1")["gpus"] == [1]


NO_MATRIX = "it contains no matrix of nvidia-smi topo -m"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("NV1", "OK").replace("NV2", "OK"), "nvidia-smi topo -p2p"),
        (lambda text: text[:700], "is cut off"),
        (lambda text: text.replace("GPU1\tNV1", "GPU1\tNV2"), "one of them is wrong"),
        (lambda _text: "hello\n", NO_MATRIX),
        (lambda _text: "", NO_MATRIX),
    ],
)
def test_what_is_no_matrix(change: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(change(Path(DGX1V).read_text("utf-8")))
    error = refused("--topology", str(file), "--gpus", "2")
    assert message in error.message
    assert error.message.startswith(str(file))
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--gpus", "3", "--free", "4,6"), 4, "3 GPUs do not fit: free: 4,6"),
        (("--gpus", "1", "--free", "0,8"), 2, "--free 8: the GPUs in"),
        (("--gpus", "1", "--free", "2-1"), 2, "'2-1': indices of GPUs are written 0,2,4-7"),
        (("--gpus", "1", "--free", "x"), 2, "'x': indices of GPUs are written 0,2,4-7"),
        (("--gpus", "2", "--free", "1,1"), 2, "'1,1': 1 is listed twice"),
        (("--gpus", "1", "--model", "V10"), 2, "--model V10: the link bandwidths of this model are unknown"),
    ],
)
def test_what_cannot_be_placed(args: tuple[str, ...], code: int, message: str) -> None:
    error = refused("--topology", DGX1V, *args)
    assert message in error.message
    assert error.exit_code == code


@pytest.mark.parametrize("args", [("--gpus", "0"), ("--free", "1")])
def test_usage(args: tuple[str, ...]) -> None:
    assert isinstance(refused("--topology", DGX1V, *args), UsageError)
