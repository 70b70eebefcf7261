"""The job's code on its way to this host: a child of the guard brings it, while the guard goes on with its other work."""

import contextlib
import os
import selectors
import signal
import socket
from typing import Callable, Mapping, Optional

from taco_launch.agent.processes import agent_program
from taco_launch.agent.store.folders import JobFolder
from taco_launch.core.protocol.connection import JsonConnection
from taco_launch.core.protocol.guard_messages import CodeFetched, FetchCode, Launch
from taco_launch.core.protocol.message import Message
from taco_launch.core.protocol.rank_messages import Welcome

# By which a program finds its code, wherever it starts.
CODE_FOLDER = "TACO_LAUNCH_CODE"


class CodeFetch:
    """The child once it is started, and what came of it."""

    def __init__(self, folder: JobFolder, selector: selectors.BaseSelector, tell: Callable[[Message], None]) -> None:
        """Start nothing yet; the answer will wake the selector, and be told."""
        self._folder, self._selector, self._tell = folder, selector, tell
        self._process: Optional[agent_program.Process] = None
        self._line: Optional[JsonConnection] = None
        self._found = CodeFetched()
        self._held = -1

    def start(self, order: FetchCode) -> None:
        """Have the code brought, the first time that this is ordered."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair()
        try:
            agent = os.path.realpath(self._folder.agent)
            fd = theirs.fileno()
            self._process = agent_program.start(agent, "code", str(self._folder.path), str(fd), keep=(fd,))
        except OSError as error:
            ours.close()
            self._tell(CodeFetched(error=f"the agent cannot be started: {error.strerror}"))
            return
        finally:
            theirs.close()
        self._line = JsonConnection(ours)
        self._line.send(order)
        self._selector.register(ours, selectors.EVENT_READ, self)
        self._snapshot = order.snapshot

    def read(self, _file: object) -> None:
        """Take the answer; a child that ends without one has failed."""
        assert self._line is not None
        heard = self._line.receive()
        answers = [message for message in heard or () if isinstance(message, CodeFetched)]
        if heard is None:
            answers = [CodeFetched(error=f"the process that copies the code was killed: see {self._folder.debug}")]
        for answer in answers:
            self._let_go()
            if self._snapshot and not answer.error:
                self._hold()
            self._found = answer
            self._tell(answer)

    def welcomed(self, welcome: Welcome) -> Welcome:
        """Return what a rank is told, with where it starts."""
        found = self._found
        more: Mapping[str, str] = {CODE_FOLDER: found.tree} if found.tree else {}
        return welcome.replace(environment={**welcome.environment, **more}, folder=found.folder)

    def launched(self, order: Launch) -> Launch:
        """Return the order to start this host's launcher, which starts where its ranks do."""
        return order.replace(cwd=self._found.folder) if self._found.folder else order

    def close(self, *, gone: bool = False) -> None:
        """End the child, unless it has ended, and what belongs to the code outside of the job's folder.

        Where all of the job's processes are `gone` the next job on this host may have its tree.
        """
        if self._line is not None:
            self._let_go()
        if gone and self._found.tree:
            from taco_launch.agent.snapshots import recycled_tree, store  # noqa: PLC0415 - few jobs have one

            recycled_tree.keep(self._folder, store.SnapshotStore(self._folder.path.parent.parent))
            self._found = CodeFetched()
        if self._process is not None:
            from taco_launch.agent.snapshots.placed_links import PlacedLinks  # noqa: PLC0415 - few jobs have any

            PlacedLinks(self._folder).remove()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def _hold(self) -> None:
        """Keep the snapshot from being removed: other hosts of the job may still take it from here."""
        from taco_launch.agent.snapshots.store import SnapshotStore  # noqa: PLC0415 - see above

        held = SnapshotStore(self._folder.path.parent.parent).hold(self._snapshot)
        self._held = -1 if held is None else held

    def _let_go(self) -> None:
        assert self._line is not None
        assert self._process is not None
        self._selector.unregister(self._line.sock)
        self._line.close()
        self._line = None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its ssh as well
        self._process.poll()
