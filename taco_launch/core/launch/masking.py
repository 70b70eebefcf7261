"""Masks secrets in what leaves the cluster: values of variables and options with telling names, and tokens of known forms.

A secret that a program prints without any name is known only where a variable or an option of the job has it.
"""

import base64
import json
import re
import shlex
from typing import Any, Iterable, Mapping, Sequence

from taco_launch.core.model.jobs import JobSpec

MASK = "***"
# Anywhere in a name. Not `tokens` and `tokenizer`, which training programs print all the time.
_WORDS = r"(?:passw(?:or)?d|passphrase|token(?!s|iz)|secret|credential|api[_-]?key|access[_-]?key|private[_-]?key|account[_-]?key)"
# The end of a name: AUTHOR, PASSTHROUGH, KEYBOARD and SIGNAL only begin so.
_ENDS = r"(?:pass|auth|authorization|creds?|sig|jwt|hmac)"
_CAMEL = r"(?-i:(?<=[a-z])(?:Pass|Pwd|Auth|Creds))"
# Written as one word, as SSHPASS of sshpass; OLDPWD, BYPASS and COMPASS are not secrets.
_GLUED = (
    r"(?:ssh|pg|db|my|mysql|smtp|imap|ftp|mail|redis|mongo|ldap|vnc|root|admin|user|sudo|git)(?:pass|pwd|creds?|auth)"
)
# Not PWD alone, which is a folder.
_NAME = re.compile(
    rf"{_WORDS}|(?:^|[_.-])(?:{_ENDS}|{_GLUED}|key)$|\w[_.-](?:pwd|pw)$|{_CAMEL}$",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[\w.-]+")
_NUMBER = re.compile(r"[-+]?[0-9][0-9.,e+-]*")
# What such a word at the end of a name may have as its value, and is no secret: `auth=none`, `two_pass: 12.5ms`, `sig=11`.
_HARMLESS = re.compile(
    r"[-+]?\d{1,4}(?:[.,]\d+)?(?:e[-+]?\d+)?(?:[mun]?s|%|[kMGT]i?B(?:/s)?)?"
    r"|true|false|none|null|yes|no|on|off|ok|done|enabled|disabled|required|failed",
    re.IGNORECASE,
)
_QUOTE = r"\\{0,3}[\"']?"
_VALUE = r"((?<=\")[^\"\n]+|(?<=')[^'\n]+|(?!=)[^\s\"',;&]+)"
# NAME=VALUE, NAME: VALUE, "NAME": "VALUE"; the front part of a name does not matter. A short name alone is also a word of
# prose (`PASS: test_1`), or a folder (`PWD=/work`).
_ASSIGNED = re.compile(
    rf"((?:{_WORDS}[\w-]{{0,40}}|(?<=\w)[_.-](?:{_ENDS}|pwd|pw)|[_-]key|{_CAMEL}|(?<![A-Za-z]){_GLUED}){_QUOTE}\s{{0,3}}[=:]\s{{0,3}}{_QUOTE}){_VALUE}",
    re.IGNORECASE,
)
_ALONE = re.compile(
    rf"((?<![\w.-])(?:{_ENDS}|pwd(?!=/))(?:\\{{0,3}}[\"']\s{{0,3}}[=:]|\s{{0,3}}=)\s{{0,3}}{_QUOTE}){_VALUE}",
    re.IGNORECASE,
)
_OPTION = re.compile(
    rf"((?<![\w-])--(?:[\w-]{{0,40}}?{_WORDS}[\w-]{{0,40}}|(?:[\w-]{{0,40}}-)?(?:{_ENDS}|{_GLUED}|key))\s{{1,3}})(?!-)"
    r"(\"[^\"\n]*\"|'[^'\n]*'|\S+)",
    re.IGNORECASE,
)
# A word as shells write it, and one that is USER:PASSWORD.
_WORD = r"\\{0,3}\"[^\"\n]+\"|'[^'\n]+'|[^\s\"']+"
_LOGIN = r"\\{0,3}\"[^\":\n]{1,100}:[^\"\n]+\"|'[^':\n]{1,100}:[^'\n]+'|[^\s\"':]{1,100}:[^\s\"']+"
# What stands in a place where nothing but a secret does.
_PLACES = (
    # Authorization: SCHEME VALUE, Cookie: NAME=VALUE; NAME=VALUE
    (
        rf"(\b(?:(?:proxy-)?authorization|(?:set-)?cookie){_QUOTE}\s{{0,3}}:\s{{0,3}}{_QUOTE}"
        r"(?:(?:basic|bearer|token|negotiate|apikey)\s{1,3})?)(digest\s[^\n]+|[^\s\"'][^\"'\n]*)"
    ),
    r"(\bbearer\s{1,3})([\w.~+/=-]{8,})",
    # scheme://USER:PASSWORD@host
    r"(://[^\s/@:]{0,100}:)([^\s/\"'<>,]{1,300})(?=@)",
    rf"([?&](?:[\w.-]{{0,60}}{_WORDS}[\w.-]{{0,60}}|(?:[\w.-]{{0,60}}[_.-])?(?:{_ENDS}|key|pwd|pw|signature))=)([^\s&\"'#]+)",
    # https://TOKEN@host: the name of a user is shorter, or has no digit
    r"(\bhttps?://)((?=[^\s/@]{0,100}\d)[\w.~+-]{16,300})(?=@)",
    # addresses of chat rooms, whose path lets anyone write there
    r"(\bhooks\.slack\.com/\w{1,20}/|\bdiscord(?:app)?\.com/api/(?:v\d{1,3}/)?webhooks/|\bapi\.telegram\.org/bot)([^\s\"'<>?#]+)",
    r"(/bot/(?:v2/)?hook/|\boutlook\.office(?:365)?\.com/webhook/|\.webhook\.office\.com/)([^\s\"'<>?#]+)",
    r"(\bmachine\s{1,9}\S{1,300}\s{1,9}login\s{1,9}\S{1,300}\s{1,9}password\s{1,9})(\S+)",
    rf"(\becho\s{{1,3}}(?:-n\s{{1,3}})?)({_WORD})(?=\s{{0,3}}\|\s{{0,3}}sudo\s[^\n|;&]{{0,100}}?(?-i:-\w{{0,9}}S))",
)
# Options of curl without a value, behind which another may stand.
_FLAGS = "-[#0-46aBfgGiIjJklLMnNOpqRsSvVZ]{0,12}"
# Programs, and those of their options that are followed by a secret.
_COMMANDS = (
    ("curl", rf"{_FLAGS}u[\s=]{{0,3}}|--user[\s=]{{1,3}}", _LOGIN),
    ("curl", rf"{_FLAGS}U[\s=]{{0,3}}|--proxy-user[\s=]{{1,3}}", _LOGIN),
    (r"(?:mysql(?:dump|admin|import|check|show|slap)?|mariadb(?:-\w{1,20})?)", r"-p\s{0,3}(?![-<>])", _WORD),
    (r"sshpass|(?:docker|podman|nerdctl|buildah|skopeo|helm\s{1,3}registry)\s{1,3}login", r"-p\s{0,3}", _WORD),
    ("redis-cli", r"-a\s{1,3}", _WORD),
    (r"ldap(?:search|add|modify|delete|whoami|passwd)", r"-w\s{0,3}", _WORD),
    ("openssl", r"-pass(?:in|out)?\s{1,3}pass:", _WORD),
    (r"wandb\s{1,3}login", "", r"(?!-)[\w-]{20,}"),
)
_IN_COMMAND = tuple(
    re.compile(rf"((?<![\w-])(?:{program})(?![\w.-])[^\n|;&]{{0,300}}?\s(?:{option}))({value})")
    for program, option, value in _COMMANDS
)
_IN_PLACE = tuple(re.compile(each, re.IGNORECASE) for each in _PLACES)
_BASIC = re.compile(r"(\bbasic\s{1,3})([A-Za-z0-9+/]{4,}={0,2})", re.IGNORECASE)
_KNOWN = re.compile(
    r"\b(?:hf_\w{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w.-]{16,}|(?:AKIA|ASIA)[0-9A-Z]{16}|sk-[\w-]{20,}"
    r"|xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}|nvapi-[\w-]{20,}|AIza[\w-]{35}|ya29\.[\w-]{20,}|npm_\w{30,}|dckr_pat_[\w-]{20,}|tskey-[\w-]{16,}|pypi-[\w-]{40,}"
    r"|(?<![\w-])eyJ[\w-]{6,}\.[\w-]{6,}\.[\w-]*)"
)
_KEY_FILE = re.compile(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----).*?(-----END|\Z)", re.DOTALL)
# A shorter value may be a word that stands everywhere; by its name it is masked all the same.
_LEAST_LENGTH = 6
_LEAST_TAIL = 16
_ADDRESS = re.compile(r"(\w+://[^/?#]*[/?#])(.+)")


def is_secret(name: str) -> bool:
    """Return whether the value of a variable, an option or a field of this name is not to be shown."""
    return _PLAIN.fullmatch(name) is not None and _NAME.search(name) is not None


class Masker:
    """Masks what a job, and the environment of the caller, name as secrets, wherever it stands."""

    def __init__(self, spec: JobSpec, environ: Mapping[str, str]) -> None:
        """Collect the values; a variable that the job takes from its caller has that of this one."""
        values = {value for name, value in (*environ.items(), *spec.env) if value and is_secret(name)}
        values.update(_of_command(spec.command))
        # What follows the host of a webhook's address lets anyone use it. Its path may be a word that stands everywhere.
        texts = (spec.policy.notify or "", *(notice.to for notice in spec.policy.notices))
        addresses = [match for text in texts if (match := _ADDRESS.fullmatch(text))]
        self._addresses = [(match[0], match[1] + MASK) for match in addresses]
        tails = [match[2] for match in addresses]
        values.update(part for tail in tails for part in (tail, *tail.split("?")) if len(part) >= _LEAST_TAIL)
        telling = (value for value in values if len(value) >= _LEAST_LENGTH and not _HARMLESS.fullmatch(value))
        forms = {form for value in telling for form in _forms(value)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for address, masked in self._addresses:
            text = text.replace(address, masked)
        if self._values is not None:
            text = self._values.sub(MASK, text)
        for pattern in (*_IN_PLACE, *_IN_COMMAND):
            text = pattern.sub(rf"\1{MASK}", text)
        for pattern in (_ASSIGNED, _ALONE, _OPTION):
            text = pattern.sub(_masked, text)
        text = _BASIC.sub(_basic, text)
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
    if re.search(_WORDS, match[1], re.IGNORECASE):
        # A program that counts tokens prints numbers.
        harmless = "token" in match[1].lower() and _NUMBER.fullmatch(match[2])
    else:
        harmless = _HARMLESS.fullmatch(match[2])
    return match[0] if harmless else f"{match[1]}{MASK}"


def _basic(match: "re.Match[str]") -> str:
    """Mask what is a user and a password, and no word of prose."""
    try:
        login = base64.b64decode(match[2])
    except ValueError:  # it is no base64
        return match[0]
    return f"{match[1]}{MASK}" if b":" in login else match[0]


def _of_command(command: Sequence[str]) -> Iterable[str]:
    """Yield the values of the options of a command that have telling names."""
    for word, following in zip(command, (*command[1:], "")):
        name, equals, value = word.partition("=")
        if is_secret(name) and (equals or name.startswith("-")):
            yield value if equals else following
    line = shlex.join(command)
    for pattern in _IN_COMMAND:
        for match in pattern.finditer(line):
            secret = match[2].strip("'\"")
            yield from (secret, secret.partition(":")[2])


def _forms(value: str) -> Iterable[str]:
    """Yield a value as it is, and as shells and JSON write it."""
    yield value
    yield value.replace("'", "'\"'\"'")  # within the quotes of a shell (shlex.quote)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
