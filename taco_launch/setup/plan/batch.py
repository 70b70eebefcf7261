"""The operations of one host and stage as ONE script for its shell, and what that script answers, read back.

Each operation: its files appear, whole and by rename, then its own script runs as a process group of its own, with an
empty input and its output in a file. So whatever ends the controller, the connection or the batch, a step that has started
is finished; the batch then stops before the next one, as nobody listens. A lock keeps a second batch off the host until
that step is over.

The answer, between lines of MARKER, which is random:
  MARKER wait                 another set-up works on this host, and is waited for
  MARKER busy                 it took too long
  MARKER stale                it is over, and nothing was done: what it did was not known when this was planned
  MARKER begin NUMBER
  MARKER progress TEXT        how far it is: what it has written to $taco_progress, each time that changes
  ...what the operation said, its last 64 KiB...
  MARKER end NUMBER CODE      124: it took too long; the first that is not 0 is the last one
  MARKER done                 the answer is whole
"""

import base64
from collections.abc import Callable, Iterable, Sequence

from taco_launch.core.command import Command, words
from taco_launch.core.errors import DEADLINE
from taco_launch.core.frozen import dataclass
from taco_launch.core.model.host import paths
from taco_launch.setup.model.ops import FileTarget, Op

# Files that are larger do not travel as text within the script: see `apart`.
_LARGE = 1 << 20
# The longest operation is a pull of half an hour; one that was cut off continues by itself.
_LOCK_SECONDS = 2400
# On top of the operations and the lock: for the connection, and to end an operation that takes too long.
_OVERHEAD_SECONDS = 60.0
_SLOWEST_LINK = 1e5  # bytes a second
# The file in which a script may tell how far it is, in one line, and how much of that is told.
_PROGRESS = "$taco_progress"
_MOST_PROGRESS = 100
# What of an operation's output is told where it fails.
_ERROR = "error: "
_HINT = "hint: "
_WORDS, _MOST = 3, 800
# What a batch holds while it works on its host.
LOCK = f"{paths.RUN}/setup.lock"

_HEAD = f"""\
taco_file() {{ # taco_file PATH MODE WAY <BASE64
  taco_folder=${{1%/*}}
  case $1 in
    {paths.STATE}/* | {paths.RUN}/*) taco_umask=077 ;;
    *) taco_umask=022 ;;
  esac
  (umask $taco_umask && mkdir -p "$taco_folder") || return
  if [ "$3" = place ] && [ -L "$1" ]; then
    echo "error: $1 is a symbolic link, and what it leads to would be overwritten: look who made it, and remove it"
    return 1
  fi
  rm -f "$1.taco-new" # of a run that was cut; nor is a link of that name followed
  if ! taco_said=$( (umask 077 && base64 -d >"$1.taco-new" && chmod "$2" "$1.taco-new") 2>&1); then
    rm -f "$1.taco-new"
    taco_free=$(df -Ph "$taco_folder" | awk 'END {{ print $4 " on " $6 }}')
    echo "error: cannot write $1: ${{taco_said##*: }}; free: $taco_free"
    return 1
  fi
  if [ "$3" = place ]; then
    cat "$1.taco-new" >"$1" && chmod "$2" "$1" && rm -f "$1.taco-new"
  else
    mv -f "$1.taco-new" "$1"
  fi
}}
taco_watch() {{ # tells how far an operation is, and outlives neither the batch nor its listener
  taco_told=
  while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
    taco_now=$(head -n 1 "$taco_progress" 2>/dev/null | cut -c 1-{_MOST_PROGRESS})
    [ "$taco_now" = "$taco_told" ] || echo "$taco_marker progress $taco_now" || exit
    taco_told=$taco_now
  done
}}
taco_end() {{ # taco_end NUMBER CODE
  if [ -n "$taco_watcher" ]; then
    kill "$taco_watcher"
    wait "$taco_watcher" 2>/dev/null
    taco_watcher=
    rm -f "$taco_progress"
  fi
  tail -c 65536 "$taco_out" 2>/dev/null
  printf '\\n%s end %s %s\\n' "$taco_marker" "$1" "$2" || exit 1
  [ "$2" = 0 ] || taco_done
}}
taco_done() {{
  rm -f "$taco_out"
  echo "$taco_marker done"
  exit 0
}}
taco_batch() {{
  taco_marker=$1
  export taco_typed="${{2-taco-launch}}" # for what scripts tell people to type
  exec 2>&1 </dev/null
  PATH=${{PATH-}}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  LC_ALL=C
  export PATH LC_ALL
  umask 022
  # the folder is everybody's to pass, for the leases: what else is in it is root's alone
  (umask 077 && mkdir -p {paths.RUN} && : >>{LOCK}) && exec 9>{LOCK} || exit 1
  if ! flock -n 9; then
    echo "$taco_marker wait"
    flock -w {_LOCK_SECONDS} 9 || {{
      echo "$taco_marker busy"
      exit 1
    }}
    echo "$taco_marker stale"
    exit 0
  fi
  taco_out={paths.RUN}/setup.out
  (umask 077 && : >"$taco_out")
  taco_progress={paths.RUN}/setup.progress
  taco_watcher=
  export taco_progress
  rm -f "$taco_progress" # of a batch that was ended
"""
_TAIL = '  taco_done\n}\ntaco_batch "$@"\n'


@dataclass(frozen=True)
class OpResult:
    """One operation as it ended: `number` counts from 0, `output` is what it said."""

    number: int
    code: int
    output: bytes


