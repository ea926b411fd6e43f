"""What one life of a worker signs."""

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from training.toy_job import toy_job

from pliska.coordinator.client import Version
from pliska.coordinator.training.computation import Computation
from pliska.coordinator.wire import Float32Codec, GradientHeader, Signer, peek, seal
from pliska.trainer.incarnation import Incarnation

BASE = Version(version=3, epoch=1, mode_epoch=0, digest=b"d" * 32, is_final=False, lease=5)


def life(name: str = "w1") -> Incarnation:
    return Incarnation(name, Computation(toy_job()), Signer(Ed25519PrivateKey.generate(), "key"))


def test_the_same_gradient_is_signed_anew_for_each_leader_and_mode() -> None:
    incarnation = life()
    sealed = seal(Float32Codec(), np.ones(67, dtype=np.float32))
    first = peek(incarnation.sign(BASE, 5, 1, 0, sealed), GradientHeader).claim
    second = peek(incarnation.sign(BASE, 5, 2, 1, sealed), GradientHeader).claim
    assert (first.epoch, first.mode_epoch) == (1, 0)
    assert (second.epoch, second.mode_epoch) == (2, 1)
    assert first.seq < second.seq
    assert first.nonce != second.nonce
    for header in (first, second):
        assert (header.worker, header.incarnation) == ("w1", incarnation.id)
        assert (header.base_version, header.round, header.lease) == (3, 4, 5)
        assert header.base_digest == BASE.digest
        assert header.payload_root == sealed.root
        assert header.manifest_digest == incarnation.manifest_digest


def test_no_two_lives_have_the_same_id() -> None:
    assert life().id != life().id
