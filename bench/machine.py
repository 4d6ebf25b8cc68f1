"""What it runs on, and how much memory processes take."""

import os
import pathlib
import platform
import subprocess
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")


def peak_memory_bytes(pid="self"):
    """The most memory that a process has had so far; 0 where it is gone."""
    return _status(pid, "VmHWM")


def memory_bytes(pid):
    return _status(pid, "VmRSS")


def _status(pid, field):
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def children(pid):
    """The processes that a process has started and that are still there."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def cpu_seconds(pids):
    """The time that these processes, and those of their children that have ended, have had a CPU."""
    total = 0.0
    for pid in pids:
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += sum(map(int, fields[11:15])) / TICKS
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total


class MemoryWatch:
    """The most memory of a process and of its children, each at its own peak, looked at every 5 ms, which takes processor time."""

    def __init__(self, pid):
        self.pid = pid
        self.peaks = {}
        self._ended = threading.Event()

    def __enter__(self):
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _look(self):
        while not self._ended.wait(0.005):
            for pid in [self.pid, *children(self.pid)]:
                self.peaks[pid] = max(self.peaks.get(pid, 0), peak_memory_bytes(pid))

    @property
    def bytes(self):
        """The process and the largest of its children, of which one works at a time."""
        own = self.peaks.get(self.pid, 0)
        return own + max((peak for pid, peak in self.peaks.items() if pid != self.pid), default=0)


def output(*command):
    """What a command says, or nothing where it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
    except OSError:
        return ""


def described():
    """The machine, as lines of name and text."""
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    model = next((line.split(":")[1].strip() for line in cpuinfo.splitlines() if line.startswith("model name")), "unknown")
    total = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) // 1024
    return {
        "cpu": f"{model}, {os.cpu_count()} cores",
        "memory": f"{total} MiB",
        "system": f"{platform.system()} {platform.release()}",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def commit(root):
    """The commit of the sources beside this script, and whether they are changed."""
    head = output("git", "-C", str(root), "rev-parse", "--short=10", "HEAD")
    changed = output("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    return f"{head}, with changes" if changed else head or "unknown"
