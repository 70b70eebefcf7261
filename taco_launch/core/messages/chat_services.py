"""Messages in the form that chat services take at their webhooks; any other address gets the event itself as JSON.

The forms are those of the services' own documentation, read in 2026-11: Slack "Incoming webhooks", Microsoft Teams "Workflows",
WeCom, DingTalk "Custom robot", Feishu "Custom bot", Discord "Execute Webhook".
"""

import base64
import hashlib
import hmac
import json
import re
from typing import Any, Callable, Dict, Mapping, NamedTuple, Tuple
from urllib.parse import quote_plus, urlsplit, urlunsplit

from taco_launch.core.messages import words

# WeCom takes 2,048 bytes, Discord 2,000 characters.
_MOST_BYTES = 1900
_MOST_WORDS = 200
_FORM = re.compile(r"(?:(?P<form>[a-z]+)\+)?(?P<url>.*)", re.DOTALL)


class _Service(NamedTuple):
    """A chat service: how the name of its host ends, how the path begins, and the body for a text."""

    host: str
    path: str
    body: Callable[[str], Dict[str, Any]]


def _as_card(text: str) -> Dict[str, Any]:
    block = {"type": "TextBlock", "text": text, "wrap": True}
    card = {"type": "AdaptiveCard", "version": "1.4", "body": [block]}
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "content": card}]}


def _as_content(text: str) -> Dict[str, Any]:
    return {"msgtype": "text", "text": {"content": text}}


_SERVICES: Mapping[str, Tuple[_Service, ...]] = {
    "slack": (_Service("hooks.slack.com", "/", lambda text: {"text": text}),),
    "teams": tuple(
        _Service(host, "/", _as_card) for host in (".webhook.office.com", ".logic.azure.com", ".api.powerplatform.com")
    ),
    "wecom": (_Service("qyapi.weixin.qq.com", "/", _as_content),),
    "dingtalk": (_Service("oapi.dingtalk.com", "/", _as_content),),
    "feishu": tuple(
        _Service(host, "/", lambda text: {"msg_type": "text", "content": {"text": text}})
        for host in ("open.feishu.cn", "open.larksuite.com")
    ),
    "discord": (_Service("discord.com", "/api/webhooks/", lambda text: {"content": text}),),
}


class Message(NamedTuple):
    """A request to post.

    `service` is the chat service, whose answer shows whether it was accepted, "" for other servers; `signature` is that of the
    body, "" for none.
    """

    url: str
    body: bytes
    service: str = ""
    signature: str = ""


def message(address: str, event: Mapping[str, Any], now: float) -> Message:
    """Return what an address gets of an event; `now` is in seconds since the epoch.

    An address is a URL, with `SERVICE+` before it where its host does not tell the service. What follows `#` is the secret
    that signs the message: as DingTalk and Feishu ask for it, and by HMAC-SHA256 of the body for servers that are no chat
    service; no server gets it.
    """
    match = _FORM.fullmatch(address)
    assert match is not None
    parts = urlsplit(match["url"])
    url, secret = urlunsplit(parts._replace(fragment="")), parts.fragment
    name = match["form"] or next((name for name in _SERVICES if _is_of(name, parts.hostname or "", parts.path)), "")
    if name not in _SERVICES:
        body = json.dumps(event).encode()
        signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest() if secret else ""
        return Message(url, body, signature=signature)
    form = _SERVICES[name][0].body(_text(event))
    if secret and name == "dingtalk":
        stamp = str(int(now * 1000))
        sign = quote_plus(_signed(secret, f"{stamp}\n{secret}"))
        url += f"{'&' if parts.query else '?'}timestamp={stamp}&sign={sign}"
    elif secret and name == "feishu":
        stamp = str(int(now))
        form = {"timestamp": stamp, "sign": _signed(f"{stamp}\n{secret}", ""), **form}
    return Message(url, json.dumps(form).encode(), name)


def refusal(service: str, answer: bytes) -> str:
    """Return why a service did not take a message that it answered with success; "" where it took it."""
    try:
        reply = json.loads(answer)
    except ValueError:
        return ""
    if not isinstance(reply, dict):
        return ""
    code = next((reply[key] for key in ("errcode", "code", "StatusCode") if key in reply), 0)
    words = next((reply[key] for key in ("errmsg", "msg", "StatusMessage") if isinstance(reply.get(key), str)), "")
    if reply.get("ok") is False:
        return f"{service} refused it: {reply.get('error', 'ok is false')}"[:_MOST_WORDS]
    return "" if code == 0 else f"{service} refused it: {code}: {words}"[:_MOST_WORDS]


def _is_of(name: str, host: str, path: str) -> bool:
    return any(
        (host.endswith(each.host) if each.host.startswith(".") else host == each.host) and path.startswith(each.path)
        for each in _SERVICES[name]
    )


def _signed(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def _text(event: Mapping[str, Any]) -> str:
    """Return an event as words, as many as every service takes."""
    text = words.text(event).encode()
    return text.decode() if len(text) <= _MOST_BYTES else f"{text[:_MOST_BYTES].decode(errors='ignore')}..."
