"""Validation by triples: who is accepted, what a server sees, and what it refuses."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precad.errors import ProtocolError
from precad.mpc import field, fixed_point
from precad.mpc.field import FieldVector, P
from precad.mpc.prg import Digest, Purpose, Stream
from precad.mpc.secret import Secret
from precad.mpc.single_use import Pins, SingleUse
from precad.privacy import clipping
from precad.protocol import submission
from precad.protocol.messages import DealA, DealB, Gate, Masked, Message, NormOpening, PartA, PartB, decode, encode
from precad.protocol.params import Params, Round, Validation
from precad.protocol.round import Servers, validate_by_triples
from precad.protocol.sizes import sizes
from precad.protocol.states import Role
from precad.protocol.triples import beaver as triples
from precad.protocol.triples import dealing
from precad.protocol.triples import norm as norm_triples
from precad.protocol.triples.beaver import MASK_BITS, Words
from precad.protocol.triples.dealing import Plan
from precad.protocol.triples.norm import Masking, OpeningNorms
from tests.messages import says
from tests.protocol.drivers import OverTheWire
from tests.protocol.test_norm_proof import of_norm
from tests.stat_tests import ALPHA, uniform_bins_p_value, uniform_field_p_value

C = 30.0
EDGE = 30 << 16
"""C·2^f: S is its square."""


def make_round(dim: int, client_bound: float = C) -> Round:
    params = Params(
        dim=dim,
        clients=1000,
        record_bound=2.0,
        client_bound=client_bound,
        noise_multiplier=1.0,
        validation=Validation.TRIPLES,
    )
    return Round(params, Digest(bytes(32)), 3, Digest(bytes(range(32))), Digest(bytes(32)))


def padded(dim: int, *entries: int) -> list[int]:
    return [*entries, *[0] * (dim - len(entries))]


def centred(x: list[int]) -> list[int]:
    """x as an honest client would extend it, with h = ⌊½·Σ x_i⌋."""
    return [*x, sum(x) // 2]


Shares = Mapping[str, tuple[FieldVector, FieldVector]]


def share(round_: Round, vectors: Mapping[str, list[int]]) -> Shares:
    result = {}
    for client, vector in vectors.items():
        b = Stream(Secret.fresh(), Purpose.SHARE, round_.context(client)).field(len(vector))
        result[client] = field.sub(np.array([v % P for v in vector], np.uint64), b), b
    return result


CLOSED = Digest(bytes(range(32)))


def fresh_deal(round_: Round, clients: list[str]) -> tuple[DealA, DealB]:
    return dealing.deal(round_, clients, CLOSED, Secret.fresh(), Secret.fresh())


def validate(round_: Round, vectors: Mapping[str, list[int]]) -> list[str]:
    valid, _ = exchange(round_, share(round_, vectors), Servers())
    return sorted(valid)


# Verdicts


@pytest.mark.parametrize("draws", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_honest_vectors_are_never_rejected(draws: int) -> None:
    """At norm 0, C/2, exactly C, and in between."""
    generator, round_ = np.random.default_rng(2), make_round(64)
    s = round_.params.squared_bound
    for _ in range(draws // 500):
        vectors = {}
        for turn in range(500):
            squared = (0, s // 4, s, int(s * generator.random()))[turn % 4]
            vectors[f"c{turn}"] = centred(of_norm(squared, generator).tolist())
        assert set(validate(round_, vectors)) == set(vectors)


@pytest.mark.parametrize("clients", [0, 1, 2, 63, 64, 65, 130])
def test_any_number_of_clients(clients: int) -> None:
    """Every third is over the bound, by one."""
    round_ = make_round(5)
    vectors = {f"c{i:03}": centred(padded(5, EDGE, 0, int(i % 3 == 0))) for i in range(clients)}
    assert validate(round_, vectors) == [f"c{i:03}" for i in range(clients) if i % 3]


@pytest.mark.parametrize("client_bound", [2.0**-16, 0.3, 1.0, 30.0, 151.0])
@pytest.mark.parametrize("share_of_bound", [0.0, 0.5, 1.0])
def test_honest_vectors_are_accepted(client_bound: float, share_of_bound: float) -> None:
    round_ = make_round(200, client_bound)
    generator = np.random.default_rng(7)
    vectors = {}
    for i in range(20):
        update = generator.standard_normal(200) ** (1 + 2 * (i % 3))
        update *= share_of_bound * client_bound / np.linalg.norm(update)
        x = clipping.encode_clipped(update, client_bound, round_.params.fractional_bits)
        vectors[f"c{i:02}"] = centred(x.tolist())
    edge = int(share_of_bound * fixed_point.squared_bound(client_bound, round_.params.fractional_bits) ** 0.5)
    vectors |= {"positive": centred(padded(200, edge)), "negative": centred(padded(200, -edge))}
    assert validate(round_, vectors) == sorted(vectors)


@given(st.lists(st.lists(st.integers(-EDGE, EDGE), min_size=4, max_size=4), min_size=1, max_size=40))
@settings(max_examples=25)
def test_vectors_that_do_not_wrap_are_judged_by_their_norm(vectors: list[list[int]]) -> None:
    named = {f"c{i:02}": centred(x) for i, x in enumerate(vectors)}
    valid = [name for name, x in named.items() if sum(v * v for v in x[:-1]) <= EDGE**2]
    assert validate(make_round(4), named) == valid


@pytest.mark.parametrize("excess", [1, 2, 1000, EDGE**2, P // 4 - EDGE**2])
def test_over_the_bound(excess: int) -> None:
    """‖x‖² = S + excess or the next above it, up to p/4, where nothing wraps."""
    root = math.isqrt(EDGE**2 + excess)
    rest = EDGE**2 + excess - root**2
    last = math.isqrt(rest - 1) + 1 if rest else 0
    over = centred(padded(30, root, last))
    assert validate(make_round(30), {"honest": centred(padded(30, EDGE)), "over": over}) == ["honest"]


def three_squares_to_zero() -> list[int]:
    """1 + v² + w² ≡ 0 mod p."""
    for v in range(2, 100):
        w = pow(-1 - v * v, (P + 1) // 4, P)
        if (1 + v * v + w * w) % P == 0:
            return [1, v, w]
    raise AssertionError


HALF = (P + 1) // 2
WRAPPED = {
    "⌈√p⌉": padded(8192, 1_518_500_250),
    "-⌈√p⌉": padded(8192, P - 1_518_500_250),
    "halves": padded(8192, *[HALF] * 4),
    "halves of both signs": padded(8192, HALF, P - HALF, HALF, P - HALF),
    "many halves": padded(8192, *[HALF] * 4000),
    "zero mod p": padded(8192, *three_squares_to_zero()),
    "small entries, x·x = p + 1": [1 << 24] * 8192,
    "small entries of both signs": [1 << 24, P - (1 << 24)] * 4096,
    "larger entries, x·x = p + 1": padded(8192, *[1 << 28] * 32),
}


def lifted(x: list[int]) -> list[int]:
    return [v - P if v > P // 2 else v for v in x]


@pytest.mark.parametrize("name", WRAPPED)
def test_vectors_that_wrap_are_rejected(name: str) -> None:
    """The paper's check, x·x ≤ S mod p, accepts each of these. Whatever h the client chooses, it must not pass."""
    x = WRAPPED[name]
    assert sum(v * v for v in x) % P <= EDGE**2
    middle = sum(lifted(x)) // 2
    choices = [middle, 0, 1, sum(x) * HALF, middle + (1 << 23), max(lifted(x), key=abs), P // 2]
    vectors = {"honest": [0] * 8193, **{f"wrapped {i}": [*x, h] for i, h in enumerate(choices)}}
    assert validate(make_round(8192), vectors) == ["honest"]


@pytest.mark.parametrize(("h", "valid"), [(0, True), (-(1 << 24) + 1, True), (1 << 24, True), (-(1 << 24), False)])
def test_the_window_is_half_open(h: int, valid: bool) -> None:
    """x = 0, so u_j = −h must lie in [−τ, τ), with τ = 2^24."""
    assert fixed_point.window(EDGE**2) == 1 << 24
    assert validate(make_round(6), {"c": [*padded(6), h]}) == ["c"] * valid
    assert validate(make_round(6), {"c": [*padded(6), (1 << 24) + 1]}) == []


TAU = 1 << 24
MASKS = [0, 1, TAU - 1, TAU, TAU + 1, 2 * TAU - 1, 2 * TAU, P // 2, P - 2 * TAU, P - TAU - 1, P - TAU, P - 2, P - 1]


def test_every_mask_gives_the_same_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks at which a window, or 2y + μ, wraps around p come with probability 2^-36: here they are forced."""
    forced = {str(i): mask for i, mask in enumerate(MASKS)}
    seeds: list[bytes] = []

    def masks(_round: Round, seed: Secret, client: str) -> FieldVector:
        if seed.value not in seeds:
            seeds.append(seed.value)  # the dealer asks for A's first
        mask = forced[client.split()[1]] if seed.value == seeds[0] else 0
        return np.full(65, mask, np.uint64)

    monkeypatch.setattr(dealing, "masks", masks)
    vectors, valid = {}, set()
    for i in forced:
        for u in (-TAU - 1, -TAU, -TAU + 1, -1, 0, 1, TAU - 1, TAU, TAU + 1, P // 2):
            vectors[f"window {i} {u}"] = [*padded(4), -u]
            valid |= {f"window {i} {u}"} if -TAU <= u < TAU else set()
        for excess in (0, 1):
            vectors[f"norm {i} {excess}"] = centred(padded(4, EDGE, excess))
            valid |= {f"norm {i} {excess}"} if excess == 0 else set()
    assert validate(make_round(4), vectors) == sorted(valid)


def test_a_submission_of_this_mode() -> None:
    round_ = make_round(50)
    shares = {}
    for client in ("a", "b"):
        x = clipping.encode_clipped(np.full(50, 9.0), C, round_.params.fractional_bits)
        sent = submission.submit(round_, client, x)
        part_a = decode(sent.part_a, PartA, **submission.part_a_sizes(round_.params))
        parts = part_a, decode(sent.part_b, PartB)
        shares[client] = submission.share_of(round_, client, parts[0]), submission.share_of(round_, client, parts[1])
    assert exchange(round_, shares)[0] == {"a", "b"}


# The dealer


@pytest.mark.parametrize("clients", [1, 65])
def test_the_correlations_of_a_deal(clients: int) -> None:
    round_, names = make_round(20_000 // clients), [f"c{i:02}" for i in range(clients)]
    deal_a, deal_b = fresh_deal(round_, names)
    assert {name: getattr(deal_b, name).size for name in ("norms", "mask_bits", "and_bits")} == dealing.plan(
        round_, names
    ).deal_sizes
    state_a, state_b = begin(round_, names, deal_a, deal_b)
    masks = []
    for i, client in enumerate(names):
        shares = [
            dealing.square_stream(round_, deal.seed, client).field(round_.params.dim) for deal in (deal_a, deal_b)
        ]
        a = field.add(*shares)
        r = dealing.square_share(round_, deal_a.seed, client) + int(deal_b.norms[i])
        assert field.dot(a, a) == r % P
        mu = [dealing.masks(round_, deal.seed, client) for deal in (deal_a, deal_b)]
        masks.append(field.add(*mu))
    (bits_a, ands_a), (bits_b, ands_b) = norm_triples._expand(state_a), norm_triples._expand(state_b)
    ordered = np.concatenate([*(mu[:-1] for mu in masks), np.array([mu[-1] for mu in masks], np.uint64)])
    assert np.array_equal(bits_a ^ bits_b, triples.slice_bits(ordered, MASK_BITS))
    assert len(ands_a) == len(ands_b) == 13
    for a_share, b_share in zip(ands_a, ands_b, strict=True):
        alpha, beta = a_share.alpha ^ b_share.alpha, a_share.beta ^ b_share.beta
        alpha = np.concatenate([alpha, alpha[1 : len(beta) - len(alpha) + 1]])
        assert np.array_equal(a_share.gamma ^ b_share.gamma, alpha & beta)


def begin(
    round_: Round, clients: list[str], deal_a: DealA, deal_b: DealB, z_seed: Digest = CLOSED
) -> tuple[Masking, Masking]:
    return (
        norm_triples.begin(round_, True, clients, CLOSED, z_seed, SingleUse("A's correlation", deal_a), Pins()),
        norm_triples.begin(round_, False, clients, CLOSED, z_seed, SingleUse("B's correlation", deal_b), Pins()),
    )


def test_a_correlation_is_never_used_twice() -> None:
    round_ = make_round(5)
    deal_a, deal_b = fresh_deal(round_, ["c"])
    for leader, once in ((True, SingleUse("A's", deal_a)), (False, SingleUse("B's", deal_b))):
        state = norm_triples.begin(round_, leader, ["c"], CLOSED, Digest(bytes(32)), once, Pins())
        with pytest.raises(ProtocolError, match="twice"):
            norm_triples.begin(round_, leader, ["c"], CLOSED, Digest(bytes(32)), once, Pins())
        norm_triples.mask(state, "c", np.zeros(6, np.uint64))
        with pytest.raises(ProtocolError, match=says("mask of c")):
            norm_triples.mask(state, "c", np.ones(6, np.uint64))


@pytest.mark.parametrize("name", ["norms", "mask_bits", "and_bits"])
def test_a_deal_for_another_number_of_clients_is_refused(name: str) -> None:
    round_ = make_round(5)
    _, deal_b = fresh_deal(round_, ["c"])
    short = replace(deal_b, **{name: getattr(deal_b, name)[:-1]})
    with pytest.raises(ProtocolError, match=name):
        norm_triples.begin(round_, False, ["c"], CLOSED, Digest(bytes(32)), SingleUse("B's", short), Pins())


def test_secrets_do_not_print() -> None:
    round_ = make_round(5)
    deal_a, deal_b = fresh_deal(round_, ["c"])
    for state in begin(round_, ["c"], deal_a, deal_b):
        assert repr(state).startswith("Masking(")
        assert "[5]" not in repr(state)
        assert str(state.deal.seed.value) not in repr(state)


# Both servers over a wire, on which somebody may change one message to A


def exchange(round_: Round, shares: Shares, servers: Servers | None = None) -> tuple[frozenset[str], list[Message]]:
    """The verdict on which the servers agree, and what A has seen."""
    wire = OverTheWire()
    deals, z_seed = fresh_deal(round_, sorted(shares)), Digest(Secret.fresh().value)
    masking = dict(zip(Role, begin(round_, sorted(shares), *deals, z_seed), strict=True))

    def mask(role: Role, state: Masking, client: str) -> Masked:
        return norm_triples.mask(state, client, shares[client][0 if role is Role.A else 1])

    decided = validate_by_triples(servers or wire, masking, mask)
    if decided[Role.A] != decided[Role.B]:
        raise ProtocolError("the servers disagree")  # what Tally tells them
    return decided[Role.A].valid, wire.seen[Role.A]


def flip(words: Words, at: int) -> Words:
    changed = words.copy()
    changed[at] ^= np.uint64(1)
    return Words(changed)


def shift(x: FieldVector, at: int) -> FieldVector:
    changed = x.copy()
    changed[at] = (int(changed[at]) + P // 3) % P
    return changed


def changes(message: Message) -> dict[str, Message]:
    """One change of every field of a message, under a name."""
    other = Digest(bytes(31) + b"1")
    if isinstance(message, Masked):
        return {
            f"{message.client}.client": replace(message, client="unknown"),
            f"{message.client}.b": replace(message, b=shift(message.b, 0)),
            f"{message.client}.b[-1]": replace(message, b=shift(message.b, -1)),
            f"{message.client}.b, short": replace(message, b=message.b[:-1]),
            f"{message.client}.projections": replace(message, projections=shift(message.projections, 63)),
            f"{message.client}.projections, short": replace(message, projections=message.projections[1:]),
        }
    if isinstance(message, NormOpening):
        return {
            "norms.opened": replace(message, opened=other),
            "norms.values[0]": replace(message, values=shift(message.values, 0)),
            "norms.values[1]": replace(message, values=shift(message.values, 1)),
            "norms.values, short": replace(message, values=message.values[1:]),
        }
    assert isinstance(message, Gate)
    return {
        f"{message.level}.level": replace(message, level=message.level + 1),
        f"{message.level}.opened": replace(message, opened=other),
        f"{message.level}.words[0]": replace(message, words=flip(message.words, 0)),
        f"{message.level}.words[-1]": replace(message, words=flip(message.words, -1)),
        f"{message.level}.words, short": replace(message, words=Words(message.words[1:])),
    }


TWO = {"honest": centred(padded(4, EDGE)), "over": centred(padded(4, EDGE, 1))}
"""By name of client; *over* is beyond the bound by one."""


def test_every_change_of_a_message_on_its_way_is_noticed() -> None:
    round_ = make_round(4)
    valid, seen = exchange(round_, share(round_, TWO))
    assert valid == {"honest"}
    names = [name for message in seen for name in changes(message)]
    assert len(names) == len(set(names)) == 2 * 6 + 4 + 14 * 5
    for name in names:

        def change(message: Message, to: Role, name: str = name) -> Message:
            return changes(message).get(name, message) if to is Role.A else message

        with pytest.raises(ProtocolError):
            exchange(round_, share(round_, TWO), OverTheWire(change))


def test_a_server_refuses_steps_out_of_order() -> None:
    round_, zeros = make_round(4), np.zeros(5, np.uint64)
    a, b = begin(round_, ["c", "d"], *fresh_deal(round_, ["c", "d"]))
    own, peer = norm_triples.mask(a, "c", zeros), norm_triples.mask(b, "c", zeros)
    with pytest.raises(ProtocolError, match="not masked yet"):
        norm_triples.open_norms(a)
    with pytest.raises(ProtocolError, match="another submission"):
        norm_triples.absorb(a, own, norm_triples.mask(b, "d", zeros))
    with pytest.raises(ProtocolError, match="not of this round"):
        norm_triples.absorb(a, replace(own, client="e"), replace(peer, client="e"))
    absorbed = norm_triples.absorb(a, own, peer)
    with pytest.raises(ProtocolError, match="opened before"):
        norm_triples.absorb(absorbed, own, peer)


def test_a_callers_mistakes_are_named() -> None:
    round_ = make_round(4)
    for clients in (["d", "c"], ["c", "c"]):
        with pytest.raises(ValueError, match="sorted"):
            fresh_deal(round_, clients)
    deal_a, deal_b = fresh_deal(round_, ["c"])
    with pytest.raises(ValueError, match="A is the leader"):
        norm_triples.begin(round_, False, ["c"], CLOSED, Digest(bytes(32)), SingleUse("A's", deal_a), Pins())
    state, _ = begin(round_, ["c"], deal_a, deal_b)
    with pytest.raises(ValueError, match=says(5, 4)):
        norm_triples.mask(state, "c", np.zeros(4, np.uint64))
    with pytest.raises(ValueError, match=says("d", "client")):
        norm_triples.mask(state, "d", np.zeros(5, np.uint64))


def test_servers_with_another_z_do_not_go_on() -> None:
    round_, zeros = make_round(4), np.zeros(5, np.uint64)
    openings: list[tuple[OpeningNorms, NormOpening]] = []
    deals = fresh_deal(round_, ["c"])
    states = [
        norm_triples.begin(round_, True, ["c"], CLOSED, Digest(bytes(32)), SingleUse("A's", deals[0]), Pins()),
        norm_triples.begin(round_, False, ["c"], CLOSED, Digest(bytes(range(32))), SingleUse("B's", deals[1]), Pins()),
    ]
    masked = [norm_triples.mask(state, "c", zeros) for state in states]
    for state, own, peer in zip(states, masked, masked[::-1], strict=True):
        openings.append(norm_triples.open_norms(norm_triples.absorb(state, own, peer)))
    with pytest.raises(ProtocolError, match="other values"):
        norm_triples.compare(openings[0][0], openings[1][1])


# What a server sees


@pytest.mark.parametrize("entry", [0, 1 << 15])
def test_what_a_server_sees_is_uniform(entry: int) -> None:
    """All that A receives, of 64 equal vectors. False alarm: 17·ALPHA."""
    round_ = make_round(2048)
    vectors = {f"c{i:02}": centred([entry] * 2048) for i in range(64)}
    shares = share(round_, vectors)
    valid, seen = exchange(round_, shares)
    assert valid == set(vectors)
    masked = [message for message in seen if isinstance(message, Masked)]
    gates = [message.words for message in seen if isinstance(message, Gate)]
    b = np.concatenate([message.b for message in masked])
    assert uniform_field_p_value(b) > ALPHA
    assert uniform_field_p_value(np.concatenate([message.projections for message in masked])) > ALPHA
    for words in gates:
        assert uniform_bins_p_value(words.view(np.uint8) & 15, 16) > ALPHA
    assert uniform_bins_p_value(np.concatenate(gates).view(np.uint8), 256) > ALPHA


def test_what_both_open_is_uniform() -> None:
    """b = x − a and c = u + τ + μ. False alarm: 3·ALPHA. Power: with one deal for two rounds the difference is not."""
    round_ = make_round(2048)
    vectors = {f"c{i:02}": centred([i] * 2048) for i in range(64)}
    deals = fresh_deal(round_, sorted(vectors))
    opened = []
    for entries in (vectors, {client: [0] * 2049 for client in vectors}):
        a, b = begin(round_, sorted(vectors), *deals)
        for client, (share_a, share_b) in share(round_, entries).items():
            masked = norm_triples.mask(a, client, share_a), norm_triples.mask(b, client, share_b)
            opened.append(field.add(masked[0].b, masked[1].b))
            a = norm_triples.absorb(a, *masked)
        projections = np.concatenate([item.projections for item in a.absorbed.values()])
        assert uniform_field_p_value(projections) > ALPHA
    first, second = np.concatenate(opened[:64]), np.concatenate(opened[64:])
    assert uniform_field_p_value(first) > ALPHA
    assert uniform_field_p_value(field.sub(first, second)) < ALPHA


# Sizes


def test_messages_have_the_sizes_of_the_plan() -> None:
    round_ = make_round(30)
    clients = [f"c{i:02}" for i in range(70)]
    plan = dealing.plan(round_, clients)
    deal_a, deal_b = fresh_deal(round_, clients)
    assert decode(encode(deal_a), DealA).seed == deal_a.seed
    received = decode(encode(deal_b), DealB, **plan.deal_sizes)
    assert np.array_equal(received.and_bits, deal_b.and_bits)
    assert len(encode(deal_b)) // 70 == sizes(replace(round_.params, clients=70)).deal
    _, seen = exchange(round_, share(round_, {client: [0] * 31 for client in clients}))
    assert plan.exchanges == 1 + len(seen) - 70


@pytest.mark.parametrize(
    ("clients", "per_client", "from_dealer"), [(1, 6729, 4336), (64, 3405, 2351), (1000, 3392, 2350)]
)
def test_traffic_beyond_b_is_small(clients: int, per_client: int, from_dealer: int) -> None:
    params = replace(make_round(26_010).params, clients=clients)
    assert Plan(26_010, clients).exchanges == 16
    assert sizes(params).validation - 8 * 26_010 < per_client
    assert sizes(params).deal <= from_dealer
