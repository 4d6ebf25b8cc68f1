"""What stands between an orchestrator and Refrain: a proxy that passes all on, notes the submissions, and loses an answer
when it is told to. Standard library only."""

import http.client
import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

UPSTREAM_SECONDS = 120
HOLD_SECONDS = 120


@dataclass
class Submission:
    """One POST /runs, and what Refrain answered to it."""

    key: str
    status: int
    replayed: bool
    run: str
    swallowed: bool


class Proxy:
    """Listens on a port that the kernel gives. `upstream` is the host and port of the service, and may be exchanged."""

    def __init__(self):
        self.upstream = None
        self.shortest_wait_seconds = 0
        self.submissions = []
        self.waits = 0
        self._swallow = 0
        self._lock = threading.Lock()

    def __enter__(self):
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                proxy.pass_on(self)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def leads_to(self, service):
        self.upstream = service.base.removeprefix("http://")
        self.submissions = []
        self.waits = 0

    def swallow_next(self):
        """The answer to the next submission is lost: its client hears nothing until it gives up."""
        with self._lock:
            self._swallow = 1

    def pass_on(self, asked):
        started = time.monotonic()
        body = asked.rfile.read(int(asked.headers.get("content-length", 0)))
        server = http.client.HTTPConnection(self.upstream, timeout=UPSTREAM_SECONDS)
        try:
            # Answers are read here, so none is asked for compressed.
            left_out = ("host", "connection", "accept-encoding")
            headers = {k: v for k, v in asked.headers.items() if k.lower() not in left_out}
            server.request(asked.command, asked.path, body or None, headers)
            answer = server.getresponse()
            content = answer.read()
        except OSError as e:
            asked.send_error(502, f"no answer: {e}")
            return
        finally:
            server.close()
        if asked.command == "POST" and asked.path.split("?")[0] == "/runs":
            if self._note(asked, answer, content).swallowed:
                asked.close_connection = True
                asked.connection.settimeout(HOLD_SECONDS)
                try:
                    asked.connection.recv(1)
                except OSError:
                    pass
                return
        elif "wait" in asked.path or "wait" in (asked.headers.get("prefer") or ""):
            self.waits += 1
            time.sleep(max(0, started + self.shortest_wait_seconds - time.monotonic()))
        asked.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                asked.send_header(name, value)
        asked.send_header("content-length", str(len(content)))
        asked.end_headers()
        asked.wfile.write(content)

    def _note(self, asked, answer, content):
        with self._lock:
            swallowed, self._swallow = self._swallow > 0, 0
            noted = Submission(
                key=asked.headers.get("idempotency-key", ""),
                status=answer.status,
                replayed=answer.getheader("idempotent-replayed") == "true",
                run=json.loads(content).get("id", ""),
                swallowed=swallowed,
            )
            self.submissions.append(noted)
            return noted
