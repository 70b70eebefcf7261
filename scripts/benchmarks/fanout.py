#!/usr/bin/env python3
"""Measures facts on many hosts at once, against a pool of OpenSSH clients and against ansible, on one sshd of its own.

Addresses 127.x.y.z of one sshd on loopback play the hosts; all clients use the same key exchange (curve25519).
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import one_sshd
import pairing
import verdicts

_COUNTS = (16, 64, 256)
_MANY = 1000
_FORKS = 50
# As many at once as ours: one machine plays all hosts here, and how many it plays at once slows each of them down.
_CLIENTS = 64
_BAR_SSH, _BAR_ANSIBLE = 1.25, 0.5
_ME = (sys.executable, str(Path(__file__).resolve()))
# Without `network`: it lists whose the listening ports are, for which ss looks into every process of the machine, and
# here the processes of all hosts are on one.
_SUBJECTS = ("system", "docker", "image", "gpu", "topology", "rdma")
_PROBE = " ".join(("bench", *_SUBJECTS))
_ANSIBLE = """
[defaults]
forks = {forks}
inventory = {folder}/ansible-{count}
gathering = explicit
[ssh_connection]
pipelining = True
ssh_args = -F {folder}/ssh_config
"""


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code; with a first word of its own, be one of the processes that this takes."""
    parts = {"--clients": _clients, "--ours": _ours}
    if arguments[:1] and arguments[0] in parts:
        return parts[arguments[0]](Path(arguments[1]), int(arguments[2]))
    if arguments[:1] == ["--measure"]:
        return _measure(Path(arguments[1]), _asked(arguments[2:]))
    _asked(arguments)
    if shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") is None or os.geteuid() != 0:
        verdicts.tell("it starts an sshd of its own: that takes root, and openssh-server")
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch,
        one_sshd.start(Path(scratch)),
    ):
        # Whoever measures waits for all its children to end: the sshd must be none of them.
        return subprocess.run([*_ME, "--measure", scratch, *arguments], check=False).returncode


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.parser(
        f"facts on {', '.join(map(str, _COUNTS))} addresses of one sshd, against a pool of {_CLIENTS} ssh clients "
        f"running the same script and ansible raw ({_FORKS} forks, pipelining); {_MANY} addresses once.",
        "example:\n  .venv/bin/python scripts/benchmarks/fanout.py --runs 5",
        timeout=300.0,
    )
    parser.set_defaults(runs=5)
    return parser.parse_args(arguments)


def _measure(folder: Path, asked: argparse.Namespace) -> int:
    environ = pairing.environment(TACO_LAUNCH_STATE=f"{folder}/state", HOME=str(folder))
    environ.pop("SSH_AUTH_SOCK", None)
    tables: list[list[tuple[str, ...]]] = []
    bars: list[verdicts.Verdict] = []
    data: dict[str, object] = {}
    for count in _COUNTS:
        found = _measured(folder, count, environ, asked.runs, asked.timeout)
        tables.append(verdicts.rows(found, ("x ssh",), functools.partial(_times, found)))
        bars += _bars(found, count)
        data[str(count)] = verdicts.commands(found)
    many = _many(folder, environ)
    report = verdicts.Report("fanout", asked.runs, [*tables, [(many,)]], bars, {**data, "many": many})
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _measured(
    folder: Path, count: int, environ: dict[str, str], runs: int, timeout: float
) -> dict[str, pairing.Measured]:
    (folder / f"hosts-{count}").write_text("".join(f"{address}\n" for address in one_sshd.addresses(count)))
    (folder / f"ansible-{count}").write_text((folder / f"hosts-{count}").read_text())
    config = folder / f"ansible-{count}.cfg"
    config.write_text(_ANSIBLE.format(forks=_FORKS, folder=folder, count=count))
    one_sshd.inventory(folder, count)
    probe = (folder / "probe.sh").read_text()
    contenders = (
        pairing.Contender(_name("facts", count), (*_ME, "--ours", str(folder), str(count))),
        pairing.Contender(_name("ssh pool", count), (*_ME, "--clients", str(folder), str(count))),
        pairing.Contender(_name("ansible raw", count), ("ansible", "all", "-m", "raw", "-a", _raw(probe))),
    )
    environ = {**environ, "ANSIBLE_CONFIG": str(config)}
    return pairing.interleave(contenders, environ, runs=runs, timeout=timeout, tell=verdicts.tell)


