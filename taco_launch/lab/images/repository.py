"""The lab's apt repository on the registry host: simulated packages, built and signed there, and served over HTTP."""

from importlib import resources

from taco_launch.core.errors import HostError
from taco_launch.core.frozen import dataclass
from taco_launch.lab import packages
from taco_launch.lab.docker import hosts
from taco_launch.lab.docker.engine import execute
from taco_launch.lab.docker.labels import REGISTRY, LabHost

PORT = 8080
ADDRESS = f"http://{REGISTRY}:{PORT}"
# What an inventory of the lab has as `toolkit.url`: below it all is as below NVIDIA's own address.
TOOLKIT_URL = f"{ADDRESS}/libnvidia-container"
_FOLDER = "/srv/packages"
_SERVE = f"""
set -eu
unit=/etc/systemd/system/lab-packages.service
cat >"$unit.new" <<UNIT
[Unit]
Description=Apt repository of the lab (simulated packages)
After=network.target

[Service]
ExecStart=/usr/bin/busybox httpd -f -p {PORT} -h {_FOLDER}
Restart=on-failure

[Install]
WantedBy=multi-user.target
UNIT
if ! cmp -s "$unit.new" "$unit"; then
  mv "$unit.new" "$unit"
  systemctl daemon-reload
  systemctl -q enable lab-packages
fi
rm -f "$unit.new"
systemctl start lab-packages
"""
# What an image of a GPU server has besides: sources for its driver's and its kernel's packages.
_OFFER = f"""
set -eu
key=/usr/share/keyrings/taco-launch-lab.asc
cat >"$key.new"
mv "$key.new" "$key"
for name in {packages.PEER_MEMORY} {packages.KERNEL}; do
  echo "deb [signed-by=$key] {ADDRESS}/$name/ /" >"/etc/apt/sources.list.d/lab-$name.list"
done
"""


@dataclass(frozen=True)
class Served:
    """The repository as it is served: the key that signs it, and whether it was built just now."""

    key: str
    built: bool


def start(host: LabHost, container: str) -> Served:
    """Have the registry host serve the packages of today.

    Raises:
        HostError: it does not.
    """
    script = resources.files("taco_launch.lab.packages").joinpath("build.sh").read_text("utf-8")
    trees = hosts.packed(packages.tree(packages.packages()))
    answer = execute(container, "/bin/sh", "-c", script, "build", _FOLDER, ADDRESS, stdin=trees)
    built, _line, key = answer.text.partition("\n")
    served = execute(container, "/bin/sh", "-c", _SERVE)
    if answer.code or served.code or "BEGIN PGP" not in key:
        raise HostError(
            f"{host.name}: no apt repository of simulated packages: {answer.stderr or served.stderr or answer.text}",
            hint=f"taco-launch lab exec --name {host.lab} {host.name} -- journalctl -u lab-packages",
        )
    return Served(key + "\n", bool(built))


def offer(host: LabHost, container: str, key: str) -> None:
    """Have a host's apt know the packages that come with a driver and a kernel; set-up brings the toolkit's source.

    Raises:
        HostError: it cannot be done.
    """
    answer = execute(container, "/bin/sh", "-c", _OFFER, stdin=key.encode())
    if answer.code:
        raise HostError(f"{host.name}: the lab's apt sources cannot be written: {answer.stderr}")
