"""The answer to one request to ZooKeeper, from the thread that hears it to the one that waits."""

import threading

from kazoo.exceptions import ConnectionLoss

from pliska.locks.backends.zookeeper_requests import Answered, Request


class Answer:
    """The answer to one request, for the one who waits for it.

    Attributes:
        request: What is asked.
        was_sent: Whether the server may have got the request.
        has_come: Whether it is there, or it is known that there will be none.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.was_sent = False
        self.has_come = False
        self._gate = threading.Lock()  # costs less than an event, of which most have no need
        self._gate.acquire()
        self._came: Answered | Exception = ConnectionLoss()

    def fail(self, error: Exception) -> None:
        """There will be none, unless it has come."""
        self._settle(error)

    def deliver(self, answered: Answered) -> None:
        """It has come."""
        self._settle(answered)

    def wait(self, timeout_s: float) -> bool:
        """Whether it has come in time, by another thread; see `Channel.wait`."""
        if not self.has_come and self._gate.acquire(timeout=timeout_s):
            self._gate.release()
        return self.has_come

    @property
    def is_delivered(self) -> bool:
        """Whether the server has answered."""
        return isinstance(self._came, Answered)

    def read(self) -> object:
        """What it says, once it has come. It is read here and not by who heard it.

        Raises:
            Exception: One of kazoo's, or what comes of an answer that cannot be read.
        """
        if isinstance(self._came, Answered):
            return self.request.read(self._came)
        raise self._came

    def _settle(self, came: Answered | Exception) -> None:
        if not self.has_come:
            self._came = came
            self.has_come = True
            self._gate.release()
