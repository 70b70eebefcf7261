"""A nightly run as JUnit XML, which CI systems show: a test case for each cell and what was measured of it; pure."""

from xml.etree import ElementTree as ET

from taco_launch.bench.nightly.summary import Summary, cell_name
from taco_launch.bench.stats.verdicts import VerdictKind

# What XML 1.0 cannot hold (its production 2, Char).
_FORBIDDEN = dict.fromkeys((*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0xFFFE, 0xFFFF), "�")
_CHILDREN = {
    VerdictKind.REGRESSION: "failure",
    VerdictKind.NO_SAMPLE: "error",
    VerdictKind.NO_VERDICT_YET: "skipped",
    VerdictKind.UNSURE: "skipped",
    VerdictKind.PENDING: "skipped",
}


def junit(summary: Summary) -> str:
    """Return the document.

    What got slower is a failure, what gave no sample an error, what has no verdict yet is skipped. Runs that failed are one
    case with an error, and so is a nightly run that could not measure at all.
    """
    suite = ET.Element("testsuite", name=_text(f"taco-launch nightly {summary.name}"))
    suite.set("time", f"{summary.ended - summary.started:.3f}")
    for one in summary.judged:
        child = _CHILDREN.get(one.verdict.kind)
        if child is not None and summary.strict and one.verdict.kind in (VerdictKind.UNSURE, VerdictKind.PENDING):
            child = "failure"
        _case(suite, summary, one.name, child, f"{one.verdict.kind.value}: {one.verdict.why}")
    for cell, why in summary.failed:
        _case(suite, summary, cell_name(cell), "error", why)
    if summary.lost and not summary.failed:
        _case(suite, summary, "every run", "error", summary.lost)
    if why := summary.interrupted or summary.unfit or summary.broken:
        _case(suite, summary, "the nightly run", "error", why)
    for child, counted in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(counted, str(len(suite.findall(f"testcase/{child}"))))
    suite.set("tests", str(len(suite)))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, summary: Summary, name: str, child: str | None, why: str) -> None:
    case = ET.SubElement(suite, "testcase", name=_text(name), classname=_text(f"{summary.name}.{summary.matrix}"))
    if child is not None:
        ET.SubElement(case, child, message=_text(why))


def _text(text: str) -> str:
    return text.translate(_FORBIDDEN).encode("utf-8", "replace").decode("utf-8")
