#!/usr/bin/env python3
"""Kills and stops the processes of jobs at random moments, and checks what taco-launch then says of each job.

It submits small jobs to this machine, from two controllers, in a state folder of its own, and sends SIGKILL or SIGSTOP to
processes of every kind: the controller, the supervisor, the guard, a rank's wrapper, mpirun, a program, the scheduler and
its keeper. As root it also fills the disk for a moment, and beside all that cuts hosts of network namespaces off from the
others (chaos_links.py). Each rank notes its start and its end outside of the state folder,
so the result of a job is known without taco-launch.

The table at the end counts jobs whose result was wrong, jobs without a record, jobs that do not end, processes that were
left, and processes of taco-launch that used the CPU without a job that needs it. The exit code is 1 if there are any. The
seed that is printed gives the same jobs and faults again; their moments vary with the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chaos_jobs import ROOT, Chaos, Plan, Result, plans


def main(arguments: list[str]) -> int:
    """Run the jobs, print the table, return 1 if anything was not as it must be."""
    asked = _parser().parse_args(arguments)
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: {asked.jobs} jobs", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    disk = os.geteuid() == 0 and not asked.no_disk
    if disk:
        (folder / "state").mkdir(mode=0o700)
        subprocess.run(
            ["/bin/mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "tmpfs", str(folder / "state")], check=True
        )
    chaos = Chaos(folder, asked.patience)
    jobs = plans(seed, asked.jobs, disk=disk)
    if asked.links:
        sys.path.insert(0, str(ROOT))
        import chaos_links  # noqa: F401, PLC0415 - the tests' own hosts; what they import sets signal handlers, here alone
    until, done = time.monotonic() + asked.seconds, []
    links = ThreadPoolExecutor(1).submit(_cut_links, chaos.result, folder, asked, seed, until)
    threading.Thread(target=chaos.watch, daemon=True).start()
    try:
        with ThreadPoolExecutor(asked.controllers) as pool:
            for plan, _none in zip(jobs, pool.map(lambda plan: _timely(chaos, plan, until), jobs), strict=True):
                done.append(plan)
                if len(done) % 20 == 0:
                    print(f"{len(done)} jobs, {sum(chaos.result.faults.values())} faults", flush=True)
        links.result()
        result = chaos.finish([plan for plan in done if plan.name in chaos.begun])
        show(result, asked.json)
        if result.is_bad:
            again = f"--seed {seed} --jobs {asked.jobs} --links {asked.links} --patience {asked.patience:g}"
            print(f"kept: {folder}; again: scripts/chaos.py {again}", file=sys.stderr)
            return 1
    finally:
        if disk and not chaos.result.is_bad:
            subprocess.run(["/bin/umount", "--lazy", str(folder / "state")], check=False)
    shutil.rmtree(folder)
    return 0


def _cut_links(result: Result, folder: Path, asked: argparse.Namespace, seed: int, until: float) -> None:
    """Have hosts lose their connections; where that cannot be done here, say why."""
    if not asked.links:
        return
    import chaos_links  # noqa: PLC0415 - without links nothing of the tests is imported

    reason = chaos_links.left_out()
    if reason:
        result.left_out["link down"] = reason
        return
    links = chaos_links.Links(folder / "hosts", asked.patience, result)
    links.run(chaos_links.rounds(seed, asked.links, links.loss), until)


def _timely(chaos: Chaos, plan: Plan, until: float) -> None:
    if time.monotonic() < until:
        chaos.begun.add(plan.name)
        chaos.execute(plan)


def show(result: Result, as_json: bool) -> None:
    """Print the counts and each thing that was not as it must be."""
    lists = {name: getattr(result, name) for name in ("wrong", "lost", "hung", "orphans", "burned")}
    if as_json:
        counts = {name: getattr(result, name) for name in ("right", "refused", "faults", "left_out")}
        print(json.dumps({**counts, **lists}))
        return
    print(f"{'right':<10}{result.right}")
    print(f"{'refused':<10}{result.refused}")
    for name, lines in lists.items():
        print(f"{name:<10}{len(lines)}")
    for fault, count in sorted(result.faults.items()):
        print(f"  {count:>4} x {fault}")
    for fault, reason in result.left_out.items():
        print(f"left out: {fault}: {reason}")
    for name, lines in lists.items():
        for line in lines:
            print(f"{name}: {line}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200, metavar="N", help="jobs to submit (default: 200)")
    parser.add_argument("--seed", type=int, metavar="N", help="jobs and faults of an earlier run")
    parser.add_argument("--seconds", type=float, default=1200, metavar="S", help="submit no job later (default: 1200)")
    parser.add_argument("--controllers", type=int, default=4, metavar="N", help="jobs submitted at once (default: 4)")
    parser.add_argument(
        "--patience", type=float, default=2, metavar="X", help="times of an idle machine's (default: 2)"
    )
    parser.add_argument("--links", type=int, default=12, metavar="N", help="times that a host is cut off (default: 12)")
    parser.add_argument("--no-disk", action="store_true", help="do not fill a disk (that takes root)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
