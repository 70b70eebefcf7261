"""Writes verdicts down: lines of what is not right, a table of hosts, JUnit XML."""

from typing import Callable, Container, Dict, List, Sequence, Tuple
from xml.etree import ElementTree as ET

from taco_launch.core.facts.reports.health.judge import GROUPS, HostVerdicts, group_of
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, WARNING, Judged

Fold = Callable[[Sequence[str]], str]
# What XML 1.0 cannot hold (its production 2, Char).
_FORBIDDEN = dict.fromkeys((*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0xFFFE, 0xFFFF), "�")
_CHILDREN = {FAULT: "failure", NOT_POSSIBLE: "skipped"}


def lines(judged: Judged, short: Fold, hint: str, *, wide: bool) -> Tuple[str, ...]:
    """Return what is not right, the worst first; `hint` is the form of what to do, `short` folds hosts' names.

    `wide` adds whose rule it is. What is not possible of several things for one reason is one line.
    """
    alike: Dict[Tuple[str, str], List[str]] = {}
    for verdict, hosts in judged:
        if verdict.level != OK:
            more = hint.format(verdict.hint) if verdict.hint else ""
            source = f" [{verdict.source}]" if wide and verdict.level != NOT_POSSIBLE else ""
            lead = f"{short(hosts)}: {verdict.level}"
            alike.setdefault((lead, f"{verdict.text}{source}{more}"), []).append(verdict.name)
    return tuple(f"{lead}: {', '.join(names)}: {text}" for (lead, text), names in alike.items())


def table(hosts: Sequence[HostVerdicts], short: Fold, drained: Container[str]) -> Tuple[List[str], List[List[str]]]:
    """Return the header and the rows of hosts by groups of checks; hosts alike are one row, groups without a check left out.

    The last column shows which hosts are `drained`, if any is.
    """
    alike: Dict[Tuple[str, ...], List[str]] = {}
    for host, verdicts in hosts:
        cells = [_cell([each.level for each in verdicts if group_of(each.name) == group]) for group, _ in GROUPS]
        cells.append("drained" if host in drained else "-")
        alike.setdefault(tuple(cells), []).append(host)
    titles = [*(group for group, _ in GROUPS), "STATUS"]
    shown = [place for place in range(len(titles)) if any(cells[place] != "-" for cells in alike)]
    rows = [[short(names), *(cells[place] for place in shown)] for cells, names in alike.items()]
    return ["HOSTS", *(titles[place] for place in shown)], rows


def _cell(levels: Sequence[str]) -> str:
    """Return the worst of levels; what is not possible is counted beside `ok`, which it is not."""
    worst = next((level for level in (FAULT, WARNING) if level in levels), "")
    unread = levels.count(NOT_POSSIBLE)
    if worst or not levels or unread == len(levels):
        return worst or (NOT_POSSIBLE if levels else "-")
    return f"{OK}, {unread} {NOT_POSSIBLE}" if unread else OK


def junit(hosts: Sequence[HostVerdicts], silent: Sequence[Tuple[str, str]]) -> str:
    """Return a suite for each host: a fault is a failure, what is not possible skipped, (host, why) of `silent` an error."""
    suites = ET.Element("testsuites", name="taco-launch check")
    names = dict.fromkeys([*(host for host, _ in hosts), *(host for host, _ in silent)])
    suite_of = {name: ET.SubElement(suites, "testsuite", name=_text(name)) for name in names}
    for host, verdicts in hosts:
        for verdict in verdicts:
            case = ET.SubElement(suite_of[host], "testcase", name=_text(verdict.name), classname=_text(host))
            why = _text(f"{verdict.text}; next: {verdict.hint}" if verdict.hint else verdict.text)
            if verdict.level in _CHILDREN:
                ET.SubElement(case, _CHILDREN[verdict.level], message=why)
            elif verdict.level == WARNING:
                ET.SubElement(case, "system-out").text = f"warning: {why}"
    for host, why in silent:
        case = ET.SubElement(suite_of[host], "testcase", name="answers", classname=_text(host))
        ET.SubElement(case, "error", message=_text(why))
    for suite in suites:
        for child, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            suite.set(count, str(len(suite.findall(f"testcase/{child}"))))
        suite.set("tests", str(len(suite)))
    return ET.tostring(suites, encoding="unicode") + "\n"


def _text(text: str) -> str:
    return text.translate(_FORBIDDEN).encode("utf-8", "replace").decode("utf-8")
