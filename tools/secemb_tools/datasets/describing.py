"""What a rating set holds, in the figures that papers give."""

import numpy as np

from secemb_tools.datasets.ratings import RatingSet


def describe(ratings: RatingSet) -> dict[str, object]:
    """Return the counts of a set, never a person's."""
    per_person = np.bincount(ratings.people, minlength=ratings.person_count)
    return {
        "name": ratings.name,
        "people": ratings.person_count,
        "items": ratings.item_count,
        "ratings": int(ratings.values.size),
        "density": float(ratings.values.size / (ratings.person_count * ratings.item_count)),
        "user_features": int(ratings.user_features.shape[1]),
        "item_features": int(ratings.item_features.shape[1]),
        "lowest": float(ratings.values.min()),
        "highest": float(ratings.values.max()),
        "mean_ratings_per_person": float(per_person.mean()),
        "suggested_capacity": int(np.ceil(np.percentile(per_person, 90))),
    }
