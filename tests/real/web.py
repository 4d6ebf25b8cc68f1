"""Files by HTTP from a server that is unavailable when it is told to be. Standard library only."""

import pathlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread


class FlakyFiles:
    """Serves the files of a folder on the loopback, as a daemon of this process."""

    def __init__(self, folder):
        self.folder = folder
        self.sent = set()
        self.refused, self.refusals = None, 0
        self.lock = Lock()
        files = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.answer(with_body=False)

            def do_GET(self):
                self.answer(with_body=True)

            def answer(self, with_body):
                path = files.folder / pathlib.PurePosixPath(self.path).name
                if files.refuses(path.name):
                    return self.end(503, {"Retry-After": "1"})
                if not path.is_file():
                    return self.end(404, {})
                content = path.read_bytes()
                self.end(200, {"ETag": f'"{path.stat().st_mtime_ns}"'}, content, with_body)
                if with_body:
                    files.sent.add(path)

            def end(self, status, headers, content=b"", with_body=False):
                self.send_response(status)
                for name, value in {**headers, "Content-Length": len(content)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                if with_body:
                    self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def refuse(self, name, times):
        """Answers the next requests for a file, so many of them, with 503; forgets what was sent."""
        with self.lock:
            self.refused, self.refusals, self.sent = name, times, set()

    def refuses(self, name):
        with self.lock:
            if name != self.refused or self.refusals == 0:
                return False
            self.refusals -= 1
            return True
