"""The words that users write on a command line or in an inventory: what each may look like, and how one is shown."""

import difflib
import ipaddress
import re
from collections.abc import Iterable, Mapping

from taco_launch.core.errors import Fault, SpecError

COMMAND_LINE = "command line"
# Linux, execve(2): one string of the environment or of argv may hold this many bytes, its last NUL included.
MAX_STRING_BYTES = 128 * 1024
# Linux, limits.h; longer ones are no paths.
PATH_MAX = 4096
# More slots than any one host has cores; a slot too many is a typing mistake.
MAX_SLOTS = 4096

_SHOWN_CHARACTERS = 60
_SHOWN_WIDTH = 80  # with escapes
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HOST_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_IP = re.compile(r"[0-9.]*|.*:.*", re.DOTALL)  # what may be one at all: ipaddress takes 5 us to tell
_ZONE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,14}")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,14}")  # IFNAMSIZ of linux/if.h: 15 and a NUL
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,31}")  # useradd(8), and the dots of directory services
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?=.{{1,255}}\Z)(?:{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?/)?{_COMPONENT}(?:/{_COMPONENT})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@[A-Za-z][A-Za-z0-9+._-]*:[A-Za-z0-9]{1,128})?",
    re.ASCII,
)


def host_name(text: str, path: str = "host", source: str = COMMAND_LINE) -> str:
    """Check a host name: RFC 1123 (section 2.1: the last part is not all digits), and `_` as clusters use it.

    Args:
        text: what was written; it is returned as it is.
        path: where it stands, for the message.
        source: the file or option it stands in, for the message.

    Raises:
        SpecError: it is not a host name; an IP address is none either.
    """
    parts = text.split(".")
    if len(text) > 253 or not all(_HOST_PART.fullmatch(part) for part in parts):
        problem = (
            "is not a host name: letters, digits, '-' and '_' in parts of at most 63 joined by '.', at most 253 in all, "
            "no '-' at either end of a part"
        )
        raise _refused(text, problem, path, source)
    if parts[-1].isdigit():
        raise _refused(text, "is not a host name: its last part is a number (RFC 1123 requires a letter)", path, source)
    return text


def address(text: str, path: str = "address", source: str = COMMAND_LINE) -> str:
    """Check an address: a host name, an IPv4 address or an IPv6 address without brackets (a zone is allowed).

    Raises:
        SpecError: it is none of them.
    """
    literal, percent, zone = text.partition("%")
    try:
        version: int = ipaddress.ip_address(literal).version if _IP.fullmatch(literal) else 0
    except ValueError:
        version = 0
    if version == 4 and not percent:
        return text
    if version == 6 and (not percent or _ZONE.fullmatch(zone)):
        return text
    try:
        return host_name(text, path, source)
    except SpecError:
        login, _at, rest = text.rpartition("@")
        host = rest.partition(":")[0]
        parts = _USER.fullmatch(login) and all(map(_HOST_PART.fullmatch, host.split(".")))
        hint = f"write {{address: {host}, user: {login}}}; a port has a key of its own: port" if parts else ""
        hint = "a range is written gpu[1-3]" if "{" in text else hint
        problem = (
            "is neither a host name (letters, digits, '.', '-' and '_', a letter in the last part, no '-' first) nor an "
            "IP address"
        )
        raise _refused(text, problem, path, source, hint) from None


def image(text: str) -> str:
    """Check the name of an image by the grammar of the Docker Engine (distribution/reference): [REGISTRY/]NAME[:TAG][@DIGEST].

    Raises:
        ValueError: it is none, with what is wrong and what to write instead.
    """
    if _IMAGE.fullmatch(text):
        return text
    _scheme, slashes, rest = text.partition("://")
    meant = rest if slashes else text
    head, slash, last = meant.rpartition("/")
    last, colon, tag = last.partition(":")
    domain, dot, path = head.partition("/")
    is_domain = any(mark in domain for mark in ".:") or domain == "localhost"
    head = f"{domain}{dot}{path.lower()}" if is_domain else head.lower()
    meant = f"{head}{slash}{last.lower()}{colon}{tag}"
    problem = "is not an image: [REGISTRY/]NAME[:TAG] or NAME@DIGEST"
    if slashes:
        problem = "is not an image: its name has no scheme such as https:// in front"
    elif text != meant:
        problem = "is not an image: NAME is in lower case"
    raise ValueError(problem, f"did you mean {meant}?" if meant != text and _IMAGE.fullmatch(meant) else "")


def user(text: str, path: str = "user", source: str = COMMAND_LINE) -> str:
    """Check a login on a host.

    Raises:
        SpecError: it is none.
    """
    problem = "is not a user name: letters, digits, '.', '_' and '-', at most 32, a letter first"
    return _fitting(_USER, text, problem, path, source)