@dataclass(frozen=True)
class BatchOutcome:
    """What came of a batch: `ran` those that ended, `begun` the last one that started.

    Without `whole` the answer was cut off; `busy`: another set-up did not let it begin; `stale`: another one was waited
    for, and nothing was done; `said` is what the shell itself had to say.
    """

    ran: tuple[OpResult, ...]
    begun: int | None
    whole: bool
    busy: bool
    said: bytes
    stale: bool = False

    @property
    def failed(self) -> OpResult | None:
        """The operation that failed."""
        return next((ran for ran in self.ran if ran.code), None)


def apart(ops: Sequence[Op]) -> tuple[FileTarget, ...]:
    """Return the files that are too large for the script: they are to be put before it runs."""
    return tuple(file for op in ops for file in op.files if len(file.data) > _LARGE)


def command(ops: Sequence[Op], marker: str, typed: str = "taco-launch") -> Command:
    """Return the batch of these operations; `marker` is random and stands in nothing else.

    `typed` is what the user types for taco-launch with this inventory.
    """
    text = script(ops).encode("utf-8", "surrogateescape")
    seconds = sum(op.seconds for op in ops) + _LOCK_SECONDS + _OVERHEAD_SECONDS + len(text) / _SLOWEST_LINK
    return Command(("/bin/sh", "-s", "--", marker, typed), text, sudo=True, timeout=seconds)


def script(ops: Sequence[Op]) -> str:
    """Return the batch's text: POSIX sh, nothing of which runs before all of it has arrived; $1 is the marker, $2 `typed`."""
    large = {id(file) for file in apart(ops)}
    parts = [_HEAD]
    for number, op in enumerate(ops):
        parts.append(f'  echo "$taco_marker begin {number}" || exit 1\n')
        if _PROGRESS in op.script:
            parts.append("  taco_watch 9>&- &\n  taco_watcher=$!\n")  # without the lock
        parts.append("  (\n    :\n")
        parts += [_file(file) for file in op.files if id(file) not in large]
        if op.script:
            limited = ("timeout", "-k", "10", f"{op.seconds:g}", "/bin/sh", "-euc", op.script, "setup", *op.args)
            parts.append(f"    {words(limited)}\n")
        parts.append(f'  ) >"$taco_out" 2>&1\n  taco_end {number} $?\n')
    return "".join([*parts, _TAIL])


def _file(file: FileTarget) -> str:
    way = "place" if file.in_place else "rename"
    argv = ("taco_file", file.path, f"{file.mode:o}", way)
    return f"    {words(argv)} <<'TACO_END' || exit\n{base64.encodebytes(file.data).decode()}TACO_END\n"


def read(
    lines: Iterable[bytes],
    marker: str,
    begun: Callable[[int], None] = lambda _number: None,
    waits: Callable[[], None] = lambda: None,
    progress: Callable[[str], None] = lambda _text: None,
) -> BatchOutcome:
    """Read the answer of a batch, line by line as it comes; `begun` is called as each operation starts.

    `waits` is called where another set-up is waited for, `progress` with how far the operation says it is.

    Raises:
        ValueError: it is not the answer of a batch: the host has changed it.
    """
    start = f"{marker} ".encode()
    ran: list[OpResult] = []
    last: int | None = None
    whole = busy = stale = False
    said: list[bytes] = []
    for line in lines:
        told = line.split() if line.startswith(start) else []
        kind = told[1] if len(told) > 1 else b""
        if kind == b"begin" and len(told) == 3:
            last, said = int(told[2]), []
            begun(last)
        elif kind == b"end" and len(told) == 4:
            if int(told[2]) != last:
                raise ValueError(f"operation {int(told[2])} ends, and it is operation {last} that started")
            ran.append(OpResult(last, int(told[3]), b"".join(said).strip(b"\n")))
            said = []
        elif kind == b"progress":
            progress(b" ".join(told[2:]).decode("utf-8", "replace")[:_MOST_PROGRESS])
        elif kind == b"wait":
            waits()
        elif kind == b"busy":
            busy = True
        elif kind == b"stale":
            whole = stale = True
            break
        elif kind == b"done":
            whole = True
            break
        else:
            said.append(line)
    return BatchOutcome(tuple(ran), last, whole, busy, b"".join(said), stale)


def failure_reason(op: Op, ran: OpResult) -> str:
    """Return how an operation failed: what it said from its last `error: ` on, else its last words, or that it took long."""
    told, _ = error_and_hint_lines(ran.output)
    last = "; ".join(dict.fromkeys(told or _lines(ran.output)[-_WORDS:]))[-_MOST:]
    if ran.code == DEADLINE:
        return f"{op.name}: not done after {op.seconds:g} s" + (f"; its last output: {last}" if last else "")
    return f"{op.name}: {last or f'exit code {ran.code}'}"


def hint(ran: OpResult) -> str:
    """Return the next step that an operation told on a line `hint: ` after its last `error: `; empty where it told none."""
    return "; ".join(step.rstrip(".") for step in error_and_hint_lines(ran.output)[1])[:_MOST]


def error_and_hint_lines(output: bytes) -> tuple[list[str], list[str]]:
    """Return what a script said from its last `error: ` on, and its hints after that; both empty where it has no error."""
    lines = _lines(output)
    errors = [number for number, line in enumerate(lines) if line.startswith(_ERROR)]
    told = lines[errors[-1] :] if errors else []
    return (
        [line.removeprefix(_ERROR) for line in told if not line.startswith(_HINT)],
        [line.removeprefix(_HINT) for line in told if line.startswith(_HINT)],
    )


def _lines(output: bytes) -> list[str]:
    return [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
