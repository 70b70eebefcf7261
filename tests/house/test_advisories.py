"""No lower bound of a dependency lets in a release with a known weakness."""

import configparser
import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
ADVISORIES = tomllib.loads((ROOT / "tests/house/advisories.toml").read_text("utf-8"))


def lower_bounds() -> dict[str, tuple[int, ...]]:
    """Return the lower bound of each dependency: of the package, of its extras, and of its build."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    lines = [setup["options"]["install_requires"], *setup["options.extras_require"].values(), *build]
    found = re.findall(r"^([A-Za-z0-9-]+) *[>=]=([0-9]+(?:[.][0-9]+)*)", "\n".join(lines), re.MULTILINE)
    return {name.lower(): version(text) for name, text in found}


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@pytest.mark.parametrize("name", ADVISORIES)
def test_a_lower_bound_is_above_what_is_known(name: str) -> None:
    assert lower_bounds()[name] >= version(ADVISORIES[name]["fixed"]), ", ".join(ADVISORIES[name]["known"])
