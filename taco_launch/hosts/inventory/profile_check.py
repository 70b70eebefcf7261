"""The text of a profile -> Profile: what its options say is checked."""

import re
import shlex
from typing import Any

from taco_launch.core.errors import SpecError
from taco_launch.core.launch.command_line.decisions import CONDITIONS, VALUES
from taco_launch.core.launch.command_line.overrides import Option
from taco_launch.core.launch.knobs.values import verbatim
from taco_launch.core.model.jobs import Profile, ProfileOption
from taco_launch.core.model.plans import Token
from taco_launch.hosts.inventory.schema import document, names
from taco_launch.hosts.inventory.schema.faults import Faults, Loc
from taco_launch.hosts.inventory.variable_names import LET_THROUGH, env_fault, mca_fault

# A profile has no switch of its own.
_NEWER = "to set a name that this version does not know, use -x with --allow-unknown-knobs"
_BRACES = re.compile(r"\{([^{}]*)\}")
_KEYS = ("profile", "about", "options")
# How many words an option of mpirun is, itself among them, without its leading - (mpirun(1) of 4.1 and of 5.0).
WORDS = {
    **dict.fromkeys(
        ("np", "n", "c", "H", "host", "hostfile", "machinefile", "default-hostfile", "bind-to", "map-by"), 2
    ),
    **dict.fromkeys(("rank-by", "N", "npernode", "npersocket", "output", "output-filename", "timeout", "prefix"), 2),
    **dict.fromkeys(("wdir", "wd", "path", "x", "tune", "am", "personality", "stdin"), 2),
    **dict.fromkeys(("mca", "prtemca", "pmixmca", "gmca"), 3),
    **dict.fromkeys(("allow-run-as-root", "oversubscribe", "nooversubscribe", "tag-output", "timestamp-output"), 1),
    **dict.fromkeys(("report-bindings", "display-map", "display-allocation", "bind-to-core", "nolocal", "verbose"), 1),
}
_FORMS = {"x": "-x NAME=VALUE", **{name: f"--{name} NAME VALUE" for name, count in WORDS.items() if count == 3}}
_OPTION_KEYS = ("add", "why", "when")


def _option(words: tuple[str, ...]) -> Option:
    return Option(tuple(Token(word, "", "") for word in words))


def _whole(words: tuple[str, ...]) -> bool:
    """Return whether an option has as many words as it should; of one that is not known here nobody can tell."""
    return len(words) == WORDS.get(words[0].lstrip("-"), len(words))


class ProfileCheck:
    """Checks what a document holds; faults are gathered."""

    def __init__(self, faults: Faults) -> None:
        """Note what is wrong in `faults`."""
        self._faults = faults

    def profile(self, text: str, source: str) -> Profile:
        """Return the profile that a text in YAML describes; without what is wrong with it.

        Raises:
            SpecError: it is not YAML.
        """
        mapping = self._mapping(document.read(text, self._faults), (), _KEYS)
        name = self._text(mapping, ("profile",))
        self._text(mapping, ("about",))
        options = mapping.get("options")
        if not isinstance(options, tuple) or not options:
            self._faults.add(("options",), "must be a list of options, each with add and why")
            options = ()
        entries = [self._entry(option, ("options", index)) for index, option in enumerate(options)]
        self._once(entries)
        if entries and not any("{np}" in word for entry in entries for word in entry.words):
            self._faults.add(("options",), 'one of them has to set the number of ranks: {add: "-np {np}", why: ...}')
        return Profile(name, tuple(entries), source)

    def _once(self, entries: list[ProfileOption]) -> None:
        """Refuse an option that two entries have under no condition: mpirun refuses it, or the last one counts."""
        first: dict[tuple[str, str], int] = {}
        for index, entry in enumerate(entries):
            if entry.when or not entry.words or not _whole(entry.words):
                continue
            before = first.setdefault(_option(entry.words).key, index)
            if before != index:
                at = ("options", index, "add")
                self._faults.add(
                    at,
                    f"is the same option as options[{before}]",
                    "keep only one of them, or give each a `when` condition",
                )

    def _entry(self, value: Any, loc: Loc) -> ProfileOption:
        option = self._mapping(value, loc, _OPTION_KEYS)
        words = self._words(self._text(option, (*loc, "add")), (*loc, "add"))
        why = self._text(option, (*loc, "why"))
        when = option.get("when", ())
        if not isinstance(when, tuple) or not all(isinstance(condition, str) for condition in when):
            self._faults.add((*loc, "when"), "must be a list of conditions, such as [rdma, not light]")
            when = ()
        for index, condition in enumerate(when):
            found = re.fullmatch(r"(?:not )?([a-z0-9_]+)", condition)
            if not found or found[1] not in CONDITIONS:
                at = (*loc, "when", index)
                self._faults.add_unknown(at, condition, CONDITIONS, "unknown condition", lists="known conditions")
        return ProfileOption(words, why, when)

    def _words(self, text: str, loc: Loc) -> tuple[str, ...]:
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            self._faults.add(loc, f"cannot be split into words as a shell does it: {error}")
            return ()
        if not words:
            return ()
        if not words[0].startswith("-"):
            self._faults.add(loc, "must be an option of mpirun and its arguments, such as --mca pml ob1")
            return words
        for name in (name for word in words for name in _BRACES.findall(word)):
            if name not in VALUES:
                self._faults.add_unknown(loc, name, VALUES, f"no value {{{name}}}", lists="known values")
        if not _whole(words):
            name = words[0].lstrip("-")
            wanted = WORDS[name]
            form = _FORMS.get(name, words[0] if wanted == 1 else f"{words[0]} VALUE")
            self._faults.add(loc, f"must be {wanted} word{'s' if wanted > 1 else ''}: {form}")
            return words
        self._check_name(words, loc)
        if not _BRACES.search(text):
            self._check_value(words, loc)
        return words

    def _check_name(self, words: tuple[str, ...], loc: Loc) -> None:
        """Refuse a variable or parameter that -x or --mca would refuse."""
        kind, name = _option(words).key
        problem = hint = ""
        if kind == "-x" and not _BRACES.search(name):
            try:
                names.env_name(name)
            except SpecError as error:
                problem = error.faults[0].problem
            else:
                value = words[1].partition("=")[2]
                problem, hint = env_fault(name, value)
        elif kind == "mca" and not _BRACES.search(words[1]):
            name = words[1]
            problem, hint = mca_fault(name, words[2])
        if problem:
            self._faults.add(loc, f"{names.shown(name)} {problem}", hint.replace(LET_THROUGH, _NEWER))

    def _check_value(self, words: tuple[str, ...], loc: Loc) -> None:
        """Refuse what the library would silently read as something else."""
        option = _option(words)
        pairs = [*option.env, *([(words[1], words[2])] if option.key[0] == "mca" else [])]
        for name, value in pairs:
            if value is None:
                continue
            try:
                verbatim(name, value)
            except ValueError as error:
                self._faults.add(loc, *error.args)

    def _mapping(self, value: Any, loc: Loc, keys: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._faults.add(loc, f"must be a mapping with {', '.join(keys)}")
            return {}
        for key in value:
            if key not in keys:
                self._faults.add_unknown((*loc, key), key, keys, "unknown key", lists="known here")
        return value

    def _text(self, mapping: dict[str, Any], loc: Loc) -> str:
        value = mapping.get(str(loc[-1]))
        if not isinstance(value, str) or not value.strip():
            self._faults.add(loc, "must be text", value="" if str(loc[-1]) in mapping else "missing")
            return ""
        return value
