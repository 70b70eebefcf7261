"""Fixtures of hosts, for an agent on a real one."""

from tests.hosts.conftest import home, sshd

__all__ = ["home", "sshd"]
