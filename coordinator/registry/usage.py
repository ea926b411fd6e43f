"""Reading all that speaks for the versions of a model, for `roots` to judge."""

from pliska.coordinator.registry.namespace import Namespace
from pliska.coordinator.registry.roots import ModelView


def read_usage(parts: Namespace, model: str) -> ModelView:
    """Return what uses versions now. An operation is read before the alias that it may move.

    Raises:
        IntegrityError: A record is damaged: nobody knows what it spoke for.
    """
    names = parts.aliases.of_model(model)
    open_ = (parts.operations.open(model, alias) for alias in names)
    operations = tuple(stored.record for stored in open_ if stored is not None)
    nodes = [node for alias in names for node in parts.nodes.of_alias(model, alias).nodes]
    return ModelView(
        aliases=tuple(parts.aliases.read(model, alias) for alias in names),
        operations=operations,
        loaded=frozenset(digest for node in nodes for digest in node.loaded),
        pins={number: pin.reason for number, pin in parts.pins.of_model(model).items()},
        versions={n: stored.record for n, stored in parts.versions.of_model(model).items()},
    )
