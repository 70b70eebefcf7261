"""Where this machine gets its distribution's packages from: its apt sources, reduced to what a base image needs."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from taco_launch.frozen import dataclass

_ALIASES = frozenset(("stable", "oldstable", "testing", "unstable", "sid"))
_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s*(?P<components>[^#]*)")


@dataclass(frozen=True)
class Source:
    """One archive: where it is, its suite (`bookworm-updates`), components, and the key ring that signs it ("": apt's)."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""

    @property
    def line(self) -> str:
        """The line of a sources.list."""
        option = f"[signed-by={self.signed_by}] " if self.signed_by else ""
        return f"deb {option}{self.uri} {self.suite} {' '.join(self.components)}"

    @property
    def base(self) -> str:
        """The suite that this one belongs to: `bookworm` of `bookworm-security`."""
        return re.split("[-/]", self.suite, maxsplit=1)[0]

    def of(self, release: str) -> "Source":
        """Return the same archive's suite for another release: `trixie-security` instead of `bookworm-security`."""
        return replace(self, suite=release + self.suite[len(self.base) :])


def distributions_own(files: Iterable[tuple[str, str]], codename: str) -> tuple[Source, ...]:
    """Read apt's source files, (name, text) each: those archives that are the distribution's own.

    Other people's archives (of a GPU or container vendor) are left out, backports too. `codename` is the
    distribution's, as in /etc/os-release.
    """
    found = []
    for name, text in files:
        for source in _stanzas(text) if name.endswith(".sources") else _lines(text):
            own = source.base == codename or source.base in _ALIASES
            signed = not source.signed_by or source.signed_by.endswith("-archive-keyring.gpg")
            if own and signed and "main" in source.components and not source.suite.endswith("-backports"):
                found.append(source)
    return tuple(dict.fromkeys(found))


def _lines(text: str) -> Iterator[Source]:
    for line in text.splitlines():
        if match := _LINE.match(line.strip()):
            options = dict(option.partition("=")[::2] for option in (match["options"] or "").split())
            yield Source(match["uri"], match["suite"], tuple(match["components"].split()), options.get("signed-by", ""))


def _stanzas(text: str) -> Iterator[Source]:
    """Read deb822 (sources.list(5))."""
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, list[str]] = {}
        field = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            name, colon, value = line.partition(":")
            if colon and not line[:1].isspace():
                field = name.strip().lower()
                fields[field] = value.split()
            elif field:
                fields[field] += line.split()
        enabled = fields.get("enabled", ["yes"])[:1] not in (["no"], ["false"], ["0"])
        if not enabled or "deb" not in fields.get("types", ()):
            continue
        signed = fields.get("signed-by", [])
        key_ring = (
            signed[0] if len(signed) == 1 else ""
        )  # more words: the key itself, for which apt's own ring stands in
        for uri in fields.get("uris", ()):
            for suite in fields.get("suites", ()):
                yield Source(uri, suite, tuple(fields.get("components", ())), key_ring)
