"""Ratings as models see them, and back."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sessions import make_task

from secemb_sdk.models.scale import Scale
from secemb_sdk.round.selection import to_fit
from secemb_shared.messages.spec import BPR

TASK = replace(make_task(), centre="-3.5", spread="2.5", lowest="-10", highest="10")


@given(st.floats(-1000, 1000))
def test_what_a_model_sees_of_a_rating_stands_for_that_rating(rating: float) -> None:
    scale = Scale.of(TASK)
    assert scale.restore(scale.standardise(rating)) == pytest.approx(rating)


def test_predictions_end_where_the_scale_does() -> None:
    found = Scale.of(TASK).cut(np.array([-99.0, 0.0, 99.0]))
    assert found.tolist() == [(-10 + 3.5) / 2.5, 0.0, (10 + 3.5) / 2.5]
    anywhere = Scale.of(replace(TASK, lowest="", highest=""))
    assert anywhere.cut(np.array([-99.0, 99.0])).tolist() == [-99.0, 99.0]


def test_a_device_fits_to_standard_ratings_and_to_choices_as_they_are() -> None:
    ratings = {1: -3.5, 2: 1.5}
    assert to_fit(TASK, ratings, ratings, bytes).values.tolist() == [0.0, 2.0]
    assert Scale.of(replace(TASK, loss=BPR)) == Scale()
