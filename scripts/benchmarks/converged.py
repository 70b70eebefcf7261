#!/usr/bin/env python3
"""Measures `setup --check` of a lab that is set up, against an ansible playbook that checks the same things there.

Both look at package, services, daemon.json, the image's digest, the container with its definition, and the files of ours
with their content; `setup --check` gathers its other facts as well. The hosts get a python3 for ansible's modules.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pairing
import verdicts

_HOSTS = 4
_FORKS = 50
_BAR = 0.25
_OURS, _ANSIBLE = f"taco-launch setup --check, {_HOSTS} hosts", f"ansible-playbook --check, {_HOSTS} hosts"
_STATE = "/var/lib/taco-launch"
# ControlPersist keeps connections over ansible's tasks; with its default, a minute, they would outlast the round.
_CONFIG = """
[defaults]
forks = {forks}
inventory = {folder}/hosts.json
[ssh_connection]
pipelining = True
ssh_args = -F {ssh_config} -o ControlMaster=auto -o ControlPersist=2s
"""
_PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.apt: {name: docker.io, state: present}
    - ansible.builtin.systemd_service: {name: docker, state: started, enabled: true}
    - ansible.builtin.systemd_service: {name: "{{ unit }}", state: started, enabled: true}
    - ansible.builtin.stat: {path: /etc/docker/daemon.json}
      register: daemon
    - ansible.builtin.assert: {that: not daemon.stat.exists}
    - ansible.builtin.find: {paths: "{{ folders }}", recurse: true, get_checksum: true, excludes: [sshd.pid]}
      register: found
    - ansible.builtin.stat: {path: "/etc/systemd/system/{{ unit }}.service"}
      register: written
    - ansible.builtin.assert:
        that:
          - (found.files | items2dict(key_name='path', value_name='checksum')) == files
          - written.stat.checksum == unit_file
    - ansible.builtin.command:
        argv: [docker, image, inspect, --format, '{% raw %}{{.RepoDigests}}{% endraw %}', "{{ image }}"]
      register: pulled
      changed_when: false
      check_mode: false
      failed_when: pulled.stdout != digests
    - ansible.builtin.command: {argv: [docker, container, inspect, --format, '@definition@', "{{ unit }}"]}
      register: made
      changed_when: false
      check_mode: false
      failed_when: made.stdout != container
"""
_DEFINITION = '{{.State.Running}} {{index .Config.Labels "taco-launch.definition"}} {{.Image}}'
_CHECKSUMS = f"""
find {_STATE}/agent "{_STATE}/clusters/$1" -type f ! -name sshd.pid -exec sha1sum {{}} +
sha1sum "/etc/systemd/system/taco-launch-$1.service"
"""


def main(arguments: list[str]) -> int:
    """Measure, print, give the exit code."""
    asked = _asked(arguments)
    if os.geteuid() != 0:
        verdicts.tell("it makes a lab of its own: that takes root")
        return 2
    with tempfile.TemporaryDirectory(prefix="taco-launch-", ignore_cleanup_errors=True) as scratch:
        environ = pairing.environment(TACO_LAUNCH_STATE=scratch, ANSIBLE_CONFIG=f"{scratch}/ansible.cfg")
        verdicts.need("taco-launch", environ)
        lab = f"converged-{os.getpid()}"
        with _lab(lab, environ):
            contenders = _contenders(lab, Path(scratch), environ)
            for contender in contenders:
                _notices_drift(lab, contender, environ)
            found = pairing.interleave(contenders, environ, runs=asked.runs, timeout=asked.timeout, tell=verdicts.tell)
    ratio = pairing.paired(found[_OURS], found[_ANSIBLE], lambda one, other: one.wall / other.wall)
    missing = found[_OURS].missing or found[_ANSIBLE].missing
    bars = [verdicts.Verdict(_OURS, ratio, _BAR, "x ansible-playbook", missing=missing)]
    rows = verdicts.rows(found, (), lambda _name: ())
    report = verdicts.Report("converged", asked.runs, (rows,), bars, {"commands": verdicts.commands(found)})
    return verdicts.finish(report, as_json=asked.json, strict=asked.strict)


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = verdicts.parser(
        f"`setup --check` of {_HOSTS} lab hosts that are set up, against an ansible playbook (pipelining, {_FORKS} forks) "
        "that checks the same things.",
        "example:\n  .venv/bin/python scripts/benchmarks/converged.py --runs 5",
        timeout=300.0,
    )
    parser.set_defaults(runs=5)
    return parser.parse_args(arguments)


