"""Pieces of inference side by side: order, bounds, errors, and what torch is left with."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from escounts.nn import device as cores_module
from escounts.nn.device import AHEAD, InferencePool

CPU = torch.device("cpu")


@pytest.fixture
def two_cores() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_cores")
def test_two_pieces_run_at_the_same_time_on_a_core_each_and_without_gradients() -> None:
    meeting = threading.Barrier(2, timeout=60)

    def piece() -> tuple[int, bool]:
        meeting.wait()
        return torch.get_num_threads(), torch.is_inference_mode_enabled()

    with InferencePool(CPU) as cores:
        pieces = [cores.submit(piece) for _ in range(4)]
    assert [future.result() for future in pieces] == [(1, True)] * 4


@pytest.mark.usefixtures("two_cores")
def test_torch_has_its_cores_back_here_and_in_later_threads() -> None:
    with InferencePool(CPU) as cores:
        cores.submit(int).result()
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as other:
            assert other.submit(torch.get_num_threads).result() == 2


@pytest.mark.usefixtures("two_cores")
def test_many_cores_share_few_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores_module, "MOST", 1)
    with InferencePool(CPU) as cores:
        assert cores.submit(torch.get_num_threads).result() == 2


def test_a_piece_may_wait_for_an_earlier_one() -> None:
    with InferencePool(CPU) as cores:
        first = cores.submit(lambda: torch.ones(3))
        assert cores.submit(lambda: first.result().sum()).result() == 3


def test_who_submits_faster_than_it_is_done_has_to_wait() -> None:
    begun: list[int] = []
    gate = threading.Event()

    def piece(index: int) -> int:
        begun.append(index)
        gate.wait(10)
        return index

    held: list[Future[int]] = []
    with InferencePool(CPU) as cores:

        def submit_all() -> None:
            held.extend(cores.submit(piece, index) for index in range(20))

        reader = threading.Thread(target=submit_all)
        reader.start()
        time.sleep(0.2)
        assert reader.is_alive() and len(begun) == torch.get_num_threads()
        gate.set()
        reader.join(10)
    assert [future.result() for future in held] == list(range(20))


@pytest.mark.usefixtures("two_cores")
def test_threads_that_start_at_once_do_not_take_cores_from_one_another() -> None:
    """A thread's first use of torch takes over the number for threads to come: starting changes it for a moment."""
    for _ in range(20):
        seen: list[int] = []

        def use() -> None:
            with InferencePool(CPU) as cores:
                cores.submit(int).result()
                seen.append(torch.get_num_threads())  # noqa: B023

        users = [threading.Thread(target=use) for _ in range(4)]
        for user in users:
            user.start()
        for user in users:
            user.join(10)
        assert seen == [2] * 4


@pytest.mark.usefixtures("two_cores")
def test_where_no_thread_can_be_started_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def first_only(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", first_only)
    with pytest.raises(RuntimeError, match="new thread"), InferencePool(CPU):
        pass
    started[0].join(10)
    assert not started[0].is_alive() and torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_cores")
def test_ctrl_c_while_threads_start_is_one_interrupt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The threads that had begun printed a traceback each."""

    class Interrupted(threading.Barrier):
        def wait(self, timeout: float | None = None) -> int:
            if threading.current_thread() is threading.main_thread():
                while self.n_waiting == 0:
                    time.sleep(0.01)
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(threading, "Barrier", Interrupted)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt), InferencePool(CPU):
        pass
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert caplog.messages == []


def test_an_error_reaches_who_submits() -> None:
    def piece(index: int) -> None:
        if index == 0:
            raise InterruptedError

    with pytest.raises(InterruptedError), InferencePool(CPU) as cores:
        for index in range(50):
            cores.submit(piece, index)


def test_what_has_not_begun_when_something_goes_wrong_never_does() -> None:
    gate, later = threading.Event(), []
    with pytest.raises(InterruptedError), InferencePool(CPU) as cores:
        for _ in range(torch.get_num_threads()):
            cores.submit(gate.wait, 10)
        later = [cores.submit(int) for _ in range(AHEAD)]
        threading.Timer(0.1, gate.set).start()
        raise InterruptedError
    assert all(future.cancelled() for future in later)
