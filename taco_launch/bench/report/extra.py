"""Import what needs the extra `bench`, when it is used."""

import importlib
from types import ModuleType

from taco_launch.core.errors import TacoLaunchError


def load(name: str) -> ModuleType:
    """Import and return a module of this folder.

    Raises:
        TacoLaunchError: what draws is not installed.
    """
    try:
        return importlib.import_module(f"{__package__}.{name}")
    except ModuleNotFoundError as error:
        raise TacoLaunchError(f"reports need {error.name}", "pip install 'taco-launch[bench]'") from error
