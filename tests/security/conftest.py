"""A home and a state folder of the test's own."""

from tests.remote.conftest import home

__all__ = ["home"]
