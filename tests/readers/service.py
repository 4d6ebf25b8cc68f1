"""A real `refrain serve` on the loopback, over a temporary folder. Standard library only."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid

READY_SECONDS = 60
RUN_SECONDS = 120
STOP_SECONDS = 30


class Service:
    """One service; its sources lie in `sources`, relative paths of pipelines start at `folder`, `flags` are its own,
    `wrapper` is the command before it, which must become it."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="refrain-readers-"))
        self.warehouse = self.folder / "refrain-data" / "warehouse"
        self.sources = self.folder / "sources"
        self.log = self.folder / "server.log"
        self.process = None
        self.flags = []
        self.wrapper = []
        for name in ("pipelines", "sources"):
            (self.folder / name).mkdir()

    def pipeline(self, text):
        """Adds a pipeline file, before the start."""
        name = re.search(r'name = "(\w+)"', text)[1]
        (self.folder / "pipelines" / f"{name}.toml").write_text(text)

    def __enter__(self):
        return self

    def start(self):
        """Starts on a port that the kernel gives, which the log names."""
        serve = [os.environ["REFRAIN_BIN"], "serve", "--listen", "127.0.0.1:0", "--data-dir", "refrain-data"]
        args = [*self.wrapper, *serve, *self.flags]
        env = {k: v for k, v in os.environ.items() if not k.startswith("REFRAIN_")}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(args, cwd=self.folder, env=env, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            text = re.sub(r"\x1b\[[0-9;]*m", "", self.log.read_text(errors="replace"))
            if self.process.poll() is not None:
                raise RuntimeError(f"the service ended at once: {text[-2000:]}")
            address = re.search(r"127\.0\.0\.1:([1-9]\d*)", text)
            if address:
                self.base = f"http://{address[0]}"
                try:
                    if self.call("GET", "/readyz")[0] == 200:
                        return
                except OSError:
                    pass
            time.sleep(0.05)
        raise RuntimeError(f"the service was not ready in {READY_SECONDS} s: {text[-2000:]}")

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if os.environ.get("KEEP"):
            print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, path, body=None, headers=None):
        """The status and the parsed body of one request."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method, headers=headers or {})
        if data is not None:
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read() or b"null")

    def run(self, pipeline, partitions=None):
        """Rebuilds these partitions, or the whole table, and gives the run when it has ended."""
        body = {"pipeline": pipeline, "mode": "full"} if partitions is None else {"pipeline": pipeline, "partitions": partitions}
        status, run = self.call("POST", "/runs", body, {"Idempotency-Key": f"{pipeline}/{uuid.uuid4()}"})
        end = time.monotonic() + RUN_SECONDS
        while status in (200, 202) and run["state"] not in ("succeeded", "failed", "cancelled"):
            if time.monotonic() > end:
                raise RuntimeError(f"{pipeline}: the run did not end in {RUN_SECONDS} s: {run}")
            status, run = self.call("GET", f"/runs/{run['id']}?wait=20")
        if status not in (200, 202):
            raise RuntimeError(f"{pipeline}: {status} {json.dumps(run)[:2000]}")
        return run

    def succeeds(self, pipeline, partitions=None):
        """A run that must succeed."""
        run = self.run(pipeline, partitions)
        if run["state"] != "succeeded":
            raise RuntimeError(f"{pipeline}: {json.dumps(run)[:2000]}")
        return run

    def totals(self, pipeline):
        """What the API says of each partition, and of all."""
        status, listing = self.call("GET", f"/pipelines/{pipeline}/partitions?limit=1000")
        if status != 200:
            raise RuntimeError(f"{pipeline}: {status} {listing}")
        return listing
