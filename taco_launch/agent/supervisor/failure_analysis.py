"""Why a job failed, as far as the log of the rank to blame and mpirun itself tell."""

import os
import re
import socket
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from taco_launch.agent.logs import segments
from taco_launch.agent.logs.bars import last_state
from taco_launch.agent.store import records
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.lifecycle import state
from taco_launch.core.model.jobs import CleanUp, Finding, JobSpec, RankEnd
from taco_launch.core.model.launchers import launcher_of
from taco_launch.core.protocol.rank_messages import IS_FOLDER
from taco_launch.core.signatures.aftermath import Aftermath
from taco_launch.core.signatures.known import FailureText
from taco_launch.core.signatures.lines import says
from taco_launch.core.signatures.log_scan import LogScan, is_consequence
from taco_launch.core.signatures.match import ENTRIES, SignatureMatch
from taco_launch.core.signatures.signals import UNFORESEEN, by_signal

_MOST = 8
# A script that its interpreter does not find, or that is itself the command.
_NO_SCRIPT = "script-missing", "command-missing"
# Of a folder so many names are compared with a missing one.
_MOST_NAMES = 1000
_MOST_SHOWN = 200
# Of the rank that failed first: what stands in the job's record.
_LAST_LINES, _LAST_BYTES, _LAST_CHARACTERS = 20, 1 << 14, 1000
# Of those, so many stand up to the line that tells why, where that is further up.
_TELLING_LINES = 15
# With these mpirun says that a rank failed, which the job's reason says already.
_BANNERS = ("rank-exited", "rank-exited-255", "rank-command-not-found", "rank-not-executable", "rank-failed")
# Stands for the exit code of a rank that no signal ended, though its code is one that a shell gives after a signal.
_OWN_CODE = 2
# Before the cause that a line tells of, after which the rank continued.
_MAY = "An earlier line of its log, after which it continued, may explain it:"
# In a rank's own log it may be all that there is. Of ends by a signal the rank's wrapper and its guard know more.
_BY_TORCHRUN = ("torchrun-child-failed", "torchrun-rank-killed", "torchrun-rank-signal")


class FailureAnalysis(NamedTuple):
    """Findings, the causes first; `line` is the 1-based line of the first in the rank's own log (0: none).

    The last `possible` of them are of lines after which the rank continued: they may explain its end.
    """

    findings: Tuple[Finding, ...]
    line: int
    possible: int = 0


def analyze_failure(
    folder: JobFolder, rank: int, host: str, *, ended_itself: bool, exit_code: int = 0, killed_by: str = ""
) -> FailureAnalysis:
    """Return what the logs tell of the failure, of each its first and its last MiB; the first failure first.

    `rank` is the one to blame, on `host`, and `exit_code` how it ended, 128 + n for signal n; of signal 9 `killed_by` tells
    more. Where we ended the job (`ended_itself` is false), what its ranks wrote when they were ended is left out. Hosts are
    called by their names in the job's spec.

    Raises:
        TacoLaunchError: the job's spec cannot be read.
    """
    spec, names = records.read_spec(folder), _names(folder)
    single = launcher_of(spec).is_single
    on_head = single or any(one.name == host and spec.is_here(one) for one in spec.hosts)
    launcher = segments.head_and_tail(folder.launcher if on_head else folder.launcher_on(host))
    head, between, tail = segments.head_and_tail(folder.rank(rank))
    scan = LogScan(names, failed=True)
    _feed(scan, host, head, between, tail)
    own = scan.findings()  # before anything is read of the launcher's
    _feed(scan, "" if single else host, *launcher)
    kinds = {FailureText.NOTE} if ended_itself else {FailureText.NOTE, FailureText.OUTCOME, FailureText.FALLBACK}
    banners = (*_BANNERS, *_BY_TORCHRUN) if launcher_of(spec).sets_rendezvous else _BANNERS
    if ended_itself and 0 < exit_code < 128:  # no signal: the supervisor ended torchrun after that
        banners = (*banners, "torchrun-ended")
    told = [match for match in scan.matches() if match.kind not in kinds and match.finding.signature not in banners]
    earlier: List[SignatureMatch] = []
    if ended_itself and exit_code:
        below = (tail, head.count("\n") + between + 1) if tail else (head, 1)
        after = Aftermath(*below, exit_code)
        earlier = [match for match in told if match.finding in own and not after.explains(match)]
        if earlier:
            told = _at_end(LogScan(names, failed=True), host, below, after, [one for one in told if one not in earlier])
            shown = {match.finding.signature for match in told}
            earlier = [match for match in earlier if match.finding.signature not in shown]
            own = (*own, *(match.finding for match in told))
    is_local = any(one.name == host and one.connection == "local" for one in spec.hosts)
    found = [_script_named(spec, match, folder, is_local=is_local) for match in told]
    number = state.numbered(rank, spec.procs_per_gpu)
    killed = by_signal(number, host, exit_code, killed_by) if ended_itself else None
    if killed is not None:  # the launcher's log tells of the same
        found = [killed if killed_by and finding.signature == killed.signature else finding for finding in found]
    if killed is not None and killed.signature not in {finding.signature for finding in found}:
        causes = sum(match.kind is FailureText.CAUSE for match in told)
        if not found or killed.signature in UNFORESEEN:
            found.insert(causes, killed)
    line = found[0].line if found and found[0] in own else 0
    possible = [replace(match.finding, cause=f"{_MAY} {match.finding.cause}") for match in earlier][
        : _MOST - len(found)
    ]
    return FailureAnalysis((*found[:_MOST], *possible), line, len(possible))


