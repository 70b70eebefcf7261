"""A job as another machine gets it: without what only the controller has."""

from dataclasses import replace

from taco_launch.core.model.jobs import JobSpec


def spec_for_head(spec: JobSpec) -> JobSpec:
    """Leave out what only the controller has: its folder, paths of keys and passwords, which host it is itself."""
    cwd = spec.workdir if spec.workdir.startswith("/") else ""  # else it is a folder of the code
    if spec.container is None:  # for the agent its host is this machine
        hosts = tuple(replace(host, identity_file=None, connection="local") for host in spec.hosts)
        return replace(spec, cwd=cwd, hosts=hosts)
    hosts = tuple(replace(host, identity_file=None, connection="ssh") for host in spec.hosts)
    return replace(spec, cwd=cwd, hosts=hosts, container=replace(spec.container, registry=None))
