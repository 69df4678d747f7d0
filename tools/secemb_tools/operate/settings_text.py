"""The settings file that `secemb init` writes, with a comment on every line that an operator may want to change."""

from dataclasses import dataclass

PLACEHOLDER_URL = "https://server1.invalid:8441"  # until `secemb pair import` has been told the real one


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where a server listens, and under which name others know it."""

    host: str  # as the other server and devices write it
    bind: str = "127.0.0.1"  # the devices' listener
    port: int = 8440
    peer_bind: str = "0.0.0.0"  # noqa: S104  (the peer channel asks for a certificate)
    peer_port: int = 8441


def settings_text(role: int, at: Addresses) -> str:
    """Return a complete settings file."""
    return "\n".join([_TOP.format(role=role, host=at.host), _devices(role, at), _peer(role, at), _rest(role)])


def _devices(role: int, at: Addresses) -> str:
    lines = [
        "[devices]                                 # the listener that devices call",
        f'host = "{at.bind}"',
        f"port = {at.port}",
        '# tls_cert = "tls/devices.crt"            # leave both out behind a proxy that ends TLS on this machine',
        '# tls_key = "secrets/devices.key"         # secret',
    ]
    if role == 0:
        lines.append("open_enrolment = false                    # true: anybody takes part without a token; demos only")
    return "\n".join([*lines, "body_seconds = 60                         # a slower upload is cut off", ""])


def _peer(role: int, at: Addresses) -> str:
    mine = [
        'cert = "tls/peer.crt"                     # this server\'s certificate; the pair file carries it',
        'key = "secrets/peer.key"                  # secret',
        f'peer_ca = "tls/server{1 - role}.crt"                # the other server\'s certificate; no other is accepted',
        "",
    ]
    if role == 0:
        mine.insert(-1, "answer_seconds = 60                       # a call to server 1 that takes longer is repeated")
        return "\n".join(
            [
                "[peer]                                    # the channel to server 1: mutual TLS and a bearer",
                f'url = "{PLACEHOLDER_URL}"       # `secemb pair import` writes the real one',
                'token_file = "secrets/peer.token"         # secret; server 1 knows its hash',
                *mine,
            ]
        )
    return "\n".join(
        [
            "[peer]                                    # the listener that server 0 calls: mutual TLS and a bearer",
            f'host = "{at.peer_bind}"',
            f"port = {at.peer_port}",
            'token_hash_file = "secrets/peer.hash"     # of server 0\'s bearer; `secemb pair import` writes it',
            *mine,
        ]
    )


def _rest(role: int) -> str:
    ticket = (
        'ticket_key_file = "task/ticket.key"       # secret; signs tickets'
        if role == 0
        else 'ticket_public_file = "task/ticket.pub"    # server 0\'s; this server checks each ticket itself'
    )
    kinds = (
        "evaluate_every = 0                        # every so many rounds, measure the model on the devices; 0: never\n"
        "survey_first = false                      # true: begin by asking how many items devices hold\n"
    )
    return _REST.format(ticket=ticket, relay="" if role == 0 else _RELAY, kinds=kinds if role == 0 else "")


_TOP = """\
# Settings of server {role} ({host}), written by `secemb init`.
#
# Relative paths start at the directory of this file. Unknown keys are refused. A variable stands above its key:
# SECEMB_LOGS__LEVEL is `level` in [logs]. Files marked "secret" are readable by their owner only, at most by the
# service's group. `secemb check` says what is missing.

role = {role}
data_dir = "data"                         # model files, shares and, unless [ledger] says otherwise, the ledger
"""

_RELAY = """
[relay]                                   # for tasks whose devices talk to server 0 alone
identity_file = "secrets/relay.key"       # secret; signs the keys that devices seal to. The task names its public half
"""

_REST = """\
[ledger]
# url = "postgresql://secemb@db.example.org/secemb"    # without it: SQLite in data_dir. Never with a password
# password_file = "secrets/ledger.password"            # secret
migrate = true                            # false: only `secemb ledger upgrade` changes the schema

[task]
file = "task/task.json"                   # made by `secemb task create`; the same on both servers
{ticket}
{relay}
[work]
threads = 2                               # sessions evaluated at the same time
queue = 64                                # sessions that may wait; the next one is told to come back
kernel_threads = 1                        # inside one evaluation; threads x kernel_threads <= cores

[operator]
token_hash_file = "secrets/operator.hash" # leave it out and there is no operator interface

[rounds]
{kinds}keep_bodies_rounds = 3                    # how many ended rounds keep what devices have sent

[logs]                                    # to stderr
level = "info"                            # debug, info, warning or error
format = "json"                           # json or text
"""
