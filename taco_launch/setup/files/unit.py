"""The systemd unit that keeps the training container up, after every boot as well; and the files that belong to it."""

from taco_launch.core.model.host import paths
from taco_launch.setup import scripts
from taco_launch.setup.files import gpu_devices
from taco_launch.setup.files.container_definition import Definition
from taco_launch.setup.model.ops import FileTarget

# For CDI the GPUs are described as the driver that is loaded has them; a description of another driver names files that are
# gone. Where the toolkit cannot, the container's start says what is missing.
_DESCRIBED = f"ExecStartPre=-/bin/sh -c 'exec nvidia-ctk cdi generate --output={gpu_devices.SPECIFICATION}'\n"

# How long its start waits for the devices of drivers that come late.
DEVICE_SECONDS = 300

# Peer memory comes before it: modules-load.d is read before any such unit, nv_peer_mem has a service of its own, and
# people write insmod into /etc/rc.local. `docker start` continues while the container runs, and hands on the signal that
# ends it. In a unit file `%` and `$` mean something, and a word may hold neither blanks nor quotes: names of clusters and
# paths of devices hold nothing such.
_UNIT = """# Written by taco-launch setup: changes here are lost.
[Unit]
Description=Training container of the cluster {cluster}{what}
Wants=docker.service
After=docker.service {after}openibd.service nvidia-persistenced.service nv_peer_mem.service rc-local.service remote-fs.target

[Service]
ExecStartPre=/bin/sh {wait} {seconds} {state}{devices}
{described}ExecStart=/bin/sh -c 'exec docker start --attach {container}'
Restart=always
RestartSec=5
TimeoutStartSec={timeout}

[Install]
WantedBy=multi-user.target
"""


def wait_script(cluster: str) -> str:
    """Place what the unit runs before it starts the container."""
    return f"{paths.host_folder(cluster)}/wait.sh"


def changed_file(cluster: str) -> str:
    """Place the unit's text until scripts/start.sh makes it the unit's file."""
    return f"{paths.host_folder(cluster)}/unit.new"


def unit(definition: Definition) -> str:
    """Return the unit's text."""
    name, key = paths.split(definition.cluster)
    return _UNIT.format(
        cluster=name,
        what=f", of the image {definition.name}" if key else "",
        # it sees the processes of the cluster's own container, and cannot start without that
        after=f"{paths.unit(name)} " if key else "",
        container=paths.container(definition.cluster),
        wait=wait_script(definition.cluster),
        seconds=DEVICE_SECONDS,
        state=paths.state(definition.cluster),
        devices="".join(f" {device}" for device in definition.devices),
        described=_DESCRIBED if gpu_devices.BY_CDI in definition.options else "",
        timeout=DEVICE_SECONDS + 90,
    )


def files(definition: Definition) -> tuple[FileTarget, ...]:
    """Return what has to lie on the host for the container to start; of it the container sees main.sh alone."""
    return (
        FileTarget(paths.main_script(definition.cluster), scripts.text("main.sh").encode()),
        FileTarget(wait_script(definition.cluster), (scripts.text("leases.sh") + scripts.text("wait.sh")).encode()),
        FileTarget(paths.unit_file(definition.cluster), unit(definition).encode()),
    )
