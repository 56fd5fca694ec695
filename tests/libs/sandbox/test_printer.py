"""What scripts print leaves in pieces that the host can take between other things."""

from threading import RLock

import pytest

from delf_sandbox.guest.output import LimitReachedError, Printer

PIECE = 64 * 1024


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def printer(sent: list[str]) -> Printer:
    made = Printer(lambda text, _at_once: sent.append(text), RLock())
    made.start()
    return made


def test_the_first_lines_leave_at_once_and_of_many_some_wait(printer, sent):
    for number in range(100):
        print(number, file=printer)
    assert sent[:20] == [f"{number}\n" for number in range(20)]
    assert len(sent) < 100
    printer.pass_on()
    assert "".join(sent) == "".join(f"{number}\n" for number in range(100))


def test_a_part_of_a_line_waits_until_it_is_passed_on(printer, sent):
    print("a", "b", end="", file=printer)
    assert sent == []
    printer.pass_on()
    assert sent == ["a b"]


def test_flushing_every_line_makes_no_piece_of_every_line(printer, sent):
    for number in range(10_000):
        print(number, file=printer, flush=True)
    printer.pass_on()
    assert "".join(sent) == "".join(f"{number}\n" for number in range(10_000))
    assert len(sent) < 1_000


def test_much_is_cut(printer, sent):
    text = "0123456789" * 100_000
    print(text, end="", file=printer)
    assert "".join(sent) == text
    assert max(map(len, sent)) == PIECE


def test_nothing_is_sent_of_what_goes_over_the_limit(printer, sent):
    printer.limit = 10
    printer.write("12345")
    with pytest.raises(LimitReachedError, match="more than 10 characters"):
        printer.write("678901")
    assert sent == ["12345"]


def test_each_script_may_print_as_much(printer, sent):
    printer.limit = 10
    for _ in range(3):
        printer.start()
        printer.write("1234567890")
    printer.pass_on()
    assert "".join(sent) == "1234567890" * 3
