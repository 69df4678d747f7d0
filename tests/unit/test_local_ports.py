"""Ports for local services: nobody has them, and nobody is given them by chance before the service listens."""

import socket

from secemb_tools.local.process import HERE, free_ports


def test_ports_are_different_and_none_that_systems_give_to_clients() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    # The lowest of Linux; IANA, BSD and macOS begin higher.
    assert 1024 <= min(ports) <= max(ports) < 32_768


def test_a_port_that_somebody_has_is_not_given_away() -> None:
    taken, other = free_ports(2)
    with socket.socket() as somebody:
        somebody.bind((HERE, taken))
        somebody.listen()
        assert free_ports(2, [taken, other]) == [other]
    assert sorted(free_ports(2, [taken, other])) == sorted([taken, other])
