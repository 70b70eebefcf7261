"""What chat services are sent, and how their refusals are read; the forms are those of their documentation."""

import base64
import hashlib
import hmac
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from taco_launch.core.messages import chat_services

EVENT = {"name": "vgg16", "state": "FAILED", "event": "ended", "reason": "rank 1 failed", "hosts": ["gpu1", "gpu2"]}
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
