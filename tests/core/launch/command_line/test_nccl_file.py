"""When NCCL writes its messages into a file beside the rank's log: only if the user sets nothing about them."""

import pytest

from taco_launch.core.launch.command_line.env import has_nccl_file
from taco_launch.core.model.jobs import JobSpec
from taco_launch.core.model.plans import LaunchPlan, Token
from tests.support.planned import FAR, plan, told


@pytest.mark.parametrize(
    ("tokens", "env", "expected"),
    [
        ((("NCCL_DEBUG=WARN", "default"),), (), True),
        ((("NCCL_DEBUG=WARN", "default"),), (("NCCL_IB_DISABLE", "1"),), True),
        ((), (), False),
        ((("NCCL_DEBUG=WARN", "user"),), (), False),
        ((("NCCL_DEBUG=INFO", "profile"),), (), False),
        ((("NCCL_DEBUG=WARN", "default"), ("NCCL_DEBUG_SUBSYS=NET", "user")), (), False),
        ((("NCCL_DEBUG=WARN", "default"), ("NCCL_DEBUG_FILE", "user")), (), False),
        ((("NCCL_DEBUG=WARN", "default"),), (("NCCL_DEBUG", "INFO"),), False),
        ((("NCCL_DEBUG=WARN", "default"),), (("NCCL_DEBUG_FILE", None),), False),
    ],
)
def test_who_decides(
    tokens: tuple[tuple[str, str], ...], env: tuple[tuple[str, str | None], ...], expected: bool
) -> None:
    launch = LaunchPlan(tuple(Token(text, source, "") for text, source in tokens), ())
    assert has_nccl_file(JobSpec("j", ("true",), FAR, env=env), launch) is expected


def test_a_planned_line_leaves_it_to_us() -> None:
    launch = plan(told(nccl="2.21.5"), hosts=FAR, np=16, head="gpu1")
    assert has_nccl_file(JobSpec("j", ("true",), FAR), launch)