@contextmanager
def _lab(lab: str, environ: Mapping[str, str]) -> Iterator[None]:
    """Make a lab, set it up, remove it in the end."""
    verdicts.tell(f"making a lab of {_HOSTS} hosts and setting it up (a minute, with the images another two)")
    try:
        pairing.prepare(
            ("taco-launch", "lab", "up", "--yes", "--name", lab, "--hosts", str(_HOSTS), "--slots", "1"), environ
        )
        pairing.prepare(("taco-launch", "-i", f"lab:{lab}", "setup", "--yes"), environ)
        yield
    finally:
        pairing.prepare(("taco-launch", "lab", "down", "--name", lab), environ)


def _contenders(lab: str, folder: Path, environ: Mapping[str, str]) -> tuple[pairing.Contender, ...]:
    """Write the playbook, with what it is to find on each host, and give both commands."""
    if pairing.find("ansible-playbook", environ) is not None:
        for host in _names():
            _inside(lab, host, "apt-get install -y --no-install-recommends python3-apt", environ)
    inventory = json.loads(pairing.prepare(("taco-launch", "-i", f"lab:{lab}", "inventory", "--json"), environ))
    common = {
        "unit": f"taco-launch-{lab}",
        "folders": [f"{_STATE}/agent", f"{_STATE}/clusters/{lab}"],
        "image": inventory["container"]["image"],
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    hosts = {host: _expected(lab, host, common["image"], environ) for host in _names()}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": common}}))
    (folder / "ansible.cfg").write_text(
        _CONFIG.format(forks=_FORKS, folder=folder, ssh_config=folder / "lab" / lab / "ssh_config")
    )
    playbook = folder / "check.yaml"
    playbook.write_text(_PLAYBOOK.replace("@definition@", "{% raw %}" + _DEFINITION + "{% endraw %}"))
    return (
        pairing.Contender(_OURS, ("taco-launch", "-i", f"lab:{lab}", "setup", "--check")),
        pairing.Contender(_ANSIBLE, ("ansible-playbook", "--check", str(playbook))),
    )


def _names() -> tuple[str, ...]:
    return tuple(f"gpu{number}" for number in range(1, _HOSTS + 1))


def _expected(lab: str, host: str, image: str, environ: Mapping[str, str]) -> dict[str, object]:
    """Read from a host what the playbook is to find there."""
    lines = _inside(lab, host, _CHECKSUMS, environ).splitlines()
    sums = {path: checksum for checksum, path in (line.split(maxsplit=1) for line in lines)}
    return {
        "unit_file": sums.pop(f"/etc/systemd/system/taco-launch-{lab}.service"),
        "files": sums,
        "digests": _inside(lab, host, f"docker image inspect --format '{{{{.RepoDigests}}}}' {image}", environ).strip(),
        "container": _inside(
            lab, host, f"docker container inspect --format '{_DEFINITION}' taco-launch-{lab}", environ
        ).strip(),
    }


def _notices_drift(lab: str, contender: pairing.Contender, environ: Mapping[str, str]) -> None:
    """See that a contender passes as all is, and fails once a file on the last host differs.

    Raises:
        SystemExit: it does not: then its time would say nothing.
    """
    if pairing.find(contender.argv[0], environ) is None:
        return
    file, host = f"{_STATE}/clusters/{lab}/session.sh", _names()[-1]
    said = pairing.prepare(contender.argv, environ)
    if "changed=" in said.replace("changed=0", ""):
        raise SystemExit(f"{contender.name}: it would change something: {said}")
    _inside(lab, host, f"cp -p {file} /root/kept && echo '# other' >>{file}", environ)
    drifted = subprocess.run(contender.argv, env=environ, capture_output=True, check=False)
    _inside(lab, host, f"cp -p /root/kept {file}", environ)
    if drifted.returncode == 0:
        raise SystemExit(f"{contender.name}: it did not notice that {file} differs on {host}")


def _inside(lab: str, host: str, script: str, environ: Mapping[str, str]) -> str:
    return pairing.prepare(
        ("taco-launch", "lab", "exec", "--name", lab, host, "--", "/bin/sh", "-c", script, "sh", lab), environ
    )


if __name__ == "__main__":
    verdicts.start(main)
