"""Sizes of messages: those of a real round, to the byte."""

import numpy as np
import pytest

from precad.protocol.messages import (
    Batch,
    Check,
    Close,
    Header,
    Message,
    NoisyShare,
    Nonce,
    Tally,
    encode,
    encoded_size,
)
from precad.protocol.params import Validation
from precad.protocol.round import run_round
from precad.protocol.sizes import sizes
from precad.protocol.states import Role
from precad.protocol.submission import submit
from tests.protocol.drivers import SECRETS, OverTheWire, make_round


@pytest.mark.parametrize("name", ["c{}", "client-{}", "hospital-in-the-north-{}"])
@pytest.mark.parametrize("validation", Validation)
def test_the_messages_of_a_round_have_these_sizes(validation: Validation, name: str) -> None:
    round_ = make_round(dim=1000, validation=validation)
    names = [name.format(i) for i in range(round_.params.clients)]
    sent = {client: submit(round_, client, np.zeros(1000, np.int64)) for client in names}
    wire = OverTheWire()
    run_round(round_, sent, SECRETS[Role.A], SECRETS[Role.B], wire)
    size = sizes(round_.params, len(names[0]))
    for submission in sent.values():
        assert (len(submission.header), len(submission.part_a), len(submission.part_b)) == (
            size.header,
            size.part_a,
            size.part_b,
        )
    for role in Role:
        once: dict[type[Message], int] = {Close: 0, Nonce: 0, Tally: 0, NoisyShare: 0}
        between = 0
        for message in wire.seen[role]:
            if type(message) in once:
                once[type(message)] += len(encode(message))
            else:
                between += len(encode(message))
        assert list(once.values()) == [size.close, size.nonce, size.tally, size.noisy_share]
        assert between // len(names) == size.validation
        assert validation is not Validation.PROOF or between == size.validation * len(names)


def test_a_size_needs_every_length() -> None:
    with pytest.raises(ValueError, match=r"Header\.client"):
        encoded_size(Header)
    with pytest.raises(ValueError, match=r"Check\.sums"):
        encoded_size(Check, client=3, wires=4)
    with pytest.raises(ValueError, match=r"Batch\.items"):
        encoded_size(Batch, items=2)
