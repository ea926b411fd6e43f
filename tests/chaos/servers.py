"""The servers of a store, which a fault of one run takes away from all runs that use them."""

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from chaos.history import Recorder, now_s
from chaos.schedule import Fault, FaultKind

from services.process import ServiceProcess


class Servers:
    """One server, or several that are taken away one after the other."""

    def __init__(self, processes: Sequence[ServiceProcess]) -> None:
        self._victims = itertools.cycle(processes)
        self._turn = threading.Lock()
        self._recorders: set[Recorder] = set()

    @contextmanager
    def seen_by(self, recorder: Recorder) -> Iterator[None]:
        """Write outages down in one more history."""
        with self._turn:
            self._recorders.add(recorder)
        yield
        with self._turn:
            self._recorders.discard(recorder)

    def suffer(self, fault: Fault) -> None:
        """Stop the next server for a while, or kill it and start it again."""
        with self._turn:
            victim, from_s = next(self._victims), now_s()
            if fault.kind is FaultKind.FREEZE:
                victim.freeze()
                time.sleep(fault.length_s)
                victim.thaw()
            else:
                victim.kill()
                time.sleep(fault.length_s)
                victim.start()
            victim.wait_until_ready()
            for recorder in self._recorders:
                recorder.record("outage", server=victim.name, from_s=from_s, to_s=now_s())
