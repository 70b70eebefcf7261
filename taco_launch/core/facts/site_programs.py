"""Reads the verdicts of the site's own health programs: DCGM, NHC and gcm, on the host or else in the training container."""

import re
from dataclasses import replace
from typing import Callable, Dict, List, Tuple

from taco_launch.core.facts.text.sections import NOT_FOUND, Sections, answer, failure
from taco_launch.core.facts.text.strip_terminal import shown
from taco_launch.core.model.host.fact_value import Absent, Found, Unknown
from taco_launch.core.model.host.health import Provided

_HEALTH = {"Healthy": "ok", "Warning": "warning", "Failure": "fault"}
# gcm: what a check prints before its name, and its exit code; 3 is UNKNOWN, and 2 also that of a command line that it refuses.
_GCM_LEVELS = {("OK", 0): "ok", ("WARNING", 1): "warning", ("CRITICAL", 2): "fault"}
_GCM_LINE = re.compile(r"^(OK|WARNING|CRITICAL|UNKNOWN) - (.+)", re.MULTILINE | re.DOTALL)
_GCM_RUN = re.compile(r"^run ([a-z _-]+)\n(.*?)^exit ([0-9]{1,3})$", re.MULTILINE | re.DOTALL)
_NO_VERDICT = ("check did not exit normally", "is disabled by killswitch")
_MOST = 300


def provided(sections: Sections) -> Tuple[Tuple[str, Found[Provided]], ...]:
    """Return what each program answered, and where it ran; Absent where it is not installed."""
    return tuple((name, _located(sections, section, read)) for name, section, read in _PROGRAMS)


def _located(sections: Sections, name: str, read: Callable[[Sections, str], Found[Provided]]) -> Found[Provided]:
    """Read a program of the host, or where the host has none, that of the container."""
    value, where = read(sections, f"health.{name}"), "host"
    if isinstance(value, Absent) and f"container.{name}" in sections:
        value = read(sections, f"container.{name}")
        where = f"container {sections['image.where'].stdout.strip()}" if "image.where" in sections else "container"
    if isinstance(value, Unknown):
        return Unknown(f"{value.reason} ({where})")
    return replace(value, text=f"{value.text} ({where})") if isinstance(value, Provided) else value


def _dcgm(sections: Sections, name: str) -> Found[Provided]:
    """Read `dcgmi health -c`; it complains where no program of the site has turned its watches on."""
    text = answer(sections, name)
    if isinstance(text, Absent):
        return text
    said = text if isinstance(text, str) else sections[name].stdout if name in sections else ""
    words = re.search(r"Overall Health[^A-Za-z]+(\w+)", said)
    if words is None or words[1] not in _HEALTH:
        return Unknown(f"dcgmi health -c: {shown(said)}" if said.strip() else getattr(text, "reason", "no answer"))
    errors = re.findall(r"\|[^|\n]*\|\s*([^|\n]*[a-z]{3}[^|\n]*?)\s*\|", said.partition("Overall Health")[2])
    wrong = "; ".join(each for each in errors if each not in (*_HEALTH, words[1]))
    return Provided("DCGM", _HEALTH[words[1]], f"{words[1]}{f': {wrong}' if wrong else ''}"[:_MOST])


def _nhc(sections: Sections, name: str) -> Found[Provided]:
    """Read NHC, which ends with 0 also where it has no configuration, or no check for this host: nothing is proven then."""
    failed = failure(sections, name)
    section = sections.get(name)
    text = f"{section.stdout}\n{section.stderr}" if section else ""
    words = re.search(r"Health check failed:\s*(.*)", text)
    if words and "Terminated by signal" not in words[1]:
        return Provided("NHC", "fault", words[1].strip())
    if failed is not None:
        return failed
    checks = len(re.findall(r"^Running check", text, re.MULTILINE))
    if not checks or "Node Health Check completed successfully" not in text:
        return Unknown("NHC ran no check: is there a line for this host in /etc/nhc/nhc.conf?")
    return Provided("NHC", "ok", _passed(checks))


def _gcm(sections: Sections, name: str) -> Found[Provided]:
    """Read the checks of gcm that the probe ran, one by one; a check without a clear verdict is not one that passed."""
    failed = failure(sections, name)
    if failed is not None:  # a file that it does not have is no sign that it is not installed
        missing = name not in sections or sections[name].exit_code == NOT_FOUND
        return failed if missing else Unknown(failed.reason)
    results: Dict[str, List[str]] = {}
    for check, output, code in _GCM_RUN.findall(sections[name].stdout):
        line = _GCM_LINE.search(output)
        level = _GCM_LEVELS.get((line[1], int(code)), "") if line else ""
        if line is None or any(words in line[2] for words in _NO_VERDICT):
            level = ""
        refused = re.search(r"^Error: .*", output, re.MULTILINE)
        why = refused[0] if refused else output.strip().rpartition("\n")[2]
        words = line[2] if line else why or f"exit code {code}"
        results.setdefault(level, []).append(f"{check}: {' '.join(words.split())}"[:_MOST])
    unclear = f"no verdict of {'; '.join(results[''])}" if "" in results else ""
    for level in ("fault", "warning"):
        if level in results:
            return Provided("gcm", level, "; ".join((*results[level], *([unclear] if unclear else ())))[: 2 * _MOST])
    if unclear:
        return Unknown(unclear[: 2 * _MOST])
    if not results:
        return Unknown("gcm ran no check: does /etc/fb-healthchecks/config.toml have a table for one that only reads?")
    return Provided("gcm", "ok", _passed(len(results["ok"])))


def _passed(checks: int) -> str:
    return f"{checks} check{'s' if checks > 1 else ''} passed"


_PROGRAMS = (("DCGM", "dcgm", _dcgm), ("NHC", "nhc", _nhc), ("gcm", "gcm", _gcm))
