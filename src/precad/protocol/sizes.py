"""How many bytes the parties of a round send each other, message by message."""

from dataclasses import dataclass

from precad.protocol import submission
from precad.protocol.messages import (
    Check,
    Close,
    DealB,
    Gate,
    Header,
    Masked,
    NoisyShare,
    Nonce,
    NormOpening,
    PartA,
    PartB,
    Tally,
    encoded_size,
)
from precad.protocol.params import Params, Validation
from precad.protocol.triples.dealing import Plan


@dataclass(frozen=True)
class Sizes:
    """The bytes of a task's messages, whole, for a round in which all n clients take part."""

    header: int
    """Client → both servers."""
    part_a: int
    """Client → A."""
    part_b: int
    """Client → B."""
    close: int
    """A ↔ B, from each, as all that follow."""
    nonce: int
    validation: int
    """What the servers need to judge one submission: its check, or its part of the gates."""
    tally: int
    noisy_share: int
    deal: int
    """Dealer → B, for one submission, in validation by triples."""


def sizes(params: Params, name_bytes: int = 8) -> Sizes:
    """The sizes of a task's messages, if the clients' names have ``name_bytes`` bytes (or fewer, of the same eight)."""
    n = params.clients
    validation, deal = 0, 0
    if params.validation is Validation.PROOF:
        validation = encoded_size(Check, client=name_bytes, **submission.check_sizes(params))
    if params.validation is Validation.TRIPLES:
        plan = Plan(params.dim, n)
        gates = (encoded_size(Gate, **plan.gate_sizes(level)) for level in range(len(plan.layers) + 1))
        masked = n * encoded_size(Masked, client=name_bytes, **plan.masked_sizes)
        validation = (masked + encoded_size(NormOpening, **plan.norm_sizes) + sum(gates)) // n
        deal = encoded_size(DealB, **plan.deal_sizes) // n
    return Sizes(
        header=encoded_size(Header, client=name_bytes),
        part_a=encoded_size(PartA, **submission.part_a_sizes(params)),
        part_b=encoded_size(PartB),
        close=encoded_size(Close, headers=n),
        nonce=encoded_size(Nonce),
        validation=validation,
        tally=encoded_size(Tally),
        noisy_share=encoded_size(NoisyShare, share=params.dim),
        deal=deal,
    )
