"""A profile's entries -> the options of a line: those whose conditions hold, filled in, each word with its reason."""

import re
from typing import Dict, FrozenSet, List, Tuple

from taco_launch.core.launch.command_line.decisions import Decisions, strongest
from taco_launch.core.launch.command_line.overrides import Option
from taco_launch.core.model.jobs import Profile, ProfileOption
from taco_launch.core.model.plans import Token

_NAME = re.compile(r"\{([a-z_]+)\}")

# (the options that had to be left out, the fact for want of which)
LeftOut = Tuple[Tuple[Option, str], ...]


def options(profile: Profile, decisions: Decisions) -> Tuple[List[Option], LeftOut]:
    """Return the options that apply, and those that may apply but for a missing fact."""
    found: List[Option] = []
    left_out: Dict[Option, str] = {}
    for entry in profile.entries:
        names = _names(entry)
        if not all(_holds(condition, decisions) for condition in entry.when):
            continue
        if not all(name in decisions.values or name in decisions.missing for name in names):
            continue
        waiting = [decisions.missing[name] for name in (*_conditions(entry), *names) if name in decisions.missing]
        if waiting:
            left_out[Option(tuple(Token(word, "", entry.why) for word in entry.words))] = waiting[0]
        else:
            found.append(_rendered(entry, profile, decisions))
    return found, tuple(left_out.items())


def used(profile: Profile) -> FrozenSet[str]:
    """Return the names of all values and conditions that a profile uses."""
    return frozenset(name for entry in profile.entries for name in (*_conditions(entry), *_names(entry)))


def _names(entry: ProfileOption) -> List[str]:
    return [name for word in entry.words for name in _NAME.findall(word)]


def _conditions(entry: ProfileOption) -> List[str]:
    return [_bare(condition) for condition in entry.when]


def _bare(condition: str) -> str:
    """Return the name in `NAME` or `not NAME`."""
    return condition.rsplit(maxsplit=1)[-1]


def _holds(condition: str, decisions: Decisions) -> bool:
    """Return whether a condition holds, or may hold once a missing fact is known."""
    name = _bare(condition)
    return name in decisions.missing or decisions.holds(name) != condition.startswith("not ")


def _rendered(entry: ProfileOption, profile: Profile, decisions: Decisions) -> Option:
    """Fill in an entry. Its source is what decided that it stands there, else the profile."""
    names = _names(entry)
    values = [decisions.values[name] for name in names]
    wanted = [condition for condition in entry.when if not condition.startswith("not ")]
    conditions = [decisions.conditions[name] for name in wanted]
    reasons = [value.why for value in values] + [condition.why for condition in conditions if condition.why]
    sources = [value.source for value in values]
    sources += [condition.source for condition in conditions if condition.source != "launcher"]
    own = "default" if profile.name == "auto" else "profile"
    source = strongest(sources) if sources else own
    why = "; ".join(dict.fromkeys((entry.why, *reasons)))
    words = [_NAME.sub(lambda match: decisions.values[match[1]].text, word) for word in entry.words]
    return Option(tuple(Token(word, source, why) for word in words), (*names, *wanted))
