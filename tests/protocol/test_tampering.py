"""Mutation: every field of every message, in every direction, and never a wrong sum."""

import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from precad.errors import ProtocolError, Reason, Rejected
from precad.mpc.field import P
from precad.mpc.secret import Secret
from precad.mpc.single_use import SingleUse
from precad.protocol import digests, states, submission
from precad.protocol.messages import (
    KINDS,
    Close,
    DealA,
    Header,
    Message,
    NoisyShare,
    Nonce,
    PartA,
    PartB,
    decode,
    encode,
)
from precad.protocol.params import Round, Validation
from precad.protocol.states import Role
from precad.protocol.submission import Submission
from precad.protocol.triples import dealing
from tests.messages import says
from tests.protocol.drivers import SECRETS, make_round, run_over_the_wire
from tests.protocol.test_conformance import honest_submissions

ROUND = make_round(dim=40)
HONEST = honest_submissions(ROUND)
FIRST = "honest-0"
OWN, THEIRS = SECRETS[Role.A].nonce, SECRETS[Role.B].nonce


def mutants(value: Any) -> list[Any]:
    """Other values of the same type."""
    if isinstance(value, Secret):
        return [Secret(other) for other in mutants(value.value)]
    if isinstance(value, bytes):
        return [bytes([value[0] ^ 1]) + value[1:], value[:-1] + bytes([value[-1] ^ 128])]
    if isinstance(value, int):
        return [value + 1, value ^ 1 << 40]
    if isinstance(value, str):
        return [value + "'", "honest-1"]
    if isinstance(value, tuple):
        return [value[1:], value[:-1], (*value[:-1], *mutants(value[-1])[:1]), ()]
    changed = []
    for at in {0, value.size // 2, value.size - 1}:
        for error in (1, P - 1, 1 << 60):
            other = value.copy()
            other[at] = (int(other[at]) + error) % P
            changed.append(other)
    return changed


def cases(kinds: list[type[Message]]) -> list[Any]:
    """All fields, but for a header's ``head``: one round means nothing by it (tests/deployment/test_set_back.py)."""
    named = [(kind, f.name) for kind in kinds for f in fields(kind)]  # type: ignore[arg-type]
    return [pytest.param(k, name, id=f"{k.__name__}.{name}") for k, name in named if (k, name) != (Header, "head")]


CLIENT_FIELDS = {Header: "header", PartA: "part_a", PartB: "part_b"}
SERVER_MESSAGES = [kind for kind in KINDS if kind not in CLIENT_FIELDS and KINDS[kind] <= 8]


REASONS: dict[tuple[type[Message], str], Reason] = {
    **{(Header, name): Reason.FOREIGN for name in ("task", "round", "model", "nonces", "client")},
    **{(Header, name): Reason.PART for name in ("part_a", "part_b")},
    **{(PartA, name): Reason.PART for name in ("seed", "tail")},
}
"""Why a change to a field is noticed; to all others, since a commitment is not opened."""


@pytest.mark.parametrize(("kind", "name"), cases(list(CLIENT_FIELDS)))
def test_a_tampered_submission_is_rejected_and_changes_nothing(kind: type[Message], name: str) -> None:
    raw = getattr(HONEST[FIRST], CLIENT_FIELDS[kind])
    message = decode(raw, kind, **(submission.part_a_sizes(ROUND.params) if kind is PartA else {}))
    without = run_over_the_wire(ROUND, {k: v for k, v in HONEST.items() if k != FIRST}, SECRETS)
    for value in mutants(getattr(message, name)):
        tampered = encode(replace(message, **{name: value}))  # type: ignore[type-var]
        submissions = {**HONEST, FIRST: replace(HONEST[FIRST], **{CLIENT_FIELDS[kind]: tampered})}
        opened = run_over_the_wire(ROUND, submissions, SECRETS)
        assert opened.rejected == {FIRST: Rejected(REASONS.get((kind, name), Reason.COMMITMENT))}
        assert np.array_equal(opened.noisy_sum, without.noisy_sum)


@pytest.mark.parametrize("to", Role)
@pytest.mark.parametrize(("kind", "name"), cases(SERVER_MESSAGES))
def test_a_tampered_message_between_servers_ends_the_round(kind: type[Message], name: str, to: Role) -> None:
    """No server opens a sum over another set, or another sum over the same set."""

    def tamper(message: Message, at: Role) -> Message:
        if type(message) is not kind or at is not to:
            return message
        options = mutants(getattr(message, name))
        return replace(message, **{name: options[turn % len(options)]})  # type: ignore[type-var]

    for turn in range(9):  # noqa: B007 - tamper reads it
        with pytest.raises(ProtocolError):
            run_over_the_wire(ROUND, HONEST, SECRETS, tamper)


@pytest.mark.parametrize("bit", range(0, 8 * 64, 37))
def test_flipped_bits_of_client_messages(bit: int) -> None:
    """Anywhere in the first 64 bytes of each message, and in its last 64."""
    without = run_over_the_wire(ROUND, {k: v for k, v in HONEST.items() if k != FIRST}, SECRETS)
    for name in CLIENT_FIELDS.values():
        for end in (False, True):
            raw = bytearray(getattr(HONEST[FIRST], name))
            raw[bit // 8 - (64 if end else 0)] ^= 1 << bit % 8
            opened = run_over_the_wire(ROUND, {**HONEST, FIRST: replace(HONEST[FIRST], **{name: bytes(raw)})}, SECRETS)
            assert set(opened.rejected) == {FIRST}
            assert np.array_equal(opened.noisy_sum, without.noisy_sum)


def test_a_submission_counts_once() -> None:
    """The same bytes again are the same submission; others are refused, and the first stands."""
    sent = HONEST[FIRST]
    state = states.Collecting(ROUND, Role.A, frozenset(HONEST))
    received = states.receive(state, FIRST, sent.header, sent.part_a, None)
    assert isinstance(received, states.Accepted)
    again = states.receive(state, FIRST, sent.header, sent.part_a, received.header)
    assert isinstance(again, states.Accepted)
    assert encode(again.header) == sent.header
    other = honest_submissions(ROUND)[FIRST]
    refused = states.receive(state, FIRST, other.header, other.part_a, received.header)
    assert isinstance(refused, Rejected)
    assert refused.reason is Reason.REPEATED
    with pytest.raises(ProtocolError, match="two submissions of one client"):
        states.close(state, [received.header, decode(other.header, Header)])


def test_who_was_not_selected_does_not_count() -> None:
    state = states.Collecting(ROUND, Role.A, frozenset({"honest-1"}))
    rejected = states.receive(state, FIRST, HONEST[FIRST].header, HONEST[FIRST].part_a, None)
    assert isinstance(rejected, Rejected)
    assert "not selected" in rejected.reason.value


def received_by(
    role: Role, submissions: dict[str, Submission], round_: Round = ROUND
) -> tuple[states.Collecting, dict[str, states.Accepted]]:
    state, kept = states.Collecting(round_, role, frozenset(submissions)), {}
    for client, sent in submissions.items():
        received = states.receive(state, client, sent.header, sent.part_a if role is Role.A else sent.part_b, None)
        assert isinstance(received, states.Accepted)
        kept[client] = received
    return state, kept


def closed_by(
    role: Role, submissions: dict[str, Submission], round_: Round = ROUND
) -> tuple[states.Closing, Close, dict[str, states.Accepted]]:
    state, kept = received_by(role, submissions, round_)
    return *states.close(state, (each.header for each in kept.values())), kept


def advance(submissions: dict[str, Submission]) -> tuple[states.Checking, dict[str, states.Accepted], states.Agreed]:
    """Server A, up to its challenge, with itself as its peer."""
    closing, close, kept = closed_by(Role.A, submissions)
    agreed, _ = states.agree(closing, close, OWN)
    return states.challenge(agreed, Nonce(agreed.closed, THEIRS)), kept, agreed


def test_a_second_challenge_is_refused() -> None:
    """However it is asked for: another nonce, another closed set, or the steps before taken again."""
    state, kept = received_by(Role.A, HONEST)
    headers = [each.header for each in kept.values()]
    closing, close = states.close(state, headers)
    agreed, message = states.agree(closing, close, OWN)
    first = states.challenge(agreed, Nonce(agreed.closed, THEIRS))
    again, same = states.agree(states.close(state, headers)[0], close, OWN)
    assert encode(same) == encode(message)
    assert states.challenge(again, Nonce(again.closed, THEIRS)).seed == first.seed
    with pytest.raises(ProtocolError, match=says("other server's nonce", "before")):
        states.challenge(again, Nonce(again.closed, Secret.fresh()))
    with pytest.raises(ProtocolError, match=says("closed set", "before")):
        states.agree(closing, replace(close, headers=close.headers[1:]), OWN)
    with pytest.raises(ProtocolError, match=says("this server's nonce", "before")):
        states.agree(closing, close, Secret.fresh())


def test_one_noise_is_never_used_over_two_sums() -> None:
    """Their difference would be a share of an update (PROTOCOL §6)."""
    checking, kept, _ = advance(HONEST)
    names, noise = sorted(HONEST), Secret.fresh()
    everyone = states.conclude(checking, names)
    fewer = states.conclude(checking, names[1:])
    _, tally = states.aggregate(everyone, [kept[name] for name in names], noise)
    _, again = states.aggregate(everyone, [kept[name] for name in reversed(names)], noise)
    assert encode(again) == encode(tally)
    with pytest.raises(ProtocolError, match=says("outcome", "before")):
        states.aggregate(fewer, [kept[name] for name in names[1:]], noise)
    with pytest.raises(ProtocolError, match=says("this server's noise", "before")):
        states.aggregate(everyone, [kept[name] for name in names], Secret.fresh())


def test_a_servers_own_messages_are_not_taken_for_the_others() -> None:
    checking, kept, agreed = advance(HONEST)
    with pytest.raises(ProtocolError, match="own nonce"):
        states.challenge(agreed, Nonce(agreed.closed, agreed.nonce))
    tallied, tally = states.aggregate(
        states.conclude(checking, sorted(HONEST)), [kept[name] for name in sorted(HONEST)], Secret.fresh()
    )
    with pytest.raises(ProtocolError, match="own noisy share"):
        states.reveal(tallied, tally)


def test_vectors_of_other_lengths_from_the_other_server_are_its_breach() -> None:
    checking, kept, _ = advance(HONEST)
    own = states.check(checking, kept[FIRST])
    for name in ("wires", "sums"):
        with pytest.raises(ProtocolError, match="other lengths"):
            states.judge(checking, own, replace(own, **{name: getattr(own, name)[:-1]}))
    tallied, tally = states.aggregate(
        states.conclude(checking, sorted(HONEST)), [kept[name] for name in sorted(HONEST)], Secret.fresh()
    )
    short = np.zeros(ROUND.params.dim - 1, np.uint64)
    salt = Secret.fresh()
    revealed, _ = states.reveal(tallied, replace(tally, share=digests.tally(salt, short)))
    with pytest.raises(ProtocolError, match=says("tally")):
        states.finish(revealed, NoisyShare(tally.outcome, salt, short))


def test_servers_with_other_parameters_do_not_agree() -> None:
    """σ = 1 here, σ = 0.001 there: D differs, and nothing is opened."""
    other = replace(ROUND, params=replace(ROUND.params, noise_multiplier=0.001))
    closing, close, _ = closed_by(Role.B, HONEST, other)
    theirs, _ = states.agree(closing, close, THEIRS)
    _, _, agreed = advance(HONEST)
    assert theirs.closed != agreed.closed
    with pytest.raises(ProtocolError, match="another set of submissions"):
        states.challenge(agreed, Nonce(theirs.closed, THEIRS))


def test_a_verdict_is_final_and_every_submission_needs_one() -> None:
    checking, kept, _ = advance(HONEST)
    with pytest.raises(ProtocolError, match="no verdict yet"):
        states.aggregate(checking, [], Secret.fresh())
    judged, noise = states.conclude(checking, {"honest-1", "honest-2"}), Secret.fresh()
    for state, again in ((judged, {FIRST}), (judged, {"honest-1"}), (judged, set[str]()), (checking, {"nobody"})):
        with pytest.raises(ProtocolError, match="verdict"):
            states.conclude(state, again)
    with pytest.raises(ProtocolError, match="not valid"):
        states.aggregate(judged, [kept[FIRST]], noise)
    with pytest.raises(ProtocolError, match="added before"):
        states.aggregate(judged, [kept["honest-1"], kept["honest-1"]], noise)
    with pytest.raises(ProtocolError, match="was not added"):
        states.aggregate(judged, [kept["honest-1"]], noise)


def test_a_part_of_another_round_cannot_be_slipped_in() -> None:
    checking, _, _ = advance(HONEST)
    _, others, _ = advance(honest_submissions(ROUND))
    with pytest.raises(ProtocolError, match=says("closed set")):
        states.check(checking, others[FIRST])
    with pytest.raises(ProtocolError, match=says("not accepted")):
        states.restore(checking, FIRST, HONEST["honest-1"].part_a)
    with pytest.raises(ProtocolError, match=says("not accepted")):
        states.restore(checking, "nobody", HONEST[FIRST].part_a)


def test_proof_steps_are_refused_where_nothing_is_validated() -> None:
    round_ = make_round(dim=40, validation=Validation.NONE)
    submissions = honest_submissions(round_, 1)
    closing, close, kept = closed_by(Role.A, submissions, round_)
    agreed, _ = states.agree(closing, close, OWN)
    checking = states.challenge(agreed, Nonce(agreed.closed, THEIRS))
    with pytest.raises(ProtocolError, match="validates by none"):
        states.check(checking, kept[FIRST])
    with pytest.raises(ProtocolError, match="validates by none"):
        states.begin_triples(checking, SingleUse("the deal", DealA(agreed.closed, Secret.fresh())))


def test_a_correlation_is_begun_once_in_a_round() -> None:
    """Even if the dealer's bytes are read again: two runs with one mask would reveal a share."""
    round_ = make_round(dim=40, validation=Validation.TRIPLES)
    checking, agreed = after_challenge(round_)
    deal_a, _ = dealing.deal(round_, [], agreed.closed, Secret.fresh(), Secret.fresh())
    states.begin_triples(checking, SingleUse("the deal", deal_a))
    with pytest.raises(ProtocolError, match=says("correlation", "before")):
        states.begin_triples(checking, SingleUse("the deal", deal_a))


def after_challenge(round_: Round) -> tuple[states.Checking, states.Agreed]:
    closing, close = states.close(states.Collecting(round_, Role.A, frozenset()), [])
    agreed, _ = states.agree(closing, close, OWN)
    return states.challenge(agreed, Nonce(agreed.closed, THEIRS)), agreed


def test_pins_are_not_copied() -> None:
    """A copy of a state would forget what the original has answered to."""
    checking, agreed = after_challenge(ROUND)
    for state in (checking, agreed, SingleUse("the deal", 1)):
        with pytest.raises(TypeError, match="pickle"):
            copy.deepcopy(state)
