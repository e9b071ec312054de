"""The process that reading processes are forked from: it has imported every reader once, and opens no document.

Run as ``python -m ...zygote FD`` with one end of a stream socket. Each byte that arrives there carries two sockets:
``work``, which goes to a new reading process, and ``watch``, where it is told how that process ended, and whose other
end is closed to have it killed. When the worker is gone, so are all of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import sys

from services.embeddings.adapters.extractors.encoding import decode
from services.embeddings.adapters.extractors.registry import declared_formats
from services.embeddings.adapters.extractors.sandbox import reading_process

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


class Zygote:
    """Forks reading processes until the other end of ``control`` is closed."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._watches: dict[int, socket.socket] = {}

    def serve(self) -> None:
        """Run until the worker is gone, then kill every reading process."""
        woken, wakes = socket.socketpair()
        wakes.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._control, selectors.EVENT_READ, self._fork)
        self._selector.register(woken, selectors.EVENT_READ, lambda: woken.recv(4096))
        try:
            while True:
                for key, _ in self._selector.select():
                    key.data()
                self._reap()
        except EOFError:
            for pid in self._watches:
                os.kill(pid, signal.SIGKILL)
        finally:
            signal.set_wakeup_fd(-1)  # their ends wake nobody, and the socket goes before they are known

    def _fork(self) -> None:
        request, descriptors, _, _ = socket.recv_fds(self._control, 1, 2)
        if not request:
            raise EOFError
        work, watch = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            reading_process.run(work, parent)
        work.close()
        self._watches[pid] = watch
        self._selector.register(watch, selectors.EVENT_READ, lambda: self._kill(pid))

    def _kill(self, pid: int) -> None:
        self._selector.unregister(self._watches[pid])
        os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        while self._watches:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._watches.pop(pid) as watch:
                if watch in self._selector.get_map():
                    self._selector.unregister(watch)
                report = {"exit": os.waitstatus_to_exitcode(status), "peak_kib": usage.ru_maxrss}
                with contextlib.suppress(OSError):  # nobody may be waiting for it any more
                    watch.sendall(json.dumps(report).encode())


def _leave_the_network() -> None:
    """Enter an empty network namespace where the machine permits it, for root and for others."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if libc.unshare(_CLONE_NEWNET) != 0:
            libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


if __name__ == "__main__":
    for stop in (signal.SIGINT, signal.SIGTERM):  # the worker decides when it stops, and takes this process along
        signal.signal(stop, signal.SIG_IGN)
    declared_formats()
    decode("żółw".encode("iso-8859-2"))  # loads the statistics of encodings
    _leave_the_network()
    gc.collect()
    gc.freeze()
    Zygote(socket.socket(fileno=int(sys.argv[1]))).serve()
