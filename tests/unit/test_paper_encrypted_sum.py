"""Sums under homomorphic encryption: right, unreadable for the server, and as long as the report says."""

import numpy as np
import pytest

from secemb_lab.paper.protocols.encrypted_sum import MISSING, SLOTS, Users, tenseal_is_here

pytestmark = pytest.mark.skipif(not tenseal_is_here(), reason=MISSING)


@pytest.mark.parametrize("slots", [SLOTS, 1])
def test_the_server_adds_what_it_cannot_read(slots: int) -> None:
    users, values = Users(), np.linspace(-1, 1, SLOTS + 10 if slots > 1 else 5)
    server = users.server()
    for factor in (1.0, 2.0, -0.5):
        server.add(server.read(users.encrypt(factor * values, slots=slots)))
    assert not server.can_read()
    assert np.abs(users.decrypt(server.total()) - 2.5 * values).max() < 1e-5
    with pytest.raises(ValueError, match="secret"):
        server.read(server.total())[0].decrypt()


def test_a_ciphertext_is_as_long_whatever_is_in_it() -> None:
    users = Users()
    sizes = [len(one) for one in users.encrypt(np.zeros(2 * SLOTS))] + [len(users.encrypt(np.ones(1))[0])]
    assert max(sizes) / min(sizes) < 1.05
    assert min(sizes) > 200_000
