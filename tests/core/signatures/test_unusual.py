"""Lines that stand out in a log without a known failure: those with words of trouble, once each, with their host or rank."""

from taco_launch.core.signatures.log_scan import LogScan


def unusual(*pieces: str) -> list[str]:
    scan = LogScan()
    for piece in pieces:
        scan.feed(piece)
    assert scan.findings() == ()
    return scan.unusual.lines()


def test_the_first_line_of_a_kind_is_shown_with_who_said_it() -> None:
    log = "gpu1/0 | step 1\ngpu2/9 | watchdog: lane 3 is corrupt\ngpu2/8 | watchdog: lane 4 is corrupt\ngpu1/0 | bye\n"
    assert unusual(log) == ["  line 2, gpu2/9: watchdog: lane 3 is corrupt"]


def test_what_is_said_again_and_again_does_not_stand_out() -> None:
    log = "".join(f"step {step} cannot overlap 0x{step:x}\n" for step in range(9))
    assert unusual(log, "link 3 was refused\n", "link 4 was refused\n") == ["  line 10: link 3 was refused"]


def test_no_more_than_three_lines_are_shown_and_none_where_nothing_stands_out() -> None:
    log = "".join(f"unit {name} cannot go on\n" for name in "abcdef")
    assert [line.split(":")[0] for line in unusual(log)] == ["  line 1", "  line 2", "  line 3"]
    assert unusual("all is well\n") == []


def test_a_letter_with_two_small_ones_does_not_move_a_line() -> None:
    assert unusual("\u0130\u0130\u0130\nlane 3 is corrupt\n") == ["  line 2: lane 3 is corrupt"]
