"""What a Byzantine worker sends under each attack."""

import pytest
import torch

from pliska.aggregation import AttackName, Krum, ParameterError, attack_named
from pliska.trainer.adversary import DELAY_MAX, Adversary

OWN = torch.tensor([1.0, -2.0, 3.0, 0.5])
HONEST = torch.stack([OWN + 0.1 * k for k in range(-3, 3)])
ON_GRADIENTS = [attack for attack in AttackName if attack is not AttackName.LABEL_FLIP]
ON_OWN_GRADIENT = [attack for attack in ON_GRADIENTS if not attack.is_omniscient]


def honest() -> torch.Tensor:
    return HONEST.clone()


def not_to_be_asked() -> torch.Tensor:
    raise AssertionError("this attack needs nobody else's gradient")


def test_sign_flip_turns_its_own_gradient_round_and_scales_it() -> None:
    adversary = Adversary(AttackName.SIGN_FLIP)
    assert torch.equal(adversary.gradient(OWN, not_to_be_asked, 1), -10 * OWN)
    weaker = Adversary(AttackName.SIGN_FLIP, scale=2.0)
    assert torch.equal(weaker.gradient(OWN, not_to_be_asked, 1), -2 * OWN)


def test_alie_stays_within_the_spread_it_was_given() -> None:
    sent = Adversary(AttackName.ALIE, scale=1.5).gradient(OWN, honest, 1)
    assert torch.allclose(sent, HONEST.mean(0) - 1.5 * HONEST.std(0))


def test_ipm_steps_against_the_honest_mean() -> None:
    sent = Adversary(AttackName.IPM, scale=0.5).gradient(OWN, honest, 1)
    assert torch.allclose(sent, -0.5 * HONEST.mean(0))


def test_nan_sends_one_nan_and_its_own_gradient_elsewhere() -> None:
    sent = Adversary(AttackName.NAN).gradient(OWN, not_to_be_asked, 1)
    assert int(sent.isnan().sum()) == 1
    assert torch.equal(sent[~sent.isnan()], OWN[~sent.isnan()])


def test_gaussian_depends_on_nothing_but_seed_and_round() -> None:
    def sent(seed: int, round_number: int) -> torch.Tensor:
        return Adversary(AttackName.GAUSSIAN, seed=seed).gradient(
            OWN, not_to_be_asked, round_number
        )

    before = torch.random.get_rng_state()
    assert torch.equal(sent(1, 7), sent(1, 7))
    assert not torch.equal(sent(1, 7), sent(1, 8))
    assert not torch.equal(sent(1, 7), sent(2, 7))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_delayed_sends_what_was_right_so_many_rounds_ago() -> None:
    adversary = Adversary(AttackName.DELAYED, scale=3)
    sent = [
        adversary.gradient(number * OWN, not_to_be_asked, number)[0].item()
        for number in range(1, 8)
    ]
    assert sent == [1, 1, 1, 1, 2, 3, 4]


@pytest.mark.parametrize("scale", [0, 2.5, DELAY_MAX + 1, float("inf")])
def test_delay_is_a_number_of_rounds(scale: float) -> None:
    Adversary(AttackName.DELAYED, DELAY_MAX)
    with pytest.raises(ParameterError, match="a delay is a number of rounds"):
        Adversary(AttackName.DELAYED, scale)


@pytest.mark.parametrize("attack", [AttackName.GAUSSIAN, AttackName.ADAPTIVE])
def test_accomplices_forge_one_set_of_rows_and_send_a_row_each(attack: AttackName) -> None:
    rule = Krum(f=2)
    sent = [
        Adversary(attack, seed=5, rule=rule).gradient(OWN, honest, 3, place, liars=2)
        for place in range(2)
    ]
    assert torch.equal(sent[0], sent[1]) == (attack is AttackName.ADAPTIVE)
    if attack is AttackName.ADAPTIVE:
        together = torch.vstack([*sent, HONEST])
        harm = float((rule(together).vector - HONEST.mean(0)).norm())
        plain = attack_named("sign-flip")(HONEST, 2, torch.Generator())
        assert harm >= float((rule(torch.vstack([plain, HONEST])).vector - HONEST.mean(0)).norm())


def test_label_flip_corrupts_targets_and_leaves_the_gradient() -> None:
    adversary = Adversary(AttackName.LABEL_FLIP)
    targets = torch.tensor([0, 4, 9])
    assert adversary.corrupt_targets(targets, 10).tolist() == [9, 5, 0]
    assert targets.tolist() == [0, 4, 9]
    assert torch.equal(adversary.gradient(OWN, not_to_be_asked, 1), OWN)


@pytest.mark.parametrize("attack", ON_GRADIENTS)
def test_attack_on_gradients_leaves_targets_and_inputs_alone(attack: AttackName) -> None:
    targets, own = torch.tensor([0, 4, 9]), OWN.clone()
    adversary = Adversary(attack, rule=Krum(f=1))
    assert torch.equal(adversary.corrupt_targets(targets, 10), targets)
    sent = adversary.gradient(own, honest, 3)
    assert sent.shape == own.shape
    assert sent.dtype == own.dtype
    assert torch.equal(own, OWN)


@pytest.mark.parametrize("attack", ON_OWN_GRADIENT)
def test_attack_that_is_not_omniscient_asks_for_no_gradient(attack: AttackName) -> None:
    Adversary(attack).gradient(OWN, not_to_be_asked, 1)


@pytest.mark.parametrize("attack", [AttackName.NAN, AttackName.LABEL_FLIP])
def test_scale_of_an_attack_without_one_is_refused(attack: AttackName) -> None:
    with pytest.raises(ParameterError, match="has no scale"):
        Adversary(attack, scale=2.0)
