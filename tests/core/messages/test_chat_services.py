"""What chat services are sent, and how their refusals are read; the forms are those of their documentation."""

import base64
import hashlib
import hmac
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from taco_launch.core.messages import chat_services, words
from taco_launch.core.messages.address import DIRECT, Mailbox, check, mailbox, shown
from taco_launch.core.messages.mail import composed

EVENT = {
    "name": "vgg16",
    "state": "FAILED",
    "event": "ended",
    "reason": "rank 1 failed",
    "hosts": ["gpu1", "gpu2"],
    "next": ["taco-launch get vgg16"],
}
TEXT = "vgg16: FAILED\nrank 1 failed\nhosts: gpu1, gpu2\ntaco-launch get vgg16"
AS_CONTENT = {"msgtype": "text", "text": {"content": TEXT}}


@pytest.mark.parametrize(
    ("address", "service", "body"),
    [
        ("https://hooks.slack.com/services/T/B/x", "slack", {"text": TEXT}),
        ("slack+http://mattermost.example.com:8065/hooks/x", "slack", {"text": TEXT}),
        ("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=k", "wecom", AS_CONTENT),
        ("https://oapi.dingtalk.com/robot/send?access_token=t", "dingtalk", AS_CONTENT),
        ("https://open.feishu.cn/open-apis/bot/v2/hook/x", "feishu", {"msg_type": "text", "content": {"text": TEXT}}),
        ("https://discord.com/api/webhooks/1/x", "discord", {"content": TEXT}),
        ("https://discord.com/other", "", EVENT),
        ("https://hooks.slack.com.example.com/x", "", EVENT),
        ("http://127.0.0.1:9000/hook", "", EVENT),
    ],
)
def test_the_form_follows_from_the_address(address: str, service: str, body: object) -> None:
    message = chat_services.message(address, EVENT, 0.0)
    assert (message.service, json.loads(message.body)) == (service, body)
    assert message.url == address.partition("+")[2] if "+" in address else address


def test_teams_gets_a_card() -> None:
    url = "https://x.webhook.office.com/webhookb2/y"
    sent = json.loads(chat_services.message(url, EVENT, 0.0).body)
    assert sent["attachments"][0]["content"]["body"] == [{"type": "TextBlock", "text": TEXT, "wrap": True}]


def test_the_secret_signs_and_is_not_sent() -> None:
    ding = chat_services.message("https://oapi.dingtalk.com/robot/send?access_token=t#SECx", EVENT, 12.5)
    query = parse_qs(urlsplit(ding.url).query)
    expected = base64.b64encode(hmac.new(b"SECx", b"12500\nSECx", hashlib.sha256).digest()).decode()
    assert query == {"access_token": ["t"], "timestamp": ["12500"], "sign": [expected]}
    feishu = chat_services.message("feishu+http://127.0.0.1:1/hook#SECx", EVENT, 12.5)
    body = json.loads(feishu.body)
    assert (body["timestamp"], feishu.url) == ("12", "http://127.0.0.1:1/hook")
    assert body["sign"] == base64.b64encode(hmac.new(b"12\nSECx", b"", hashlib.sha256).digest()).decode()
    assert "SECx" not in ding.url + feishu.url + feishu.body.decode()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'{"errcode": 0, "errmsg": "ok"}', ""),
        (b"ok", ""),
        (b"[]", ""),
        (b'{"errcode": 310000, "errmsg": "sign not match"}', "wecom refused it: 310000: sign not match"),
        (b'{"code": 19021, "msg": "sign match fail"}', "wecom refused it: 19021: sign match fail"),
    ],
)
def test_success_with_an_error_inside_is_a_refusal(answer: bytes, words: str) -> None:
    assert chat_services.refusal("wecom", answer) == words


def test_a_long_refusal_is_cut() -> None:
    assert len(chat_services.refusal("wecom", b'{"errcode": "%s"}' % (b"9" * 3000))) == 200


def test_a_long_reason_is_cut() -> None:
    message = chat_services.message("wecom+http://h/", {**EVENT, "reason": "长" * 5000}, 0.0)
    text = json.loads(message.body)["text"]["content"]
    assert len(text.encode()) < 2048
    assert text.endswith("...")


def test_slack_refuses_with_success() -> None:
    assert chat_services.refusal("slack", b'{"ok": false, "error": "no_service"}') == "slack refused it: no_service"


# --- Messages as mail: a subject on one line, plain text and HTML with the table


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


# --- Addresses of messages: what each form means, and what is refused


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


def test_the_secrets_of_an_address_are_not_shown() -> None:
    assert shown("slack+https://hooks.slack.com/services/T/B/x") == "slack+https://hooks.slack.com"
    assert shown("https://h#SECRET") == "https://h"
    assert shown("mailto:a@b.c") == "mailto:a@b.c"
