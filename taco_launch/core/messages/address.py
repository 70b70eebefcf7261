"""Addresses of messages: servers, mailboxes, programs, and files that hold one of these."""

import re
from typing import NamedTuple, Optional, Sequence
from urllib.parse import parse_qs, unquote, urlsplit

_MAILBOX = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+"
_HOST = r"[A-Za-z0-9.:\[\]-]+"
FILE, MAIL, PROGRAM = "file", "mailto", "exec"
# Of an address that is not in a file. urllib sends no user and password of a URL.
DIRECT = (
    rf"(?:(?:slack|teams|wecom|dingtalk|feishu|discord)\+)?https?://{_HOST}([/?][!-~]*)?"
    rf"|{MAIL}:{_MAILBOX}(,{_MAILBOX})*"
    rf"|smtps?://([A-Za-z0-9._%+-]+@)?{_HOST}/\?[!-~]*"
    rf"|{PROGRAM}:/[!-~]+"
)
ADDRESS = rf"{DIRECT}|{FILE}:/[!-~]+"
FORMS = (
    "http[s]://HOST/PATH, slack+https://HOST/PATH (also teams, wecom, dingtalk, feishu, discord), mailto:NAME@HOST, "
    "smtp://HOST/?to=NAME@HOST, exec:/PROGRAM or file:/FILE"
)
_WITHOUT_SCHEME = re.compile(r"[A-Za-z0-9.-]+(:\d+)?(/[!-~]*)?")
_ALMOST = re.compile(r"^(https?)[:/]{1,3}([A-Za-z0-9])")
_PORTS = {"smtp": 25, "smtps": 465}
_SETTINGS = ("to", "from", "password-file")


class Mailbox(NamedTuple):
    """Where mail goes: to whom, from whom, "" for the sender's default, and through which server."""

    to: Sequence[str]
    sender: str = ""
    # None: the sendmail program of the machine
    server: Optional[str] = None
    port: int = 0
    # Whether the connection is encrypted from its start; otherwise it is where the server offers that.
    tls: bool = False
    user: str = ""
    # The file with the password of `user`, "" for none
    password_file: str = ""


def check(text: str, pattern: str = ADDRESS) -> str:
    """Return an address as it is.

    Raises:
        ValueError: it is none.
    """
    if re.fullmatch(pattern, text) is None:
        meant = f": write https://{text}, or http://{text}" if _WITHOUT_SCHEME.fullmatch(text) else ""
        almost = _ALMOST.sub(r"\1://\2", text)
        if almost != text and re.fullmatch(pattern, almost):
            meant = f": write {almost}"
        raise ValueError(f"is not a valid address for messages{meant}")
    if text.startswith("smtp"):
        mailbox(text)
    return text


def mailbox(address: str) -> Mailbox:
    """Return what an address means: `mailto:A@B,C@D`, or `smtp://USER@HOST:PORT/?to=A@B&from=C@D&password-file=/PATH`.

    Raises:
        ValueError: it names no valid recipient or sender, a wrong port, or an unknown setting.
    """
    if address.startswith(f"{MAIL}:"):
        return Mailbox(address[len(MAIL) + 1 :].split(","))
    parts = urlsplit(address)
    settings = parse_qs(parts.query)
    unknown = sorted(settings.keys() - {*_SETTINGS})
    if unknown:
        raise ValueError(f"has an unknown setting {unknown[0]}=: there are {', '.join(f'{key}=' for key in _SETTINGS)}")
    to = [each for text in settings.get("to", ()) for each in text.split(",")]
    sender, password = (settings.get(key, [""])[0] for key in ("from", "password-file"))
    if not to:
        raise ValueError("names no recipient: add ?to=NAME@HOST")
    for each in (*to, *filter(None, (sender,))):
        if re.fullmatch(_MAILBOX, each) is None:
            raise ValueError(f"has {each!r}, which is no NAME@HOST")
    port = parts.port or _PORTS[parts.scheme]
    return Mailbox(to, sender, parts.hostname, port, parts.scheme == "smtps", unquote(parts.username or ""), password)


def shown(address: str) -> str:
    """Return an address without what lets anyone use it: what follows the host of a server."""
    match = re.match(r"(\w+\+)?\w+://[^/?#]*", address)
    return address if match is None else match[0]
