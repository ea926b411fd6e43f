"""What `pliska model` shows of marks, pins, garbage and damage: fields, no decisions."""

from typing import Any

from pliska.coordinator.registry import Fate, Mark, Pin, Problem

MARK_COLUMNS = ["version", "number", "state", "time", "actor", "reason", "signatures"]
PIN_COLUMNS = ["model", "version", "reason", "actor", "time"]
FATE_COLUMNS = ["model", "version", "state", "goes", "reason"]
PROBLEM_COLUMNS = ["place", "copy", "problem", "is_repaired"]


def mark_row(mark: Mark) -> dict[str, Any]:
    """Return one change of a version's state."""
    return {
        "model": mark.model,
        "version": mark.version,
        "number": mark.number,
        "state": mark.state,
        "time": mark.at,
        "actor": mark.actor,
        "reason": mark.reason or None,
        "op_id": mark.op_id or None,
        "signatures": len(mark.signatures),
        "hash": mark.hash,
    }


def pin_row(pin: Pin) -> dict[str, Any]:
    """Return why a version stays."""
    return {
        "model": pin.model,
        "version": pin.version,
        "reason": pin.reason or None,
        "actor": pin.actor,
        "time": pin.at,
    }


def fate_row(fate: Fate) -> dict[str, Any]:
    """Return what becomes of a version."""
    return {
        "model": fate.version.model,
        "version": fate.version.version,
        "state": fate.version.state,
        "goes": fate.reason is None,
        "reason": fate.reason,
        "nbytes": fate.version.nbytes,
    }


def problem_row(problem: Problem) -> dict[str, Any]:
    """Return what is wrong somewhere."""
    return {
        "place": problem.place,
        "copy": problem.copy or None,
        "problem": problem.what,
        "file": None if problem.file is None else problem.file.name,
        "is_repaired": problem.is_repaired,
    }
