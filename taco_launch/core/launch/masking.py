"""Masks secrets in what leaves the cluster: values of variables and options with telling names, and tokens of known forms.

A secret that a program prints without any name is known only where a variable or an option of the job has it.
"""

import json
import re
from typing import Any, Iterable, Mapping, Sequence

from taco_launch.core.model.jobs import JobSpec

MASK = "***"
# Not `tokens` and `tokenizer`, which training programs print all the time.
_WORDS = r"(?:passw(?:or)?d|passphrase|token(?!s|iz)|secret|credential|api[_-]?key|access[_-]?key|private[_-]?key)"
_NAME = re.compile(rf"{_WORDS}|(?:^|[_-])key$", re.IGNORECASE)
_PLAIN = re.compile(r"[\w.-]+")
_NUMBER = re.compile(r"[-+]?[0-9][0-9.,e+-]*")
# NAME=VALUE, NAME: VALUE, "NAME": "VALUE"; the front part of a name does not matter.
_ASSIGNED = re.compile(
    rf"((?:{_WORDS}[\w-]{{0,40}}|_key)[\"']?\s{{0,3}}[=:]\s{{0,3}}[\"']?)([^\s\"',;&]+)", re.IGNORECASE
)
_OPTION = re.compile(rf"((?<![\w-])--[\w-]{{0,40}}?{_WORDS}[\w-]{{0,40}}\s{{1,3}})(?!-)(\S+)", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(://[^\s/@:]{0,100}:)([^\s/@]{1,300})(?=@)")
_BEARER = re.compile(r"(\bbearer\s{1,3})([\w.~+/=-]{8,})", re.IGNORECASE)
_KNOWN = re.compile(
    r"\b(?:hf_\w{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{16}|sk-[\w-]{20,}|xox[abp]-[\w-]{10,})"
)
_KEY_FILE = re.compile(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(-----END|\Z)", re.DOTALL)
# A shorter value may be a word that stands everywhere; by its name it is masked all the same.
_LEAST_LENGTH = 6


def is_secret(name: str) -> bool:
    """Return whether the value of a variable, an option or a field of this name is not to be shown."""
    return _PLAIN.fullmatch(name) is not None and _NAME.search(name) is not None


class Masker:
    """Masks what a job, and the environment of the caller, name as secrets, wherever it stands."""

    def __init__(self, spec: JobSpec, environ: Mapping[str, str]) -> None:
        """Collect the values; a variable that the job takes from its caller has that of this one."""
        values = {value for name, value in (*environ.items(), *spec.env) if value and is_secret(name)}
        values.update(_of_command(spec.command))
        forms = {form for value in values if len(value) >= _LEAST_LENGTH for form in _forms(value)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._values is not None:
            text = self._values.sub(MASK, text)
        for pattern in (_ASSIGNED, _OPTION, _IN_ADDRESS, _BEARER):
            text = pattern.sub(_masked, text)
        return _KEY_FILE.sub(rf"\1 {MASK} \2", _KNOWN.sub(MASK, text))

    def data(self, value: Any) -> Any:
        """Return JSON values without secrets: also (name, value), {"name": ..., "value": ...}, and options of a command."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            named = str(value.get("name", ""))
            hidden = {key for key in value if is_secret(key)} | ({"value"} if is_secret(named) else set())
            return {key: self._hidden(each) if key in hidden else self.data(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            pair = len(value) == 2  # a name and its value
            before = ["", *map(str, value)]
            hide = [is_secret(name) and (pair or name.startswith("-")) for name in before]
            return [self._hidden(each) if secret else self.data(each) for each, secret in zip(value, hide)]
        return value

    def _hidden(self, value: Any) -> Any:
        return MASK if isinstance(value, str) and value else self.data(value)


def _masked(match: "re.Match[str]") -> str:
    # A program that counts tokens prints numbers.
    counts = "token" in match[1].lower() and _NUMBER.fullmatch(match[2])
    return match[0] if counts else f"{match[1]}{MASK}"


def _of_command(command: Sequence[str]) -> Iterable[str]:
    """Yield the values of the options of a command that have telling names."""
    for word, following in zip(command, (*command[1:], "")):
        name, equals, value = word.partition("=")
        if is_secret(name) and (equals or name.startswith("-")):
            yield value if equals else following


def _forms(value: str) -> Iterable[str]:
    """Yield a value as it is, and as shells and JSON write it."""
    yield value
    yield value.replace("'", "'\"'\"'")  # within the quotes of a shell (shlex.quote)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
