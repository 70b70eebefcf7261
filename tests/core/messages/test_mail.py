"""Messages as mail: a subject on one line, plain text and HTML with the table."""

import pytest

from taco_launch.core.messages import words
from taco_launch.core.messages.address import mailbox
from taco_launch.core.messages.mail import composed

NIGHT = {
    "name": "nightly taco",
    "event": "regression",
    "reason": "resnet50 <b> -8 %\nchanged: NIC rate",
    "table": [["cell", "verdict"], ["resnet50 <b>", "regression"]],
    "next": ["taco-launch nightly report taco"],
    "files": ["/n/x.html"],
    "from": "ops1",
}


def test_a_mail_has_the_table_twice() -> None:
    mail = composed(NIGHT, mailbox("mailto:a@b.c,d@e.f"), "taco@host", 0.0)
    assert (mail["Subject"], mail["To"]) == ("[taco-launch] nightly taco: regression", "a@b.c, d@e.f")
    plain, html = (part.get_content() for part in mail.iter_parts())
    assert "cell          verdict\nresnet50 <b>  regression\ntaco-launch nightly report taco\nops1:/n/x.html\n" in plain
    assert '<td align="left">resnet50 &lt;b&gt;</td>' in html
    assert "<b>" not in html


def test_a_name_makes_no_header() -> None:
    mail = composed({"name": "a\nBcc: x@y.z", "event": "end"}, mailbox("mailto:a@b.c"), "taco@host", 0.0)
    assert mail["Bcc"] is None
    assert mail["Subject"] == "[taco-launch] a Bcc: x@y.z: end"


@pytest.mark.parametrize(
    ("event", "state", "title"),
    [
        ("ended", "FAILED", "j: FAILED"),
        ("stalled", "RUNNING", "j: hangs"),
        ("verified", "RUNNING", "j: does not run as planned"),
        ("lost", "RUNNING", "j: lost a host"),
        ("health", "", "j: health"),
    ],
)
def test_a_title_says_what_is_the_matter(event: str, state: str, title: str) -> None:
    assert words.title({"name": "j", "event": event, "state": state}) == title
