"""Who is here, what is configured, and whose signatures count.

`register` keeps an instance of a service registered, `ServiceView` and
`Resolver` find instances, through outages of the store:

    with register(backend, Instance(service="scorer", id="s1", address="host-1", port=80)):
        serve()

    with Resolver(backend).pick("scorer") as pick:
        ask(pick.instance.endpoint)

`ConfigStore` and `ConfigView` keep typed, versioned configuration, and
`Keyring` the Ed25519 keys of workers and coordinators.
"""

from pliska.discovery.config_store import Authorship, ConfigListing, ConfigStore
from pliska.discovery.config_view import ConfigView
from pliska.discovery.config_watch import ConfigWatch
from pliska.discovery.enrolled import Enrolled, KeyState, Role
from pliska.discovery.errors import (
    ConfigConflictError,
    ConfigFormatError,
    ConfigUsageError,
    DeregisteredError,
    DiscoveryError,
    InstanceConflictError,
    InstanceFormatError,
    KeyConflictError,
    KeyFileError,
    KeyFileExistsError,
    KeyFileMissingError,
    KeyringFormatError,
    KeyringUsageError,
    KeyRotationError,
    NoInstanceError,
    NoSettingError,
    NotEnrolledError,
    RevokedKeyError,
    ServiceUsageError,
    SnapshotError,
    ValueRefusedError,
)
from pliska.discovery.instance import Instance, InstanceState
from pliska.discovery.keyring import Keyring
from pliska.discovery.keys import (
    key_id,
    load_private_key,
    load_public_key,
    new_private_key,
    parse_public_text,
    public_bytes,
    public_text,
    write_private_key,
)
from pliska.discovery.known_config import Reading
from pliska.discovery.probe import HttpProbe, ProbeOptions, Prober, TcpProbe
from pliska.discovery.registration import Registration, register
from pliska.discovery.resolver import Pick, Resolver, ResolverOptions
from pliska.discovery.rotation import Rotation, sign_rotation
from pliska.discovery.schema import Schema, ValueKind
from pliska.discovery.service_view import ServiceSnapshot, ServiceView, Standing
from pliska.discovery.setting import ChangeKind, Setting

__all__ = [
    "Authorship",
    "ChangeKind",
    "ConfigConflictError",
    "ConfigFormatError",
    "ConfigListing",
    "ConfigStore",
    "ConfigUsageError",
    "ConfigView",
    "ConfigWatch",
    "DeregisteredError",
    "DiscoveryError",
    "Enrolled",
    "HttpProbe",
    "Instance",
    "InstanceConflictError",
    "InstanceFormatError",
    "InstanceState",
    "KeyConflictError",
    "KeyFileError",
    "KeyFileExistsError",
    "KeyFileMissingError",
    "KeyRotationError",
    "KeyState",
    "Keyring",
    "KeyringFormatError",
    "KeyringUsageError",
    "NoInstanceError",
    "NoSettingError",
    "NotEnrolledError",
    "Pick",
    "ProbeOptions",
    "Prober",
    "Reading",
    "Registration",
    "Resolver",
    "ResolverOptions",
    "RevokedKeyError",
    "Role",
    "Rotation",
    "Schema",
    "ServiceSnapshot",
    "ServiceUsageError",
    "ServiceView",
    "Setting",
    "SnapshotError",
    "Standing",
    "TcpProbe",
    "ValueKind",
    "ValueRefusedError",
    "key_id",
    "load_private_key",
    "load_public_key",
    "new_private_key",
    "parse_public_text",
    "public_bytes",
    "public_text",
    "register",
    "sign_rotation",
    "write_private_key",
]
