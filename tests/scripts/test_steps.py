"""What scripts/quickstart and scripts/test show of a step that runs."""

import subprocess
from pathlib import Path

STEPS = Path(__file__).parents[2] / "scripts/steps.sh"
SPIN = (
    'set -euo pipefail; source "$1"; grows=$2; for second in 0 2 3; do spin "[4/7] torch ..." "$3" $second; fill; done'
)


def shown(folder: Path, log: Path, more: str) -> list[str]:
    argv = ("bash", "-c", f"{more}; {SPIN}", "spin", str(STEPS), str(folder), str(log))
    done = subprocess.run(argv, capture_output=True, timeout=30, check=True, start_new_session=True)
    return done.stdout.decode().split("\r\x1b[K")[1:]


def test_a_step_shows_the_size_of_what_it_fills_every_three_seconds_and_its_last_line(tmp_path: Path) -> None:
    folder, log = tmp_path / ".venv", tmp_path / "log"
    folder.mkdir()
    log.write_text("Collecting torch\nInstalling collected packages: torch\n")
    first, second, third = shown(folder, log, 'fill() { head -c 3000000 /dev/zero >>"$grows/file"; }')
    assert first == second.replace("- 2 s", "| 0 s")
    assert third.startswith("[4/7] torch ... \\ 3 s  6 MB in .venv  Installing collected packages")


def test_a_file_that_vanishes_meanwhile_ends_no_step(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("last\n")
    told = shown(tmp_path, tmp_path / "log", "fill() { :; }; du() { echo 5; return 1; }")
    assert told[0] == f"[4/7] torch ... | 0 s  5 MB in {tmp_path.name}  last"[:79]
