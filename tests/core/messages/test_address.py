"""Addresses of messages: what each form means, and what is refused."""

import pytest

from taco_launch.core.messages.address import DIRECT, Mailbox, check, mailbox, shown


@pytest.mark.parametrize(
    "text",
    [
        "https://chat.example.com/hook?of=me#SECRET",
        "slack+http://127.0.0.1:8065/hooks/x",
        "mailto:a@b.c,d@e.f",
        "smtp://mail:2525/?to=a@b.c",
        "exec:/usr/local/bin/page",
        "file:/etc/taco-launch/url",
    ],
)
def test_each_form(text: str) -> None:
    assert check(text) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ftp://x/", "is not a valid address"),
        ("https://user:word@host/", "is not a valid address"),
        ("mailto:nobody", "is not a valid address"),
        ("exec:ls", "is not a valid address"),
        ("file:/with space", "is not a valid address"),
        ("smtp://h/", "is not a valid address"),
        ("smtp://h/?from=a@b.c", "names no recipient"),
        ("smtp://h/?to=a", "has 'a', which is no NAME@HOST"),
        ("smtp://h/?to=a@b.c&tls=no", "has an unknown setting tls="),
        ("smtp://h:99999/?to=a@b.c", "Port out of range"),
    ],
)
def test_what_is_none(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check(text)


def test_a_file_names_no_other_file() -> None:
    with pytest.raises(ValueError, match="is not a valid address"):
        check("file:/etc/x", DIRECT)


def test_mailboxes() -> None:
    assert mailbox("mailto:a@b.c,d@e.f") == Mailbox(["a@b.c", "d@e.f"])
    text = "smtps://me%40b.c@mail/?to=a@b.c,d@e.f&from=me@b.c&password-file=/p"
    assert mailbox(text) == Mailbox(["a@b.c", "d@e.f"], "me@b.c", "mail", 465, True, "me@b.c", "/p")


def test_what_is_shown_of_an_address_lets_nobody_use_it() -> None:
    assert shown("slack+https://hooks.slack.com/services/T/B/x") == "slack+https://hooks.slack.com"
    assert shown("https://h#SECRET") == "https://h"
    assert shown("mailto:a@b.c") == "mailto:a@b.c"
