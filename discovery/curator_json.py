"""Service instances in the JSON of Apache Curator's x-discovery, which other tools read.

The document is Curator's `ServiceInstance` as its JsonInstanceSerializer writes
it: exactly its fields, since a strict reader refuses others. What Curator has
no field for (metadata, tags, zone, weight, state) is in `payload`, which is the
application's own; `metadata` is where Spring Cloud ZooKeeper looks for it. An
instance that takes no work has `enabled` false, which Curator's readers heed.
"""

import json
from collections.abc import Mapping
from typing import Any

from pliska.discovery.errors import InstanceFormatError, ServiceUsageError
from pliska.discovery.instance import (
    METADATA_ENTRIES_MAX,
    Instance,
    InstanceState,
    fits_metadata,
)


def encode_instance(instance: Instance, registered_ms: int) -> bytes:
    """The document of an instance.

    Args:
        instance: What to write.
        registered_ms: When it was registered, in milliseconds of Unix time; for
            people, nothing is decided by it.
    """
    document = {
        "name": instance.service,
        "id": instance.id,
        "address": instance.address,
        "port": instance.port or None,
        "sslPort": None,
        "payload": {
            "metadata": dict(instance.metadata),
            "tags": list(instance.tags),
            "zone": instance.zone,
            "weight": instance.weight,
            "state": instance.state,
        },
        "registrationTimeUTC": registered_ms,
        "serviceType": "DYNAMIC",
        "uriSpec": None,
        "enabled": instance.takes_work,
    }
    return _to_json(document)


def drained(document: bytes) -> bytes:
    """The same document, saying that the instance takes no new work; all else is kept.

    Raises:
        InstanceFormatError: It is not the document of an instance.
    """
    try:
        fields = json.loads(document)
        fields["enabled"] = False
        if isinstance(fields["payload"], dict):
            fields["payload"]["state"] = InstanceState.DRAINING
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InstanceFormatError("this is no service instance in Curator's JSON") from error
    return _to_json(fields)


def decode_instance(document: bytes, service: str, instance_id: str) -> Instance:
    """Read an instance that we or another program registered.

    Args:
        document: What the store holds; nothing in it is trusted.
        service: The service it was found under.
        instance_id: The id it was found under.

    Raises:
        InstanceFormatError: It is not the document of such an instance.
    """
    place = f"what is registered as {service}/{instance_id}"
    try:
        fields = json.loads(document)
        if fields["name"] != service or fields["id"] != instance_id:
            raise InstanceFormatError(f"{place} names itself {fields['name']}/{fields['id']}")
        payload = fields.get("payload")
        return _instance(fields, payload if isinstance(payload, dict) else {})
    except ServiceUsageError as error:
        raise InstanceFormatError(f"{place} cannot be used: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InstanceFormatError(f"{place} is no service instance in Curator's JSON") from error


def _instance(fields: Mapping[str, Any], payload: Mapping[str, Any]) -> Instance:
    port = fields.get("port")
    if port is None:
        port = fields.get("sslPort")
    return Instance(
        service=fields["name"],
        id=fields["id"],
        address=_text(fields["address"]),
        port=_whole(0 if port is None else port),
        metadata=_metadata(payload),
        tags=tuple(_text(tag) for tag in payload.get("tags") or ()),
        zone=_text(payload.get("zone") or ""),
        weight=_whole(payload.get("weight", 1)),
        state=_state(fields, payload),
    )


def _metadata(payload: Mapping[str, Any]) -> dict[str, str]:
    """What fits; other programs may say more about themselves than we can use."""
    said = dict(payload.get("metadata") or {})
    return {
        key: value
        for key, value in list(said.items())[:METADATA_ENTRIES_MAX]
        if isinstance(value, str) and fits_metadata(key, value)
    }


def _state(fields: Mapping[str, Any], payload: Mapping[str, Any]) -> InstanceState:
    if fields.get("enabled", True) is True:
        return InstanceState.UP
    stated = InstanceState(payload.get("state", InstanceState.DRAINING))
    return InstanceState.DRAINING if stated is InstanceState.UP else stated


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _to_json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
