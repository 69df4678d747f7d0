"""A device with texts: it learns from their words, suggests how one goes on, and nothing tells whether it has any."""

from typing import Any

import numpy as np
import pytest
from tests.devices.last_event import Last
from tests.devices.phone import Phone, a_phone, contributed
from tests.simulation.pair import Pair, a_pair

from secemb_sdk.errors import MisfitError, UnavailableError
from secemb_sdk.models.torch import LanguageModel
from secemb_sdk.recommend import Suggestion, TableFormat, recommend_items, suggest_words
from secemb_sdk.recommend.suggest import softmax
from secemb_sdk.steps import Answer
from secemb_sdk.words import END, SPECIAL, UNKNOWN
from secemb_shared.catalogue import Catalogue
from secemb_shared.messages.spec import NEXT

pytestmark = pytest.mark.asyncio

WORDS = Catalogue(ids=(*SPECIAL, "to", "be", "or", "not", ",", "that", "is", "the", "question", "."))
MODEL = LanguageModel(dimension=3, length=6, windows=2, dropout=0.0)
TASK: dict[str, Any] = {
    "items": len(WORDS),
    "capacity": 8,
    "row_width": 4,
    "dense_size": MODEL.dense_size,
    "initial_scale": "1",
    "loss": NEXT,
    "catalogue": WORDS.encode(),
}


def phone_with(pair: Pair, texts: list[str], number: int = 0, **fields: Any) -> Phone:
    phone = a_phone(pair, number, options={"model": MODEL}, **fields)
    context = phone.open()
    context.vault.log_texts([(text, float(place)) for place, text in enumerate(texts)], now=0.0)
    context.vault.close()
    return phone


async def suggested(phone: Phone, text: str, *, k: int = 3, words: int = 1, refresh: bool = False) -> list[Suggestion]:
    context = phone.open()
    try:
        steps = suggest_words(context, text, k=k, words=words, table=TableFormat.FLOAT32, refresh=refresh)
        return await phone.drive(steps)
    finally:
        context.vault.close()


async def test_suggestions_are_the_likeliest_words_of_the_published_table() -> None:
    async with a_pair(**TASK) as pair:
        phone = phone_with(pair, [])
        found = await suggested(phone, "To be, or", k=len(WORDS))
        model = pair.parties[0].models.load(0)
        every = [np.array([END, 2, 3, 6, 4, word]) for word in range(len(WORDS))]
        log_chances = [float(MODEL.log_chances(model.rows, model.dense, one)[-1]) for one in every]
        chances = dict(zip(WORDS.ids, softmax(np.array(log_chances, dtype=np.float32)).tolist(), strict=True))
        assert {one.words[0] for one in found} == set(WORDS.ids[2:])
        assert [one.chance for one in found] == sorted((one.chance for one in found), reverse=True)
        for one in found:
            assert one.chance == pytest.approx(chances[one.words[0]], rel=1e-4)
            assert one.text == "To be, or" + (one.words[0] if one.words[0] in ",." else f" {one.words[0]}")


async def test_a_text_may_be_empty_or_have_unknown_words_alone() -> None:
    async with a_pair(**TASK) as pair:
        phone = phone_with(pair, [])
        for text in ("", "  ", "dragon", "dragon dragon ??? 👍", "be " * 50):
            found = await suggested(phone, text)
            assert len(found) == 3
            assert not {WORDS.ids[UNKNOWN], WORDS.ids[END]} & {one.words[0] for one in found}


async def test_more_words_follow_until_the_text_ends_and_the_first_ones_stay() -> None:
    async with a_pair(**TASK) as pair:
        phone = phone_with(pair, [])
        single, several = await suggested(phone, "to be"), await suggested(phone, "to be", words=4)
        assert [one.words[0] for one in several] == [one.words[0] for one in single]
        for one, other in zip(single, several, strict=True):
            assert 1 <= len(other.words) <= 4
            assert not set(SPECIAL) & set(other.words)
            assert other.chance <= one.chance
            assert other.text.startswith(one.text)


