"""Of many phrases only those that may stand in a text are searched: none that does is left out, and few others are in."""

import pytest

from taco_launch.core.signatures.phrases import Phrases, vocabulary
from taco_launch.core.signatures.table import TABLE

KEYS = sorted({key for entry in TABLE for key in entry.keys})
PHRASES = Phrases(KEYS)


@pytest.mark.parametrize("dress", ["{}", "x{}x", "7{}7", "gpu1/0 | {}\n", "\u3000{}\x85", "\u2588{}\r", "a\n{}\tb"])
def test_what_stands_in_a_text_is_possible(dress: str) -> None:
    assert [key for key in KEYS if key not in PHRASES.possible(vocabulary(dress.format(key)))] == []
    assert PHRASES.possible(vocabulary("\n".join(map(dress.format, KEYS)))) == set(KEYS)


def test_hardly_any_phrase_is_possible_in_a_log_of_numbers() -> None:
    log = "".join(
        f"gpu1/{step % 8} | step {step} loss 0.{step} lr 1e-4 {step * 7.5} samples/s\n" for step in range(999)
    )
    assert len(vocabulary(log)) < 100
    assert len(PHRASES.possible(vocabulary(log))) < len(KEYS) / 50


def test_a_phrase_without_a_word_is_always_possible() -> None:
    assert Phrases(["1 2", "one two"]).possible(vocabulary("three")) == {"1 2"}
