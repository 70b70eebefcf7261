"""Reads what `dcgmi diag -j` of DCGM 3 and 4 prints. NVIDIA promises no form of it: what is not understood is not `ok`."""

import json
import re
from typing import Any, Dict, Iterable, List, Tuple

ARGV = ["dcgmi", "diag", "-r", "2", "-j"]
_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # of DCGM 4, and of 3
# As core/facts/reports/health/verdict.py has them, worst first.
FAULT, WARNING, NOT_POSSIBLE, OK = _LEVELS = ("fault", "warning", "not possible", "ok")
_LEVEL_OF = {"pass": OK, "warn": WARNING, "fail": FAULT, "skip": NOT_POSSIBLE, "skipped": NOT_POSSIBLE}
# dcgm_errors.h: DCGM_ERROR_MONITOR ("Can perform workload") and DCGM_ERROR_CONFIG.
_CAN_WORK = frozenset((1, 5))
_MOST_WORDS = 600

Row = Tuple[str, str, str]


def rows(text: str) -> List[Row]:
    """Return the name, level and words of each test; [] where there is no answer as JSON."""
    try:
        document, _end = json.JSONDecoder().raw_decode(text, text.index("{"))
    except ValueError:
        return []
    try:
        body: Dict[str, Any] = next(document[root] for root in _ROOTS if root in document)
        categories = body.get("test_categories") or ()
        result = [_row(test) for category in categories for test in category["tests"] if test]  # DCGM 3 has nulls
        why = body.get("runtime_error")
    except (AttributeError, KeyError, StopIteration, TypeError) as error:
        return [("all tests", NOT_POSSIBLE, f"the answer of dcgmi has an unknown form: {error!r}"[:_MOST_WORDS])]
    return [*result, ("all tests", NOT_POSSIBLE, str(why)[:_MOST_WORDS])] if why else result


def _row(test: Dict[str, Any]) -> Row:
    """Return the worst level of a test's results, with the messages of that level."""
    results = [_result(each) for each in test["results"]]
    summary = test.get("test_summary") or {}
    if summary.get("warnings") or all(level == OK for level, *_ in results):
        results += [_result(summary)] if "status" in summary else []
    if not results:
        return str(test["name"]), NOT_POSSIBLE, "it has no results"
    worst = min((level for level, *_ in results), key=_LEVELS.index)
    words = _folded((of, message) for level, of, messages in results if level == worst for message in messages)
    if worst == NOT_POSSIBLE and _list(summary.get("info")):
        words += f"; {_folded(('', str(each)) for each in _list(summary['info']))}"
    return str(test["name"]), worst, "" if worst == OK else words[:_MOST_WORDS]


def _result(result: Dict[str, Any]) -> Tuple[str, str, List[str]]:
    """Return the level of one result, what it is of, and its messages, at least its status."""
    status = str(result["status"])
    level = _LEVEL_OF.get(status.lower(), NOT_POSSIBLE)
    warnings = _list(result.get("warnings"))
    severities = [each.get("error_severity") if isinstance(each, dict) else None for each in warnings]
    if warnings and (level == OK or (level == FAULT and _CAN_WORK.issuperset(severities))):
        level = WARNING
    messages = [str(each["warning"]) if isinstance(each, dict) else str(each) for each in warnings]
    number = next((str(result[key]) for key in ("entity_id", "gpu_id", "gpu_ids") if key in result), "")
    group = str(result.get("entity_group", "GPU"))
    return level, f"{group} {number}" if number else "", messages or _list(result.get("info")) or [status]


def _list(value: Any) -> List[Any]:
    """Return a list of what is one, or stands alone, or is missing."""
    return value if isinstance(value, list) else [value] if value else []


def _folded(messages: Iterable[Tuple[str, str]]) -> str:
    """Return messages with what each is of; those that differ in numbers alone once."""
    first: Dict[str, Tuple[str, List[str]]] = {}
    for of, message in messages:
        line = " ".join(message.split())
        first.setdefault(re.sub(r"\d+", "#", line), (line, []))[1].append(of)
    return "; ".join(f"{', '.join(of)}: {line}" if any(of) else line for line, of in first.values())
