"""Reads the frame of the probe's answer: what each command said, complained about, and how it ended.

The form of the answer is told in probe.sh. Nothing in it is trusted: a line may be cut, doubled or coloured.
"""

import re
import shlex
from typing import Dict, List, Mapping, Optional, Tuple, Union

from taco_launch.core.facts.text.strip_terminal import plain
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host.fact_value import NOT_ASKED, Absent, Found, Unknown

# The section that `read` adds: `began TIME` and `ended TIME`, and exit code 0 where the answer is whole.
PROBE = "probe"
NOT_FOUND, TOOK_TOO_LONG = 127, 124
_FIRST = re.compile(r"(?m)(?:^|\s)(\S+) probe 1 ([0-9]\S*)$")
_MISSING = ("No such file or directory", "Not a directory")
_SHOWN = 300
# Of one command, lines: what a tool complains about is in the first of them.
_MOST_COMPLAINTS = 1000


@dataclass(frozen=True)
class Section:
    """What one command said; `exit_code` is None where the answer was cut off before its end."""

    name: str
    stdout: str
    stderr: str
    exit_code: Optional[int]


Sections = Mapping[str, Section]
Failure = Union[Absent, Unknown]


def read(output: bytes, why: str = "") -> Dict[str, Section]:
    """Return the sections of an answer by name; `why` says what cut it off, where that is known.

    What stands before the first marker (a message of the day, a noisy .bashrc) is passed over. Bytes that are no UTF-8
    become backslash escapes. Without any marker there is no section at all.
    """
    text = plain(output.decode("utf-8", "backslashreplace"))
    first = _FIRST.search(text)
    if first is None or text[first.end() : first.end() + 1] != "\n":
        return {}
    nonce, began = first.groups()
    *whole, rest = text[first.end() + 1 :].split("\n")
    frame = _Frame()
    for line in whole:
        words = line.split(" ", 3) if line.startswith(f"{nonce} ") else [""]
        kind = words[1] if len(words) > 1 else ""
        if kind == "begin" and len(words) == 3:
            frame.begin(words[2])
        elif kind == "end" and len(words) == 4 and re.fullmatch("[0-9]{1,3}", words[3]):
            frame.end(words[2], int(words[3]))
        elif kind == "err":
            frame.complain(line[len(nonce) + 5 :])
        elif kind == "done":  # told twice, it is not known when that was
            frame.ended = words[2] if len(words) > 2 and frame.ended is None else ""
        elif frame.open is not None:
            frame.lines.append(line)
    if frame.open is not None:
        frame.lines.append(rest)
    return frame.close(began, why)


class _Frame:
    """The sections read so far, and the one that is being read."""

    def __init__(self) -> None:
        self.found: Dict[str, Section] = {}
        self.open: Optional[str] = None
        self.last: Optional[str] = None
        self.lines: List[str] = []
        self.complaints: List[str] = []  # of the last section
        self.ended: Optional[str] = None

    def begin(self, name: str) -> None:
        self._store(None)
        self._store_complaints()
        self.open, self.last, self.lines = name, None, []

    def end(self, name: str, code: int) -> None:
        if self.open == name:
            self._store(code)
            self._store_complaints()
            self.last = name

    def complain(self, text: str) -> None:
        if self.last is not None and len(self.complaints) < _MOST_COMPLAINTS:
            self.complaints.append(text)

    def close(self, began: str, why: str) -> Dict[str, Section]:
        self._store_complaints()
        done = self.ended is not None
        if self.open is None and self.last is not None and not done:  # its complaints may be cut off
            last = self.found[self.last]
            if last.exit_code != NOT_FOUND or not last.stderr:  # `NAME: not found` is one line
                self.found[self.last] = Section(last.name, last.stdout, last.stderr, None)
        self._store(None)
        ended = self.ended or ""
        self.found[PROBE] = Section(PROBE, f"began {began}\nended {ended}\n", "" if done else why, 0 if done else None)
        return self.found

    def _store_complaints(self) -> None:
        if self.last is not None and self.complaints:
            section = self.found[self.last]
            stderr = section.stderr + "".join(f"{line}\n" for line in self.complaints)
            self.found[self.last] = Section(section.name, section.stdout, stderr, section.exit_code)
        self.complaints = []

    def _store(self, code: Optional[int]) -> None:
        """Keep the open section; one that is told twice, and not the same, is as good as cut off."""
        if self.open is None:
            return
        section = Section(self.open, "\n".join(self.lines), "", code)
        before = self.found.get(self.open)
        if before is not None and (before.stdout, before.exit_code) != (section.stdout, section.exit_code):
            section = Section(self.open, "", "it is reported twice with different values\n", None)
        self.found[self.open] = section
        self.open = None


