"""A file server on this machine, for what downloads."""

import contextlib
import functools
import http.server
import threading

import pytest


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments):
        return


@pytest.fixture
def serve():
    """Serve a folder while the block runs; gives the address."""

    @contextlib.contextmanager
    def serving(folder, handler=Quiet):
        bound = functools.partial(handler, directory=str(folder))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), bound) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}/"
            finally:
                server.shutdown()
                thread.join()

    return serving
