"""A private Postgres cluster that writes to its disk, and pgbench."""

import glob
import os
import pathlib
import pwd
import re
import shutil
import socket
import subprocess
import tempfile

from machine import children


class NoPostgres(Exception):
    pass


def programs():
    """The folder of the newest server that has pgbench."""
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: float(path.split("/")[4]), reverse=True)
    folders += [os.path.dirname(os.path.realpath(found)) for found in [shutil.which("initdb")] if found]
    for folder in folders:
        if all(os.access(f"{folder}/{name}", os.X_OK) for name in ("initdb", "pg_ctl", "postgres", "psql", "pgbench")):
            return folder
    raise NoPostgres("there is no Postgres server with pgbench here; install one (Debian: apt-get install postgresql)")


class Cluster:
    """With Postgres's own settings, so that what it has accepted is on the disk."""

    def __enter__(self):
        self.bin = programs()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="refrain-bench-postgres-"))
        self.data = self.folder / "cluster"
        # Postgres refuses to run as root.
        self.user = []
        if os.getuid() == 0:
            user = next((u for u in ("postgres", "nobody") if u in {entry.pw_name for entry in pwd.getpwall()}))
            shutil.chown(self.folder, user)
            self.user = ["runuser", "-u", user, "--"]
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = f"-p {self.port} -h 127.0.0.1 -k {self.folder} -c max_connections=100"
        self._run("pg_ctl", "-D", self.data, "-w", "-t", "60", "-l", self.folder / "log", "-o", options, "start")
        self.pid = int((self.data / "postmaster.pid").read_text().split()[0])
        return self

    def __exit__(self, *_):
        self._run("pg_ctl", "-D", self.data, "-m", "immediate", "-t", "30", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program, *arguments):
        command = [*self.user, f"{self.bin}/{program}", *map(str, arguments)]
        ran = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if ran.returncode != 0:
            raise RuntimeError(f"{program} failed: {ran.stderr[-1000:]}")

    @property
    def url(self):
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def processes(self):
        return [self.pid, *children(self.pid)]

    def sql(self, statements):
        """Runs them and gives what they say, a line for each row."""
        command = [f"{self.bin}/psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", self.url]
        ran = subprocess.run(command, input=statements, capture_output=True, text=True)
        if ran.returncode != 0:
            raise RuntimeError(f"psql failed: {ran.stderr[-1000:]}")
        return ran.stdout.strip()

    def pgbench(self, script, seconds, clients):
        """The transactions of a script in a second, from prepared statements, once all clients are connected."""
        file = self.folder / "script.sql"
        file.write_text(script)
        command = [f"{self.bin}/pgbench", "-n", "-M", "prepared", "-c", str(clients), "-j", "1", "-T", str(seconds), "-f", file, self.url]
        ran = subprocess.run(command, capture_output=True, text=True)
        done = re.search(r"tps = ([\d.]+) \(without initial connection time\)", ran.stdout)
        if ran.returncode != 0 or not done:
            raise RuntimeError(f"pgbench failed: {ran.stdout[-500:]} {ran.stderr[-1000:]}")
        return float(done[1])
