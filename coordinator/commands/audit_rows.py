"""What `pliska audit` and `pliska why` show: fields and columns, no decisions."""

from typing import Any

from pliska.coordinator.audit.explanation import Explanation
from pliska.coordinator.audit.proof import Fate, Proof
from pliska.coordinator.audit.proof import check as check_proof
from pliska.coordinator.audit.recompute import Recomputed
from pliska.coordinator.audit.replay import Replayed
from pliska.coordinator.audit.report import AuditReport, Check
from pliska.coordinator.records.audit_keys import KeyBook
from pliska.coordinator.records.evidence import Evidence, charge, digest_of

RECOMPUTE_COLUMNS = ["worker", "base_version", "is_equal", "deviation", "is_lie"]
REPLAY_COLUMNS = ["round", "version", "gradients", "is_equal", "differences"]
EVIDENCE_COLUMNS = ["round", "kind", "offender", "reason", "digest"]
FATE_COLUMNS = ["worker", "fate", "weight", "score", "margin", "arrived_s", "reason", "change"]


def report_fields(report: AuditReport) -> dict[str, Any]:
    """Return what an audit of a job's files found."""
    return {
        "job": report.job,
        "version": report.version,
        "head": report.head.hex() or None,
        "is_sound": report.is_sound,
        "checks": [
            {
                "what": what,
                "checked": check.count,
                "wrong": check.failed,
                "problems": check.problems,
            }
            for what, check in report.checks.items()
        ],
        "notes": report.notes,
    }


def replayed_row(replayed: Replayed) -> dict[str, Any]:
    """Return the fields of one round computed again."""
    record = replayed.commit.record
    return {
        "round": record.round,
        "version": record.version,
        "gradients": replayed.gradients,
        "is_equal": not replayed.differences,
        "differences": list(replayed.differences),
    }


def recomputed_row(recomputed: Recomputed) -> dict[str, Any]:
    """Return the fields of one gradient computed again."""
    return {
        "worker": recomputed.header.worker,
        "base_version": recomputed.header.base_version,
        "is_equal": recomputed.is_equal,
        "deviation": recomputed.deviation,
        "is_lie": recomputed.is_lie,
    }


def evidence_row(evidence: Evidence, keys: KeyBook) -> dict[str, Any]:
    """Check one piece of evidence and return its fields."""
    charged = charge(evidence, keys)
    return {
        "round": charged.round,
        "kind": charged.kind,
        "offender": charged.offender,
        "reason": charged.reason,
        "digest": digest_of(evidence).hex()[:16],
    }


def document_fields(document: Proof | Evidence, keys: KeyBook) -> dict[str, Any]:
    """Check a document and return what it proves."""
    if isinstance(document, Proof):
        return _fate_fields(check_proof(document, keys))
    charged = charge(document, keys)
    return {
        "proves": charged.kind,
        "job": charged.job,
        "round": charged.round,
        "offender": charged.offender,
        "reason": charged.reason,
        "digest": digest_of(document).hex(),
    }


def explanation_row(explanation: Explanation) -> dict[str, Any]:
    """Return the fields of one worker's fate."""
    return {
        "worker": explanation.worker,
        "fate": explanation.outcome.value,
        "weight": explanation.weight,
        "score": explanation.score,
        "margin": explanation.margin,
        "arrived_s": explanation.arrived_s,
        "reason": explanation.reason,
        "change": explanation.change,
    }


def _fate_fields(fate: Fate) -> dict[str, Any]:
    record, contribution = fate.commit.record, fate.contribution
    position = f"built on by version {record.version + 1}" if fate.is_built_on else "the newest"
    return {
        "proves": "fate",
        "job": record.job,
        "round": record.round,
        "version": record.version,
        "worker": fate.worker,
        "fate": fate.outcome.value,
        "reason": fate.reason,
        "weight": contribution.weight if contribution else None,
        "score": contribution.score if contribution else None,
        "gradient": contribution.payload_root.hex() if contribution else None,
        "rule": record.rule,
        "epoch": record.epoch,
        "record": fate.commit.digest.hex(),
        "record_before": record.previous.hex(),
        "position": position,
        "signed_by": fate.commit.signed.key_id,
    }


def _check_row(what: str, check: Check) -> dict[str, Any]:
    return {
        "what": what,
        "checked": check.count,
        "wrong": check.failed,
        "problems": check.problems,
    }
