"""pull.sh and look.sh, with an engine that only says what engines say."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from taco_launch.setup import scripts
from tests.conftest import eventually
from tests.support.setup_scripts import SHELLS, Fakes

# docker's words, of 20.10 and 26.1
REFUSALS = [
    ('Error response from daemon: Head "https://registry:5000/v2/t/manifests/1": no basic auth credentials', "container.registry"),
    ("Error response from daemon: pull access denied for t, repository does not exist or may require 'docker login'", "container.registry"),
    ("Error response from daemon: login attempt to https://registry:5000/v2/ failed with status: 401 Unauthorized", "container.registry"),
    ("Error response from daemon: unauthorized: authentication required", "container.registry"),
    ("Error response from daemon: manifest for registry:5000/t:1 not found: manifest unknown: manifest unknown", "container.image"),
    ('Error response from daemon: Get "https://registry:5000/v2/": x509: certificate signed by unknown authority', "docker.insecure_registries"),
    ('Error response from daemon: Get "https://registry:5000/v2/": http: server gave HTTP response to HTTPS client', "docker.insecure_registries"),
    ("failed to register layer: write /usr/lib/x: no space left on device", "docker image prune"),
]  # fmt: skip
PASSING = [
    'Error response from daemon: Get "https://registry:5000/v2/": dial tcp 10.0.0.9:5000: connect: no route to host',
    'Error response from daemon: Get "https://registry:5000/v2/": dial tcp: lookup registry on 10.0.0.1:53: no such host',
    "Error response from daemon: received unexpected HTTP status: 503 Service Unavailable",
    "Error response from daemon: toomanyrequests: You have reached your pull rate limit.",
    "unexpected EOF",
]
LEAST = ("1024", "mpirun")


@pytest.fixture(params=SHELLS)
def fakes(tmp_path: Path, request: pytest.FixtureRequest) -> Fakes:
    made = Fakes(tmp_path / "bin", request.param)
    made.make("sleep")
    return made


def engine(fakes: Fakes, *, pull: str = "true", login: str = "true", lacks: str = "", root: Path | None = None) -> None:
    fakes.make(
        "docker",
        f"""case $1 in
  info) echo '{root or fakes.folder}' ;;
  pull) {pull} ;;
  login) {login} ;;
  tag) ;;
  run) printf '{lacks}' ;;
