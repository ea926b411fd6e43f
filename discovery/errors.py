"""What can go wrong in `pliska.discovery`.

DiscoveryError
├── KeyFileError               a key file cannot be used: what it holds, or who can read it
│   ├── KeyFileMissingError    there is no such file
│   └── KeyFileExistsError     a new key would overwrite it
├── KeyringUsageError          the caller's mistake: a bad name, public key or reason
├── NotEnrolledError           no key of this name or id is in the keyring
├── KeyConflictError           the name or the key is enrolled already
├── RevokedKeyError            a revoked key stays revoked
└── KeyringFormatError         what the store holds is not a keyring of ours, or is damaged

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


class KeyringFormatError(DiscoveryError):
    """What the store holds is not a keyring of ours, or is damaged."""

    exit_code = 5
