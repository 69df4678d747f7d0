"""Server 0 as a process."""

import asyncio
import random
import ssl

import httpx

from secemb_party.assembly import close_party, open_party, operator_hash, ticket_private_key
from secemb_party.errors import PeerRefusedError, PeerUnavailableError, SettingsError
from secemb_party.ledger import LedgerUnavailableError
from secemb_party.serving import Listener, serve
from secemb_party.settings import Settings
from secemb_party.telemetry import get_logger, watch_event_loop
from secemb_party.ui import Surroundings
from secemb_server0.app import create_server0
from secemb_server0.leader import ChooseKind, Leader
from secemb_server0.peer import HttpPeer
from secemb_server0.peer_streams import PeerClient, PeerTransport
from secemb_server0.relay_line import HttpRelayLine
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

_LONGEST_PAUSE = 15.0
_REFUSED_PAUSE = 10.0


async def run(settings: Settings) -> None:
    """Serve until a signal."""
    party = await open_party(settings)
    try:
        async with peer_client(settings) as client:
            devices = settings.devices
            server = create_server0(
                party,
                HttpPeer(client, party.metrics),
                ticket_private_key(settings),
                open_enrolment=devices.open_enrolment,
                body_seconds=devices.body_seconds,
                operator_hash=operator_hash(settings),
                choose_kind=kinds_of(settings),
                surroundings=Surroundings.of(settings),
                relay_line=HttpRelayLine(client, party.metrics),
            )
            key = devices.tls_key.path if devices.tls_key is not None else None
            listener = Listener(app=server.app, host=devices.host, port=devices.port, cert=devices.tls_cert, key=key)
            lag = asyncio.create_task(watch_event_loop(party.metrics))
            await serve([listener], lambda: conduct(server.leader))
            lag.cancel()
    finally:
        await close_party(party)


def kinds_of(settings: Settings) -> ChooseKind:
    """Return which kind the round of a number is: survey first if wanted, evaluation every so often, else training."""
    rounds = settings.rounds

    def choose(number: int) -> str:
        if number == 0 and rounds.survey_first:
            return SURVEY
        return EVALUATE if rounds.evaluate_every and (number + 1) % rounds.evaluate_every == 0 else TRAIN

    return choose


def peer_client(settings: Settings) -> httpx.AsyncClient:
    """Return the line to server 1: our certificate, its pinned authority and the bearer."""
    peer = settings.peer
    if peer.url is None or peer.token_file is None:
        raise SettingsError("peer.url and peer.token_file: server 0 needs both; `secemb pair` writes them")
    context = ssl.create_default_context(cafile=str(peer.peer_ca))
    context.load_cert_chain(peer.cert, peer.key.path)
    return PeerClient(
        peer.url,
        transport=PeerTransport(context),
        bearer=peer.token_file.text(),
        timeout=httpx.Timeout(peer.answer_seconds, connect=5.0),
    )


async def conduct(leader: Leader) -> None:
    """Carry rounds on for ever; when server 1 or the database is away, try again with growing pauses."""
    pause = 0.0
    while True:
        try:
            decision = await leader.step()
            pause = 0.0
            await leader.wait(decision)
        except (PeerUnavailableError, LedgerUnavailableError) as error:
            pause = min(_LONGEST_PAUSE, 2 * pause + 0.2)
            get_logger().warning("waiting", reason=type(error).__name__)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        except PeerRefusedError as error:
            get_logger().error("refused by server 1", reason=str(error))
            await asyncio.sleep(_REFUSED_PAUSE)
