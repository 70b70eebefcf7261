"""A real browser without a screen, for pages of TensorBoard."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.support.patience import patience

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1600,1200")
_WAITS = ("--virtual-time-budget=30000", "--timeout=60000", "--dump-dom")


def find() -> str:
    """Return the browser's program; skip the test where none is installed."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip("cannot: chromium is not installed (apt-get install chromium)")
    return found


def page(browser: str, url: str, text: str, folder: Path) -> str:
    """Return the page as the browser has it once it contains `text`; `folder` is for its profile."""
    words = [browser, *_OPTIONS, f"--user-data-dir={folder}/profile", *_WAITS, url]

    def shown() -> str:
        done = subprocess.run(words, capture_output=True, text=True, timeout=patience(120), check=False)
        return done.stdout if text in done.stdout else ""

    return str(eventually(shown, 120, f"{text} in the page"))
