"""Canonical binary encoding of frozen dataclasses: one value, one byte string.

An encoding is the message's type name (`wire_type`, such as
`pliska/gradient/1`: product, message type, protocol version) followed by its
fields in the order of their declaration:

    bool                    1 byte, 0 or 1
    int                     8 bytes, big-endian, unsigned
    float                   8 bytes, IEEE 754 big-endian, not NaN
    str, StrEnum, bytes     4 bytes of length, then the (UTF-8) bytes
    tuple[T, ...]           4 bytes of count, then the items
    tuple[A, B]             the items
    T | None                1 byte, 0 or 1, then the value
    frozen dataclass        its fields (no type name)

Lengths are bounded by `Length` in `Annotated[...]`, else by `limits.py`.
Decoding is strict: it accepts exactly what encoding produces, so two different
byte strings never decode to the same message, and it allocates nothing that
the input is not long enough to fill.

Not a serializer of arrays (that is `codec.py`), and not self-describing: both
sides know the type. Used for everything that is signed or digested.
"""

from dataclasses import Field
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, cast

from pliska.coordinator.wire.errors import MalformedError, TooLargeError
from pliska.coordinator.wire.field_encoding import (
    TYPE_NAME,
    U64_MAX,
    Length,
    Source,
    Visible,
    plan_of,
)
from pliska.coordinator.wire.limits import MESSAGE_BYTES_MAX, NAME_BYTES_MAX

__all__ = [
    "U64_MAX",
    "Digest",
    "Length",
    "Message",
    "MessageT",
    "Name",
    "Unique",
    "Visible",
    "decode",
    "encode",
]


class Message(Protocol):
    """A frozen dataclass with a type name of its own."""

    wire_type: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


MessageT = TypeVar("MessageT", bound=Message)


Name = Annotated[str, Length(1, NAME_BYTES_MAX), Visible()]
"""A name that is safe to print, to log and to compare."""
Digest = Annotated[bytes, Length(32, 32)]
"""A SHA-256."""
Unique = Annotated[bytes, Length(16, 16)]
"""16 random bytes: an incarnation or a nonce."""


def encode(message: Message) -> bytes:
    """Encode a message.

    Raises:
        MalformedError: A field is outside its type's range or bounds.
    """
    out = bytearray()
    TYPE_NAME.write(message.wire_type, out)
    plan_of(type(message)).write(message, out)
    return bytes(out)


def decode(
    message_type: type[MessageT], data: bytes | memoryview, bytes_max: int = MESSAGE_BYTES_MAX
) -> MessageT:
    """Decode one message of this type, which must fill `data` exactly.

    Raises:
        TooLargeError: `data` is longer than `bytes_max`.
        MalformedError: `data` is not what `encode` gives for any message of this type.
    """
    if len(data) > bytes_max:
        raise TooLargeError(f"a {message_type.wire_type} message", size=len(data), limit=bytes_max)
    source = Source(memoryview(data))
    name = TYPE_NAME.read(source)
    if name != message_type.wire_type:
        raise MalformedError(f"expected a {message_type.wire_type} message, not {name!r}")
    message = plan_of(message_type).read(source)
    if source.remaining:
        raise MalformedError(f"{source.remaining} bytes too many after a {name} message")
    return cast("MessageT", message)
