"""What a Python program may write into a JobRequest, and what it is told where it may not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taco_launch.core.errors import Fault, SpecError, TacoLaunchError, UsageError
from taco_launch.core.model.job_request import JobRequest
from taco_launch.core.model.jobs import Restart
from taco_launch.hosts.inventory.durations import SIGNALS, parse_early_signal
from taco_launch.jobs.request.python_values import coerce_fields, errors_with_fields, in_fields


def request(**values: Any) -> JobRequest:
    return JobRequest(**values)


def test_dicts_and_lists_become_what_a_job_file_gives() -> None:
    found = coerce_fields(
        request(command=["true"], env={"FOO": "bar", "HOME": None}, knobs=[["NCCL_DEBUG", "INFO"]], timeout=5)
    )
    assert found == JobRequest(
        command=("true",), env=(("FOO", "bar"), ("HOME", None)), knobs=(("NCCL_DEBUG", "INFO"),), timeout=5
    )


def test_numbers_become_texts_where_variables_are_meant() -> None:
    found = coerce_fields(
        request(command=["true"], env={"N": 1}, knobs={"NCCL_MIN_NCHANNELS": 8}, mca={"a": 1.5}, hosts=[1, 2])
    )
    assert (found.env, found.knobs, found.mca) == ((("N", "1"),), (("NCCL_MIN_NCHANNELS", "8"),), (("a", "1.5"),))
    assert found.hosts == (1, 2)


def test_a_request_with_the_right_types_is_taken_as_it_is() -> None:
    whole = JobRequest(command=("true",), hosts=(1, 2), restart=Restart.NEVER, written={"np": "--np"}, gdr=True)
    assert coerce_fields(whole) is whole


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"command": "python3 ddp.py"}, "command: 'python3 ddp.py': must be a list of strings", "split it into words: shlex.split(...)"),
        ({"np": "4"}, "np: '4': must be a whole number", None),
        ({"np": True}, "np: True: must be a whole number", None),
        ({"hosts": (1, 2, 3)}, "hosts: (1, 2, 3): must be a whole number or a pair (a whole number, a whole number)", None),
        ({"env": ["FOO=bar"]}, "env: ['FOO=bar']: must be a dict of strings or numbers, or a list of pairs", None),
        ({"env": {"FOO": True}}, "env: {'FOO': True}: must be a dict of strings or numbers, or a list of pairs", None),
        ({"timeout": "5s"}, "timeout: '5s': must be a number", "give a number of seconds, such as 12 * 3600 for 12 hours"),
        ({"mps": 1}, "mps: 1: must be True or False", None),
        ({"name": 3}, "name: 3: must be text", None),
        ({"np": 0}, "np: 0: must be from 1 to 1000000", None),
        ({"hosts": (0, 2)}, "hosts: (0, 2): must be from 1 to", None),
        ({"timeout": -3}, "timeout: -3: must be from 0.001 to", None),
        ({"priority": 10**12}, "priority: 1000000000000: must be from -1000000000 to", None),
        ({"launcher": "slurm"}, "launcher: 'slurm': must be one of mpirun, ", None),
        ({"transport": "foo"}, "transport: 'foo': must be one of auto, tcp, rdma", None),
        ({"restart": "Never"}, "restart: 'Never': must be Restart.", None),
    ],
)  # fmt: skip
def test_a_wrong_type_names_its_field(values: dict[str, Any], message: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        coerce_fields(request(**values))
    assert caught.value.message.startswith(f"JobRequest.{message}")
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ("request at most --np 2, or -H localhost:9", "request at most np=2, or host='localhost:9'"),
        ("--knob: 'X': no such knob", "knobs: 'X': no such knob"),
        ("such as --knob NCCL_ALGO=Ring)", "such as knobs={'NCCL_ALGO': 'Ring'})"),
        ("add --launcher env --per-host, or --no-gdr", "add launcher='env' per_host=True, or gdr=False"),
        ("to start in a folder: --workdir FOLDER", "to start in a folder: workdir=FOLDER"),
        ("--np and --hosts both count", "np and hosts both count"),
        ("--np 2, or: taco-launch -i FILE run --np 2", "np=2, or: taco-launch -i FILE run --np 2"),
        ("x--np, --nosuch, --no-such, see --np-x", "x--np, --nosuch, --no-such, see --np-x"),
    ],
)
def test_options_are_written_as_fields(options: str, written: str) -> None:
    assert in_fields(options) == written
    with pytest.raises(TacoLaunchError) as caught, errors_with_fields():
        raise TacoLaunchError(options, options)
    assert (str(caught.value), caught.value.message, caught.value.hint) == (written,) * 3


def test_faults_name_fields_unless_they_are_of_a_file() -> None:
    fault = Fault("-x", "'A'", "is not set here", "-x A=VALUE gives it a value")
    with pytest.raises(SpecError) as caught, errors_with_fields():
        raise SpecError("command line", (fault,))
    line = "env: 'A': is not set here (env={'A': 'VALUE'} gives it a value)"
    assert str(caught.value) == f"JobRequest: 1 error\n  {line}"
    assert [str(each) for each in caught.value.faults] == [line]
    with pytest.raises(SpecError) as caught, errors_with_fields():
        raise SpecError("hosts.yaml", (fault,))
    assert caught.value.faults == (fault,)
    with pytest.raises(SpecError, match=r"^env_files: file not found: job\.env$"), errors_with_fields():
        raise SpecError("job.env", (), short="--env-file: file not found: job.env")


# --- USR1@120 and the like


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("USR1", ("USR1", 60.0)),
        ("SIGUSR2@120", ("USR2", 120.0)),
        ("usr1@2m", ("USR1", 120.0)),
        ("TERM@0.5", ("TERM", 0.5)),
        ("HUP@1h", ("HUP", 3600.0)),
    ],
)
def test_what_is_one(text: str, found: tuple[str, float]) -> None:
    assert parse_early_signal(text) == found


@pytest.mark.parametrize(
    "text", ["", "KILL", "STOP@5", "10@60", "USR1@", "USR1@x", "USR1@-5", "USR1@0", "@60", "USR1@@6"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be"):
        parse_early_signal(text)


@given(st.text(max_size=20))
def test_any_text(text: str) -> None:
    try:
        found = parse_early_signal(text)
    except ValueError:
        return
    assert found.name in SIGNALS
    assert found.seconds > 0
