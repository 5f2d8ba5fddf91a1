"""One suite for all validations, with messages that are handed over and messages that cross a wire as bytes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from precad.errors import Rejected
from precad.lab.attacks import cheating
from precad.lab.attacks.cheating import Cheat
from precad.mpc import field
from precad.mpc.prg import Purpose, Stream, digest
from precad.mpc.sharing import BLOCK
from precad.privacy import clipping
from precad.privacy.noise import integer_gaussian
from precad.privacy.terms import Adversary
from precad.protocol import aggregation, digests, norm_proof, submission
from precad.protocol.norm_proof import Challenge
from precad.protocol.params import Round, Unit, Validation
from precad.protocol.round import ServerSecrets, run_round
from precad.protocol.states import Opened, Role
from precad.protocol.submission import Submission
from precad.simulation import forging
from tests.protocol.drivers import SECRETS, make_round, run_over_the_wire

Runner = Callable[[Round, Mapping[str, Submission], Mapping[Role, ServerSecrets]], Opened]


def in_memory(round_: Round, submissions: Mapping[str, Submission], secrets: Mapping[Role, ServerSecrets]) -> Opened:
    return run_round(round_, submissions, secrets[Role.A], secrets[Role.B])


FORMS: dict[str, Runner] = {"memory": in_memory, "wire": run_over_the_wire}


def honest_submissions(round_: Round, count: int = 3) -> dict[str, Submission]:
    generator = np.random.default_rng(count)
    updates = generator.standard_normal((count, round_.params.dim)) * 10
    return {
        f"honest-{i}": submission.submit(round_, f"honest-{i}", clipping.encode_clipped(x, 30.0, 16))
        for i, x in enumerate(updates)
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("validation", "cheat"),
    [
        pytest.param(validation, cheat, id=f"{validation.value}-{cheat.name}")
        for validation in (Validation.PROOF, Validation.TRIPLES)
        for cheat in cheating.against(validation)
    ],
)
def test_a_cheat_is_rejected_and_changes_nothing(cheat: Cheat, validation: Validation, form: str) -> None:
    """The round equals, to the bit, the round without that client."""
    round_ = make_round(validation=validation)
    submissions = honest_submissions(round_)
    without = FORMS[form](round_, submissions, SECRETS)
    opened = FORMS[form](round_, {**submissions, "mallory": cheat.submit(round_, "mallory")}, SECRETS)
    assert opened.valid == set(submissions)
    assert opened.rejected == {"mallory": Rejected(cheat.expected)}
    assert np.array_equal(opened.noisy_sum, without.noisy_sum)


def test_a_client_that_knew_its_projections_would_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power: with a ρ that does not depend on the commitments, the vector of that cheat is accepted."""
    constant = digest(b"precad test", b"rho")
    monkeypatch.setattr(digests, "rho", lambda _round, _client, _a, _b: constant)
    monkeypatch.setattr(aggregation, "longest_sum", lambda _params, _valid: math.inf)
    round_ = make_round()
    x = forging.known_projections(round_, "mallory")
    assert max(abs(int(v)) for v in field.lift(x)) > 1 << 50
    opened = in_memory(round_, {"mallory": forging.forge(round_, "mallory", x, h=0)}, SECRETS)
    assert opened.valid == {"mallory"}


