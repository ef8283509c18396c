"""Jobs for the tests of executors, in a module that loads at once: a worker imports what its jobs are made of."""

import os
import signal
import time


class Untravelled(Exception):
    """Cannot be made again from its message, as many exceptions of libraries cannot."""

    def __init__(self, code, text):
        super().__init__(f"{text} ({code})")


def work(job, tell):
    """A bit of everything a job may do."""
    tell(f"at {job}")
    if job == "threads":
        return os.environ["OMP_NUM_THREADS"]
    if job == "two":
        raise ValueError("two is not allowed")
    if job == "untravelled":
        raise Untravelled(7, "lost on the way")
    if job == "unsendable":
        return lambda: None
    return job, os.getpid()


def die_once(marker, tell):
    """Be killed as if for want of memory, unless that has happened."""
    tell(os.getpid())
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def sleep(file, tell):
    """Sleep until asked to stop, and leave a file behind then."""
    try:
        tell(os.getpid())
        time.sleep(600)
    except KeyboardInterrupt:
        file.touch()
        raise


def sleep_and_save(file, tell):
    """Sleep until asked to stop, and take a while to save then: being asked twice would cut it short."""
    try:
        tell(os.getpid())
        time.sleep(600)
    except KeyboardInterrupt:
        file.write_text("half")
        time.sleep(0.5)
        file.write_text("saved")
        raise


def sleep_deeply(job, tell):
    """Sleep whatever is asked."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell(os.getpid())
    time.sleep(600)
