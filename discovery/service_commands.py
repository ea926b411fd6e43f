"""`pliska service`: register, list, resolve, watch and drain the instances of services."""

import json
import socket
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, closing
from random import SystemRandom
from typing import Annotated, Any

import typer

from pliska.discovery.balancing import DEFAULT_POLICY, BalancingState, policy_named
from pliska.discovery.errors import DeregisteredError, ServiceUsageError
from pliska.discovery.instance import Instance, InstanceState
from pliska.discovery.interruption import ends_when_told
from pliska.discovery.probe import INTERVAL_S as PROBE_INTERVAL_S
from pliska.discovery.probe import ProbeOptions, Prober, parse_probe
from pliska.discovery.registration import LEASE_S, REGISTER_TIMEOUT_S, register
from pliska.discovery.resolver import LocalKnowledge, ResolverOptions, choose
from pliska.discovery.service_store import open_service_store
from pliska.discovery.service_view import ServiceSnapshot, ServiceView, after_answer, unknown
from pliska.locks import SystemClock, connect
from pliska.locks.presentation import (
    DEFAULT_STORE,
    SCHEMA_VERSION,
    OutputFormat,
    OutputOption,
    StoreOption,
    show_json,
    show_rows,
)

service = typer.Typer(no_args_is_help=True)

WAIT_S = 60.0

ServiceArgument = Annotated[
    str, typer.Argument(metavar="SERVICE", help="Name of the service, such as scorer.")
]
InstanceArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the instance.")]


@service.command("register", epilog="Example: pliska service register scorer --port 8080")
def register_instance(
    name: ServiceArgument,
    port: Annotated[int, typer.Option(help="TCP port; 0 for none.")] = 0,
    address: Annotated[
        str | None, typer.Option(help="Host name or IP address; this host's name by default.")
    ] = None,
    instance_id: Annotated[
        str | None, typer.Option("--id", help="Unique in the service; ADDRESS:PORT by default.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A word; may be repeated.")] = None,
    meta: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="May be repeated.")
    ] = None,
    zone: Annotated[str, typer.Option(help="Where it runs.")] = "",
    weight: Annotated[int, typer.Option(help="Its share of the work.")] = 1,
    probe: Annotated[
        str | None, typer.Option(help="Ask the instance whether it works: tcp, or http:/PATH.")
    ] = None,
    probe_interval_s: Annotated[
        float, typer.Option("--probe-interval", help="Seconds between two probes.")
    ] = PROBE_INTERVAL_S,
    lease_s: Annotated[
        float, typer.Option("--lease", help="Seconds that a dead instance may stay listed.")
    ] = LEASE_S,
    wait_s: Annotated[
        float, typer.Option("--wait", help="Seconds to wait for an id that is taken.")
    ] = REGISTER_TIMEOUT_S,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Register an instance of SERVICE and keep it registered until this command ends.

    Interrupt or terminate it to deregister. It ends by itself, with exit code
    3, when somebody removes the instance from the store.
    """
    address = address or socket.gethostname()
    instance = Instance(
        service=name,
        id=instance_id or f"{address}:{port}",
        address=address,
        port=port,
        metadata=_metadata(meta or []),
        tags=tuple(tag or []),
        zone=zone,
        weight=weight,
    )
    asked = None if probe is None else parse_probe(probe, address, port)
    reason = None
    with ends_when_told(), ExitStack() as stack:
        backend = stack.enter_context(closing(connect(store)))
        registration = stack.enter_context(register(backend, instance, lease_s, wait_s))
        if asked is not None:
            options = ProbeOptions(interval_s=probe_interval_s)
            stack.enter_context(Prober(asked, registration.report_health, options))
        typer.echo(f"registered {name}/{instance.id} at {instance.endpoint}")
        reason = registration.wait_until_ended()
    if reason is not None:
        raise DeregisteredError(f"{name}/{instance.id} is not registered any more: {reason}")
    typer.echo(f"deregistered {name}/{instance.id}")


@service.command("list", epilog="Example: pliska service list scorer -o json")
def list_services(
    name: Annotated[
        str | None, typer.Argument(metavar="SERVICE", help="Show the instances of this one.")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Show the services, or the instances of one."""
    with closing(connect(store)) as backend:
        services = open_service_store(backend)
        if name is None:
            counted = [_summary(each, services.list(each).instances) for each in services.names()]
            columns = ["service", "up", "draining", "failing"]
            show_rows(output, "services", columns, [row for row in counted if row["instances"]])
            return
        listing = services.list(name)
    for reason in listing.unreadable:
        typer.echo(f"left out: {reason}", err=True)
    columns = ["id", "endpoint", "state", "zone", "weight", "tags"]
    show_rows(output, "instances", columns, [_row(each) for each in listing.instances])


