"""Tests that output of scripts is sent in pieces, between which the host can do other work."""

import signal
from collections.abc import Iterator
from threading import Event, Thread
from time import monotonic

import pytest

from delf.protocols.sandbox import Limits
from delf_sandbox.guest.channel import WireLock
from delf_sandbox.guest.limits import LimitReachedError, PrintLimits
from delf_sandbox.guest.output import Printer
from delf_sandbox.wire import limits_by_name

PIECE = 64 * 1024


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def lock() -> WireLock:
    return WireLock()


@pytest.fixture
def printer(sent: list[str], lock: WireLock) -> Printer:
    made = Printer(lambda text, _at_once: sent.append(text), lock)
    made.limits = PrintLimits(limits_by_name(Limits()))
    made.start()
    return made


@pytest.fixture
def alarmed(printer: Printer) -> Iterator[Printer]:
    former = signal.getsignal(signal.SIGALRM)
    printer.use_alarm()
    yield printer
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, former)


def test_short_output_is_buffered_until_passed_on(printer, sent):
    print("a", "b", file=printer)
    assert sent == []
    printer.queue_buffered_text()
    assert sent == ["a b\n"]


def test_flushed_lines_are_sent_in_batches(printer, sent):
    for number in range(10_000):
        print(number, file=printer, flush=True)
    printer.queue_buffered_text()
    assert "".join(sent) == "".join(f"{number}\n" for number in range(10_000))
    assert len(sent) < 1_000


def test_long_output_is_split_into_pieces(printer, sent):
    text = "0123456789" * 100_000
    print(text, end="", file=printer)
    assert "".join(sent) == text
    assert max(map(len, sent)) == PIECE


def test_printer_raises_over_the_output_limit(printer, sent):
    printer.limits = PrintLimits(limits_by_name(Limits(output_bytes=10)))
    printer.write("12345")
    with pytest.raises(LimitReachedError, match="more than 10 characters"):
        printer.write("678901")
    assert sent == ["12345"]


def test_print_limit_restarts_with_each_script(printer, sent):
    printer.limits = PrintLimits(limits_by_name(Limits(output_bytes=10)))
    for _ in range(3):
        printer.start()
        printer.write("1234567890")
    printer.queue_buffered_text()
    assert "".join(sent) == "1234567890" * 3


def test_alarm_sends_pending_output(alarmed, sent):
    print("a", file=alarmed)
    until = monotonic() + 20
    while not sent and monotonic() < until:
        pass
    assert sent == ["a\n"]


def test_alarm_sends_nothing_during_a_frame(alarmed, sent, lock):
    with lock:
        alarmed.write("a")
        signal.raise_signal(signal.SIGALRM)
        with lock:
            signal.raise_signal(signal.SIGALRM)
        signal.raise_signal(signal.SIGALRM)
        assert sent == []
    signal.raise_signal(signal.SIGALRM)
    assert sent == ["a"]


def test_alarm_sends_nothing_while_a_thread_sends(alarmed, sent, lock):
    has_it, may_go = Event(), Event()

    def hold() -> None:
        with lock:
            has_it.set()
            may_go.wait(50)

    thread = Thread(target=hold)
    thread.start()
    has_it.wait(50)
    alarmed.write("a")
    signal.raise_signal(signal.SIGALRM)
    assert sent == []
    may_go.set()
    thread.join()
    signal.raise_signal(signal.SIGALRM)
    assert sent == ["a"]


def test_alarm_set_by_the_script_is_left_alone(alarmed, sent):
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 1000)
    print("a", file=alarmed)
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 900
    assert sent == []