def unasked(sections: Sections, subject: str) -> Optional[Unknown]:
    """Return why nothing is known of a subject: nobody requested it, or the answer ends before; None if it is there."""
    if any(name.startswith(f"{subject}.") for name in sections):
        return None
    probe = sections.get(PROBE)
    if probe is None or probe.exit_code == 0:
        return NOT_ASKED
    return Unknown(probe.stderr or "the probe's answer ends before this part")


def failure(sections: Sections, name: str) -> Optional[Failure]:
    """Return why a section holds no answer, in the tool's own words; None where its command succeeded.

    Absent: the tool does not exist, or the only thing it complains about is that there is no such file.
    """
    section = sections.get(name)
    if section is None:
        why = _cut_by(sections) or "this part is missing from the probe's answer"
        return Unknown(f"{name}: {why}")
    if section.exit_code == 0:
        return None
    words = section_summary(section)
    if section.exit_code is None:
        why = words if section.stderr else _cut_by(sections)
        return Unknown(f"{name}: the answer was cut off{f': {why}' if why else ''}")
    if section.exit_code == TOOK_TOO_LONG:
        return Unknown(f"{name}: no answer in time{f': {words}' if words else ''}")
    complaints = section.stderr.splitlines()
    if section.exit_code == NOT_FOUND and not section.stdout.strip():
        return Absent(words)
    if not section.stdout.strip() and complaints and all(line.endswith(_MISSING) for line in complaints):
        return Absent(words)
    return Unknown(f"{words or name} (exit code {section.exit_code})")


def _cut_by(sections: Sections) -> str:
    """Return what cut off the answer as a whole; empty where nobody said, or it is whole."""
    return sections[PROBE].stderr if PROBE in sections else ""


def answer(sections: Sections, name: str) -> Found[str]:
    """Return what a command said, or why there is no answer (see `failure`)."""
    return failure(sections, name) or sections[name].stdout


def section_summary(section: Section) -> str:
    """Return a section's complaints, or else its output, as one short line."""
    lines = (section.stderr if section.stderr.strip() else section.stdout).split("\n")
    text = "; ".join(dict.fromkeys(line.strip() for line in lines if line.strip()))
    text = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


@dataclass(frozen=True)
class Files:
    """Files as `grep -H ''` gave them: path and text, and for those that could not be read, path and reason."""

    texts: Mapping[str, str]
    refused: Mapping[str, str]
    cut: Optional[str]
    failed: Optional[Failure]

    def text(self, path: str) -> Found[str]:
        """Return a file's text, lines joined by newlines; Absent where there is no such file."""
        if self.failed is not None:
            return self.failed
        if path in self.texts and path != self.cut:
            return self.texts[path]
        reason = self.refused.get(path)
        if reason is not None:
            return Absent(f"{path}: {reason}") if reason in _MISSING else Unknown(f"{path}: {reason}")
        return "" if self.cut is None else Unknown(f"{path}: the answer was cut off")

    def below(self, folder: str) -> Tuple[Tuple[str, str], ...]:
        """Return (path below `folder`, text) of all files in it that are there, in the order of the answer."""
        return tuple(
            (path[len(folder) + 1 :], text)
            for path, text in self.texts.items()
            if path.startswith(f"{folder}/") and path != self.cut
        )


def files(sections: Sections, name: str) -> Files:
    """Read a section that is the answer of `grep -H '' FILE...`.

    A file that was requested and is neither told nor refused is empty. No path of ours holds a colon.
    """
    section = sections.get(name)
    if section is None or section.exit_code in (NOT_FOUND, TOOK_TOO_LONG):
        return Files({}, {}, None, failure(sections, name))
    texts: Dict[str, List[str]] = {}
    path = ""
    for line in section.stdout.split("\n"):
        path, colon, content = line.partition(":")
        if colon:
            texts.setdefault(path, []).append(content)
    refused = dict(re.findall(r"(?m)^grep: (/[^:\n]*): ([^:\n]+)$", section.stderr))
    cut = path if section.exit_code is None else None
    return Files({path: "\n".join(lines) for path, lines in texts.items()}, refused, cut, None)


def feed(
    script: bytes, container: Optional[str] = None, cluster: Optional[str] = None, data_root: Optional[str] = None
) -> bytes:
    """Return the text of probe.sh as a host is to read it.

    With `container`, the probe's subject `image` looks into that container of the host's engine, by feeding the same
    text to a shell in there; so the text comes as a value. `cluster` is whose set-up the subject `made` looks for; `data_root` is
    where docker is to keep its images, whose disk the subject `system` looks at as well.
    """
    given = (("taco_launch_cluster", cluster), ("taco_launch_data_root", data_root))
    named = "".join(f"{name}={shlex.quote(value)}\n" for name, value in given if value is not None)
    if container is None:
        return named.encode() + script
    text = (
        f"{named}taco_launch_container={shlex.quote(container)}\n"
        f"taco_launch_probe={shlex.quote(script.decode())}\n"
        'eval "$taco_launch_probe"\n'
    )
    return text.encode()
