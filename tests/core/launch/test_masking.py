"""Which secrets are masked in what leaves the cluster, and what stays as it is."""

import json
import time

import pytest

from taco_launch.core.launch.masking import Masker
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec

SECRET = "q'w\"é rty"
SPEC = JobSpec(
    "j",
    ("python3", "train.py", "--api-key", "of-the-option", "--db-password=of-the-word", "--tokenizer", "gpt2-large"),
    (Host("n1", "10.0.0.1"),),
    env=(("MY_TOKEN", SECRET), ("WANDB_API_KEY", None), ("PLAIN", "plain-value"), ("SHORT_KEY", "abc")),
)
MASKER = Masker(SPEC, {"WANDB_API_KEY": "of-the-caller", "HOME": "/home/alice"})


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"it is {SECRET}.", "it is ***."),
        ("""-x 'MY_TOKEN=q'"'"'w"é rty'""", """-x 'MY_TOKEN=***'"""),
        ("logged in with of-the-caller", "logged in with ***"),
        ("of-the-option of-the-word gpt2-large plain-value", "*** *** gpt2-large plain-value"),
        ("OTHER_API_KEY=zzz PATH=/bin", "OTHER_API_KEY=*** PATH=/bin"),
        ("{'password': 'zzz', 'user': 'alice'}", "{'password': '***', 'user': 'alice'}"),
        ("train.py --hf-token zzz --epochs 3", "train.py --hf-token *** --epochs 3"),
        ("postgres://alice:zzz@db/1", "postgres://alice:***@db/1"),
        ("Authorization: Bearer abcdefgh.ijk", "Authorization: Bearer ***"),
        ("login hf_abcdefghijklmnopqrst", "login ***"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMII\nabc\n-----END RSA PRIVATE KEY-----\nx",
            "-----BEGIN RSA PRIVATE KEY----- *** -----END RSA PRIVATE KEY-----\nx",
        ),
        ("tokens: 55 tokens/s=3 token_count=1024 key: value", "tokens: 55 tokens/s=3 token_count=1024 key: value"),
        ("abc stands everywhere, SHORT_KEY=abc", "abc stands everywhere, SHORT_KEY=***"),
    ],
)
def test_text(text: str, masked: str) -> None:
    assert MASKER.text(text) == masked


def test_data() -> None:
    told = MASKER.data(
        {
            "env": [["MY_TOKEN", SECRET], ["SHORT_KEY", "abc"], ["PLAIN", "plain-value"]],
            "containers": [{"name": "A_SECRET", "value": "zzz"}, {"name": "A", "value": "zzz"}],
            "command": list(SPEC.command),
            "password": "zzz",
            "np": 2,
        }
    )
    assert told == {
        "env": [["MY_TOKEN", "***"], ["SHORT_KEY", "***"], ["PLAIN", "plain-value"]],
        "containers": [{"name": "A_SECRET", "value": "***"}, {"name": "A", "value": "zzz"}],
        "command": ["python3", "train.py", "--api-key", "***", "--db-password=***", "--tokenizer", "gpt2-large"],
        "password": "***",
        "np": 2,
    }


def test_the_form_that_json_has() -> None:
    assert SECRET not in MASKER.text(json.dumps({"x": SECRET})) + MASKER.text(json.dumps(SECRET, ensure_ascii=False))
    assert "rty" not in MASKER.text(json.dumps({"x": SECRET}))


def test_a_script_in_the_command_is_no_option() -> None:
    script = "echo API_KEY=abcdef; exit 3"
    masker = Masker(JobSpec("j", ("sh", "-c", script), (Host("n1", "10.0.0.1"),)), {})
    assert masker.text(script) == "echo API_KEY=***; exit 3"


@pytest.mark.parametrize("piece", ["x", "-", "token", "--token", "secret-", "a:", "://", "-----BEGIN PRIVATE KEY-----"])
def test_a_long_line_takes_no_long_time(piece: str) -> None:
    began = time.process_time()
    MASKER.text(piece * ((1 << 20) // len(piece)))
    assert time.process_time() - began < 10
