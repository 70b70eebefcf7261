"""The stages of set-up by their names: what each file says of its stage."""

from collections.abc import Mapping
from importlib import import_module

from taco_launch.setup.model.ops import StageRules
from taco_launch.setup.model.stages import STAGES, Stage


def _rules(stage: Stage) -> StageRules:
    found = import_module(f"taco_launch.setup.stages.{stage}").STAGE
    assert isinstance(found, StageRules)
    return found


RULES: Mapping[Stage, StageRules] = {stage: _rules(stage) for stage in STAGES}
