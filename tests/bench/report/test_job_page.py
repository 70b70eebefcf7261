"""The page of a job: whatever its texts hold, and whichever of its parts are missing."""

import pytest

pytest.importorskip("matplotlib")

from taco_launch.bench.report import job_page
from taco_launch.bench.report.job_report import JobReport, as_json, markdown
from taco_launch.core.model.job_view import Usage
from taco_launch.jobs.progress_curve import Point

HOSTILE = "</pre><script>alert(1)</script>"
JOB = JobReport(
    name="vgg16",
    state="FAILED",
    facts=(("REASON", f"rank 1 exited with code 1 {HOSTILE}"),),
    spent={"trained": 90.0, "until the first step": 10.0, "hung": 0.0},
    blocks=(f"LAST LINES OF RANK 1\n  {HOSTILE}",),
    hosts=(("gpu1", "0-7", "0, 1"), ("gpu2", "8-15", "0, 1")),
    events=(("2026-11-30 01:00:00 +0000", "ended", "rank 1 | exited"),),
    points=tuple(Point(1e9 + at, float(at), 4.0 / (at + 1), 30.0, "img/s") for at in range(3)),
    usage=tuple(Usage(1e9 + at, 10.0, cpu=0.5, job_cpus=1.5, gpu=0.9, received=1e6) for at in range(3)),
    about=(("LINE", "mpirun -np 16 python3 train.py"),),
)


@pytest.mark.parametrize(("language", "heading"), [("en", "Where the time went"), ("zh", "时间花在哪里")])
def test_a_page_needs_nothing_else_and_runs_nothing(language: str, heading: str) -> None:
    text = job_page.html(JOB, language)
    assert text.index("rank 1 exited") < text.index(heading) < text.index("<svg") < text.index("8-15")
    assert "<script" not in text
    assert not [word for word in ("src=", "@import", 'href="http', "url(http") if word in text]
    for title in ("loss", "img/s", "hosts, %", "network of the hosts, MB/s", "CPUs that the job uses on a host"):
        assert f">{title}</text>" in text
    assert "hung" not in text, "a part of the time that there was none of"


def test_a_job_that_never_started_has_a_page() -> None:
    bare = JobReport("j", "QUEUED", (), {}, (), (), (), (Point(1.0, 1.0, None, None, ""),), (), ())
    assert "<svg" not in job_page.html(bare, "en")
    assert "## Events" in markdown(bare, "en")


def test_markdown() -> None:
    text = markdown(JOB, "en")
    assert "| gpu2 | 8-15 | 0, 1 |" in text
    assert "rank 1 \\| exited" in text
    assert "- trained: 90 s" in text


def test_in_json_each_value_has_a_name() -> None:
    values = as_json(JOB)
    assert values["facts"] == [{"label": "REASON", "value": f"rank 1 exited with code 1 {HOSTILE}"}]
    assert values["about"] == [{"label": "LINE", "value": "mpirun -np 16 python3 train.py"}]
    assert values["hosts"][1] == {"host": "gpu2", "ranks": "8-15", "slots": "0, 1"}
    assert values["events"] == [{"time": "2026-11-30 01:00:00 +0000", "kind": "ended", "reason": "rank 1 | exited"}]
    assert values["points"][0] == {"time": 1e9, "step": 0.0, "loss": 4.0, "rate": 30.0, "unit": "img/s"}
    assert values["usage"][0]["gpu"] == 0.9
    assert values["spent"]["trained"] == 90.0
