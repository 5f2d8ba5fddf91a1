"""How many bytes the parties of a round send each other, message by message."""

from dataclasses import dataclass

from precad.protocol import messages, submission
from precad.protocol.messages import encoded_size
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
        validation = encoded_size(messages.Check, client=name_bytes, **submission.check_sizes(params))
    if params.validation is Validation.TRIPLES:
        plan = Plan(params.dim, n)
        gates = (encoded_size(messages.Gate, **plan.gate_sizes(level)) for level in range(len(plan.layers) + 1))
        masked = n * encoded_size(messages.Masked, client=name_bytes, **plan.masked_sizes)
        validation = (masked + encoded_size(messages.NormOpening, values=n) + sum(gates)) // n
        deal = encoded_size(messages.DealB, **plan.deal_sizes) // n
    return Sizes(
        header=encoded_size(messages.Header, client=name_bytes, head=0),
        part_a=encoded_size(messages.PartA, **submission.part_a_sizes(params)),
        part_b=encoded_size(messages.PartB),
        close=encoded_size(messages.Close, headers=n),
        nonce=encoded_size(messages.Nonce),
        validation=validation,
        tally=encoded_size(messages.Tally),
        noisy_share=encoded_size(messages.NoisyShare, share=params.dim),
        deal=deal,
    )
