"""What can go wrong in `pliska.coordinator.wire`.

WireError
├── RefusedError                what arrived is refused; `code` is the reply to it
│   ├── MalformedError          not one canonical message of ours (SCHEMA)
│   ├── SchemaError             well-formed, but not of this job: manifest, codec, lengths (SCHEMA)
│   ├── TruncatedBodyError      the body ended early (SCHEMA)
│   │   └── StalledBodyError    the body came too slowly
│   ├── TooLargeError           over a hard limit (TOO_LARGE)
│   ├── UnknownKeyError         signed with a key that nobody enrolled (NOT_MEMBER)
│   ├── BadSignatureError       the signature does not fit bytes, type and key (BAD_SIG)
│   ├── DigestError             the payload is not the signed one (DIGEST)
│   └── NonFiniteError          NaN or infinity in a gradient (NONFINITE)
├── TransportError              no reply came
│   ├── UnreachableError        no connection: the request was not sent
│   ├── NoProgressError         the other side stood still for longer than allowed
│   ├── ReplyLostError          the connection broke: the request may or may not have taken effect
│   └── NoDonorError            nobody could give what was to be fetched
├── ReplySizeError              a reply is larger than the caller allowed
├── ListenError                 a server's address is taken or not this machine's
├── CertificateError            a certificate cannot be read or does not hold together
└── JobFileError                the job file is wrong: where, what, and what to write instead
"""

from typing import ClassVar

from pliska.coordinator.wire.reply_codes import ReplyCode


class WireError(Exception):
    """Root of all errors of this package. `exit_code` is what a command ends with."""

    exit_code = 1


class RefusedError(WireError):
    """What arrived is refused. `code` is the reply that its sender gets."""

    exit_code = 5
    code: ClassVar[ReplyCode]


class MalformedError(RefusedError, ValueError):
    """The bytes, or the values to be encoded, are not one canonical message of ours."""

    code = ReplyCode.SCHEMA


class SchemaError(RefusedError):
    """A message of ours that does not fit this job: its manifest, codec or lengths."""

    code = ReplyCode.SCHEMA


class TruncatedBodyError(RefusedError):
    """The body ended before what it announced. Send the message again."""

    code = ReplyCode.SCHEMA


class StalledBodyError(TruncatedBodyError):
    """The body came slower than `BODY_BYTES_PER_S_MIN`, or stopped coming."""


class TooLargeError(RefusedError):
    """What arrived is over a hard limit.

    Args:
        what: What is too large, for the message.
        size: What it is, in the unit of `limit`.
        limit: What it may be.
    """

    code = ReplyCode.TOO_LARGE

    def __init__(self, what: str, *, size: int, limit: int) -> None:
        super().__init__(f"{what} is {size}, over the limit of {limit}")
        self.size = size
        self.limit = limit


class UnknownKeyError(RefusedError):
    """Nobody enrolled the key that the message claims to be signed with."""

    exit_code = 7
    code = ReplyCode.NOT_MEMBER


class BadSignatureError(RefusedError):
    """The signature does not fit these bytes, this type and this key."""

    exit_code = 7
    code = ReplyCode.BAD_SIG


class DigestError(RefusedError):
    """The payload, or its list of leaf hashes, is not the one that was signed."""

    code = ReplyCode.DIGEST


class NonFiniteError(RefusedError):
    """A gradient holds NaN or infinity.

    Args:
        index: Position of the first such number in the flat gradient.
        value: The number itself.
    """

    code = ReplyCode.NONFINITE

    def __init__(self, index: int, value: float) -> None:
        super().__init__(f"the gradient holds {value} at position {index}")
        self.index = index
        self.value = value


class TransportError(WireError):
    """No reply came."""

    exit_code = 8


class UnreachableError(TransportError):
    """No connection to the other side; the request was not sent. Trying again is safe."""


class NoProgressError(TransportError):
    """The other side stood still for longer than `timeout_s`."""

    exit_code = 6


class ReplyLostError(TransportError):
    """The connection broke before the reply; the request may or may not have taken effect."""

    exit_code = 9


class NoDonorError(TransportError):
    """Nobody could give what was to be fetched. The message says what became of each donor."""


class ReplySizeError(WireError):
    """A reply is larger than its caller allowed."""

    exit_code = 5


class ListenError(WireError):
    """A server's address is taken or not this machine's. Name another one."""

    exit_code = 4


class CertificateError(WireError):
    """A certificate or its key cannot be read, or they do not belong together."""

    exit_code = 2


class JobFileError(WireError):
    """The job file is wrong.

    Args:
        source: The file, or where the text came from.
        line: Counted from 1; None when the file could not be read at all.
        message: What is wrong.
        advice: What to write instead.
    """

    exit_code = 2

    def __init__(self, source: str, line: int | None, message: str, advice: str) -> None:
        place = source if line is None else f"{source}:{line}"
        super().__init__(f"{place}: {message}; {advice}")
        self.source = source
        self.line = line
        self.message = message
        self.advice = advice
