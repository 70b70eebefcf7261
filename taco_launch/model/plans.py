"""Plans: which slots a job gets (Placement) and the command line that starts it (LaunchPlan)."""

from dataclasses import dataclass
from typing import Tuple


@dataclass(frozen=True)
class HostSlots:
    """How many slots a host has for a job, by its facts."""

    host: str
    slots: int


@dataclass(frozen=True)
class Share:
    """How many ranks of a job run on one host; ranks are numbered in the order of the shares."""

    host: str
    ranks: int


@dataclass(frozen=True)
class Placement:
    """Where the ranks run, all or nothing; `why` says so in words."""

    shares: Tuple[Share, ...]
    why: str

    @property
    def np(self) -> int:
        """The world size."""
        return sum(share.ranks for share in self.shares)


@dataclass(frozen=True)
class Token:
    """One word of a command line: where it comes from and why it is there.

    `source` is user, inventory, fact, profile, default or launcher.
    """

    text: str
    source: str
    why: str


@dataclass(frozen=True)
class File:
    """A file that a line names: its path there and its content."""

    path: str
    text: str


@dataclass(frozen=True)
class LaunchPlan:
    """How a placed job is started.

    `tokens` is what a person would type on the head, `executed` the same with the agent's rank wrapper before the
    command, `env` what is set in the launcher's own environment besides. `host_env` holds what differs from host to
    host: (host, ((name, value), ...)), given to the ranks by the agent alone. `files` have to be there before the line
    runs; `warnings` is what a user should know of the line.
    """

    tokens: Tuple[Token, ...]
    executed: Tuple[str, ...]
    env: Tuple[Tuple[str, str], ...]
    host_env: Tuple[Tuple[str, Tuple[Tuple[str, str], ...]], ...] = ()
    files: Tuple[File, ...] = ()
    warnings: Tuple[str, ...] = ()

    @property
    def argv(self) -> Tuple[str, ...]:
        """The tokens' words alone."""
        return tuple(token.text for token in self.tokens)
