"""The registry host: Debian's docker-registry behind TLS and a password, both of the lab's own making."""

from dataclasses import dataclass

from taco_launch.errors import HostError
from taco_launch.lab import hosts
from taco_launch.lab.engine import execute
from taco_launch.lab.labels import LabHost

PORT = 5000
_TRUST = """
set -eu
file=/usr/local/share/ca-certificates/taco-launch-lab.crt
cat >"$file.new"
if ! cmp -s "$file.new" "$file"; then
  mv "$file.new" "$file"
  update-ca-certificates >/dev/null 2>&1
fi
rm -f "$file.new"
"""


@dataclass(frozen=True)
class Login:
    """What a client of the registry needs: the password, and the certificate of the authority behind it (PEM)."""

    password: str
    authority: str


def start(host: LabHost, container: str) -> Login:
    """Have the registry run, with the certificate and password that it has or, the first time, makes.

    Raises:
        HostError: it does not.
    """
    words = (host.lab, host.address, str(PORT))
    answer = execute(container, "/bin/sh", "-c", hosts.script("registry.sh"), "registry", *words)
    password, _, authority = answer.text.partition("\n")
    if answer.code or "BEGIN CERTIFICATE" not in authority:
        raise HostError(
            f"{host.name}: docker-registry does not start: {answer.stderr or answer.text or f'exit {answer.code}'}",
            hint=f"taco-launch lab exec --name {host.lab} {host.name} -- journalctl -u docker-registry",
        )
    return Login(password, authority + "\n")


def trust(host: LabHost, container: str, authority: str) -> None:
    """Have a host trust certificates of the lab's authority, system-wide.

    Raises:
        HostError: it cannot be done.
    """
    answer = execute(container, "/bin/sh", "-c", _TRUST, stdin=authority.encode())
    if answer.code:
        raise HostError(f"{host.name}: the lab's certificate cannot be installed: {answer.stderr}")
