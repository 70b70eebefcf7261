"""Images of this machine's Docker Engine that `image build` has made, known by their label."""

import shutil
import subprocess

BUILT_LABEL = "taco-launch.built"
_SECONDS = 20


def is_built_here(image: str) -> bool:
    """Return whether this machine's engine has an image of that name that `image build` has made."""
    if shutil.which("docker") is None:
        return False
    argv = ("docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{BUILT_LABEL}"}}}}', image)
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() not in (b"", b"<no value>")
