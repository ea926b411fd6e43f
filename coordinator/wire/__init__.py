"""What travels between worker and coordinator: messages, signatures, codecs, transport.

It imports nothing else of ours and no torch. `http_server.py`, `http_client.py`
and `tls.py` are imported by name, so that whoever needs only the messages does
not load aiohttp.
"""

from pliska.coordinator.wire.codec import (
    Codec,
    CodecSpec,
    Float32Codec,
    check_finite,
    codec_named,
)
from pliska.coordinator.wire.download import Donor, Download, Resource
from pliska.coordinator.wire.encoding import Digest, Length, Message, Name, Unique, decode, encode
from pliska.coordinator.wire.errors import (
    BadSignatureError,
    CertificateError,
    DigestError,
    JobFileError,
    MalformedError,
    NoDonorError,
    NonFiniteError,
    NoProgressError,
    RefusedError,
    ReplyLostError,
    ReplySizeError,
    SchemaError,
    StalledBodyError,
    TooLargeError,
    TransportError,
    TruncatedBodyError,
    UnknownKeyError,
    UnreachableError,
    WireError,
)
from pliska.coordinator.wire.frame import (
    SealedPayload,
    check_sizes,
    gradient_frame,
    read_envelope,
    receive_payload,
    seal,
)
from pliska.coordinator.wire.hash_tree import ChunkVerifier
from pliska.coordinator.wire.job import Job, load_job, parse_job
from pliska.coordinator.wire.limits import CHUNK_BYTES
from pliska.coordinator.wire.manifest import Manifest, TensorEntry
from pliska.coordinator.wire.messages import EMPTY, PROTOCOL, GradientHeader, Hello, Receipt, Visit
from pliska.coordinator.wire.replies import HTTP_STATUS, Reply, ReplyCode
from pliska.coordinator.wire.signing import (
    KeyLookup,
    Signed,
    Signer,
    Unverified,
    Verified,
    peek,
    verify,
)
from pliska.coordinator.wire.transport import (
    Body,
    Buffer,
    Client,
    ClientResponse,
    Handler,
    Request,
    Response,
    Server,
)

__all__ = [
    "CHUNK_BYTES",
    "EMPTY",
    "HTTP_STATUS",
    "PROTOCOL",
    "BadSignatureError",
    "Body",
    "Buffer",
    "CertificateError",
    "ChunkVerifier",
    "Client",
    "ClientResponse",
    "Codec",
    "CodecSpec",
    "Digest",
    "DigestError",
    "Donor",
    "Download",
    "Float32Codec",
    "GradientHeader",
    "Handler",
    "Hello",
    "Job",
    "JobFileError",
    "KeyLookup",
    "Length",
    "MalformedError",
    "Manifest",
    "Message",
    "Name",
    "NoDonorError",
    "NoProgressError",
    "NonFiniteError",
    "Receipt",
    "RefusedError",
    "Reply",
    "ReplyCode",
    "ReplyLostError",
    "ReplySizeError",
    "Request",
    "Resource",
    "Response",
    "SchemaError",
    "SealedPayload",
    "Server",
    "Signed",
    "Signer",
    "StalledBodyError",
    "TensorEntry",
    "TooLargeError",
    "TransportError",
    "TruncatedBodyError",
    "Unique",
    "UnknownKeyError",
    "UnreachableError",
    "Unverified",
    "Verified",
    "Visit",
    "WireError",
    "check_finite",
    "check_sizes",
    "codec_named",
    "decode",
    "encode",
    "gradient_frame",
    "load_job",
    "parse_job",
    "peek",
    "read_envelope",
    "receive_payload",
    "seal",
    "verify",
]