def word(text: str, what: str, path: str, source: str = COMMAND_LINE) -> str:
    """Check a name of our own (a job, a cluster, a group, ...): it may become a file name and an argument anywhere.

    Args:
        text: what was written; it is returned as it is.
        what: what it names, with its article (`a job name`), for the message.
        path: where it stands, for the message.
        source: the file or option it stands in, for the message.

    Raises:
        SpecError: it is none.
    """
    allowed = "letters, digits, '.', '_' and '-', a letter or digit first, at most 63 characters"
    return _fitting(_WORD, text, f"is not {what}: {allowed}", path, source)


def as_word(text: str) -> str:
    """Make a name of our own out of a text: `-` stands for what no name has; "" where nothing is left."""
    if _WORD.fullmatch(text):
        return text
    return re.sub("[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:63].rstrip("._-")


def job_name(text: str, path: str = "job name", source: str = COMMAND_LINE) -> str:
    """Check a job name: letters, digits, `.`, `_`, `-`, a letter or digit first, at most 63 characters.

    Raises:
        SpecError: it is none.
    """
    return word(text, "a job name", path, source)


def is_interface(text: str) -> bool:
    """Return whether a text may be the name of a network interface, as a host tells it."""
    return _INTERFACE.fullmatch(text) is not None


def interface(text: str, path: str = "--interface", source: str = COMMAND_LINE) -> str:
    """Check the name of a network interface.

    Raises:
        SpecError: it is none.
    """
    if not is_interface(text):
        problem = "is not a network interface: at most 15 letters, digits, '_', '.', ':' and '-'"
        mpi = f"--mca btl_tcp_if_include {text} --mca oob_tcp_if_include {text}"
        hint = f"to name a network instead: {mpi}" if _network(text) else ""
        if all(map(is_interface, text.split(","))):
            hint = f"for several interfaces: -x NCCL_SOCKET_IFNAME=={text} {mpi}"
        raise _refused(text, problem, path, source, hint)
    return text


def env_name(text: str, path: str = "-x", source: str = COMMAND_LINE) -> str:
    """Check the name of an environment variable (POSIX, Base Definitions 8.1: letters, digits, `_`, no digit first).

    Raises:
        SpecError: it is none.
    """
    problem = "is not the name of an environment variable: letters, digits and '_', no digit first"
    return _fitting(_ENV_NAME, text, problem, path, source)


def env(name: str, value: str | None, path: str = "-x", source: str = COMMAND_LINE) -> None:
    """Check an environment variable; None is the caller's value.

    Raises:
        SpecError: the name is none, or no environment can hold the value. The value, which may be a secret, is not shown.
    """
    env_name(name, path, source)
    if value is None:
        return
    if "\0" in value:
        raise _refused(name, "its value holds a NUL byte, which no environment can hold", path, source)
    try:
        size = len(f"{name}={value}".encode("utf-8", "surrogateescape")) + 1
    except UnicodeEncodeError:
        raise _refused(name, "its value contains an invalid character (a lone surrogate)", path, source) from None
    if size > MAX_STRING_BYTES:
        problem = f"name and value have {size} bytes; Linux allows {MAX_STRING_BYTES} (execve(2))"
        raise _refused(
            name, problem, path, source, "write the value to a file, and set the variable to the path of that file"
        )


def is_profile_path(text: str) -> bool:
    """Return whether a profile is given by the path of its file, not by its name."""
    return "/" in text or text.endswith(".yaml")


def shown(value: object) -> str:
    """Return a value for a message: one short line, quoted where it is text, nothing in it that a terminal obeys."""
    if isinstance(value, str):
        cut = value[:_SHOWN_CHARACTERS]
        while len(repr(cut)) > _SHOWN_WIDTH:
            cut = cut[:-1]
        return repr(cut) if cut == value else f"{cut!r}... ({len(value)} characters)"
    if isinstance(value, Mapping):
        return "{...}"
    if isinstance(value, (list, tuple)):
        return "[...]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value) if isinstance(value, int) and abs(value) < 10**20 else f"<{type(value).__name__}>"


def plain(text: str, most: int = _SHOWN_WIDTH) -> str:
    """Return a word for a message: as it is where it is harmless and has at most `most` characters, else as `shown`."""
    return text if text and text.isprintable() and len(text) <= most else shown(text)


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return `did you mean 'slots'?` for the known word nearest to `text` in any case, or nothing where none is near."""
    folded = {word.lower(): word for word in reversed(tuple(known))}
    word = text[:_SHOWN_CHARACTERS].lower()
    begun = [name for name in folded if name.startswith(word)] if len(word) > 1 else []
    near = difflib.get_close_matches(word, folded, n=1) or (begun if len(begun) == 1 else ())
    return f"did you mean {shown(folded[near[0]])}?" if near else ""


def _network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text and text.isprintable()


def _fitting(form: re.Pattern[str], text: str, problem: str, path: str, source: str) -> str:
    if not form.fullmatch(text):
        raise _refused(text, problem, path, source)
    return text


def _refused(text: str, problem: str, path: str, source: str, hint: str = "") -> SpecError:
    return SpecError(source, (Fault(path, shown(text), problem, hint),))
