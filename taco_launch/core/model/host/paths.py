"""Where set-up keeps what it makes on a host, and what it is called: of one cluster, or of all clusters of the host.

What the host's root runs or follows lies in /etc/taco-launch, of which no container gets anything: beside the units that
name it, so wherever there may be a unit there may be this; /usr is read-only on image-based distributions (rpm-ostree,
Flatcar), /usr/local with it on some. Of the state folder a container gets a state folder of its own to write to (agent/store/folders.py), and the agent and its own
cluster's folder to read only. Leases are shared by all containers of a host, and theirs to write.

A variant is a second container of a cluster on a host, of another image or with other data (setup/model/job_containers.py). Set-up makes
it as it makes a cluster's: under the name `CLUSTER@VARIANT`, which no cluster has. What it is called, and where its own
files lie, is what no cluster's name leads to: `taco-launch.` begins no name of a cluster's container or unit. It has the
state folder of its cluster, and its folder is within the cluster's.
"""

from typing import Tuple

STATE = "/var/lib/taco-launch"
AGENT = f"{STATE}/agent"
AGENT_LINK = f"{AGENT}/current"
# That the host takes no new jobs: in the one folder that the containers of all clusters see, and that root alone writes.
DRAIN = f"{AGENT}/drain.json"
MOST_DRAIN_BYTES = 4096
# That a person opened the host in spite of faults, and which: the policy of `check --drain` reads it.
OVERRIDE = f"{AGENT}/override.json"
MOST_OVERRIDE_BYTES = 1 << 16
CLUSTERS = f"{STATE}/clusters"
# Beside what the containers read, which goes when a cluster is taken back, while records of jobs stay.
CONTAINERS = f"{STATE}/containers"
HOST = "/etc/taco-launch"
RUN = "/run/taco-launch"
LEASES = f"{RUN}/leases"
# In the container, in whose memory this folder is but for the leases in it: the process number of its sshd, which that
# writes once it listens.
SSHD_PID = f"{RUN}/sshd.pid"
UNITS = "/etc/systemd/system"
ENGINE_PROXY = f"{UNITS}/docker.service.d/taco-launch.conf"
ENGINE_CONFIG = "/etc/docker/daemon.json"
# What of GPUDirect RDMA is loaded at boot: modules-load.d(5).
PEERMEM = "/etc/modules-load.d/taco-launch-peermem.conf"
# How nvidia_peermem is loaded, where OFED is old: modprobe.d(5).
PEERMEM_OPTIONS = "/etc/modprobe.d/taco-launch-peermem.conf"
# That set-up installed nv_peer_mem, whose package brings a service which loads it at boot.
NV_PEER_MEM = f"{STATE}/docker/nv_peer_mem"
# The settings of Slurm, the key by which its hosts trust one another, and what its services were last started with.
SLURM = "/etc/slurm"
MUNGE_KEY = "/etc/munge/munge.key"
SLURM_MARK = f"{STATE}/docker/slurm"

# The labels of a container of ours.
CLUSTER_LABEL = "taco-launch.cluster"
DEFINITION_LABEL = "taco-launch.definition"
IMAGE_LABEL = "taco-launch.image"
# The variable that tells what runs in the container whose it is.
CLUSTER_VARIABLE = "TACO_LAUNCH_CLUSTER"
# The variable that tells which variant of its cluster a container is.
VARIANT_VARIABLE = "TACO_LAUNCH_VARIANT"
# Which ports are the sshds' of variants: a file for each, which holds the variant's name.
PORTS = f"{STATE}/ports"
_SIGN = "@"


def variant(cluster: str, key: str) -> str:
    """Return the name under which set-up makes a variant."""
    return f"{cluster}{_SIGN}{key}"


def split(cluster: str) -> Tuple[str, str]:
    """Return the cluster, and which variant of it a name stands for, "" where it stands for the cluster's own container."""
    name, _sign, key = cluster.partition(_SIGN)
    return name, key


def container(cluster: str) -> str:
    """Name the training container."""
    name, key = split(cluster)
    return f"taco-launch.{key}.{name}" if key else f"taco-launch-{name}"


def unfinished(cluster: str) -> str:
    """Name the training container while it is made (create.sh does): no cluster's container can have this name."""
    name, key = split(cluster)
    return f"taco-launch.new.{key}.{name}" if key else f"taco-launch_{name}"


def unit(cluster: str) -> str:
    """Name the systemd unit that runs the container."""
    return f"{container(cluster)}.service"


def unit_file(cluster: str) -> str:
    """Place that unit."""
    return f"{UNITS}/{unit(cluster)}"


def firewall_unit(cluster: str) -> str:
    """Name the systemd unit that opens the firewall: no cluster's container has a unit of this name."""
    name, key = split(cluster)
    return f"taco-launch.firewall.{key}.{name}.service" if key else f"taco-launch_{name}_firewall.service"


def firewall_unit_file(cluster: str) -> str:
    """Place that unit."""
    return f"{UNITS}/{firewall_unit(cluster)}"


def host_folder(cluster: str) -> str:
    """Place what the host's root runs for the cluster."""
    return f"{HOST}/{cluster}"


def secrets_file(cluster: str) -> str:
    """Place the variables of the container, for as long as it is made: memory of the host, in no container."""
    return f"{RUN}/{cluster}.env"


def folder(cluster: str) -> str:
    """Place what the cluster's container reads."""
    name, key = split(cluster)
    return f"{CLUSTERS}/{name}/variants/{key}" if key else f"{CLUSTERS}/{name}"


def state(cluster: str) -> str:
    """Place the state folder of the container: its jobs, of which no other cluster's container gets anything."""
    return f"{CONTAINERS}/{split(cluster)[0]}"


def main_script(cluster: str) -> str:
    """Place the container's main process."""
    return f"{folder(cluster)}/main.sh"


def session_script(cluster: str) -> str:
    """Place what sshd runs for every session in the container (ForceCommand)."""
    return f"{folder(cluster)}/session.sh"


def hosts(cluster: str) -> str:
    """Place the file that is mounted over the container's /etc/hosts; it is rewritten in place."""
    return f"{folder(cluster)}/hosts"


def ssh(cluster: str) -> str:
    """Place the folder of all that SSH between the containers needs."""
    return f"{folder(cluster)}/ssh"


def key(cluster: str) -> str:
    """Place the cluster's private key, the same on every host; the public half is beside it, `.pub`."""
    return f"{ssh(cluster)}/key"


def host_key(cluster: str) -> str:
    """Place the private host key of this host's container; the public half is beside it, `.pub`."""
    return f"{ssh(cluster)}/host_key"


def authorized_keys(cluster: str) -> str:
    """Place the public key that may log in."""
    return f"{ssh(cluster)}/authorized_keys"


def known_hosts(cluster: str) -> str:
    """Place the host keys of all containers."""
    return f"{ssh(cluster)}/known_hosts"


def ssh_config(cluster: str) -> str:
    """Place the file that is mounted over the container's /etc/ssh/ssh_config; it is rewritten in place."""
    return f"{ssh(cluster)}/ssh_config"


def sshd_config(cluster: str) -> str:
    """Place the settings of the container's sshd."""
    return f"{ssh(cluster)}/sshd_config"


def variant_record(cluster: str) -> str:
    """Place what is known of a variant on the head: see setup/model/job_containers.py."""
    return f"{folder(cluster)}/variant.json"
