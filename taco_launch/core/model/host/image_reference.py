"""The name of an image, parsed as the Docker Engine parses it."""

import re
from typing import Optional

from taco_launch.core.frozen import dataclass

_HUB_PREFIX = re.compile(r"^(?:(?:index\.)?docker\.io/)?(?:library/)?")


@dataclass(frozen=True)
class Reference:
    """The name of an image: `repository` as the engine lists it, and a tag, or a digest (`sha256:...`)."""

    repository: str
    tag: Optional[str]
    digest: Optional[str]

    @property
    def name(self) -> str:
        """The name under which the engine lists the image."""
        return self.at(self.digest) if self.digest else f"{self.repository}:{self.tag}"

    def at(self, digest: str) -> str:
        """Name the very image of a digest, whatever tag it has."""
        return f"{self.repository}@{digest}"

    @property
    def registry(self) -> str:
        """The registry to log in at, empty for docker's own."""
        first, slash, _rest = self.repository.partition("/")
        return first if slash and (first == "localhost" or "." in first or ":" in first) else ""


def parse_reference(text: str) -> Reference:
    """Read `[REGISTRY/]NAME[:TAG][@DIGEST]`; as the engine does, a digest makes the tag mean nothing."""
    named, _at, digest = text.partition("@")
    head, slash, last = named.rpartition("/")
    last, _colon, tag = last.partition(":")
    repository = _HUB_PREFIX.sub("", f"{head}{slash}{last}", count=1)
    return Reference(repository, None if digest else tag or "latest", digest or None)
