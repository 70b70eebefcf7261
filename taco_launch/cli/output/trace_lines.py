"""What -v and -vv show: each decision, and each message, with its time, on stderr."""

from typing import TYPE_CHECKING

from taco_launch import trace

if TYPE_CHECKING:
    from taco_launch.cli.options.common import Settings


def start(settings: "Settings") -> None:
    """Show what is traced from here on."""
    trace.start(min(settings.verbose, trace.MESSAGES), lambda at, text: settings.talk(f"{at} {text}"))
