"""Names that server and client must agree on: paths, headers, query parameters."""

STATUS = "/v1/status"

TOKEN = "pliska-token"  # noqa: S105 - the header's name
LEASE_S = "pliska-lease-s"
NONCE = "pliska-nonce"
VERSION = "pliska-version"
EPOCH = "pliska-epoch"
MODE_EPOCH = "pliska-mode-epoch"
DATA_LEASE = "pliska-data-lease"
FINAL = "pliska-final"

AFTER = "after"
WAIT_S = "wait_s"
LEASE = "lease"
WANTED = "wanted"
DONORS = "donors"

VISIT_CHALLENGE = "visit-challenge"
VISIT = "visit"
HEADS = "heads"
CHECKPOINTS = "checkpoints"
MANIFEST = "state-manifest"
STATE = "state"
AGGREGATE = "aggregate"
PARAMETERS = "parameters"
ENTRIES = "entries"
FOLLOWING = "following"

VERSION_NUMBER = "version"
DIGEST = "digest"
COUNT = "count"
EPOCH_NUMBER = "epoch"
PROBE = "probe"

WAIT_S_MAX = 20.0
"""The longest that a request for a newer version is held open."""
HELLO_BYTES_MAX = 16 * 1024
DONORS_MAX = 4
"""Workers that one that joins is told of; more would not make it faster."""


def job_path(job: str, action: str) -> str:
    """Return the path of one of a job's actions."""
    return f"/v1/jobs/{job}/{action}"
