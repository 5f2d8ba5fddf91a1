"""One suite for all validations and both forms: the in-memory round, and the pure steps."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from precad.attacks import cheating
from precad.attacks.cheating import Cheat
from precad.params import Round, Validation
from precad.privacy import clipping
from precad.protocol import submission
from precad.protocol.round import ServerSecrets, run_round
from precad.protocol.states import Opened, Role
from precad.protocol.submission import Submission
from tests.protocol.drivers import make_round, run_states

Runner = Callable[[Round, Mapping[str, Submission], Mapping[Role, ServerSecrets]], Opened]


def in_memory(round_: Round, submissions: Mapping[str, Submission], secrets: Mapping[Role, ServerSecrets]) -> Opened:
    return run_round(round_, submissions, secrets[Role.A], secrets[Role.B])


FORMS: dict[str, Runner] = {"memory": in_memory, "states": run_states}
VALIDATING = [Validation.PROOF]
SECRETS = {role: ServerSecrets.fresh() for role in Role}


def honest_submissions(round_: Round, count: int = 3) -> dict[str, Submission]:
    generator = np.random.default_rng(count)
    updates = generator.standard_normal((count, round_.params.dim)) * 10
    return {
        f"honest-{i}": submission.submit(round_, f"honest-{i}", clipping.encode_clipped(x, 30.0, 16))
        for i, x in enumerate(updates)
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("validation", VALIDATING)
@pytest.mark.parametrize("cheat", cheating.CHEATS, ids=lambda cheat: cheat.name)
def test_a_cheat_is_rejected_and_changes_nothing(cheat: Cheat, validation: Validation, form: str) -> None:
    """The round equals, to the bit, the round without that client."""
    if cheat not in cheating.against(validation):
        pytest.skip("a cheat at proofs")
    round_ = make_round(validation=validation)
    submissions = honest_submissions(round_)
    without = FORMS[form](round_, submissions, SECRETS)
    opened = FORMS[form](round_, {**submissions, "mallory": cheat.submit(round_, "mallory")}, SECRETS)
    assert opened.valid == set(submissions)
    assert set(opened.rejected) == {"mallory"}
    assert np.array_equal(opened.noisy_sum, without.noisy_sum)