esac""",
    )


def verbs(fakes: Fakes) -> list[str]:
    return [call.removeprefix("docker ") for call in fakes.calls if call.startswith("docker ")]


def refuse(words: str) -> str:
    quoted = words.replace("'", "'\\''")
    return f"echo layer 1; echo '{quoted}' >&2; exit 1"


def test_it_pulls_tags_and_looks(fakes: Fakes) -> None:
    engine(fakes)
    done = fakes.run("look.sh", "pull.sh", "t@sha256:a", "t:1", *LEAST, "", "", "", names=2)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert verbs(fakes)[1:3] == ["pull t@sha256:a", "tag t@sha256:a t:1"]
    assert verbs(fakes)[3].startswith("run --rm --user 0 --network none --entrypoint /bin/sh t:1 -c")


def test_it_tells_how_many_layers_are_here(fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = """1: Pulling from t
a: Already exists
b: Pulling fs layer
c: Pulling fs layer
c: Download complete
b: Pull complete
c: Verifying Checksum"""
    engine(fakes, pull=f"echo '{said}'")
    file = tmp_path / "progress"
    monkeypatch.setenv("taco_progress", str(file))
    done = fakes.run("look.sh", "pull.sh", "t:1", "", *LEAST, "", "", "", names=2)
    assert (done.returncode, file.read_text()) == (0, "2 of 3 layers\n")


@pytest.mark.parametrize(("words", "next_step"), REFUSALS)
def test_what_stays_wrong_is_not_asked_again(fakes: Fakes, words: str, next_step: str) -> None:
    engine(fakes, pull=refuse(words))
    done = fakes.run("look.sh", "pull.sh", "t:1", "", *LEAST, "", "", "", names=2)
    assert done.returncode == 1
    said, tries, advice = done.stderr.splitlines()
    assert said == f"error: docker pull t:1: {words.removeprefix('Error response from daemon: ')}"
    assert tries == "tries: 1"
    assert next_step in advice
    assert len([each for each in verbs(fakes) if each.startswith("pull")]) == 1


@pytest.mark.parametrize("words", PASSING)
def test_what_may_pass_is_tried_five_times(fakes: Fakes, words: str) -> None:
    engine(fakes, pull=refuse(words))
    done = fakes.run("look.sh", "pull.sh", "t:1", "", *LEAST, "", "", "", names=2)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-3:-1] == [
        f"error: docker pull t:1: {words.removeprefix('Error response from daemon: ')}",
        "tries: 5",
    ]
    assert "does this host reach the registry?" in done.stderr
    assert [call for call in fakes.calls if call.startswith("sleep")] == [f"sleep {2**n}" for n in range(1, 5)]


def test_a_registry_that_comes_back_is_enough(fakes: Fakes, tmp_path: Path) -> None:
    engine(fakes, pull=f"[ -e {tmp_path}/up ] || {{ : >{tmp_path}/up; {refuse('unexpected EOF')}; }}")
    done = fakes.run("look.sh", "pull.sh", "t:1", "", *LEAST, "", "", "", names=2)
    assert done.returncode == 0, done.stderr
    assert len([each for each in verbs(fakes) if each.startswith("pull")]) == 2


@pytest.mark.parametrize("right", [True, False])
def test_a_login_leaves_nothing_behind(fakes: Fakes, tmp_path: Path, *, right: bool) -> None:
    password = tmp_path / "password"
    password.write_text("geheim")
    seen = tmp_path / "seen"
    ending = "" if right else refuse("Error response from daemon: ... 401 Unauthorized")
    engine(
        fakes, login=f'cat >{seen}; ls -d "$DOCKER_CONFIG" >>{seen}; {ending}', pull=f'echo "$DOCKER_CONFIG" >>{seen}'
    )
    done = fakes.run("look.sh", "pull.sh", "r:5/t:1", "", *LEAST, "r:5", "lab", str(password), names=2)
    assert done.returncode == (0 if right else 1)
    given, *folders = seen.read_text().splitlines()
    assert given.startswith("geheim/")  # no newline between: docker takes what it is given as the password
    folder = given.removeprefix("geheim")
    assert folders == ([folder] if right else [])
    assert not password.exists()
    assert not Path(folder).exists()
    assert verbs(fakes)[1] == "login --username lab --password-stdin r:5"
    assert "geheim" not in f"{fakes.calls}{done.stdout}{done.stderr}"
    if not right:
        assert done.stderr.splitlines()[0] == "error: docker login r:5 as lab: ... 401 Unauthorized"
        assert not [each for each in verbs(fakes) if each.startswith("pull")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_pull_that_is_ended_leaves_no_login_behind(fakes: Fakes, tmp_path: Path, number: signal.Signals) -> None:
    password, seen = tmp_path / "password", tmp_path / "seen"
    password.write_text("geheim")
    engine(fakes, pull=f'echo "$DOCKER_CONFIG" >{seen}.part; mv {seen}.part {seen}; exec /bin/sleep 60')
    text = scripts.text("look.sh") + scripts.text("pull.sh")
    argv = (*fakes.sh, "-euc", text, "setup", "r:5/t:1", "", *LEAST, "r:5", "lab", str(password))
    with subprocess.Popen(argv, env=fakes.env(), stderr=subprocess.DEVNULL, start_new_session=True) as process:
        eventually(seen.exists, 10)
        os.killpg(process.pid, number)  # as timeout does
        process.wait(10)
    assert process.returncode == 143
    assert not password.exists()
    assert not Path(seen.read_text().strip()).exists()


def test_dockers_own_registry_goes_without_a_name(fakes: Fakes, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("x")
    engine(fakes)
    fakes.run("look.sh", "pull.sh", "t:1", "", *LEAST, "", "lab", str(tmp_path / "password"), names=2)
    assert verbs(fakes)[1] == "login --username lab --password-stdin"


def test_a_disk_that_is_too_small_is_not_filled(fakes: Fakes, tmp_path: Path) -> None:
    engine(fakes, root=tmp_path)
    done = fakes.run("look.sh", "pull.sh", "t:1", "", str(1 << 50), "mpirun", "", "", "", names=2)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path}: ")
    assert f"MiB are free, and t:1 takes about {1 << 40} MiB" in done.stderr
    assert verbs(fakes) == ["info --format {{.DockerRootDir}}"]


def test_what_an_image_lacks_is_named_with_the_recipe(fakes: Fakes) -> None:
    engine(fakes, lacks="sshd\\npython3\\n")
    done = fakes.run("look.sh", "pull.sh", "t:1", "", *LEAST, "", "", "", names=2)
    assert done.returncode == 1
    assert done.stderr == (
        "error: t:1 lacks sshd, python3; make an image that has all: "
        "docker build -t NAME docker/train-from --build-arg BASE=t:1\n"
    )


def test_an_image_that_cannot_be_entered_is_named(fakes: Fakes) -> None:
    fakes.make("docker", 'case $1 in info) echo / ;; run) echo "exec: /bin/sh: no such file" >&2; exit 127 ;; esac')
    done = fakes.run("look.sh", "pull.sh", "t:1", "", *LEAST, "", "", "", names=2)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "exec: /bin/sh: no such file",
        "error: t:1: cannot be looked into by: docker run --rm --user 0 --entrypoint /bin/sh t:1",
    ]


@pytest.mark.parametrize(
    ("programs", "mpirun", "lacks"),
    [
        (["sshd", "ssh", "mpirun", "3.12"], "mpirun", ""),
        (["sshd", "ssh", "3.12"], "mpirun", "mpirun"),
        (["sshd", "ssh", "3.12"], "/opt/ompi/bin/mpirun", "/opt/ompi/bin/mpirun"),
        ([], "mpirun", "sshd, ssh, mpirun, python3"),
        (["sshd", "ssh", "mpirun", "3.8"], "mpirun", ""),
        (["sshd", "ssh", "mpirun", "3.7"], "mpirun", "a python3 of 3.8 or newer (Python 3.7 is there)"),
        (["sshd", "ssh", "mpirun", "2.7"], "mpirun", "a python3 of 3.8 or newer (Python 2.7 is there)"),
    ],
)
def test_what_is_looked_for_inside(fakes: Fakes, tmp_path: Path, programs: list[str], mpirun: str, lacks: str) -> None:
    """The engine's `run` executes the script in a folder that holds these programs only."""
    inside = Fakes(tmp_path / "image")
    inside.folder.mkdir()
    for name in programs:
        if "." in name:
            pretend = f"import sys; sys.version_info = ({name.replace('.', ', ')})"
            inside.make(
                "python3",
                f'[ "$1" != -V ] || {{ echo "Python {name}"; exit; }}; exec {sys.executable} -c "{pretend}; $2"',
            )
        else:
            inside.make(name)
    # /usr/sbin and the like would be this machine's own
    run = f"""shift 10; text=$(printf '%s' "$1" | sed 's#^PATH=.*#PATH={inside.folder}#'); shift
exec /bin/sh -c "$text" "$@" """
    fakes.make("docker", f"case $1 in info) echo / ;; run) {run} ;; esac")
    done = fakes.run("look.sh", "pull.sh", "t:1", "", "1", mpirun, "", "", "", names=2)
    assert done.stderr.partition(";")[0].strip() == (f"error: t:1 lacks {lacks}" if lacks else "")
    assert done.returncode == (1 if lacks else 0)


