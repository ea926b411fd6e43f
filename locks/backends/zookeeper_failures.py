"""What an error of kazoo's means, in the words of `pliska.locks`.

Answers that are no failures, such as a node that is missing, are read by who asked; what
nobody expects comes here. That a session has expired means something else to who waits
for it: see `ZookeeperLink.failure`, which calls this.
"""

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    NoAuthError,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    SessionMovedError,
    UnimplementedError,
)

from pliska.locks.backends.zookeeper_options import ZookeeperOptions
from pliska.locks.errors import (
    AccessDeniedError,
    LockError,
    StoreFormatError,
    StoreUnavailableError,
)

_REFUSED = (NoAuthError, AuthFailedError, InvalidACLError, SessionClosedRequireSaslError)
_CONNECTION_LOST = (ConnectionLoss, ConnectionClosedError, SessionMovedError, SessionExpiredError)


def failure_of(error: object, options: ZookeeperOptions) -> LockError:
    """Return the error that a caller is to see.

    Args:
        error: What kazoo raised, or gave as the result of an operation.
        options: Name the servers and the credential.
    """
    where = f"ZooKeeper at {options.hosts}"
    if isinstance(error, _REFUSED):
        return AccessDeniedError(
            f"{where} refuses access: check the credential ({options.credential_source})"
        )
    if isinstance(error, UnimplementedError):
        return StoreFormatError(f"{where} is too old: Pliska needs ZooKeeper 3.6 or newer")
    if isinstance(error, _CONNECTION_LOST):
        return StoreUnavailableError(f"the connection to {where} was lost")
    return StoreFormatError(f"{where} answered {type(error).__name__}")
