"""TCP proxies between the processes of a test: networks that stall and cut."""

import contextlib
import socket
import threading

PIECE = 1 << 16


class _Pair:
    """A connection through a wire; nothing passes while `flows` is not set."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.ends = near, far
        self.flows = threading.Event()
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE):
                self.flows.wait()
                target.sendall(data)
        self.close()

    def close(self) -> None:
        """End both halves."""
        self.flows.set()
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Wire:
    """What comes to `address` goes to `target`, and back."""

    def __init__(self, address: tuple[str, int], target: tuple[str, int]) -> None:
        self._target = target
        self._pairs: list[_Pair] = []
        self._stalled = self._refuses = False
        self._lock = threading.Lock()
        self._listener = socket.create_server(address)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                with self._lock:
                    if self._refuses:
                        near.close()
                        continue
                    try:
                        far = socket.create_connection(self._target, 5)
                    except OSError:
                        near.close()
                        continue
                    far.settimeout(None)
                    pair = _Pair(near, far)
                    if not self._stalled:
                        pair.flows.set()
                    self._pairs.append(pair)

    def stall(self) -> None:
        """Nothing passes; connections stay, new ones are accepted. What waits passes when it is healed."""
        with self._lock:
            self._stalled = True
            for pair in self._pairs:
                pair.flows.clear()

    def cut(self) -> None:
        """All connections end, and new ones at once."""
        with self._lock:
            self._refuses = True
            self._close_all()

    def stall_one(self) -> None:
        """The newest connection stalls, the others go on; there is no new one."""
        with self._lock:
            self._refuses = True
            self._pairs[-1].flows.clear()

    def heal(self) -> None:
        """All passes again."""
        with self._lock:
            self._stalled = self._refuses = False
            for pair in self._pairs:
                pair.flows.set()

    def close(self) -> None:
        """End it, for good."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._close_all()

    def _close_all(self) -> None:
        for pair in self._pairs:
            pair.close()
        self._pairs.clear()