async def test_after_the_first_suggestion_nothing_leaves_the_device_until_it_is_refreshed() -> None:
    async with a_pair(**TASK) as pair:
        phone = phone_with(pair, [])
        first = await suggested(phone, "to be or")
        asked = len(phone.seen.requests)
        assert asked
        phone.alter = lambda _, answer: Answer(status=503)
        assert await suggested(phone, "to be or") == first
        await suggested(phone, "the question", words=3)
        assert len(phone.seen.requests) == asked
        assert await suggested(phone, "to be or", refresh=True) == first  # no network: by the copy that is here
        assert len(phone.seen.requests) > asked


async def test_no_copy_and_no_network_is_said() -> None:
    async with a_pair(**TASK) as pair:
        phone = phone_with(pair, [])
        phone.alter = lambda _, answer: Answer(status=503)
        with pytest.raises(UnavailableError):
            await suggested(phone, "to be")


@pytest.mark.parametrize("options", [{"k": 0}, {"words": 0}])
async def test_no_suggestion_at_all_is_refused(options: dict[str, Any]) -> None:
    async with a_pair(**TASK) as pair:
        with pytest.raises(ValueError, match="at least 1"):
            await suggested(phone_with(pair, []), "to be", **options)


async def test_a_model_of_items_suggests_no_words_and_one_of_texts_needs_a_vocabulary() -> None:
    task = {"row_width": 2, "dense_size": 0, "loss": NEXT}
    async with a_pair(**TASK | task) as pair:
        phone = a_phone(pair, 0, options={"model": Last()})
        with pytest.raises(MisfitError, match="only a language model"):
            await suggested(phone, "to be")
    items = Catalogue(ids=tuple(map(str, range(len(WORDS)))))
    for catalogue, words in ((None, "no catalogue"), (items.encode(), "not a vocabulary")):
        async with a_pair(**TASK | {"catalogue": catalogue}) as pair:
            phone = phone_with(pair, ["to be"])
            for steps in (suggested(phone, "to be"), phone.contribute()):
                with pytest.raises(MisfitError, match=words):
                    await steps


@pytest.mark.parametrize("texts", [[], ["To be, or not to be"], ["dragon"], ["be"], ["", " "], ["to be"] * 40])
async def test_any_texts_make_a_contribution_that_looks_like_all_others(texts: list[str]) -> None:
    async with a_pair(**TASK) as pair:
        await pair.step()
        phone, other = phone_with(pair, texts), phone_with(pair, ["that is the question."], number=1)
        receipts = [await contributed(one) for one in (phone, other)]
        assert phone.seen.requests == other.seen.requests
        sizes = [sorted(len(body) for found in one.seen.bodies.values() for body in found) for one in (phone, other)]
        assert sizes[0] == sizes[1]
        assert receipts[0].sent == receipts[1].sent
        asked = [(server, what) for server, _, what in phone.seen.requests].count((0, "catalogue"))
        assert asked == 1


async def test_the_words_of_texts_are_what_a_round_reads() -> None:
    async with a_pair(**TASK) as pair:
        phone = phone_with(pair, ["To be, or", "NOT to be!"])
        await suggested(phone, "")  # which fetches the words
        context = phone.open()
        try:
            assert context.events(pair.task).tolist() == [END, 2, 3, 6, 4, END, 5, 2, 3, UNKNOWN]
            assert context.known_items(pair.task).tolist() == [0, 1, 2, 3, 4, 5, 6]
        finally:
            context.vault.close()


async def test_recommendations_of_a_model_of_texts_follow_the_newest_text() -> None:
    async with a_pair(**TASK) as pair:
        phone = phone_with(pair, ["to be or"])
        context = phone.open()
        try:
            steps = recommend_items(context, k=3, table=TableFormat.FLOAT32, include_rated=True)
            found = await phone.drive(steps)
        finally:
            context.vault.close()
        every = await suggested(phone, "to be or", k=len(WORDS))
        named = [one.id for one in found if one.id not in SPECIAL]
        assert named == [one.words[0] for one in every][: len(named)]
