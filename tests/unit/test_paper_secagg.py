"""SecAgg with dropouts gives the exact sum, hides every vector, and costs what it should."""

from itertools import combinations

import numpy as np
import pytest

from secemb_lab.paper.protocols import secagg, shamir
from secemb_lab.paper.protocols.secagg import Client
from secemb_shared.dpf import RingArray
from secemb_tools.errors import OperationError

LENGTH = 50


def vectors(users: int, seed: int = 1) -> dict[int, RingArray]:
    rng = np.random.default_rng(seed)
    return {user: rng.integers(0, 2**32, LENGTH, dtype=np.uint32) for user in range(1, users + 1)}


@pytest.mark.parametrize(
    ("users", "silent", "gone"), [(2, [], []), (5, [], []), (5, [2], []), (6, [1, 6], [3]), (7, [], [1, 2, 3])]
)
def test_secagg_sums_exactly_whoever_drops_out(users: int, silent: list[int], gone: list[int]) -> None:
    given = vectors(users)
    done = secagg.run(given, threshold=users // 2, silent=silent, gone=gone)
    expected = np.sum([one for user, one in given.items() if user not in silent], axis=0, dtype=np.uint32)
    assert np.array_equal(done.total, expected)
    assert done.survivors == [user for user in given if user not in silent]


def test_too_few_survivors_keep_the_sum_closed() -> None:
    with pytest.raises(OperationError, match="2 users are left, and 3 are needed"):
        secagg.run(vectors(5), threshold=3, silent=[1], gone=[2, 3])


def test_secagg_hides_every_vector_from_its_server() -> None:
    given: dict[int, RingArray] = {user: np.zeros(20_000, np.uint32) for user in (1, 2, 3)}
    done = secagg.run(given, threshold=2)
    for seen in done.masked.values():
        bits = np.unpackbits(seen.view(np.uint8)).mean()
        assert abs(bits - 0.5) < 5 * 0.5 / np.sqrt(32 * 20_000)
    assert not done.total.any()


def test_a_user_never_opens_both_secrets_of_another() -> None:
    clients = {user: Client(user, users=3, threshold=2) for user in (1, 2, 3)}
    keys = {user: one.announce() for user, one in clients.items()}
    boxes = {user: one.share(keys) for user, one in clients.items()}
    clients[1].mask({2: boxes[2][1], 3: boxes[3][1]}, np.zeros(1, np.uint32))
    with pytest.raises(ValueError, match="both secrets"):
        clients[1].unmask([1, 2, 3], [3])
    clients[1].unmask([1, 2], [3])
    with pytest.raises(ValueError, match="opens once"):
        clients[1].unmask([1, 3], [2])


def test_secagg_sends_a_vector_once_and_a_box_for_each_user() -> None:
    small, large = (secagg.run(vectors(users), threshold=2) for users in (4, 8))
    more = [large.clients[1].sent - small.clients[1].sent, large.clients[1].received - small.clients[1].received]
    box, opened = 2 * shamir.SHARE_BYTES + 16, 3 + shamir.SHARE_BYTES
    assert more == [4 * (box + opened), 4 * (2 * 32 + 2 + box)]
    assert small.clients[1].sent > 4 * LENGTH
    assert small.server.received == sum(one.sent for one in small.clients.values())


def test_enough_shares_give_the_secret_and_fewer_do_not() -> None:
    secret = bytes(range(32))
    shares = dict(enumerate(shamir.split(secret, shares=5, threshold=3), start=1))
    for some in combinations(shares, 3):
        assert shamir.combine({user: shares[user] for user in some}) == secret
    assert all(shamir.combine({user: shares[user] for user in some}) != secret for some in combinations(shares, 2))
    with pytest.raises(ValueError, match="threshold"):
        shamir.split(secret, shares=2, threshold=3)


def test_the_modulus_of_the_shares_is_a_prime_that_secrets_fit_below() -> None:
    assert all(pow(base, shamir.PRIME - 1, shamir.PRIME) == 1 for base in (2, 3, 5, 7, 11))
    assert len((shamir.PRIME - 1).to_bytes(shamir.SHARE_BYTES)) == shamir.SHARE_BYTES
