"""What can go wrong in `pliska.discovery`.

DiscoveryError
├── KeyFileError               a key file cannot be used: what it holds, or who can read it
│   ├── KeyFileMissingError    there is no such file
│   └── KeyFileExistsError     a new key would overwrite it
├── KeyringUsageError          the caller's mistake: a bad name, public key or reason
├── NotEnrolledError           no key of this name or id is in the keyring
├── KeyConflictError           the name or the key is enrolled already
├── RevokedKeyError            a revoked key stays revoked
├── KeyRotationError           the change to a new key is not signed by both keys
├── KeyringFormatError         what the store holds is not a keyring of ours, or is damaged
├── ServiceUsageError          the caller's mistake: a bad service, instance or policy
├── NoInstanceError            the service has no instance, or none that can be used
├── InstanceConflictError      somebody else holds the id
├── DeregisteredError          the registration has ended; it does not come back
├── InstanceFormatError        what the store holds is not a service instance
├── ConfigUsageError           the caller's mistake: a bad key, schema or time
├── ValueRefusedError          a value that its schema refuses
├── NoSettingError             the key has no value, or no such revision
├── ConfigConflictError        somebody else changed the setting first
├── ConfigFormatError          what the store holds is not a setting of ours, or is damaged
└── SnapshotError              the local copy of the configuration cannot be read or written

Errors of the store itself are those of `pliska.locks`.
"""


class DiscoveryError(Exception):
    """Root of all errors of this package. `exit_code` is what a command ends with."""

    exit_code = 1


class KeyFileError(DiscoveryError):
    """A key file cannot be used: what it holds, or who can read it."""

    exit_code = 5


class KeyFileMissingError(KeyFileError):
    """There is no such file."""

    exit_code = 3


class KeyFileExistsError(KeyFileError):
    """A new key would overwrite the file; nothing was written."""

    exit_code = 4


class KeyringUsageError(DiscoveryError, ValueError):
    """The caller's mistake: a bad name, public key or reason."""

    exit_code = 2


class NotEnrolledError(DiscoveryError):
    """No key of this name or id is in the keyring."""

    exit_code = 3


class KeyConflictError(DiscoveryError):
    """The name or the key is enrolled already; nothing was changed."""

    exit_code = 4


class RevokedKeyError(DiscoveryError):
    """A revoked key stays revoked. Make a new one."""

    exit_code = 7


class KeyRotationError(DiscoveryError):
    """The change to a new key is not signed by both keys; nothing was changed."""

    exit_code = 5


class KeyringFormatError(DiscoveryError):
    """What the store holds is not a keyring of ours, or is damaged."""

    exit_code = 5


class ServiceUsageError(DiscoveryError, ValueError):
    """The caller's mistake: a bad service, instance or policy."""

    exit_code = 2


class NoInstanceError(DiscoveryError):
    """The service has no instance, or none that can be used."""

    exit_code = 3


class InstanceConflictError(DiscoveryError):
    """Somebody else holds the id. Take another one, or wait until theirs is gone."""

    exit_code = 4


class DeregisteredError(DiscoveryError):
    """The registration has ended; it does not come back. Register anew."""

    exit_code = 3


class InstanceFormatError(DiscoveryError):
    """What the store holds is not a service instance."""

    exit_code = 5


class ConfigUsageError(DiscoveryError, ValueError):
    """The caller's mistake: a bad key, schema or time."""

    exit_code = 2


class ValueRefusedError(DiscoveryError, ValueError):
    """A value that its schema refuses; nothing was written."""

    exit_code = 7


class NoSettingError(DiscoveryError):
    """The key has no value, or no such revision."""

    exit_code = 3


class ConfigConflictError(DiscoveryError):
    """Somebody else changed the setting first; nothing was written. Read and decide again."""

    exit_code = 4


class ConfigFormatError(DiscoveryError):
    """What the store holds is not a setting of ours, or is damaged."""

    exit_code = 5


class SnapshotError(DiscoveryError):
    """The local copy of the configuration cannot be read or written."""

    exit_code = 5
