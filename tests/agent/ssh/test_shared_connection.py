"""Where the ssh of a guard and that of mpirun share a connection, and where a user has said how they connect."""

from pathlib import Path

import pytest

from taco_launch.agent.ssh import shared_connection
from taco_launch.agent.store.folders import JobFolder

LINE = ("mpirun", "-np", "4", "-H", "n1:2,n2:2", "true")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    """Return a job of a user without settings, to whose host n2 there is a connection."""
    monkeypatch.setattr(shared_connection, "_SSH_FILES", ((str(tmp_path / "ssh"), "*"),))
    monkeypatch.setattr(shared_connection, "_MCA_FILES", ((str(tmp_path / "mca"), "*"),))
    monkeypatch.setattr(shared_connection, "_PATH_BYTES", 1000)  # this test's own folder is longer than that of a job
    shared_connection._users_own.cache_clear()
    for folder in ("ssh", "mca", "bin", "etc", "job"):
        (tmp_path / folder).mkdir()
    mpirun = tmp_path / "bin" / "mpirun"
    mpirun.touch(mode=0o755)
    (tmp_path / "job" / "ssh-n2").touch()
    return JobFolder(tmp_path / "job")


def given(job: JobFolder, *argv: str, **environ: str) -> dict[str, str]:
    """Return the variables that mpirun gets besides its own."""
    path = {"PATH": str(job.path.parent / "bin")}
    return dict(shared_connection.for_mpirun(job, ["n2", "n3"], argv or LINE, {**path, **environ}))


def test_both_use_one_socket(job: JobFolder) -> None:
    *options, flag, path = shared_connection.for_guard(job, "n2", 8.0)
    assert (options, flag, path) == (
        [
            *("-o", "ControlMaster=yes", "-o", "ControlPersist=1"),
            *("-o", "ServerAliveInterval=3", "-o", "ServerAliveCountMax=3"),
        ],
        "-S",
        str(job.path / "ssh-n2"),
    )
    words = f"-S {job.path}/ssh-%n"
    assert given(job) == {"OMPI_MCA_plm_rsh_args": words, "PRTE_MCA_plm_ssh_args": words}
    assert given(job, OMPI_MCA_plm_rsh_args="-p 12222")["OMPI_MCA_plm_rsh_args"] == f"-p 12222 {words}"


def test_without_a_connection_mpirun_is_left_alone(job: JobFolder) -> None:
    (job.path / "ssh-n2").unlink()
    assert given(job) == {}


@pytest.mark.parametrize(
    "text",
    [
        "ControlPath ~/.ssh/%C",
        "Host n*\n  controlmaster auto",
        "  ControlPersist=10m",
        "Include other",
        "include /etc/ssh/ssh_config.d/*.conf more",
    ],
)
def test_a_user_who_shares_connections_goes_on_with_that(job: JobFolder, text: str) -> None:
    (job.path.parent / "ssh" / "config").write_text(f"# mine\n{text}\n")
    assert shared_connection.for_guard(job, "n2", 8.0) == ()


@pytest.mark.parametrize("text", ["Host n2\n  Port 22\n", "Include /etc/ssh/ssh_config.d/*.conf\n", "#ControlPath x\n"])
def test_other_settings_of_ssh_do_not_matter(job: JobFolder, text: str) -> None:
    (job.path.parent / "ssh" / "config").write_text(text)
    assert shared_connection.for_guard(job, "n2", 8.0) != ()


@pytest.mark.parametrize(
    ("argv", "environ"),
    [
        (("mpirun", "--mca", "plm_rsh_agent", "rsh", "true"), {}),
        (("mpirun", "--mca", "plm_rsh_args", "-v", "true"), {}),
        (("mpirun", "--prtemca", "plm", "slurm", "true"), {}),
        (("mpirun", "--tune", "file", "true"), {}),
        (LINE, {"OMPI_MCA_plm_rsh_agent": "/kube.sh"}),
        (LINE, {"OMPI_MCA_orte_rsh_agent": "/kube.sh"}),
        (LINE, {"PRTE_MCA_plm": "slurm"}),
        (LINE, {"OMPI_MCA_plm_rsh_args": "-o ControlPath=none"}),
        (LINE, {"PRTE_MCA_plm_ssh_args": "-S none"}),
        (("no-such-mpirun", "true"), {}),
    ],
)
def test_a_user_who_says_how_mpirun_connects_is_obeyed(
    job: JobFolder, argv: tuple[str, ...], environ: dict[str, str]
) -> None:
    assert given(job, *argv, **environ) == {}


@pytest.mark.parametrize("folder", ["mca", "etc"])
@pytest.mark.parametrize(
    ("text", "holds"), [("plm_rsh_agent = rsh", True), ("btl = ^openib\n#plm_rsh_agent = x", False)]
)
def test_the_files_of_open_mpi_are_looked_at(job: JobFolder, folder: str, text: str, *, holds: bool) -> None:
    (job.path.parent / folder / "openmpi-mca-params.conf").write_text(f"{text}\n")
    assert bool(given(job)) is not holds


def test_a_path_that_is_too_long_or_not_plain_is_not_used(job: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shared_connection.for_guard(job, "n 2", 8.0) == ()
    assert shared_connection.for_guard(job, "../n2", 8.0) == ()
    monkeypatch.setattr(shared_connection, "_PATH_BYTES", len(str(job.path)) + 6)
    assert shared_connection.for_guard(job, "n2", 8.0) == ()
    assert given(job) == {}