@pytest.mark.parametrize(
    ("identity", "load", "says"),
    [
        ("sha256:1", "true", ""),
        ("sha256:3", "true", "error: t:1 was loaded, and is sha256:3 here instead of sha256:1 sha256:2\n"),
        ("sha256:1", "echo 'open /x: no space left on device' >&2; exit 1", "error: docker load: open /x: no space left on device\n"),
        ("sha256:1", "", "error: the stream of t:1 is not here: was docker started anew? set it up again\n"),
    ],
)  # fmt: skip
def test_a_stream_is_loaded_compared_and_gone(fakes: Fakes, identity: str, load: str, says: str) -> None:
    root = fakes.folder.parent / "root"
    (root / "tmp").mkdir(parents=True)
    if load:
        (root / "tmp" / "taco-launch-image.tar").write_bytes(b"x")
    fakes.make("docker", f"case $1 in info) echo {root} ;; load) {load or 'true'} ;; image) echo {identity} ;; esac")
    done = fakes.run("look.sh", "load.sh", "t:1", "mpirun", "sha256:1", "sha256:2", names=2)
    assert (done.returncode, done.stderr) == (bool(says), says)
    assert list((root / "tmp").iterdir()) == []
    if not says:
        stream = root / "tmp" / "taco-launch-image.tar"
        assert verbs(fakes)[1:3] == [f"load -q -i {stream}", "image inspect --format {{.Id}} t:1"]
        assert verbs(fakes)[3].startswith("run --rm --user 0 --network none --entrypoint /bin/sh t:1 -c")
