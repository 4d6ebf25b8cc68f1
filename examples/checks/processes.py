"""Programs in process groups of their own, so that all they started ends with them."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

STOP_SECONDS = 30


class Program:
    """A program that runs beside the checks, its output in a file."""

    def __init__(self, command, env, cwd, log):
        with open(log, "ab") as out:
            io = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
            self.process = subprocess.Popen(command, env=env, cwd=cwd, start_new_session=True, **io)

    def end(self):
        """Asks it to end, and kills what is left of its group."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def finished(command, env, cwd, seconds):
    """Runs a program to its end; its exit status and what it printed."""
    log = cwd / "output.log"
    log.unlink(missing_ok=True)
    program = Program(command, env, cwd, log)
    try:
        status = program.process.wait(seconds)
    except subprocess.TimeoutExpired:
        status = f"none in {seconds} s"
    finally:
        program.end()
    return status, log.read_text(errors="replace")


def home_of(tool):
    """A folder for a tool to live in, and the environment of its programs: its virtual environment's, and nobody's settings."""
    home = pathlib.Path(tempfile.mkdtemp(prefix=f"refrain-{tool}-"))
    venv = pathlib.Path(os.environ["REFRAIN_VENVS"] % tool)
    env = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    return home, env


def leave(home):
    """Removes a tool's folder, unless KEEP says that somebody wants to look at it."""
    if os.environ.get("KEEP"):
        print(f"kept: {home}")
    else:
        shutil.rmtree(home, ignore_errors=True)
