"""Every hard limit on what arrives over the wire or waits on it.

A limit is checked before the memory it bounds is allocated. What goes over one
is refused with `TooLargeError` or `MalformedError`, never cut short. These are
the protocol's ceilings; a coordinator may set lower ones of its own.
"""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# How many work at one job.
WORKERS_MAX = 1024
"""Workers that a job may ask for."""
SPARE_MEMBERS = 8
"""Workers that a job has room for beyond twice those it asks for; an unused row costs nothing."""
MEMBERS_MAX = 2 * WORKERS_MAX + SPARE_MEMBERS
"""Workers that any job has room for, and that one record may name."""

# What an encoded message may hold.
MESSAGE_BYTES_MAX = 16 * MIB
"""One encoded message, whatever its type (the largest is a manifest)."""
TEXT_BYTES_MAX = 4 * KIB
"""One text field, where its type says nothing narrower."""
BLOB_BYTES_MAX = MESSAGE_BYTES_MAX
"""One bytes field, where its type says nothing narrower."""
ITEMS_MAX = 65_536
"""Items of one sequence field, where its type says nothing narrower."""
NAME_BYTES_MAX = 128
"""A name of a job, worker, key or codec."""
CODEC_PARAMETERS_MAX = 16
"""Parameters of one codec."""
DONOR_BYTES_MAX = 8 * KIB
"""Where a worker that donates listens, with its certificate."""

# What a gradient may weigh.
TENSORS_MAX = 65_536
"""Entries of one manifest."""
TENSOR_RANK_MAX = 32
"""Axes of one tensor."""
DIMENSION_MAX = 2**31
"""Numbers in one gradient."""
CHUNK_BYTES = MIB
"""The fixed piece that a hash tree has one leaf for."""
PAYLOAD_BYTES_MAX = 8 * GIB
"""One encoded gradient: `DIMENSION_MAX` float32 numbers."""
ENVELOPE_BYTES_MAX = 64 * KIB
"""The signed header in front of a payload."""
FRAME_BYTES_MAX = (
    4 + ENVELOPE_BYTES_MAX + 32 * (PAYLOAD_BYTES_MAX // CHUNK_BYTES) + PAYLOAD_BYTES_MAX
)
"""One whole gradient message."""
CHUNKS_UNVERIFIED_MAX = 4
"""Chunks of one payload that may wait for their hash while later ones arrive."""

# What a reply may weigh.
REPLY_BYTES_MAX = 64 * KIB
"""One reply in JSON."""
REASON_CHARACTERS_MAX = 1024
"""The reason in a reply or a receipt; a longer one is cut by its sender."""
WHY_CHARACTERS_MAX = 200
"""The reason for a worker's standing; a longer one is cut."""

# What an HTTP server holds for strangers.
MEMBER_CONNECTIONS = 2
"""Of one worker: one that waits for a version or sends a gradient, one for its heartbeats."""
OTHER_CONNECTIONS = 512
"""Of standbys, of those who join and fetch parameters, of people and tools."""
CONNECTIONS_MAX = MEMBER_CONNECTIONS * MEMBERS_MAX + OTHER_CONNECTIONS
"""Open connections of one server, those still shaking hands included."""
CONNECTIONS_WAITING_MAX = WORKERS_MAX
"""Connections that the system keeps until they are taken; the workers of a job may come at once."""
HEADER_VALUE_BYTES_MAX = 8 * KIB
"""The path with its query, and the value of each header."""
HEADERS_MAX = 64
"""Headers of one request."""
BODY_BYTES_MAX = FRAME_BYTES_MAX
"""One request body, unless the server is told a lower one."""
PIECE_BYTES = 32 * KIB
"""What is written at once before the connection is drained."""
READ_BUFFER_BYTES = 16 * KIB
"""What is read of one connection at once: one TLS record.

What has been received ahead of its reader is less than twice as much.
"""
WRITE_BUFFER_BYTES = 32 * KIB
"""What one connection may have been given to send and not sent yet."""
HANDSHAKE_TIMEOUT_S = 10.0
"""From the connection to the end of the TLS handshake."""
HANDSHAKES_AT_ONCE = 64
"""Handshakes under way, some 80 KiB each, before the next one has to wait for one to end."""
HANDSHAKE_TURN_S = 0.02
"""It waits no longer than this: those who connect and say nothing hold nobody up for long."""
IDLE_TIMEOUT_S = 30.0
"""A connection without a complete request header is closed after this."""
STALL_TIMEOUT_S = 20.0
"""A body piece may take this, plus its size at `BODY_BYTES_PER_S_MIN`."""
BODY_BYTES_PER_S_MIN = 64 * KIB
"""Slower senders and readers than this are cut off."""
REFUSED_BODY_DRAIN_S = 5.0
"""How long the rest of a refused body is read and dropped, so that the reply gets through."""
CLOSE_TIMEOUT_S = 3.0
"""How long a closing server waits for the handlers that still run, before it cancels them."""
CERTIFICATE_BYTES_MAX = 64 * KIB
"""A server's certificate in PEM."""

# What an HTTP client holds open.
CLIENT_CONNECTIONS_MAX = 32
"""Connections to one server; a request beyond them waits for one to come free."""
CLIENT_IDLE_TIMEOUT_S = 20.0
"""An unused connection is dropped after this, well before the server would."""
