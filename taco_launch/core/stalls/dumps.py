"""Stacks of a process as `py-spy dump --json` prints them, to a `Stack` of its main thread."""

import json
from typing import Any, List, Optional

from taco_launch.core.model.run.rank_samples import Frame, OtherThread, Stack

MOST_CHARACTERS = 8 << 20
_MOST_FRAMES, _MOST_THREADS, _MOST_NAME = 100, 4096, 200
_MOST_OTHERS, _MOST_OTHER_FRAMES = 32, 40


def main_stack(text: str) -> Optional[Stack]:
    """Return the stack of the main thread; None where the text is cut, too long, or has no such thread."""
    if len(text) > MOST_CHARACTERS:
        return None
    try:
        threads = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return of_threads(threads)


def of_threads(threads: Any) -> Optional[Stack]:
    """Return the main thread's stack of such a list; the main thread is the one whose process has its number, or is called so."""
    if not isinstance(threads, list):
        return None
    known = [thread for thread in threads[:_MOST_THREADS] if isinstance(thread, dict)]
    for is_main in (_has_number_of_process, _is_called_main, _runs_a_module):
        for thread in known:
            if is_main(thread):
                return _stack(thread, [other for other in known if other is not thread])
    return None


def _has_number_of_process(thread: Any) -> bool:
    number = thread.get("os_thread_id")
    return isinstance(number, int) and number == thread.get("pid")


def _is_called_main(thread: Any) -> bool:
    return bool(thread.get("thread_name") == "MainThread")


def _runs_a_module(thread: Any) -> bool:
    frames = thread.get("frames")
    return isinstance(frames, list) and any(isinstance(one, dict) and one.get("name") == "<module>" for one in frames)


def _stack(thread: Any, others: List[Any]) -> Optional[Stack]:
    frames = _frames(thread)
    if frames is None:
        return None
    found: List[OtherThread] = []
    for other in others:
        theirs = tuple(_frames(other) or ())[:_MOST_OTHER_FRAMES]
        # A thread without a line of Python is a library's own: such threads poll.
        if any(frame.line for frame in theirs) and len(found) < _MOST_OTHERS:
            found.append(OtherThread(theirs, other.get("active") is True))
    return Stack(tuple(frames), len(thread["frames"]) > _MOST_FRAMES, tuple(found))


def _frames(thread: Any) -> Optional[List[Frame]]:
    frames = thread.get("frames")
    if not isinstance(frames, list):
        return None
    found: List[Frame] = []
    for one in frames[:_MOST_FRAMES]:
        if not isinstance(one, dict):
            return None
        name, file, line = one.get("name"), one.get("filename"), one.get("line")
        if not isinstance(name, str) or not isinstance(file, str):
            return None
        # Native frames without symbols are addresses, which differ from process to process.
        shown = "?" if name.startswith("0x") else name[:_MOST_NAME]
        found.append(Frame(shown, file[:_MOST_NAME], line if isinstance(line, int) and line > 0 else 0))
    return found
