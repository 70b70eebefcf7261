"""Root file systems of this machine's own distribution, made as images from the archives that it has its packages from."""

import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from taco_launch.core.errors import TacoLaunchError
from taco_launch.core.frozen import dataclass
from taco_launch.lab.docker import daemon
from taco_launch.lab.docker.engine import docker
from taco_launch.lab.docker.labels import IMAGE_KEY
from taco_launch.lab.docker.reporter import Reporter

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


_CERTIFICATES = "/usr/local/share/ca-certificates"
# Certificates that the machine trusts are trusted in there as well.
_TRUST_HOOKS = (f"sync-in {_CERTIFICATES} {_CERTIFICATES}", 'chroot "$1" update-ca-certificates')
# Documentation and translations make half of the time and a third of the room.
_DPKG = ("path-exclude=/usr/share/doc/*", "path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*")
# What apt says of an archive without a suite of this name, and of one whose signature it has no key for.
_NO_SUITE = re.compile(r"E: The repository '(\S+) (\S+) \w+' does not have a Release file")
_UNSIGNED = re.compile(r"E: The repository '(\S+) (\S+) \w+' is not signed")
_APT_KEPT = re.compile(r'Acquire::(?:https?::Proxy|Check-Valid-Until|Check-Date) ".*";')


@dataclass(frozen=True)
class AptSources:
    """What a root file system takes over from this machine: its archives, and apt's settings for them."""

    archives: tuple[Source, ...]
    settings: str

    def digest(self, *parts: str) -> str:
        """Return 12 hex digits that change with all that an image made here of `parts` depends on."""
        whole = [
            platform.machine(),
            self.settings,
            *(source.line for source in self.archives),
            *(*_TRUST_HOOKS, *_DPKG, *parts),
            *(path.read_text("utf-8", "replace") for path in _certificates()),
        ]
        return hashlib.sha256("\n".join(whole).encode()).hexdigest()[:12]


def machine(release: str = "") -> AptSources:
    """Look at this machine; with `release`, give its archives' suites of that release of its distribution.

    Whether the archives have such suites shows when something is made of them.

    Raises:
        TacoLaunchError: it has no archives of Debian or Ubuntu.
    """
    archives = _archives()
    if release and release != own_release():
        archives = tuple(source.of(release) for source in archives)
    return AptSources(archives, _apt_settings())


def own_release() -> str:
    """Return the code name of this machine's release (os-release(5)), empty where it has none."""
    try:
        found = re.search(r'^VERSION_CODENAME="?([a-z]+)', Path("/etc/os-release").read_text("utf-8"), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found else ""


def make(tag: str, kind: str, packages: Sequence[str], hooks: Sequence[str], here: AptSources, talk: Reporter) -> None:
    """Make an image with these packages and nothing else; `kind` is the value of its label.

    `hooks` are commands as mmdebstrap(1) takes them, run when all packages are there.

    Raises:
        TacoLaunchError: mmdebstrap is missing and cannot be installed, or it failed: its errors.
    """
    if shutil.which("mmdebstrap") is None:
        daemon.install(("mmdebstrap",), talk)
    hooks = [f"--customize-hook={hook}" for hook in (*hooks, *(_TRUST_HOOKS if _certificates() else ()))]
    with tempfile.TemporaryDirectory(prefix="taco-launch-lab-") as scratch:
        apt, packed = Path(scratch, "apt.conf"), Path(scratch, "root.tar")
        apt.write_text(here.settings + 'Acquire::Languages "none";\n', "utf-8")
        argv = (
            *("mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}", f"--aptopt={apt}"),
            *(*(f"--dpkgopt={option}" for option in _DPKG), *hooks),
            *(here.archives[0].base, str(packed), "-"),
        )
        _run(argv, "".join(f"{source.line}\n" for source in here.archives), talk)
        talk.show("importing the image")
        docker("import", "--change", f"LABEL {IMAGE_KEY}={kind}", str(packed), tag, timeout=300)


def _archives() -> tuple[Source, ...]:
    codename = own_release()
    try:
        folder = Path("/etc/apt")
        files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*.list"))]
        files += sorted((folder / "sources.list.d").glob("*.sources"))
        texts = [(path.name, path.read_text("utf-8", "replace")) for path in files if path.is_file()]
    except OSError as error:
        raise TacoLaunchError(f"{error.filename}: {error.strerror}") from None
    found = distributions_own(texts, codename)
    if not found:
        what = f"of {codename}" if codename else "of Debian or Ubuntu"
        raise TacoLaunchError(
            f"no package archive {what} (component main) in /etc/apt: lab hosts are built from this machine's package archives",
            hint="add one (man sources.list); the lab requires a machine with Debian or Ubuntu",
        )
    return found


def _apt_settings() -> str:
    """Return what of this machine's apt settings an image needs to reach the same archives."""
    argv = ("apt-config", "dump")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return "".join(f"{line}\n" for line in done.stdout.splitlines() if _APT_KEPT.fullmatch(line))


def _certificates() -> list[Path]:
    return sorted(Path(_CERTIFICATES).glob("**/*.crt"))


def _run(argv: Sequence[str], stdin: str, talk: Reporter) -> None:
    """Run mmdebstrap, show its steps.

    Raises:
        TacoLaunchError: it failed: its errors.
    """
    said = []
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, errors="replace"
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(stdin)
        process.stdin.close()
        for line in process.stderr:
            said.append(line.rstrip())
            if line.startswith("I: "):
                talk.show(f"making the image: {line[3:].strip()}")
    if process.returncode:
        for line in said:
            if told := _of_the_archive(line):
                raise told
        errors = [line for line in said if line.startswith("E:")] or said[-3:]
        raise TacoLaunchError(
            "an image of the lab could not be made: mmdebstrap: " + "\n".join(errors),
            hint="see whether this machine reaches its package archives: apt-get update",
        )


def _of_the_archive(line: str) -> TacoLaunchError | None:
    """Read from what apt says that it is the archive that has not what is asked of it."""
    if match := _NO_SUITE.match(line):
        return TacoLaunchError(
            f"{match[1]} has no suite {match[2]}",
            hint=f"its suites are listed at {match[1].rstrip('/')}/dists/",
        )
    if match := _UNSIGNED.match(line):
        return TacoLaunchError(
            f"cannot verify the archive {match[1]} {match[2]}: this machine does not have the key that signed it",
            hint="install the current keys: apt-get install debian-archive-keyring (Ubuntu: ubuntu-keyring)",
        )
    return None
