"""How git is run on the controller: it asks nobody, runs nothing that a repository says, and has a limit of time."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from taco_launch.core.command import GIT_SECRETS
from taco_launch.core.errors import HostError, UsageError

USERNAME = "GIT_SYNC_USERNAME"
PASSWORD, PASSWORD_FILE = GIT_SECRETS
# What a caller's environment says of another repository, or of settings beside the files of git's own.
_NOT_OURS = re.compile(r"GIT_(?!SSH|TRACE|SSL|HTTP_|PROXY|EXEC_PATH$|CURL)\w+")
_SETTINGS = (
    ("core.fsmonitor", "false"),
    ("core.askPass", ""),
    ("core.hooksPath", os.devnull),
    ("core.pager", "cat"),
    ("diff.external", ""),
    ("fetch.fsckObjects", "true"),
    ("transfer.bundleURI", "false"),
    ("gc.auto", "0"),
    ("advice.detachedHead", "false"),
    ("init.defaultBranch", "main"),
    ("protocol.version", "2"),
)
_MOST_ANSWER = 1 << 27
_ASK_SECONDS = 20.0
_SECRET_BYTES = 1 << 14
# It is run by a shell of git's; the values are in its environment alone.
_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$GIT_SYNC_USERNAME" "$GIT_SYNC_PASSWORD"; }; f'
)
_AFTER_SSH = "Could not read from remote repository"
_SAID = re.compile(r"^(?:fatal|error|remote): ")


def find(environ: Mapping[str, str]) -> str:
    """Return the path of git, "" where there is none."""
    return shutil.which("git", path=environ.get("PATH", os.defpath)) or ""


def environment(
    environ: Mapping[str, str], settings: Sequence[tuple[str, str]] = (), protocols: str = "https:ssh"
) -> dict[str, str]:
    """Return the environment of git: the caller's, with settings that go before those of any repository.

    Submodules are given the same.
    """
    # the password too, which only credentials() gives
    own = {name: value for name, value in environ.items() if not _NOT_OURS.fullmatch(name)}
    pairs = (*_SETTINGS, *settings)
    found = {
        **own,
        "LC_ALL": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_TEMPLATE_DIR": "",
        "GIT_ATTR_NOSYSTEM": "1",
        "GCM_INTERACTIVE": "never",
        "GIT_CONFIG_COUNT": str(len(pairs)),
    }
    found.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    found["GIT_ASKPASS"] = found["SSH_ASKPASS"] = ""
    for number, (name, value) in enumerate(pairs):
        found[f"GIT_CONFIG_KEY_{number}"] = name
        found[f"GIT_CONFIG_VALUE_{number}"] = value
    return found


def credentials(url: str, environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Return variables and settings by which git gives the caller's password to the host of a URL, and to no other.

    Raises:
        UsageError: the password cannot be read, or would go over the network as it is.
    """
    password = environ.get(PASSWORD, "")
    if not password and environ.get(PASSWORD_FILE):
        password = _content(environ[PASSWORD_FILE])
    name = environ.get(USERNAME, "") or urlsplit(url).username or "git"
    parts = urlsplit(url)
    if not password or parts.scheme not in ("https", "http"):
        return {}, ()
    if parts.scheme == "http":
        raise UsageError(f"{url}: a password is not sent over http", hint=f"write https, or unset {PASSWORD}")
    if any(char in password + name for char in "\n\r\0"):
        raise UsageError(f"{PASSWORD}: the password must be a single line")
    host = f"https://{parts.hostname}{f':{parts.port}' if parts.port else ''}"
    # The first empties the list of those that the user's own settings name.
    settings = ((f"credential.{host}.helper", ""), (f"credential.{host}.helper", _HELPER))
    return {USERNAME: name, PASSWORD: password}, settings


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(_SECRET_BYTES).removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"{PASSWORD_FILE}: {path}: cannot be read: {why}") from None


def start(argv: Sequence[str], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start git, without a terminal.

    Raises:
        OSError: it cannot be run.
    """
    return subprocess.Popen(
        argv,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def answer(process: "subprocess.Popen[bytes]", seconds: float = _ASK_SECONDS) -> tuple[int, bytes, str]:
    """Return the exit code of git, what it says, and the last line of its errors; -9 and why where it takes too long."""
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return -signal.SIGKILL, b"", f"not within {seconds:g} s"
    return process.returncode, out[:_MOST_ANSWER], git_error(errors)


def git_error(errors: bytes) -> str:
    """Return what git says is wrong: its own line, or the last one, as it may be printed."""
    lines = [line.strip() for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    own = [number for number, line in enumerate(lines) if _SAID.match(line)]
    found = lines[own[0]] if own else lines[-1] if lines else ""
    if own and own[0] and _AFTER_SSH in found:  # ssh has said why
        found = lines[own[0] - 1]
    return "".join(char if char.isprintable() else "?" for char in _SAID.sub("", found))[:300]


def run(argv: Sequence[str], environ: Mapping[str, str], seconds: float, what: str, hint: str = "") -> bytes:
    """Run git; return what it says.

    Raises:
        HostError: it fails; `what` names what was tried.
    """
    try:
        process = start(argv, environ)
    except OSError as error:
        raise HostError(
            f"{what}: git cannot be run: {error.strerror}", hint="install git: apt-get install git"
        ) from None
    code, out, why = answer(process, seconds)
    if code:
        raise HostError(f"{what}: git: {why or f'exit code {code}'}", hint or None)
    return out
