"""Deliver one message to one address: a server, a mailbox or a program, in ten seconds an attempt."""

import contextlib
import getpass
import json
import os
import signal
import smtplib
import socket
import subprocess
import time
from http import client
from pathlib import Path
from typing import Any, Callable, Mapping, Tuple
from urllib import request
from urllib.error import HTTPError

from taco_launch.agent.store import untrusted
from taco_launch.core.messages import chat_services, mail
from taco_launch.core.messages.address import DIRECT, FILE, MAIL, PROGRAM, check, mailbox

# Seconds before each attempt after the first: what is being restarted answers again by then.
_PAUSES = (2.0, 8.0)
# For all of an attempt: a server of names may never answer, another a byte at a time, without end.
_SECONDS = 10.0
_MOST_CHARACTERS, _MOST_STATUSES = 200, 5
_MOST_OF_ANSWER = _MOST_OF_FILE = 4096
_SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail")
Message = Mapping[str, Any]


class _Answer(client.HTTPResponse):
    """A server's answer, with a limit on the number of `100 Continue` before it: http.client skips any number."""

    _statuses = 0

    def _read_status(self) -> Any:
        self._statuses += 1
        if self._statuses > _MOST_STATUSES:
            raise client.HTTPException(f"more than {_MOST_STATUSES} answers to one request")
        return super()._read_status()  # type: ignore[misc]


class _NoRedirect(request.HTTPRedirectHandler):
    """Follow no redirect: the server does not choose where the head connects."""

    def redirect_request(self, *_asked: Any) -> None:
        """Have the redirect be the answer, which is an error."""


def deliver(address: str, message: Message) -> str:
    """Deliver a message, at the third attempt at the latest; return why that failed, "" where it did not."""
    problem = post(address, message)
    for pause in _PAUSES:
        if not problem:
            break
        time.sleep(pause)
        problem = post(address, message)
    return problem


def post(address: str, message: Message) -> str:
    """Try once to deliver a message (see core.messages.words); return why that failed, "" where it did not."""
    reader, writer = os.pipe()
    child = os.fork()  # a process can be ended in the middle of a lookup, in which no handler of a signal runs
    if child == 0:
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, _SECONDS)
            os.write(writer, _try(address, message).encode("utf-8", "replace"))
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    # Its own programs hold the pipe open, too: its end is what counts.
    _pid, status = os.waitpid(child, 0)
    _end_group(child)
    problem = os.read(reader, _MOST_OF_ANSWER).decode("utf-8", "replace")
    os.close(reader)
    return f"no complete answer within {_SECONDS:g} s" if status else problem


def _end_group(child: int) -> None:
    """End the programs that an attempt leaves behind."""
    with contextlib.suppress(ProcessLookupError):  # it left none
        os.killpg(child, signal.SIGKILL)


def _try(address: str, message: Message) -> str:
    try:
        kind, _colon, path = address.partition(":")
        direct = _from_file(path) if kind == FILE else address
        return _WAYS.get(direct.partition(":")[0], _to_server)(direct, message)[:_MOST_CHARACTERS]
    except HTTPError as error:
        moved = f" to {error.headers['Location']}, and redirects are not followed" if error.headers["Location"] else ""
        words = " ".join(error.read(_MOST_OF_ANSWER).decode("utf-8", "replace").split())
        return f"HTTP {error.code} {error.reason}{moved}{words and ': '}{words}"[:_MOST_CHARACTERS]
    except smtplib.SMTPRecipientsRefused as error:
        return _refused(error.recipients)[:_MOST_CHARACTERS]
    except smtplib.SMTPResponseException as error:
        return f"{error.smtp_code} {_text(error.smtp_error)}"[:_MOST_CHARACTERS]
    except OSError as error:  # URLError is one, and has another as its reason
        cause = getattr(error, "reason", error)
        where = f"{cause.filename}: " if getattr(cause, "filename", None) else ""
        return f"{where}{getattr(cause, 'strerror', None) or cause}"[:_MOST_CHARACTERS]
    except ValueError as error:
        return str(error)[:_MOST_CHARACTERS]
    except Exception as error:  # noqa: BLE001 - whatever the address leads to is no failure of the job
        return f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]


def _refused(recipients: Mapping[str, Tuple[int, Any]]) -> str:
    return "; ".join(f"{to}: {code} {_text(words)}" for to, (code, words) in recipients.items())


def _text(words: Any) -> str:
    return words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)


def _from_file(path: str) -> str:
    """Return the address that a file holds.

    Raises:
        ValueError: it holds none.
    """
    try:
        return check(_content(path), DIRECT)
    except ValueError as error:
        raise ValueError(f"{path}: its text {error}") from None


def _content(path: str) -> str:
    """Return what a file holds, which a link may lead to."""
    return untrusted.read(Path(path).resolve(), _MOST_OF_FILE).decode("utf-8").strip()


def _to_server(address: str, message: Message) -> str:
    sent = chat_services.message(address, message, time.time())
    headers = {"Content-Type": "application/json"}
    if sent.signature:
        headers["X-Taco-Launch-Signature"] = f"sha256={sent.signature}"
    # Its scheme was checked when the address was read.
    asked = request.Request(sent.url, sent.body, headers)  # noqa: S310
    client.HTTPConnection.response_class = _Answer  # of this process, which does nothing else
    with request.build_opener(_NoRedirect).open(asked, timeout=_SECONDS) as answer:
        return chat_services.refusal(sent.service, answer.read(_MOST_OF_ANSWER)) if sent.service else ""


def _to_mailbox(address: str, message: Message) -> str:
    box = mailbox(address)
    sender = box.sender or f"{getpass.getuser()}@{socket.getfqdn()}"
    composed = mail.composed(message, box, sender, time.time())
    if box.server is None:
        program = next(filter(os.path.exists, _SENDMAIL), None)
        if program is None:
            return f"no sendmail program here ({_SENDMAIL[0]}): use smtp://HOST/?to=... instead"
        return _run((program, "-oi", "-t"), composed.as_bytes())
    kind = smtplib.SMTP_SSL if box.tls else smtplib.SMTP
    with kind(box.server, box.port, timeout=_SECONDS) as server:
        server.ehlo()
        if not box.tls and server.has_extn("starttls"):
            server.starttls()
            server.ehlo()
        if box.password_file:
            server.login(box.user, _content(box.password_file))
        refused = server.send_message(composed)
    return _refused(refused)


def _to_program(address: str, message: Message) -> str:
    return _run((address.partition(":")[2],), json.dumps(message).encode())


def _run(command: Tuple[str, ...], data: bytes) -> str:
    done = subprocess.run(command, input=data, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    words = " ".join(done.stderr.decode("utf-8", "replace").split())
    return "" if done.returncode == 0 else f"{command[0]}: exit code {done.returncode}{words and ': '}{words}"


_WAYS: Mapping[str, Callable[[str, Message], str]] = {
    MAIL: _to_mailbox,
    "smtp": _to_mailbox,
    "smtps": _to_mailbox,
    PROGRAM: _to_program,
}
