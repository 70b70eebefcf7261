"""What an inventory and a matrix say of messages to people: to which addresses, and when."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, WithJsonSchema

from taco_launch.core.messages.occasions import OCCASIONS
from taco_launch.core.model.host.hosts import Notice
from taco_launch.hosts.inventory.schema.section import SchemaSection, text_or_mapping
from taco_launch.hosts.inventory.schema.values import MessageAddress, one_of

DESCRIPTION = (
    "Who gets messages about jobs and nightly runs: a list of addresses, or of {to: ADDRESS, when: [...]}. An address is a URL "
    "(webhooks of Slack, Teams, WeCom, DingTalk, Feishu and Discord get a text; URL#SECRET signs the message), "
    "mailto:NAME@HOST, smtp://USER@HOST:PORT/?to=NAME@HOST&from=NAME@HOST&password-file=/PATH, exec:/PROGRAM, which gets "
    "JSON on stdin, or file:/PATH of a file with such an address. Jobs' messages are sent by the head, others by this machine."
)


_DEFAULT = Notice("").when


_Occasion = Annotated[
    str,
    one_of(OCCASIONS, "is not a valid occasion", "there are"),
    WithJsonSchema({"type": "string", "enum": [*OCCASIONS]}),
]


class NoticeEntry(SchemaSection):
    """An address, and when it gets messages."""

    to: MessageAddress = Field(description="The address.")
    when: tuple[_Occasion, ...] = Field(
        default=_DEFAULT,
        description=f"When: {'; '.join(f'{word}: {text}' for word, text in OCCASIONS.items())}. Default: [{', '.join(_DEFAULT)}].",
    )


NoticesEntry = tuple[
    Annotated[
        Annotated[MessageAddress, Tag("text")] | Annotated[NoticeEntry, Tag("mapping")], Discriminator(text_or_mapping)
    ],
    ...,
]


def notices(entries: Iterable[str | NoticeEntry]) -> tuple[Notice, ...]:
    """Return what the entries say."""
    return tuple(Notice(each) if isinstance(each, str) else Notice(each.to, each.when) for each in entries)


def to_document(held: Iterable[Notice]) -> list[Any]:
    """Return the entries of a file that say the same."""
    return [each.to if each.when == _DEFAULT else {"to": each.to, "when": list(each.when)} for each in held]