def _raw(probe: str) -> str:
    """Return the script as ansible takes it: no templates, as one command."""
    return (
        "/bin/sh -c " + "'" + ("{% raw %}" + probe + "{% endraw %}").replace("'", "'\\''") + f"' - {_PROBE} </dev/null"
    )


def _name(who: str, count: int) -> str:
    return f"{who}, {count} hosts"


def _times(found: Mapping[str, pairing.Measured], name: str) -> tuple[str, ...]:
    _, _, ratio = _ratio(found, name, "ssh pool")
    return ("" if ratio is None else f"{ratio.median:.2f}",)


def _ratio(
    found: Mapping[str, pairing.Measured], name: str, other: str
) -> tuple[pairing.Measured, pairing.Measured, pairing.Spread | None]:
    one, two = found[name], next(entry for key, entry in found.items() if key.startswith(other))
    return one, two, pairing.paired(one, two, lambda first, second: first.wall / second.wall)


def _bars(found: Mapping[str, pairing.Measured], count: int) -> Iterator[verdicts.Verdict]:
    for other, bar in (("ssh pool", _BAR_SSH), ("ansible raw", _BAR_ANSIBLE)):
        name = _name("facts", count)
        one, two, ratio = _ratio(found, name, other)
        missing = one.missing or two.missing
        yield verdicts.Verdict(f"{name}, against {other}", ratio, bar, f"x {other}", missing=missing)


def _many(folder: Path, environ: Mapping[str, str]) -> str:
    """Ask a thousand addresses once; give time and peak memory in words."""
    one_sshd.inventory(folder, _MANY)
    argv = [*_ME, "--ours", str(folder), str(_MANY)]
    begin = time.perf_counter()
    done = subprocess.run(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        return f"facts, {_MANY} hosts: failed: {done.stderr.strip()[-200:]}"
    return f"facts, {_MANY} hosts: {seconds:.1f} s, peak memory {done.stderr.strip()} MiB"


def _ours(folder: Path, count: int) -> int:
    """Run the probe on `count` addresses as `taco-launch facts` does; say the peak memory in MiB on stderr."""
    from taco_launch.hosts.fanout import connect  # noqa: PLC0415
    from taco_launch.hosts.gather_facts import gather  # noqa: PLC0415 - the clients' half is not to pay for it
    from taco_launch.hosts.inventory.load import load  # noqa: PLC0415
    from taco_launch.hosts.remote.credentials import Credentials  # noqa: PLC0415

    inventory = load(str(folder / f"cluster-{count}.yaml"), os.environ, frozenset)
    with connect(inventory, inventory.hosts, Credentials()) as fanout:
        answers = gather(fanout, _SUBJECTS)
    failed = [answer for answer in answers if answer.error]
    for answer in failed:
        print(answer.error, file=sys.stderr)
    print(len(answers))
    if not failed:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, file=sys.stderr)
    return 1 if failed else 0


def _clients(folder: Path, count: int) -> int:
    """Run the probe on `count` addresses by a pool of OpenSSH clients."""
    probe = (folder / "probe.sh").read_bytes()

    def ask(address: str) -> subprocess.CompletedProcess[bytes]:
        argv = ["ssh", "-F", str(folder / "ssh_config"), address, f"/bin/sh -s -- {_PROBE}"]
        return subprocess.run(argv, input=probe, capture_output=True, check=False)

    with ThreadPoolExecutor(_CLIENTS) as pool:
        answers = list(pool.map(ask, one_sshd.addresses(count)))
    sys.stdout.buffer.write(b"".join(answer.stdout for answer in answers))
    for answer in answers:
        if answer.returncode:
            print(answer.stderr.decode(errors="replace"), file=sys.stderr)
    return max(answer.returncode for answer in answers)


if __name__ == "__main__":
    verdicts.start(main)
