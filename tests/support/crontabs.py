"""A crontab(1) of a test's own: it keeps one file, and reads it back, as the real one does."""

import json
from pathlib import Path
from typing import Any

from tests.conftest import Taco

# crontab(1) of Debian: its words for none, and what it refuses.
_CRONTAB = """#!/bin/sh
file='{file}'
case ${{1-}} in
  -l) [ -e "$file" ] && exec cat "$file"; echo "no crontab for $(id -un)" >&2; exit 1 ;;
  -r) rm "$file" ;;
  -)
    cat >"$file.new"
    [ "$(tail -c 1 "$file.new" | od -An -c | tr -d ' ')" = '\\n' ] || {{
      echo "new crontab file is missing newline before EOF, can't install." >&2; exit 1; }}
    mv "$file.new" "$file" ;;
esac
"""


def crontab(folder: Path) -> Path:
    """Put it into `folder`, and a cron that runs; it is to be first on PATH; give the file that it keeps."""
    folder.mkdir(exist_ok=True)
    file = folder / "kept"
    for name, text in (("crontab", _CRONTAB.format(file=file)), ("pgrep", "#!/bin/sh\necho 1\n")):
        program = folder / name
        program.write_text(text)
        program.chmod(0o755)
    return file


def status(taco: Taco, *names: str) -> list[dict[str, Any]]:
    """Return what is said of installed nightly runs."""
    found: list[dict[str, Any]] = json.loads(taco.ok("nightly", "status", *names, "--json").stdout)
    return found
