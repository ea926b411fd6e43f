"""The way from one actor to its servers, which a fault of its plan may cut."""

import time

from chaos.schedule import FaultKind, Plan

from services.tcp_proxy import TcpProxy

CUTTING = frozenset({FaultKind.BLACKHOLE, FaultKind.RESET})


class Line:
    """Proxies between an actor and its servers; none where nothing will be cut.

    Attributes:
        address: Where the actor finds its store.
    """

    def __init__(self, address: str, the_plan: Plan, number: int) -> None:
        self._proxies: list[TcpProxy] = []
        self.address = address
        if any(each.kind in CUTTING and each.victim == number for each in the_plan.faults):
            scheme, _, rest = address.partition("://")
            hosts, _, path = rest.partition("/")
            self._proxies = [TcpProxy(host_port) for host_port in hosts.split(",")]
            proxied = ",".join(proxy.host_port for proxy in self._proxies)
            self.address = f"{scheme}://{proxied}/{path}"

    def blackhole(self, length_s: float) -> None:
        """Let nothing pass for a while."""
        for proxy in self._proxies:
            proxy.blackhole()
        time.sleep(length_s)
        for proxy in self._proxies:
            proxy.heal()

    def reset(self) -> None:
        """Break every connection."""
        for proxy in self._proxies:
            proxy.reset_all()

    def close(self) -> None:
        """Stop the proxies."""
        for proxy in self._proxies:
            proxy.close()
