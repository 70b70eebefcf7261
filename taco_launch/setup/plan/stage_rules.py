"""Find the stages of set-up: each file of setup/stages has one, as STAGE."""

from collections.abc import Mapping
from graphlib import TopologicalSorter
from importlib import import_module
from pkgutil import iter_modules

from taco_launch.setup.model.ops import Stage, StageRules

# By name: plans import no stage.
_FOLDER = "taco_launch.setup.stages"


def _find_stages() -> Mapping[Stage, StageRules]:
    """Return the stages in the order in which they are applied: each builds on those that it is `after`."""
    names = sorted(module.name for module in iter_modules(import_module(_FOLDER).__path__))
    rules: dict[Stage, StageRules] = {name: import_module(f"{_FOLDER}.{name}").STAGE for name in names}
    order = TopologicalSorter({name: each.after for name, each in rules.items()}).static_order()
    return {name: rules[name] for name in order}


RULES = _find_stages()
# Those that run unless others are named.
STAGES: tuple[Stage, ...] = tuple(name for name, rules in RULES.items() if not rules.optional)
