"""Which secrets are masked in what leaves the cluster, and what stays as it is."""

import json
import re
import time
from pathlib import Path

import pytest

from taco_launch.core.launch.masking import Masker, is_secret
from taco_launch.core.model.host.hosts import Host
from taco_launch.core.model.jobs import JobSpec, Policy

SECRET = "q'w\"é rty"
SPEC = JobSpec(
    "j",
    ("python3", "train.py", "--api-key", "of-the-option", "--db-password=of-the-word", "--tokenizer", "gpt2-large"),
    (Host("n1", "10.0.0.1"),),
    env=(("MY_TOKEN", SECRET), ("WANDB_API_KEY", None), ("PLAIN", "plain-value"), ("SHORT_KEY", "abc")),
)
# Beginnings of what is looked for.
HARD = (
    *(
        "-eyJaaaaaaa",
        "eyJaaaaaa.",
        "?aaaaaaaa",
        "&a_",
        "pass=",
        "_pass",
        '"pass": "',
        "curl -u ",
        "curl -u a:",
        "docker login ",
        "curl -sssss",
        "mysql ",
        "mysql -p",
        "ldapsearch -w ",
        "wandb login ",
        "machine a login b ",
        "echo ",
        "echo a | sudo ",
        "https://1",
    ),
    *("Authorization: ", "cookie:", "basic ", "://a:", "://a@", "--a-", "--auth ", "a.", "xPass", "/bot/v2/hook/"),
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
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nMII\n=abc\n-----END PGP PRIVATE KEY BLOCK-----\nx",
            "-----BEGIN PGP PRIVATE KEY BLOCK----- *** -----END PGP PRIVATE KEY BLOCK-----\nx",
        ),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nMII\nabc", "-----BEGIN OPENSSH PRIVATE KEY----- *** "),
        ("machine h\n  login alice\n  password zzz\nx", "machine h\n  login alice\n  password ***\nx"),
        ("tokens: 55 tokens/s=3 token_count=1024 key: value", "tokens: 55 tokens/s=3 token_count=1024 key: value"),
        ("abc stands everywhere, SHORT_KEY=abc", "abc stands everywhere, SHORT_KEY=***"),
    ],
)
def test_text(text: str, masked: str) -> None:
    assert MASKER.text(text) == masked


def lines(name: str) -> list[str]:
    """Return the lines of a table beside this file."""
    return Path(__file__).with_name(name).read_text("utf-8").splitlines()


@pytest.mark.parametrize("line", lines("masking_secrets.tsv"))
def test_a_secret_in_a_known_place_or_form(line: str) -> None:
    text, secret = line.split("\t")
    assert secret in text
    masker = Masker(JobSpec("j", ("true",), (Host("n1", "10.0.0.1"),)), {})
    assert secret not in masker.text(text)
    assert secret not in masker.text(json.dumps({"line": text}))
    assert secret not in masker.text(f"a first line\n  {text}\nand a last one")


@pytest.mark.parametrize("text", lines("masking_plain.txt"))
def test_what_is_no_secret(text: str) -> None:
    assert MASKER.text(text) == text


def test_names() -> None:
    secret = "DB_PASS REDIS_AUTH CREDS AUTHORIZATION MY_PWD sig dbPass API_TOKEN --auth KEY MY.KEY jwt SSHPASS --mypass X_PGPASS"
    plain = (
        "PWD OLDPWD AUTHOR PASSTHROUGH KEYBOARD SIGNAL PATH design NCCL_DEBUG SSH_AUTH_SOCK UCX_IB_PKEY --tokens --pwd "
        "BYPASS COMPASS LOWPASS"
    )
    assert [name for name in secret.split() if not is_secret(name)] == []
    assert [name for name in plain.split() if is_secret(name)] == []


@pytest.mark.parametrize(
    "address", ["https://h.example/x", "https://h/notify?to=me", "https://h?id=1", "http://h:1/a/b/cccc1111dddd2222"]
)
def test_what_follows_the_host_of_a_jobs_webhook(address: str) -> None:
    spec = JobSpec("j", ("true",), (Host("n1", "10.0.0.1"),), policy=Policy(notify=address))
    masker = Masker(spec, {})
    host, tail = re.fullmatch(r"(\w+://[^/?]*[/?])(.*)", address).groups()  # type: ignore[union-attr]
    assert masker.data({"notify": address, "options": ["--notify", address]}) == {
        "notify": f"{host}***",
        "options": ["--notify", f"{host}***"],
    }
    assert masker.text(f"--notify {address}; a notify") == f"--notify {host}***; a notify"
    assert len(tail) < 16 or tail not in masker.text(f"POST /{tail}")


@pytest.mark.parametrize(
    ("command", "secrets"),
    [
        (("curl", "-u", "alice:of-curl", "--proxy-user=bob:of-proxy", "https://h/"), ("of-curl", "of-proxy")),
        (("curl", "-su", "alice:of two words", "https://h/"), ("of two words",)),
        (("/usr/bin/curl", "-sualice:of-curl", "https://h/"), ("of-curl",)),
        (("mysqldump", "-uroot", "-pof-mysql", "train"), ("of-mysql",)),
        (("sshpass", "-p", "of-sshpass", "ssh", "h"), ("of-sshpass",)),
        (("sh", "-c", "docker login -u alice -p of-docker reg && ./train"), ("of-docker",)),
    ],
)
def test_the_password_of_a_command_that_is_the_job(command: tuple[str, ...], secrets: tuple[str, ...]) -> None:
    masker = Masker(JobSpec("j", command, (Host("n1", "10.0.0.1"),)), {})
    shown = str(masker.data(list(command))) + masker.text(f"denied: {' '.join(secrets)}")
    assert [each for each in secrets if each in shown] == []


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


@pytest.mark.parametrize(
    "piece", [*("x", "-", "token", "--token", "secret-", "a:", "://", "-----BEGIN PRIVATE KEY-----"), *HARD]
)
def test_a_long_line_takes_no_long_time(piece: str) -> None:
    began = time.process_time()
    MASKER.text(piece * ((1 << 18) // len(piece)))
    assert time.process_time() - began < 5
