"""What tests of gangs share: two hosts with real guards."""

from tests.support.gangs import cluster

__all__ = ["cluster"]
