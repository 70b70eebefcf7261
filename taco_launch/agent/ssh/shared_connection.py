"""One ssh connection to each other host for two things: its guard, and mpirun, which starts its daemon there over it.

Making a connection takes an sshd longer than all that mpirun does there (145 and 10 ms between two lab hosts). Where a user
has a say in how ssh or mpirun connect, each makes its own.
"""

import functools
import math
import re
import shutil
from pathlib import Path
from typing import Iterable, Mapping, Optional, Sequence, Tuple

from taco_launch.agent.store.folders import JobFolder

# mpirun splits it at blanks; ssh replaces what follows a per cent sign: %n is the host's name as it is typed (ssh_config(5)).
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_SOCKET = "ssh-{}"
_QUESTIONS = 3
# sockaddr_un, without the 17 characters that ssh adds until the socket is there (OpenSSH, mux.c).
_PATH_BYTES = 107 - 17
# Files by folder and pattern. By these words a user shares connections, or has files read that are not looked at here.
_SSH_FILES = (("~/.ssh", "config"), ("/etc/ssh", "ssh_config"), ("/etc/ssh/ssh_config.d", "*.conf"))
_OF_SSH = re.compile(
    rb"^\s*(control(master|path|persist)|include\s+(?!/etc/ssh/ssh_config\.d/\*\.conf\s*$))",
    re.IGNORECASE | re.MULTILINE,
)
# How mpirun starts its daemons: the component plm of Open MPI and PRRTE, by older names too (mpirun(1)).
_MCA_FILES = (("~/.openmpi", "*.conf"), ("~/.prte", "*.conf"), ("/etc/openmpi", "*.conf"), ("/etc", "prte*.conf"))
_OF_PREFIX = (("etc", "*.conf"), ("etc/openmpi", "*.conf"))
_OF_MPIRUN = re.compile(rb"^\s*(plm|orte_rsh_agent|pls)", re.MULTILINE)
_FILE_BYTES = 1 << 20
_VARIABLE = re.compile(r"(OMPI|PRTE)_MCA_(plm|orte_rsh_agent|pls)")
_WORD = re.compile(r"plm(_|$)|orte_rsh_agent$|pls_|--?(tune|am|launch-agent)$")
# What mpirun's ssh is given besides: set-up has the port of the training container's sshd there.
_ARGUMENTS = ("OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args")
_CONTROL = re.compile(r"-S|control", re.IGNORECASE)


def for_guard(folder: JobFolder, host: str, loss_seconds: float) -> Tuple[str, ...]:
    """Return the options by which a guard's ssh shares its connection; none where it must not.

    A process in the background has the connection, until a second after the last use: a guard's ssh may be ended, and
    mpirun's continues. It ends as well when the host is silent for longer than `loss_seconds`, when that counts as lost:
    TCP alone tries for a quarter of an hour or longer.
    """
    path = _socket(folder, host)
    if path is None or _users_own():
        return ()
    # It gives up one interval after the last of so many questions, ssh_config(5).
    interval = math.ceil(loss_seconds / _QUESTIONS)
    silence = ("-o", f"ServerAliveInterval={interval}", "-o", f"ServerAliveCountMax={_QUESTIONS}")
    return ("-o", "ControlMaster=yes", "-o", "ControlPersist=1", *silence, "-S", str(path))


def for_mpirun(
    folder: JobFolder, hosts: Iterable[str], argv: Sequence[str], environ: Mapping[str, str]
) -> Tuple[Tuple[str, str], ...]:
    """Return the variables by which mpirun uses the guards' connections; none where a user says how it connects.

    To a host without one, such as a host that another host's daemon connects to, ssh makes its own.
    """
    sockets = [_socket(folder, host) for host in hosts]
    program = shutil.which(argv[0], path=environ.get("PATH"))
    if program is None or not any(socket is not None and socket.exists() for socket in sockets):
        return ()
    given = [environ.get(name, "") for name in _ARGUMENTS]
    others = [name for name in environ if _VARIABLE.match(name) and name not in _ARGUMENTS]
    if others or any(map(_WORD.match, argv)) or any(map(_CONTROL.search, given)):
        return ()
    prefix = Path(program).resolve().parent.parent
    files = [*_MCA_FILES, *((str(prefix / inside), name) for inside, name in _OF_PREFIX)]
    if _mention(files, _OF_MPIRUN):
        return ()
    words = f"-S {folder.path / _SOCKET.format('%n')}"
    return tuple((name, f"{before} {words}".strip()) for name, before in zip(_ARGUMENTS, given))


def _socket(folder: JobFolder, host: str) -> Optional[Path]:
    """Return where a host's shared connection is, None where it cannot have one. The folder is its user's alone."""
    path = f"{folder.path}/{_SOCKET.format(host)}"
    return Path(path) if _PLAIN.fullmatch(path) and "/" not in host and len(path) <= _PATH_BYTES else None


@functools.lru_cache(maxsize=None)
def _users_own() -> bool:
    return _mention(_SSH_FILES, _OF_SSH)


def _mention(files: Iterable[Tuple[str, str]], words: "re.Pattern[bytes]") -> bool:
    """Return whether a file has one of the words, or cannot be read."""
    for folder, pattern in files:
        for path in Path(folder).expanduser().glob(pattern):
            try:
                with path.open("rb") as file:
                    text = file.read(_FILE_BYTES + 1)
            except OSError:
                return True
            if len(text) > _FILE_BYTES or words.search(text):
                return True
    return False