@service.command(epilog="Example: curl http://$(pliska service resolve scorer)/health")
def resolve(
    name: ServiceArgument,
    policy: Annotated[
        str, typer.Option(help="power-of-two, round-robin, weighted or least-in-flight.")
    ] = DEFAULT_POLICY,
    zone: Annotated[str, typer.Option(help="Prefer instances of this zone.")] = "",
    output: OutputOption = OutputFormat.TABLE,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Choose an instance of SERVICE that takes work, and print where it is."""
    options = ResolverOptions(policy=policy_named(policy), zone=zone)
    with closing(connect(store)) as backend:
        listing = open_service_store(backend).list(name)
    now_s = SystemClock().now_s()
    snapshot = after_answer(now_s, unknown(now_s, name), listing)
    nothing = LocalKnowledge({}, {}, BalancingState())
    choice = choose(now_s, snapshot, nothing, options, SystemRandom())
    if output is OutputFormat.JSON:
        show_json({"instance": _row(choice.instance), "reason": choice.reason})
    else:
        typer.echo(choice.instance.endpoint)


@service.command(epilog="Example: pliska service watch scorer | jq .standing")
def watch(name: ServiceArgument, store: StoreOption = DEFAULT_STORE) -> None:
    """Print the instances of SERVICE now and after every change, one JSON object a line.

    While the store does not answer, the last known list stays, with
    `standing` unreachable; interrupt the command to end it.
    """
    with (
        ends_when_told(),
        closing(connect(store)) as backend,
        ServiceView(backend, name) as view,
    ):
        generation = 0
        while True:
            snapshot = view.wait_for_change(generation, WAIT_S)
            if snapshot is not None:
                generation = snapshot.generation
                typer.echo(json.dumps(_event(snapshot, view.age_s)))


@service.command(epilog="Example: pliska service drain scorer host-1:8080")
def drain(
    name: ServiceArgument, instance_id: InstanceArgument, store: StoreOption = DEFAULT_STORE
) -> None:
    """Ask everybody to send the instance ID of SERVICE no new work.

    It stays registered, and draining, until its own process ends.
    """
    with closing(connect(store)) as backend:
        drained = open_service_store(backend).drain(name, instance_id)
    typer.echo(f"{name}/{drained.id} is draining")


def _metadata(entries: list[str]) -> dict[str, str]:
    metadata = {}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals:
            raise ServiceUsageError(f"{entry[:80]!r} is no metadata: write KEY=VALUE")
        metadata[key] = value
    return metadata


def _summary(name: str, instances: Iterable[Instance]) -> dict[str, Any]:
    states = Counter(instance.state for instance in instances)
    counts = {str(state): states[state] for state in InstanceState}
    return {"service": name, "instances": states.total(), **counts}


def _row(instance: Instance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "endpoint": instance.endpoint,
        "state": str(instance.state),
        "zone": instance.zone or None,
        "weight": instance.weight,
        "tags": list(instance.tags),
        "address": instance.address,
        "port": instance.port,
        "metadata": dict(instance.metadata),
    }


def _event(snapshot: ServiceSnapshot, age_s: float) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "service": snapshot.service,
        "standing": str(snapshot.standing),
        "reason": snapshot.reason or None,
        "age_s": round(age_s, 3),
        "revision": snapshot.revision,
        "instances": [_row(instance) for instance in snapshot.instances],
    }
