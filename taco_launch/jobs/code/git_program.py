"""Run git on the controller: every call is made here, asks nobody, runs nothing that a repository names, and is limited."""

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
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
# What a question about a local folder may use: git fetches what a partial clone lacks from where the clone says.
LOCAL = ""
# Only a folder's own settings could name these: a mirror has none, and your own are yours to use for a fetch.
_NO_NETWORK = (("credential.helper", ""), ("http.cookieFile", ""), ("http.saveCookies", "false"))
_MOST_ANSWER = 1 << 27
_PIECE = 1 << 16
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


def _environment(
    environ: Mapping[str, str], protocols: str, settings: Sequence[tuple[str, str]], secrets: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of git: the caller's, with settings that go before those of any repository.

    Submodules are given the same.
    """
    # the password too, which only credentials() gives
    own = {name: value for name, value in environ.items() if not _NOT_OURS.fullmatch(name)}
    pairs = (*_SETTINGS, *(() if protocols else _NO_NETWORK), *settings)
    found = {
        **own,
        "LC_ALL": "C.UTF-8",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TEMPLATE_DIR": "",
        "GIT_ATTR_NOSYSTEM": "1",
        "GCM_INTERACTIVE": "never",
        "GIT_CONFIG_COUNT": str(len(pairs)),
        **secrets,
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


def start(
    words: Sequence[str],
    environ: Mapping[str, str],
    protocols: str,
    settings: Sequence[tuple[str, str]] = (),
    secrets: Mapping[str, str] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start git, without a terminal; `protocols` are all that it may use, with ":" between them, LOCAL for none.

    Raises:
        OSError: it cannot be run.
    """
    return subprocess.Popen(
        (find(environ) or "git", *words),
        env=_environment(environ, protocols, settings, secrets or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def answer(process: "subprocess.Popen[bytes]", seconds: float = _ASK_SECONDS) -> tuple[int, bytes, str]:
    """Return the exit code of git, what it says, and its error; -9 and why where it takes too long or says too much."""
    assert process.stdout is not None
    assert process.stderr is not None
    deadline = time.monotonic() + seconds
    output = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    why = ""
    with process.stdout, process.stderr, selectors.DefaultSelector() as pipes:
        for number in output:
            pipes.register(number, selectors.EVENT_READ)
        while pipes.get_map() and not why:
            for key, _events in pipes.select(max(0.0, deadline - time.monotonic())):
                piece = os.read(key.fd, _PIECE)
                output[key.fd] += piece
                if not piece:
                    pipes.unregister(key.fd)
            if sum(map(len, output.values())) > _MOST_ANSWER:
                why = f"more than {_MOST_ANSWER >> 20} MiB of output"
            elif time.monotonic() >= deadline and pipes.get_map():
                why = f"not within {seconds:g} s"
        if why:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    out, errors = output.values()
    return (-signal.SIGKILL, b"", why) if why else (process.returncode, bytes(out), git_error(errors))


def git_error(errors: bytes | bytearray) -> str:
    """Return what git says is wrong: its own line, or the last one, as it may be printed."""
    lines = [line.strip() for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    own = [number for number, line in enumerate(lines) if _SAID.match(line)]
    found = lines[own[0]] if own else lines[-1] if lines else ""
    if own and own[0] and _AFTER_SSH in found:  # ssh has said why
        found = lines[own[0] - 1]
    return "".join(char if char.isprintable() else "?" for char in _SAID.sub("", found))[:300]


def succeed(process: "subprocess.Popen[bytes]", seconds: float, what: str, hint: Callable[[str], str]) -> bytes:
    """Return what git says.

    Raises:
        HostError: it fails; `what` names what was tried, and `hint` gives what to do about an error.
    """
    code, out, why = answer(process, seconds)
    if code:
        raise HostError(f"{what}: git: {why or f'exit code {code}'}", hint(why))
    return out
