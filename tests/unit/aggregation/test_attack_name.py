import subprocess
import sys

import pytest
import torch

from pliska.aggregation import AttackName, Krum, ParameterError, attack_named

ON_GRADIENTS = [name for name in AttackName if name is not AttackName.LABEL_FLIP]


def test_every_strength_is_a_parameter_of_its_function() -> None:
    honest = torch.randn(5, 7, generator=torch.Generator().manual_seed(4))
    strengths = {name: name.strength for name in AttackName if name.strength}
    del strengths[AttackName.DELAYED]  # in rounds: whoever makes it keeps the rows
    for name, strength in strengths.items():
        attack = attack_named(name, **{strength.parameter: strength.drill})
        forged = attack(honest, 2, torch.Generator().manual_seed(5))
        assert forged.shape == (2, 7), name


def test_names_need_no_torch() -> None:
    program = "import sys; from pliska.aggregation import AttackName; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", ON_GRADIENTS)
def test_only_attacks_that_know_the_rule_take_one(name: AttackName) -> None:
    honest = torch.randn(5, 7, generator=torch.Generator().manual_seed(6))
    if name.knows_rule:
        attack_named(name, rule=Krum(f=1))(honest, 1, torch.Generator())
        assert name.is_omniscient
    else:
        with pytest.raises(ParameterError, match="no parameter 'rule'"):
            attack_named(name, rule=Krum(f=1))
