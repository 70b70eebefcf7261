"""Name the folders of the checkout, whichever folder a test is in."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
SCRIPTS = ROOT / "scripts"
