"""What tests of the supervisor share: two hosts with real guards."""

from tests.support.gangs import cluster

__all__ = ["cluster"]
