"""Work in processes of its own, forked from one that has imported what is slow to import."""

import gc
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

# There is one such process for all tests, so it has imported nothing of ours.
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["torch", "torch._dynamo", "hypothesis"])

BROKEN = 91  # no code that pytest ends with


def forked(work: Callable[..., int], *arguments: object, log: Path) -> tuple[int, str]:
    """The exit code that some work gives, or BROKEN for an exception, and all that it prints."""
    process = begun(work, *arguments, log=log)
    process.join()
    assert process.exitcode is not None
    return process.exitcode, log.read_text()


def begun(work: Callable[..., int], *arguments: object, log: Path) -> BaseProcess:
    """A process that does some work, and writes all that it prints to a file."""
    process = FORK.Process(target=_work, args=(work, arguments, log))
    process.start()
    return process


def _work(work: Callable[..., int], arguments: tuple[object, ...], log: Path) -> None:
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    code = BROKEN
    gc.freeze()  # what was imported before the fork is no garbage, and need not be looked through
    try:
        code = work(*arguments)
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
