"""How help is wrapped into lines: an option name, or a word with hyphens, stays in one piece."""

from collections.abc import Iterable

import click

# Click's wrapping breaks a line behind a hyphen; it knows no other meaning of this one, which is as wide.
_UNBREAKABLE = "\u2011"


class _HelpLines(click.HelpFormatter):
    """A formatter that breaks lines at blanks only."""

    def write(self, string: str) -> None:
        """Write a piece, with the hyphens that wrapping was not to see."""
        super().write(string.replace(_UNBREAKABLE, "-"))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the line of usage."""
        super().write_usage(prog, _in_one_piece(args), prefix)

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        super().write_text(_in_one_piece(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names in a first column, and what they mean in a second."""
        super().write_dl([(name, _in_one_piece(text)) for name, text in rows], col_max, col_spacing)


class HelpContext(click.Context):
    """The context of our commands."""

    formatter_class = _HelpLines


class LateCommand(click.Command):
    """What stands for a command that is imported when it is used."""

    def load(self) -> click.Command:
        """Import the command."""
        raise NotImplementedError


def _in_one_piece(text: str) -> str:
    return text.replace("-", _UNBREAKABLE)
