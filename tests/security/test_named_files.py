"""Files that an inventory or a command names: whatever lies there, nobody waits for it, and it takes no more than it may."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from taco_launch.agent.store import untrusted
from taco_launch.bench.history import exchange
from taco_launch.cli.output import fact_changes
from taco_launch.core.errors import HostError, SpecError, TacoLaunchError, UsageError
from taco_launch.core.model.host.hosts import Container, Inventory, Registry
from taco_launch.hosts.inventory import load
from taco_launch.hosts.ssh import config, host_keys, keys
from taco_launch.jobs.code import config_files
from taco_launch.setup.apply import image_source, sources
from taco_launch.setup.job_containers import build

pytestmark = pytest.mark.timeout(60)
_MEMORY = 1 << 30


def sparse(path: Path) -> None:
    """Make a file that is larger than any memory, and takes no room."""
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.fixture(params=["fifo", "endless", "sparse", "folder", "circle"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the path of something that is not a key, password or package."""
    path = tmp_path / "named.deb"
    make: dict[str, Callable[[], object]] = {
        "fifo": lambda: os.mkfifo(path),
        "endless": lambda: path.symlink_to("/dev/zero"),
        "sparse": lambda: sparse(path),
        "folder": path.mkdir,
        "circle": lambda: path.symlink_to(path),
    }
    make[request.param]()
    return path


def test_a_file_that_an_inventory_names(odd: Path) -> None:
    registry = Registry("ann", str(odd))
    inventory = Inventory("c", "h", (), container=Container("i", registry=registry))
    with pytest.raises(UsageError, match="password_file"):
        sources.password(inventory, None)
    with pytest.raises(UsageError, match=r"toolkit\.key"):
        sources.signing_key("toolkit", str(odd))
    with pytest.raises(UsageError, match="packages"):
        sources.packages(str(odd.parent), "packages")
    with pytest.raises(OSError, match=r"regular file|larger than|directory|symbolic links"):
        keys._content(str(odd))
    with pytest.raises(HostError, match="cannot read host keys"):
        host_keys._File(str(odd))
    with pytest.raises(SpecError, match="ssh configuration"):
        config._text("~/.ssh/config", odd)


def test_a_file_that_a_command_names(odd: Path) -> None:
    with pytest.raises(SpecError, match=r"--env-file: .*(regular file|larger than|symbolic links)"):
        load.read_file(str(odd), "--env-file")
    with pytest.raises(UsageError, match=r"--config-file: .*cannot be read"):
        config_files.read((f"{odd}:/etc/x",), "--config-file", has_tree=False)
    with pytest.raises(TacoLaunchError, match=str(odd)):
        exchange.read(odd)
    if not odd.is_dir():  # of a folder each file is read
        with pytest.raises(UsageError, match=str(odd)):
            fact_changes.read(odd)
    request = build.BuildRequest("tag", base="base", requirements=str(odd))
    with pytest.raises(UsageError, match=str(odd)):
        build._context(request, odd.parent)


@pytest.mark.parametrize(
    ("owner", "mode", "why"),
    [(65534, 0o600, "belongs to user 65534"), (0, 0o666, "can be written by others"), (0, 0o664, "")],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="cannot: only root gives files away")
def test_an_ssh_configuration_of_another_user_is_refused(tmp_path: Path, owner: int, mode: int, why: str) -> None:
    """It names programs that are executed: ssh refuses it with `Bad owner or permissions`."""
    path = tmp_path / "config"
    path.write_text("Host *\n  ProxyCommand touch /tmp/owned\n")
    path.chmod(mode)
    os.chown(path, owner, os.getegid())
    if not why:
        assert config._text(str(path), path).startswith("Host *")
        return
    with pytest.raises(SpecError, match=why):
        config._text(str(path), path)


@pytest.mark.parametrize("odd", ["fifo", "endless", "folder", "circle"], indirect=True)
def test_an_image_from_a_file_is_not_waited_for(odd: Path) -> None:
    with pytest.raises(OSError, match=r"regular file|directory|symbolic links"):
        image_source._opened(str(odd))


def test_no_known_hosts_file_at_all_is_dev_null() -> None:
    assert host_keys._File(os.devnull).text == ""


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("words")
    (tmp_path / "link").symlink_to("file")
    assert untrusted.read_named(tmp_path / "link", 5) == b"words"


@pytest.mark.parametrize("words", [("bench", "import"), ("facts", "--compare")], ids=" ".join)
def test_a_document_that_is_endless(tmp_path: Path, words: tuple[str, ...]) -> None:
    sparse(tmp_path / "document")
    limit = (_MEMORY, _MEMORY)
    done = subprocess.run(
        (sys.executable, "-m", "taco_launch", *words, tmp_path / "document"),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TACO_LAUNCH_STATE": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
    )
    assert (done.returncode, "larger than 256 MiB" in done.stderr) in ((1, True), (2, True)), done.stderr
