"""What only a person can give: the sudo password and the passphrases of keys, each asked once."""

from collections.abc import Callable
from dataclasses import field

from taco_launch.core.frozen import dataclass


@dataclass(frozen=True)
class Credentials:
    """What connections may need of a person.

    `sudo_password` is None where none was given; `ask_passphrase` is given a prompt and gives the answer, None where
    nobody can be asked.
    """

    sudo_password: str | None = field(default=None, repr=False)
    ask_passphrase: Callable[[str], str] | None = None
