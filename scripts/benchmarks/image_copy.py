#!/usr/bin/env python3
"""Measures how an image that no registry has comes to lab hosts: set-up's tree, against `docker save | ssh docker load` each.

The links are limited (tc-tbf): what each host sends, and what this machine sends to all of them. The image is mostly
random bytes, which nothing packs. Both start with hosts that have an engine and not the image; set-up's time is that of
its whole command, from the first connection on.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pairing
import verdicts

_LAB = "image-copy"
_IMAGE = "taco-launch-benchmark:image-copy"
_MODULE = (sys.executable, "-m", "taco_launch")
# Of one copy after the other: eight take eight times as long as one, a tree of two hands twice.
_BAR = 0.5
# What set-up looks for in an image, beside a shell.
_PROGRAMS = ("sshd", "ssh", "mpirun", "python3")


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code; `--measure FOLDER` is the process that does so, without children of its own."""
    if arguments[:1] == ["--measure"]:
        return _measure(Path(arguments[1]), _asked(arguments[2:]))
    asked = _asked(arguments)
    if os.geteuid() != 0 or shutil.which("docker") is None:
        verdicts.tell("it brings a lab up and limits its links: that takes root, and docker")
        return 2
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        environ = pairing.environment(TACO_LAUNCH_STATE=f"{scratch}/state")
        with _image(asked.size << 20), _lab(Path(scratch), asked.hosts, asked.rate, environ):
            me = (sys.executable, str(Path(__file__).resolve()), "--measure", scratch)
            return subprocess.run([*me, *arguments], env=environ, check=False).returncode


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.parser(
        "an image to lab hosts: setup --only image, against docker save | ssh docker load for one host after another.",
        "example:\n  .venv/bin/python scripts/benchmarks/image_copy.py --hosts 8 --rate 100mbit --size 64",
        timeout=600.0,
    )
    parser.set_defaults(runs=3)
    parser.add_argument("--hosts", type=verdicts.count, default=8, metavar="N", help="how many (default: 8)")
    parser.add_argument("--rate", default="100mbit", help="of every link, as tc takes it (default: 100mbit)")
    parser.add_argument("--size", type=verdicts.count, default=64, metavar="MIB", help="of the image (default: 64)")
    return parser.parse_args(arguments)


def _measure(folder: Path, asked: argparse.Namespace) -> int:
    environ = pairing.environment(TACO_LAUNCH_STATE=f"{folder}/state")
    names = _names(asked.hosts)
    ssh = f"ssh -F {folder}/state/lab/{_LAB}/ssh_config"
    each = " && ".join(f"docker save {_IMAGE} | {ssh} {name} docker load -q" for name in names)
    removed = " & ".join(f"docker exec {_container(name)} docker image rm {_IMAGE}" for name in names) + " & wait"
    again = ("sh", "-c", removed)
    tree = (*_MODULE, "-i", f"{folder}/copy.yaml", "setup", "--only", "image", "--yes")
    contenders = (
        pairing.Contender("setup", tree, again),
        pairing.Contender("one by one", ("sh", "-c", each), again),
    )
    found = pairing.interleave(contenders, environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell)
    ratio = pairing.paired(found["setup"], found["one by one"], lambda first, second: first.wall / second.wall)
    told = ("" if ratio is None else f"{ratio.median:.2f} ({ratio.least:.2f}..{ratio.most:.2f})", "1")
    by_name = dict(zip(found, told, strict=True))
    table = verdicts.rows(found, ("x one by one",), lambda name: (by_name[name],))
    what = f"setup, {asked.hosts} hosts at {asked.rate}"
    missing = next((entry.missing for entry in found.values() if entry.missing), "")
    bar = verdicts.Verdict(what, ratio, _BAR, "x one by one", missing=missing)
    data = {"hosts": asked.hosts, "rate": asked.rate, "mib": asked.size, "commands": verdicts.commands(found)}
    report = verdicts.Report("image_copy", asked.runs, [table], [bar], data)
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


@contextmanager
def _image(size: int) -> Iterator[None]:
    """Have this machine's engine have an image of a shell, so many random bytes, and the names that set-up looks for."""
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            shell = os.path.realpath("/bin/sh")
            tar.add(shell, "bin/sh")
            for library in _libraries(shell):
                tar.add(os.path.realpath(library), library.lstrip("/"))
            for name in _PROGRAMS:
                _add(tar, f"bin/{name}", b"#!/bin/sh\n")
            _add(tar, "random", os.urandom(size))
        file.seek(0)
        made = ("docker", "import", "-", _IMAGE)
        subprocess.run(made, stdin=file, stdout=subprocess.DEVNULL, check=True)
    try:
        yield
    finally:
        _done(("docker", "image", "rm", _IMAGE), dict(os.environ))


def _libraries(program: str) -> list[str]:
    said = _done(("ldd", program), dict(os.environ))
    return [word for line in said.splitlines() for word in line.split() if word.startswith("/")]


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o755
    tar.addfile(entry, io.BytesIO(data))


@contextmanager
def _lab(folder: Path, hosts: int, rate: str, environ: dict[str, str]) -> Iterator[None]:
    """Have lab hosts with an engine each, behind links of a rate."""
    lab = (*_MODULE, "lab")
    try:
        _done((*lab, "up", "--name", _LAB, "--hosts", str(hosts), "--slots", "1", "--no-image"), environ)
        inventory = folder / "copy.yaml"
        inventory.write_text(json.dumps(_inventory(folder, hosts)))
        _done((*_MODULE, "-i", str(inventory), "setup", "--only", "docker", "--yes"), environ)
        for name in _names(hosts):
            _done((*lab, "fault", "--name", _LAB, name, "slow-link", rate), environ)
        form = "{{range .NetworkSettings.Networks}}{{.NetworkID}}{{end}}"
        network = _done(("docker", "inspect", "--format", form, _container("gpu1")), environ).strip()
        # What this machine sends to the hosts goes by the bridge's own queue; what they send one another does not.
        limit = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "100ms")
        _done(("tc", "qdisc", "replace", "dev", f"br-{network[:12]}", *limit), environ)
        yield
    finally:
        _done((*lab, "down", "--name", _LAB), environ)


def _inventory(folder: Path, hosts: int) -> dict[str, object]:
    files = folder / "state" / "lab" / _LAB
    ssh = {"user": "root", "identity_file": f"{files}/id_ed25519", "known_hosts": f"{files}/known_hosts"}
    form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    environ = dict(os.environ)
    named = {
        name: {"address": _done(("docker", "inspect", "--format", form, _container(name)), environ).strip(), "slots": 1}
        for name in _names(hosts)
    }
    container = {"image": {"name": _IMAGE, "from": "controller"}}
    return {"cluster": "copy", "ssh": ssh, "hosts": named, "container": container}


def _names(hosts: int) -> list[str]:
    return [f"gpu{number}" for number in range(1, hosts + 1)]


def _container(name: str) -> str:
    return f"taco-lab-{_LAB}-{name}"


def _done(argv: Sequence[str], environ: dict[str, str]) -> str:
    """Run a command to its end; what it says on stderr is shown."""
    return subprocess.run(argv, env=environ, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    verdicts.start(main)
