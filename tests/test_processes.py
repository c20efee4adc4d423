"""Threads and processes around the library: forks, pools, callers at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

PREAMBLE = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")
import numpy as np
import zerotail as zt
z = np.random.default_rng(0).normal(0, 1, (800, 2000)).astype(np.float32)
k = np.arange(800) % 7

def work(z=z, k=k):
    p = zt.sparsemax(z)
    return [p, zt.threshold(z), zt.sparsemax_jvp(p, z), *zt.sparsemax_loss_and_grad(z, k)]

def same(a, b):
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b))
"""


def run(script: str, **environment: str) -> str:
    """A fresh interpreter: what hangs there is stopped here."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_fork
@pytest.mark.parametrize("before", [True, False], ids=["used before", "first used by the child"])
def test_a_child_of_fork_can_go_on(before):
    """Threads do not survive a fork: the child must not wait for them, nor its own child, nor the parent."""
    run(
        f"""
zt.set_num_threads(2)
before = work() if {before} else None
child = os.fork()
if child == 0:
    mine = work()
    grandchild = os.fork()
    if grandchild == 0:
        os._exit(0 if same(mine, work()) else 4)
    _, status = os.waitpid(grandchild, 0)
    os._exit(3 if status else 0 if before is None or same(mine, before) else 5)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert before is None or same(before, work())
"""
    )


@needs_fork
def test_a_child_that_was_forked_in_the_middle_of_the_work_can_go_on():
    """Another thread of the parent holds the pool at the moment of the fork, whatever that moment is."""
    run(
        """
zt.set_num_threads(2)
expected, stop = work(), threading.Event()

def busy():
    while not stop.is_set():
        work()

threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        os._exit(0 if same(work(), expected) else 3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
stop.set()
for thread in threads:
    thread.join()
assert same(work(), expected)
"""
    )


@needs_fork
def test_the_workers_of_multiprocessing_get_the_same_results():
    """A data loader that forks after the library was used."""
    run(
        """
import multiprocessing
zt.set_num_threads(2)
expected = work()

def job(i):
    return same(work(), expected)

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert all(pool.map(job, range(4)))
    assert same(work(), expected)
"""
    )


def test_many_threads_may_call_at_once():
    """Different sizes from different threads: a busy pool is not waited for, and no result is mixed up."""
    run(
        """
zt.set_num_threads(2)
parts = [(z[: 800 - 90 * i].copy(), k[: 800 - 90 * i].copy()) for i in range(6)]
expected = [work(*part) for part in parts]
wrong = []

def repeat(i):
    for _ in range(5):
        if not same(work(*parts[i]), expected[i]):
            wrong.append(i)

threads = [threading.Thread(target=repeat, args=(i,)) for i in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(300)
    assert not thread.is_alive()
assert not wrong, wrong
"""
    )


def test_the_number_of_threads_may_change_while_others_work():
    """Results stay what they are."""
    run(
        """
expected, wrong = work(), []

def repeat():
    for _ in range(8):
        wrong.append(not same(work(), expected))

threads = [threading.Thread(target=repeat) for _ in range(3)]
for thread in threads:
    thread.start()
for n in (1, 2, 4, 1, 3, 2) * 5:
    zt.set_num_threads(n)
for thread in threads:
    thread.join(300)
    assert not thread.is_alive()
assert not any(wrong)
"""
    )


def test_a_program_may_end_while_its_threads_idle():
    """No thread of the pool keeps the process alive, or breaks its end."""
    run("zt.set_num_threads(4); work()")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ZEROTAIL_NUM_THREADS": "3", "OMP_NUM_THREADS": "2"}, "3"),
        ({"ZEROTAIL_NUM_THREADS": "", "OMP_NUM_THREADS": "2"}, "2"),
        ({"ZEROTAIL_NUM_THREADS": "", "OMP_NUM_THREADS": "3,2"}, "3"),
        ({"ZEROTAIL_NUM_THREADS": "many", "OMP_NUM_THREADS": "2"}, "2"),
        ({"ZEROTAIL_NUM_THREADS": "0", "OMP_NUM_THREADS": "2"}, "2"),
    ],
)
def test_the_environment_sets_the_number_of_threads(environment, expected):
    """ZEROTAIL_NUM_THREADS, else OMP_NUM_THREADS; what is no number of threads is passed over."""
    assert run("print(zt.get_num_threads())", **environment).strip() == expected


def test_without_a_word_the_threads_are_the_cores():
    """Those that the process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert run("print(zt.get_num_threads())", ZEROTAIL_NUM_THREADS="", OMP_NUM_THREADS="").strip() == str(
        cores
    )


def test_the_environment_chooses_the_cpu_target(zt):
    """ZEROTAIL_TARGET, for tests; every one that the machine has works from the start."""
    from zerotail import _core

    for name in _core.targets():
        script = "from zerotail import _core; print(_core.target(), zt.sparsemax([1, .5, -1]))"
        assert run(script, ZEROTAIL_TARGET=name).strip() == f"{name} [0.75 0.25 0.  ]"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux enforces RLIMIT_AS")
@pytest.mark.parametrize("threads", [1, 2])
def test_without_memory_there_is_an_error_and_then_it_goes_on(threads):
    """In whichever thread: a MemoryError, not the end of the process; with memory again, all is right."""
    script = """
import resource
zt.set_num_threads(%d)
z = np.zeros((4, 8_000_000), np.float32)
z[:, 7] = 1
out = np.empty_like(z)
zt.sparsemax(z[:, :40_000], out=out[:, :40_000])  # starts the threads
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limits = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), limits[1]))
for _ in range(5):
    try:
        zt.sparsemax(z, out=out)
    except MemoryError:
        print("refused")
resource.setrlimit(resource.RLIMIT_AS, limits)
print((zt.sparsemax(z, out=out)[:, 7] == 1).all())
"""
    assert run(script % threads).split() == ["refused"] * 5 + ["True"]


def test_the_interpreter_runs_on_while_a_large_array_is_worked_on(zt):
    """The lock of the interpreter is released above a size where it pays."""
    z = np.random.default_rng(0).normal(0, 0.01, (2_000, 4_000))
    before = zt.get_num_threads()
    zt.set_num_threads(1)
    ticks, done = [0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    # Far longer than the call lasts: the other thread runs in the middle of it only if the lock is free.
    sys.setswitchinterval(100)
    thread = threading.Thread(target=tick)
    out = np.empty_like(z)
    thread.start()
    try:
        seen = ticks[0]
        for _ in range(2000):  # on a busy machine the other thread may have to wait for a core
            zt.sparsemax(z, out=out)
            if ticks[0] > seen:
                break
        assert ticks[0] > seen
    finally:
        done.set()
        sys.setswitchinterval(interval)
        thread.join()
        zt.set_num_threads(before)
