"""Hold the public keys that sign the packages of Docker and NVIDIA."""

from functools import cache
from importlib import resources


@cache
def data(name: str) -> bytes:
    """Return a key of this folder: `docker-deb`, `docker-rpm` or `nvidia`."""
    return resources.files(__name__).joinpath(f"{name}.asc").read_bytes()