def _feed(scan: LogScan, host: str, head: str, between: int, tail: str) -> None:
    scan.begin(host)
    scan.feed(head)
    scan.skip(between)
    scan.feed(tail)


def _at_end(
    scan: LogScan, host: str, below: Tuple[str, int], after: Aftermath, told: Sequence[SignatureMatch]
) -> List[SignatureMatch]:
    """Return what explains an end, where other texts in the log do not: those `told`, and what is found at its end alone."""
    text, first = below
    scan.begin(host)
    scan.skip(after.begin - 1)
    scan.feed("\n".join(text.split("\n")[after.begin - first :]))
    known = {match.finding.signature for match in told}
    more = [match for match in scan.matches() if match.kind is not FailureText.NOTE and after.explains(match)]
    more = [match for match in more if match.finding.signature not in known]
    return sorted((*told, *more), key=lambda match: match.kind)


def _script_named(spec: JobSpec, match: SignatureMatch, folder: JobFolder, *, is_local: bool) -> Finding:
    """Return a finding; of a missing script with what to do about it, as the job's code came to its hosts."""
    finding = _no_program(spec, match)
    # The ranks have the files and the environment of who started the job.
    is_plain = spec.container is None and spec.code is None and is_local
    if finding.signature == "module-missing" and is_plain:
        return _own_module(spec, finding, match.text)
    if finding.signature == "command-missing" and finding.next.endswith("-x PATH.") and is_plain:
        return replace(finding, next="Check the name: it is not on your PATH. Give its full path, or install it.")
    named = re.search(ENTRIES[finding.signature].pattern, match.text) if finding.signature in _NO_SCRIPT else None
    file = (named["file"] or "").strip("'\"") if named else ""
    if not file:
        return finding
    if spec.code is not None and spec.code.source:
        inside = file.partition(f"/{folder.code.name}/")[2] or file
        if inside.startswith("/"):
            where = "the job starts in the folder that --sync copied"
            return replace(finding, next=f"Give its path relative to the copied folder: {where}.")
        ignored = "files listed in .gitignore or .tacoignore are not copied"
        return replace(
            finding, next=f"The folder that --sync copied has no {inside}: check the name and --workdir; {ignored}."
        )
    if is_plain:
        return _in_working_folder(spec, finding, file)
    name = file.rpartition("/")[2]
    return replace(
        finding, next=f"If {name} is on your machine, copy its folder to the hosts: --sync DIR. {finding.next}"
    )


def _own_module(spec: JobSpec, finding: Finding, text: str) -> Finding:
    """Return a finding; of a module that is in the folder in which the job starts with how Python finds it there."""
    named, place = re.search(ENTRIES[finding.signature].pattern, text), Path(spec.cwd, spec.workdir)
    module = named["module"] if named else ""
    if not module.isidentifier() or not ((place / module).is_dir() or (place / f"{module}.py").is_file()):
        return finding
    why = f"{module} is in the folder in which the job starts, but Python searches that of the script"
    return replace(finding, next=f"Name that folder for Python: -x PYTHONPATH=. ({why}).")


def _no_program(spec: JobSpec, match: SignatureMatch) -> Finding:
    """Return a finding; of a program that is a folder, or Python without a first line that says so, what to type instead."""
    finding = match.finding
    if finding.signature not in ("command-not-executable", "command-no-program", "script-is-an-option"):
        return finding
    found = re.search(ENTRIES[finding.signature].pattern, match.text)
    what = found["what"].strip("'\"") if found else ""
    inside = f"{what.rstrip('/')}/train.py"
    if match.text.endswith(IS_FOLDER):
        advice = f"Name the file in it that starts the program, such as python3 {inside}."
        return replace(
            finding, cause=f"On {finding.host or 'its host'} {what} is a folder, not a program.", next=advice
        )
    if finding.signature == "script-is-an-option":
        typed = [Path(word).name for word in spec.command[:2]]
        is_typed = typed[0].startswith("python") and Path(what).name in typed[1:]
        advice = f"Name the file that starts the program, such as {inside}, or add a __main__.py to the folder."
        return replace(finding, next=advice) if is_typed else finding
    advice = f"Put its interpreter before it: python3 {what}. To run it as it is, mark it as executable and start it with the line #!/usr/bin/env python3."
    return replace(finding, next=advice) if what.endswith(".py") else finding


