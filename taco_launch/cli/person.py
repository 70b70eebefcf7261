"""Who types the commands: the owner of what is submitted, and who is asked before another's job is touched."""

import getpass
import os


def person() -> str:
    """Name the user who typed the command; for root by sudo that is who called sudo (sudo(8): SUDO_USER)."""
    behind = os.environ.get("SUDO_USER") if os.geteuid() == 0 else None
    return behind or getpass.getuser()
