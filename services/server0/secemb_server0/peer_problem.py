"""Why server 1 cannot be reached, explained for an operator: what is wrong and what to do about it."""

import socket
import ssl
from collections.abc import Iterator
from typing import NamedTuple

import httpx

_EXPIRED, _NOT_YET = 10, 9  # OpenSSL's numbers
_OTHER_HOST = (62, 64)  # name, address
# OpenSSL's errors for a first record that is not TLS, which depend on its version.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


class PeerProblem(NamedTuple):
    """What is wrong, and what to do about it."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}"


_START = "start it, or check url in [peer] and any firewalls in between"
_STRANGER = PeerProblem(
    "the other end is not server 1, or server 1 has a new certificate",
    "run `secemb pair import` with its new pair file",
)
_NOT_PEER = PeerProblem("the other end does not speak TLS", "check that url in [peer] is server 1's peer port")
_HUNG_UP = PeerProblem(
    "server 1 closed the connection: it was stopped, or it does not accept this server's certificate",
    "if it is running, ask its operator to import this server's pair file",
)
_SLOW = PeerProblem("server 1 did not answer in time", "check its log and the network in between")
_BY_KIND: dict[type[BaseException], PeerProblem] = {
    httpx.TimeoutException: _SLOW,
    httpx.RemoteProtocolError: _HUNG_UP,
    ConnectionRefusedError: PeerProblem("server 1 cannot be reached: nothing listens there", _START),
    ConnectionError: _HUNG_UP,
    socket.gaierror: PeerProblem(
        "server 1 cannot be reached: its host name is unknown", "check url in [peer] and the DNS"
    ),
}


def explain(error: BaseException) -> PeerProblem:
    """Return the explanation of a failed call to server 1."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return _explain_tls(cause)
        for kind, problem in _BY_KIND.items():
            if isinstance(cause, kind):
                return problem
    return PeerProblem(f"server 1 cannot be reached ({type(causes[-1]).__name__})", _START)


def _explain_tls(error: ssl.SSLError) -> PeerProblem:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error)
    reason = getattr(error, "reason", None)  # not every error of the ssl module has one
    return _NOT_PEER if reason in _NOT_TLS else _HUNG_UP


def _explain_certificate(error: ssl.SSLCertVerificationError) -> PeerProblem:
    code = error.verify_code
    if code == _EXPIRED:
        fix = (
            "check both clocks; if they are right, ask its operator to run `secemb pair rotate` and send the pair file"
        )
        return PeerProblem("server 1's certificate has expired", fix)
    if code == _NOT_YET:
        return PeerProblem("server 1's certificate is not valid yet", "check the clocks of both machines")
    if code in _OTHER_HOST:
        what = "server 1's certificate is for another host than url in [peer]"
        return PeerProblem(what, "correct url, or import its pair file again")
    return _STRANGER


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