def _in_working_folder(spec: JobSpec, finding: Finding, file: str) -> Finding:
    """Return a finding with the name of a script on this machine that may be meant."""
    from difflib import get_close_matches  # noqa: PLC0415 - few jobs fail so

    folder = Path(spec.cwd, spec.workdir)
    path = folder / file
    inside = folder in path.parents
    shown, where = (
        (path.relative_to(folder), f"in the working folder {folder}") if inside else (path, "on this machine")
    )
    try:
        if path.exists():
            return finding
        with os.scandir(path.parent) as entries:
            near = get_close_matches(path.name, [entry.name for entry in islice(entries, _MOST_NAMES)], n=1)
    except OSError:
        near = []
    meant = f" Did you mean {shown.with_name(near[0])}?" if near else ""
    if meant or not inside:
        return replace(finding, next=f"Check the name: there is no {shown} {where}.{meant}")
    return replace(
        finding, next=f"Check the name, or go to its folder first (cd, or --workdir): there is no {shown} {where}."
    )


def blamed(folder: JobFolder, ends: Sequence[RankEnd]) -> Tuple[RankEnd, ...]:
    """Add to each rank that failed whether its own last output blames another."""
    return tuple(replace(end, consequence=is_consequence(segments.last_words(folder.rank(end.rank)))) for end in ends)


def explained(
    folder: JobFolder, reason: str, failure: Optional[RankEnd], started: int, first: str, *, ended_itself: bool
) -> Tuple[str, FailureAnalysis]:
    """Look into the logs of a job that failed; give its reason with what they tell, and the known texts in them.

    `failure` is the rank to blame, `first` the host of rank 0, `started` how many ranks started.
    """
    # Of a job that ran out of its time no rank is to blame; what the ranks wait for, Horovod tells by rank 0.
    rank, host = (failure.rank, failure.host) if failure else (0, first)
    code, killed_by = (failure.exit_code, failure.killed) if failure else (0, "")
    if failure and failure.reason == state.exited_as(code) and not killed_by.startswith("by the kernel"):
        code, killed_by = _OWN_CODE, ""
    told = analyze_failure(folder, rank, host, ended_itself=ended_itself, exit_code=code, killed_by=killed_by)
    if not ended_itself:
        return reason, told
    lines = segments.last_words(folder.rank(rank)).split("\n") if failure else []
    words = next((last_state(line).strip() for line in reversed(lines) if says(line)), "")
    causes = told.findings[: len(told.findings) - told.possible]
    return state.explained(reason, started, causes, words[:_MOST_SHOWN]), told


def last_lines(folder: JobFolder, spec: JobSpec, end: RankEnd, told_in: int = 0) -> Tuple[str, Tuple[str, ...]]:
    """Return where the log of a rank lies on its host (HOST:PATH), and its last lines; nothing where it wrote none.

    Where line `told_in`, counted from 1, tells why it failed and is none of them, most of them are those up to it.

    `folder` is that of the attempt, on the head, where there is a copy of every log.
    """
    stem = folder.rank(end.rank)
    found = segments.segments(stem)
    if not found:
        return "", ()
    here = any(host.name == end.host and spec.is_here(host) for host in spec.hosts)
    # Elsewhere the folder is a new one for every attempt, and gone where everything is cleaned up.
    kept = here or spec.policy.clean_up is not CleanUp.ALL
    path = (stem if here or not kept else JobFolder(folder.path).rank(end.rank)).with_name(found[-1][1].name)
    where = end.host if kept else spec.head
    if told_in:
        head, between, tail = segments.head_and_tail(stem)
        before = head.count("\n")
        more = before + between + tail.count("\n") + (not (tail or head).endswith("\n")) - told_in
        if more >= _LAST_LINES:
            text, last = (head, told_in) if told_in <= before else (tail, told_in - before - between)
            shown = text.split("\n")[max(last - _TELLING_LINES, 0) : last]
            end_of = (tail or head).rstrip("\n").split("\n")[_TELLING_LINES + 1 - _LAST_LINES :]
            lines = (*shown, f"[taco-launch: {more - len(end_of)} lines left out]", *end_of)
            return f"{where}:{path}", tuple(last_state(line)[:_LAST_CHARACTERS] for line in lines)
    begin = max(segments.tail(stem, _LAST_LINES), segments.size(stem) - _LAST_BYTES)
    reader = segments.SegmentReader(stem, begin)
    text = b"".join(iter(reader.read, b"")).decode("utf-8", "replace")
    reader.close()
    lines = tuple(last_state(line)[:_LAST_CHARACTERS] for line in text.rstrip("\n").split("\n"))
    return f"{where}:{path}", lines if text else ()


def _names(folder: JobFolder) -> Dict[str, str]:
    """Return the names of the hosts by what mpirun and the ranks may call them: an address, this machine's own name."""
    spec = records.read_spec(folder)
    names = {host.address: host.name for host in spec.hosts}
    local = [host.name for host in spec.hosts if host.connection == "local"]
    head = spec.head or (local[0] if local else "")
    if head:
        own = socket.gethostname()
        names.update({own: head, own.partition(".")[0]: head})
    names.update({host.name: host.name for host in spec.hosts})  # a name stays what it is, whatever else it may be
    return names
