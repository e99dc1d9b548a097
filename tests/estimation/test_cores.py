"""Pieces of inference side by side: order, bounds, errors, and what torch is left with."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from escounts.estimation import cores as cores_module
from escounts.estimation.cores import AHEAD, Cores

CPU = torch.device("cpu")


@pytest.fixture
def two_cores() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_cores")
def test_two_pieces_run_at_the_same_time_on_a_core_each_and_without_gradients() -> None:
    meeting = threading.Barrier(2, timeout=10)

    def piece() -> tuple[int, bool]:
        meeting.wait()
        return torch.get_num_threads(), torch.is_inference_mode_enabled()

    with Cores(CPU) as cores:
        pieces = [cores.submit(piece) for _ in range(4)]
    assert [future.result() for future in pieces] == [(1, True)] * 4


@pytest.mark.usefixtures("two_cores")
def test_torch_has_its_cores_back_here_and_in_later_threads() -> None:
    with Cores(CPU) as cores:
        cores.submit(int).result()
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as other:
            assert other.submit(torch.get_num_threads).result() == 2


@pytest.mark.usefixtures("two_cores")
def test_many_cores_share_few_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores_module, "MOST", 1)
    with Cores(CPU) as cores:
        assert cores.submit(torch.get_num_threads).result() == 2


def test_a_piece_may_wait_for_an_earlier_one() -> None:
    with Cores(CPU) as cores:
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
    with Cores(CPU) as cores:

        def submit_all() -> None:
            held.extend(cores.submit(piece, index) for index in range(20))

        reader = threading.Thread(target=submit_all)
        reader.start()
        time.sleep(0.2)
        assert reader.is_alive() and len(begun) == torch.get_num_threads()
        gate.set()
        reader.join(10)
    assert [future.result() for future in held] == list(range(20))


def test_an_error_reaches_who_submits_and_ends_what_has_not_begun() -> None:
    done: list[int] = []

    def piece(index: int) -> None:
        if index == 0:
            raise InterruptedError
        time.sleep(0.01)
        done.append(index)

    with pytest.raises(InterruptedError), Cores(CPU) as cores:
        for index in range(50):
            cores.submit(piece, index)
    assert len(done) <= torch.get_num_threads() * (1 + AHEAD)
