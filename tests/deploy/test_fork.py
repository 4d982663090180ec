"""A process forked after threads were used runs on alone, and ends."""

import os
import signal
import time

import pytest
import torch

from sparsepath.deploy.running.kernels import Conv, available
from sparsepath.deploy.running.program import Program

pytestmark = [
    pytest.mark.skipif(not available(), reason="built without a C++ compiler"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]
PATIENCE = 20.0


def convolution():
    program = Program(threads=3)
    maps = program.enter(program.input((3, 32, 32)))
    conv = program.conv(maps, Conv(torch.randn(8, 3, 3, 3), padding=(1, 1)))
    program.output(program.leave(conv))
    return program


def forked(work):
    """Whether a forked process does its work, in a time in which it could do it many times."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def test_a_forked_process_gives_the_same_numbers():
    program, images = convolution(), torch.randn(16, 3, 32, 32)
    wanted = program.run([images])[0]

    def same():
        return all(torch.equal(program.run([images])[0], wanted) for _ in range(20))

    assert forked(same)
    assert same()


@pytest.mark.parametrize("asleep", [False, True])
def test_a_forked_process_can_let_go_of_what_it_has(asleep):
    programs = [convolution()]
    programs[0].run([torch.randn(16, 3, 32, 32)])
    if asleep:
        time.sleep(0.2)

    def let_go():
        programs.clear()
        return True

    assert forked(let_go)
    programs.clear()


def test_threads_that_a_forked_process_starts_itself_work():
    convolution().run([torch.randn(1, 3, 32, 32)])

    def anew():
        program, images = convolution(), torch.randn(16, 3, 32, 32)
        return torch.equal(program.run([images])[0], program.run([images])[0])

    assert forked(anew)
