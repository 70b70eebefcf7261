"""A message as mail: plain text, and HTML with the table."""

import html
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any, List, Mapping, Sequence

from taco_launch.core.messages import words
from taco_launch.core.messages.address import Mailbox


def composed(message: Mapping[str, Any], box: Mailbox, sender: str, now: float) -> EmailMessage:
    """Return a message as a mail from `sender`; `now` is in seconds since the epoch."""
    mail = EmailMessage()
    mail["Subject"] = " ".join(f"[taco-launch] {words.title(message)}".split())
    mail["From"], mail["To"] = sender, ", ".join(box.to)
    mail["Date"], mail["Message-ID"] = formatdate(now), make_msgid("taco-launch", sender.rpartition("@")[2] or None)
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(words.text(message) + "\n")
    mail.add_alternative(_html(message), subtype="html")
    return mail


def _html(message: Mapping[str, Any]) -> str:
    without_table = {**message, "table": ()}
    first, *rest = words.text(without_table).splitlines()
    parts = [f"<h3>{html.escape(first)}</h3>", *(f"<p>{html.escape(line)}</p>" for line in rest)]
    if message.get("table"):
        parts.insert(min(len(parts), 2), _table(message["table"]))
    return f"<html><body>{''.join(parts)}</body></html>\n"


def _table(table: Sequence[Sequence[str]]) -> str:
    rows: List[str] = []
    for number, row in enumerate(table):
        tag = "td" if number else "th"
        cells = "".join(f'<{tag} align="left">{html.escape(cell)}</{tag}>' for cell in row)
        rows.append(f"<tr>{cells}</tr>")
    return f'<table border="1" cellpadding="5" cellspacing="0">{"".join(rows)}</table>'
