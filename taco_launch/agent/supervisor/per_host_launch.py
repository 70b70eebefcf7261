"""Per-host launchers (torchrun, env) behind the interface of one mpirun process; each is a child of its guard."""

import os
import signal
from typing import IO, Dict, List, Optional, Tuple

from taco_launch import state
from taco_launch.agent.supervisor.guard_connection import GuardConnection
from taco_launch.agent.supervisor.guard_pool import GuardPool
from taco_launch.agent.supervisor.ranks import Ranks
from taco_launch.errors import SIGNAL_BASE
from taco_launch.launch.env import OF_MPI
from taco_launch.model.jobs import JobSpec, JobState
from taco_launch.model.plans import LaunchPlan
from taco_launch.protocol.calls.jobs import CallerEnvironment
from taco_launch.protocol.guard_messages import Launch

# What has failed, "" where nothing has; and where that settles how the job ends, its state, exit code and reason.
Failure = Tuple[str, Optional[state.JobOutcome]]


class HostCommands:
    """The launchers of all hosts, with what of `subprocess.Popen` the supervisor uses of mpirun.

    The first rank that fails, or the first launcher that does, fails all; its code is theirs.
    """

    pid = 0  # no process of this one

    def __init__(self, spec: JobSpec, gang: GuardPool, ranks: Ranks) -> None:
        """Start nothing yet."""
        self._spec, self._gang, self._ranks = spec, gang, ranks
        self._links: List[GuardConnection] = []
        self._codes: Dict[str, int] = {}
        self._killed = False
        self.stdout: IO[bytes] = open(os.devnull, "rb")  # noqa: SIM115 - their output comes by way of the guards

    def start(self, launch: LaunchPlan, caller: CallerEnvironment, attempt: int) -> None:
        """Have every guard start what is its host's."""
        of_caller = caller.environment
        for command in launch.commands:
            link = self._gang.link(command.host)
            here = link is self._gang.here
            passed = {name: of_caller[name] for name in command.passed if name in of_caller}
            own = {name: value for name, value in of_caller.items() if not name.startswith(OF_MPI)}
            order = Launch(
                argv=command.argv,
                caller=own if here else None,
                environment={**passed, **dict(command.env)},
                cwd=self._spec.cwd,
                umask=caller.umask,
                attempt=attempt if here else 1,  # elsewhere the folder is a new one for every attempt
                log_max_bytes=self._spec.policy.log_max_bytes,
            )
            link.order(order)
            self._links.append(link)

    def failure(self) -> Failure:
        """Return which rank or launcher has failed first, if one has while there are ranks to be ended for that.

        Where it is a launcher whose ranks ran, that settles how the job ends: what they do then is of no account.
        """
        self.poll()
        if self._ranks.all_ended:
            return "", None
        if self._ranks.failures:
            first = self._ranks.failures[0]
            return f"rank {first.rank} on {first.host} {first.reason or state.ending(first.exit_code)}", None
        if not self.failed_on:
            return "", None
        code = self._codes[self.failed_on]
        code = SIGNAL_BASE - code if code < 0 else code
        why = f"{self._spec.launcher} on {self.failed_on} {state.ending(code)}"
        return why, state.JobOutcome(
            JobState.FAILED, code, f"{why} while its ranks ran"
        ) if self._ranks.started else None

    def poll(self) -> Optional[int]:
        """Return the code of them all when the last has ended; -n for signal n."""
        for link in self._links:
            if link.answers.done is not None:
                self._codes.setdefault(link.name, link.answers.done.code)
        if not self._killed and len(self._codes) < len(self._links):
            return None
        if self._ranks.failures:
            return self._ranks.failures[0].exit_code
        return self._codes[self.failed_on] if self.failed_on else -signal.SIGKILL if self._killed else 0

    def wait(self, _seconds: float) -> int:
        """Return the code now that the guards have ended whatever was left."""
        code = self.poll()
        return -signal.SIGKILL if code is None else code

    def terminate(self) -> None:
        """Leave it to the guards, which are told to end what has not started a rank."""

    def kill(self) -> None:
        """Wait for them no longer: the guards end what is left."""
        self._killed = True

    @property
    def failed_on(self) -> str:
        """The host whose launcher failed first, "" where none has."""
        return next((host for host, code in self._codes.items() if code), "")
