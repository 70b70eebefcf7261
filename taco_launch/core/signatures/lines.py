"""The lines of a log: what a line says, what stands before that (codes, times, who says it), what follows it; pure."""

import re
from typing import Dict, Iterable, Tuple

# Of each line below a key no more than so many characters are looked at.
LINE = 400
# The characters around a key that a pattern is given of the key's own line, before and after it.
_BEFORE, _AFTER = 256, 1024

# So many lines above and below a line are near it.
NEAR = 10
# How far a known text may continue below its first line.
_AHEAD_LINES = 60
_AHEAD = 1 << 14

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])")
_TAGS = re.compile(r"\[\d+(?:,\d+)?\]<std(?:out|err|diag)>: ?")
_PREFIX = re.compile(
    r"(?P<label>[^\s/|]+)/(?:(?P<rank>\d+)|mpirun) *\| ?"  # the merged log
    r"|(?P<bracket>\[)?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?"  # docker logs -t, NCCL
    r"(?(bracket)\]|(?=\s|$)) *(?:std(?:out|err)(?: [FP])? )?"  # no time that continues, as in Horovod's and TensorFlow's own lines; the kubelet adds the stream
    r"|\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]? *"  # mpirun, dmesg -T
    r"|\[ *\+?\d+\.\d+\] +"  # dmesg, dmesg -d
    r"|\[rank\d+\]: ?"  # torch
    r"|(?:> ){1,3}(?=\S)"  # a quote of a mail or an issue
    r"|UTC [\w.-]{1,80} -- "  # Polyaxon, behind the time
    r"|/container_\w{1,80}: "  # YARN, behind the time
    r"|<\w{0,9}> +\[\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.Z]*\] \w{1,40} \|\| ?"  # Determined
    r"|stderr: (?=\[rank\d+\]:|Traceback \(|  |\w+:torch\.|(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b)"  # accelerate test
    r"|\((?:[\w.:<>-]{1,80} )?pid=\d+(?:, ip=(?P<ip>[\d.]+))?\) "  # Ray, vLLM
    # vLLM's logger before each line of a traceback
    r"|ERROR \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]{1,80}\.py:\d+\] ?(?=Traceback \(|  |(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b|$)"
    # Python's logging with the usual format, behind the time
    r"|- [\w.-]{1,80} - [A-Z]{4,8} - (?=\[rank\d+\]:|Traceback \(|  |(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b)"
    # pdsh, clush, srun --label and DeepSpeed's launcher, where NCCL, torch or Python speaks behind the host's name
    r"|(?:\d+|(?P<host>(?!(?i:[\w.]*(?:error|exception)|warning|info|debug|fatal|note|critical):)[A-Za-z][\w.-]*)): (?=[\w.-]+:\d+:\d+ \[|\[rank\d+\]:|\[\d{4}-\d\d-"
    r"|Traceback \(|  File \"|(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception): |nccl\w+Error: |Last error:|Test (?:NCCL|CUDA) failure )"
)
# What torch's excepthook puts before each line of an error that ends a rank, behind the label of the merged log.
_OF_TORCH = re.compile(r"(?:[^\s/|]+/\d+ *\| ?|[^\n\[]{0,40}\[\d+(?:,\d+)?\]<std\w{3,4}>: ?)?(?P<rank>\[rank\d+\]:)")
_SPEAKER = re.compile(
    r"(?P<nccl>[\w.-]+):\d+:\d+ \[|\[(?P<mpi>[\w.-]+):\d+\] |[A-Z][a-z]{2} [ \d]\d [\d:]{8} (?P<syslog>[\w.-]+) kernel:"
)
# A line that a rank says something in, with its label in the merged log or the tag of mpirun. What is indented continues
# with the line above it.
SAID = re.compile(
    r"(?m)^(?:(?P<label>[^\s/|]{1,255}/\d{1,9}) *\||[^\n\[]{0,40}(?P<tag>\[\d+(?:,\d+)?\]<std)\w{3,4}>:) ?(?=\S)"
)


# What NCCL writes on its way back from the function that failed.
_WAY_BACK = re.compile(r"NCCL INFO \S+:\d+ -> \d")
_HOST = re.compile(r"(?:.*@)?(?:\[(?P<quoted>[^\]]+)\](?::\d+)?|(?P<plain>[^\s\[\]]+?))[,:;.]?$")
# A process of NCCL, with which each of its lines starts.
SPEAKER = re.compile(r"[\w.-]{1,255}:\d+:(?=\d+ \[)")
_RANK = re.compile(r"^[^\s/|]{1,255}/(\d+) *\||\[\d+,(\d+)\]<std|\[rank(\d+)\]:|^(\d+): ")


def rank_of(line: str) -> str:
    """Return the number of the rank that says a line, or nothing where no prefix has one."""
    rank = _RANK.search(line)
    return rank[rank.lastindex or 0] if rank else ""


