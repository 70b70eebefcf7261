"""Simulated hosts for tests of set-up."""

from tests.support.simulated_setup import world

__all__ = ["world"]
