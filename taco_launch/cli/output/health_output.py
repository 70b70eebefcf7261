"""Show what is wrong with hosts, for `facts` and `check`: equal verdicts once, with all hosts that they are of."""

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import click

from taco_launch.cli.output import render
from taco_launch.core.facts.reports.health.judge import GROUPS, Told, group_of
from taco_launch.core.facts.reports.health.verdict import FAULT, NOT_POSSIBLE, OK, WARNING, Judged
from taco_launch.hosts.fanout import Answer
from taco_launch.hosts.inventory.ranges import fold as short

# What XML 1.0 cannot hold (its production 2, Char).
_FORBIDDEN = dict.fromkeys((*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0xFFFE, 0xFFFF), "�")
_CHILDREN = {FAULT: "failure", NOT_POSSIBLE: "skipped"}


def show(told: Judged, *, wide: bool) -> None:
    """Show what is to be looked at, and in one line what is right; `wide` adds whose rule it is that was judged by.

    What is not possible of several things for one reason is one line: a driver that gives no answer tells of none.
    """
    if not told:
        return
    click.echo("\nHealth:")
    for line in _wrong(told, " ({})", wide=wide):
        click.echo(render.printable(f"  {line}"))
    wrong = {verdict.name for verdict, _ in told if verdict.level != OK}
    right = dict.fromkeys(verdict.name for verdict, _ in told if verdict.name not in wrong)
    if right:
        click.echo(f"  ok: {', '.join(right)}")


def show_checks(hosts: Sequence[Told], told: Judged, *, wide: bool) -> None:
    """Show a table of hosts by groups of checks, those alike in one line, and below it what is not ok, with what to do."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for host, verdicts in hosts:
        cells = [_cell([each.level for each in verdicts if group_of(each.name) == group]) for group, _ in GROUPS]
        alike.setdefault(tuple(cells), []).append(host)
    shown = [place for place in range(len(GROUPS)) if any(cells[place] != "-" for cells in alike)]
    header = [GROUPS[place][0] for place in shown]
    render.table(
        ["HOSTS", *header], [[short(names), *(cells[place] for place in shown)] for cells, names in alike.items()]
    )
    lines = _wrong(told, "\n  next: {}", wide=wide)
    if lines:
        click.echo("")
    for line in lines:
        click.echo("\n".join(render.printable(part) for part in line.split("\n")))


def _cell(levels: Sequence[str]) -> str:
    """Return the worst of levels; what is not possible is counted beside `ok`, which it is not."""
    wrong = next((level for level in (FAULT, WARNING) if level in levels), "")
    unread = levels.count(NOT_POSSIBLE)
    if wrong or not levels or unread == len(levels):
        return wrong or (NOT_POSSIBLE if levels else "-")
    return f"{OK}, {unread} {NOT_POSSIBLE}" if unread else OK


def _wrong(told: Judged, hint: str, *, wide: bool) -> list[str]:
    alike: dict[tuple[str, str], list[str]] = {}
    for verdict, hosts in told:
        if verdict.level != OK:
            more = hint.format(verdict.hint) if verdict.hint else ""
            source = f" [{verdict.source}]" if wide and verdict.level != NOT_POSSIBLE else ""
            alike.setdefault((f"{short(hosts)}: {verdict.level}", f"{verdict.text}{source}{more}"), []).append(
                verdict.name
            )
    return [f"{lead}: {', '.join(what)}: {text}" for (lead, text), what in alike.items()]


def junit(hosts: Sequence[Told], answers: Sequence[Answer[Any]]) -> str:
    """Return the checks as JUnit XML: a suite for each host, in which a fault is a failure and what is not possible skipped."""
    suites = ET.Element("testsuites", name="taco-launch check")
    found = dict(hosts)
    for answer in answers:
        suite = ET.SubElement(suites, "testsuite", name=_text(answer.host))
        for verdict in found.get(answer.host, ()):
            case = ET.SubElement(suite, "testcase", name=_text(verdict.name), classname=_text(answer.host))
            why = _text(f"{verdict.text}; next: {verdict.hint}" if verdict.hint else verdict.text)
            if verdict.level in _CHILDREN:
                ET.SubElement(case, _CHILDREN[verdict.level], message=why)
            elif verdict.level == WARNING:
                ET.SubElement(case, "system-out").text = f"warning: {why}"
        if answer.error is not None:
            case = ET.SubElement(suite, "testcase", name="answers", classname=_text(answer.host))
            ET.SubElement(case, "error", message=_text(answer.error.message))
        for child, counted in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            suite.set(counted, str(len(suite.findall(f"testcase/{child}"))))
        suite.set("tests", str(len(suite)))
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _text(text: str) -> str:
    return text.translate(_FORBIDDEN).encode("utf-8", "replace").decode("utf-8")