def clean(line: str) -> Tuple[str, str]:
    """Take control codes, tags and times off a line; give the host that its prefix names, and what is left."""
    host = ""
    if "\x1b" in line:
        line = _ESCAPES.sub("", line)
    line = line.replace("\0", "").rstrip("\r")
    line = line[line.rfind("\r") + 1 :]
    if "]<std" in line:
        line = _TAGS.sub("", line)
    match = _PREFIX.match(line)
    while match:
        # What mpirun says is of any host; a rank speaks for its own.
        host = match.group("host") or match.group("ip") or (match.group("label") if match.group("rank") else host)
        line = line[match.end() :]
        match = _PREFIX.match(line)
    speaker = _SPEAKER.match(line)
    if speaker and not host:
        host = speaker.group("nccl") or speaker.group("mpi") or speaker.group("syslog")
    return host, line


def says(line: str) -> bool:
    """Return whether there are words in a line: a ruler is none."""
    return any(map(str.isalnum, line))


def label(line: str) -> str:
    """Return what marks the lines of the rank that says a line, or nothing where no label does."""
    match, torch = SAID.match(line), _OF_TORCH.match(line)
    return f"{(match['label'] or match['tag']) if match else ''}{torch['rank'] if torch else ''}"


def ended(marked: str) -> bool:
    """Return whether an error whose lines are marked so ended its rank: torch marks only those that nobody has handled."""
    return marked.endswith("]:")


def around(block: str, start: int, position: int, end: int) -> str:
    """Return the line from `start` to `end` without its prefixes; of a long one, or a progress bar, what is at a key."""
    stop = block.find("\r", position, end)
    stop = end if stop < 0 else stop
    if stop - start > _BEFORE + _AFTER:
        start, stop = max(start, position - _BEFORE), min(stop, position + _AFTER)
    return clean(block[start:stop])[1]


def with_following(line: str, block: str, end: int, count: int, rank: str) -> str:
    """Return a line and the `count` lines after it, without their prefixes; empty ones for what other ranks say."""
    text = [line]
    for _line in range(count):
        if end >= len(block):
            break
        begin, end = end + 1, block.find("\n", end + 1)
        end = len(block) if end < 0 else end
        following = block[begin : min(end, begin + LINE)]
        text.append(clean(following)[1] if not rank or label(following) in ("", rank) else "")
    return "\n".join(text)


def nearby(above: str, block: str, start: int, end: int, count: int) -> str:
    """Return the line from `start` to `end` between the lines above and the `count` lines below it, without their prefixes.

    `above` is the text above the block. Lines that another rank or host says are left out.
    """
    upper = above + block[:start] if start < NEAR * LINE else block[start - NEAR * LINE : start]
    lines = [*upper.split("\n")[:-1][-NEAR:], block[start:end]]
    for _line in range(count):
        if end >= len(block):
            break
        begin, end = end + 1, block.find("\n", end + 1)
        end = len(block) if end < 0 else end
        lines.append(block[begin : min(end, begin + LINE)])
    at = block[start : min(end, start + LINE)]
    rank, host = label(at), clean(at)[0]
    words = [(label(line), *clean(line)) for line in lines]
    return "\n".join(text for by, on, text in words if by in ("", rank) and (not host or on in ("", host)))


def lines_after_failure(text: str) -> int:
    """Return how many lines at the end of a text only follow a failure: NCCL's way back, and a traceback that is cut off before its error."""
    count = 0
    for number, line in enumerate(reversed(text.rstrip().split("\n")), 1):
        words = clean(line)[1]
        if _WAY_BACK.search(words) or words.startswith("Traceback (most recent"):
            count = number
        elif not words.startswith("  "):
            break
    return count


def end_of(block: str, overlap: int) -> int:
    """Return where the end of a block starts that is looked through with the next one: of one long line the last `overlap` characters."""
    at = len(block)
    for _line in range(_AHEAD_LINES + 1):
        newline = block.rfind("\n", max(len(block) - _AHEAD, 0), at)
        if newline < 0:
            break
        at = newline
    return at + 1 if at < len(block) else len(block) - overlap


def host_in(text: str) -> str:
    """Take user, port and brackets off a host."""
    match = _HOST.match(text)
    return (match.group("quoted") or match.group("plain")) if match else ""


def last_said(seen: str, texts: Iterable[str]) -> Dict[str, str]:
    """Return the last line in a text of each process of NCCL that is the speaker of one of `texts`."""
    speakers = {speaker[0] for speaker in map(SPEAKER.match, texts) if speaker}
    starts = {speaker: seen.rfind(speaker) for speaker in speakers}
    return {speaker: seen[at : at + LINE].partition("\n")[0] for speaker, at in starts.items() if at >= 0}