def test_cancelling_non_bits_would_win_against_equal_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power: with one weight for all wires of bits, a vector of norm 3 C is accepted."""
    derive = norm_proof.derive_challenge
    outer = field.outer

    def one_weight(*arguments: Any) -> Challenge:
        count = submission.proof_shape(round_.params).bit_wires
        with monkeypatch.context() as patch:
            ones = np.ones(count, np.uint64)
            patch.setattr(field, "outer", lambda x, y: outer(ones if x.size == count else x, y))
            return replace(derive(*arguments), wire_weights=ones)

    round_ = make_round()
    (cheat,) = (cheat for cheat in cheating.CHEATS if "cancel" in cheat.name)
    monkeypatch.setattr(norm_proof, "derive_challenge", one_weight)
    monkeypatch.setattr(aggregation, "longest_sum", lambda _params, _valid: math.inf)
    assert in_memory(round_, {"mallory": cheat.submit(round_, "mallory")}, SECRETS).valid == {"mallory"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("validation", [Validation.PROOF, Validation.TRIPLES])
@pytest.mark.parametrize("count", [1000, 10_000])
def test_thousands_of_wrapped_entries_are_rejected(count: int, validation: Validation, form: str) -> None:
    round_ = make_round(dim=12_000, validation=validation)
    x = forging.wrapped(round_, count)
    assert np.count_nonzero(x) == count
    submissions = honest_submissions(round_, 1)
    opened = FORMS[form](round_, {**submissions, "mallory": forging.forge(round_, "mallory", x)}, SECRETS)
    assert opened.valid == set(submissions)
    assert np.array_equal(opened.noisy_sum, FORMS[form](round_, submissions, SECRETS).noisy_sum)


def noise_of(round_: Round, role: Role) -> NDArray[np.int64]:
    stream = Stream(SECRETS[role].noise, Purpose.NOISE, round_.context(role.value))
    return integer_gaussian(round_.params.noise_std, round_.params.dim, stream)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("validation", Validation)
@pytest.mark.parametrize("noise", Adversary)
@pytest.mark.parametrize("unit", Unit)
def test_the_opened_sum_is_the_sum_of_updates_and_both_noises(
    form: str, validation: Validation, noise: Adversary, unit: Unit
) -> None:
    """To the last bit, in every variant of PROTOCOL §2."""
    round_ = make_round(validation=validation, noise=noise, unit=unit)
    generator = np.random.default_rng(0)
    updates = {f"c{i}": clipping.encode_clipped(generator.standard_normal(140), 30.0, 16) for i in range(4)}
    opened = FORMS[form](round_, {name: submission.submit(round_, name, x) for name, x in updates.items()}, SECRETS)
    expected = sum(updates.values()) + noise_of(round_, Role.A) + noise_of(round_, Role.B)
    assert np.array_equal(opened.noisy_sum, expected)
    assert opened.valid == set(updates)
    assert not opened.rejected


@pytest.mark.parametrize("dim", [BLOCK - 1, BLOCK, BLOCK + 1])
def test_blocks_of_a_share_make_no_difference(dim: int) -> None:
    round_ = make_round(dim=dim)
    x = clipping.encode_clipped(np.random.default_rng(0).standard_normal(dim), 30.0, 16)
    opened = run_round(round_, {"c": submission.submit(round_, "c", x)}, SECRETS[Role.A], SECRETS[Role.B])
    assert np.array_equal(opened.noisy_sum, x + noise_of(round_, Role.A) + noise_of(round_, Role.B))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("validation", Validation)
def test_a_round_with_nobody_in_it_opens_its_noise(form: str, validation: Validation) -> None:
    round_ = make_round(validation=validation)
    opened = FORMS[form](round_, {}, SECRETS)
    assert np.array_equal(opened.noisy_sum, noise_of(round_, Role.A) + noise_of(round_, Role.B))


@pytest.mark.parametrize("form", FORMS)
def test_without_validation_a_client_can_send_anything(form: str) -> None:
    """The paper's faster version is for privacy alone, and the parameters say so."""
    round_ = make_round(validation=Validation.NONE)
    huge = np.full(140, 10**12)
    opened = FORMS[form](round_, {"mallory": submission.submit(round_, "mallory", huge)}, SECRETS)
    assert np.array_equal(opened.noisy_sum, huge + noise_of(round_, Role.A) + noise_of(round_, Role.B))


def test_the_variants_scale_the_noise() -> None:
    """σ·R'·2^f for a record, σ·C·2^f for a client; divided by √2 where only clients are feared (paper, Table 1)."""
    record, client = make_round().params, make_round(unit=Unit.CLIENT).params
    assert record.noise_std == pytest.approx(65536 * 2 + math.sqrt(140) + 1)
    assert client.noise_std == 65536 * 30
    for unit, params in ((Unit.RECORD, record), (Unit.CLIENT, client)):
        less = make_round(unit=unit, noise=Adversary.CLIENTS).params
        assert less.noise_std == pytest.approx(params.noise_std / math.sqrt(2))
