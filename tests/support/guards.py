"""What a supervisor and ranks say to a guard."""

import subprocess
from collections.abc import Callable
from typing import Any

from tests.agent.conftest import Family, Mail
from tests.support.patience import HANG

Connect = Callable[[], Mail]


def supervise(mail: Mail, family: Family, timeout: float = 30, *, look: bool = False, **more: Any) -> Mail:
    more = {"look": look, "size": "auto" if look else "2", "gpus": "none", "ports": [40000, 65000], **more}
    mail.send("supervise", job_id=family.job_id, host_loss_timeout=timeout, **more)
    return mail


def register(mail: Mail, rank: int, *roots: tuple[int, int]) -> Mail:
    mail.send("register", rank=rank, roots=list(roots))
    return mail


def ended(mail: Mail, guard: "subprocess.Popen[bytes]", *roots: tuple[int, int]) -> dict[str, Any]:
    mail.send("end", roots=list(roots))
    answer = mail.wait("ended")
    mail.wait_for_end()
    assert guard.wait(HANG) == 0
    return {name: answer[name] for name in ("left", "unknown")}


def lease(mail: Mail, count: int, *ports: int) -> None:
    more = {"constraints": {}, "whole": False, "shared": [], "rendezvous": None, "allowed": None}
    mail.send("lease", count=count, ports=list(ports), cluster="c", owner="ann", **more)
