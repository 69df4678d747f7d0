"""Titles of items that do not exist, for made-up ratings: a quality and a thing, a different pair for each item."""

_QUALITIES = (
    "Amber Ancient Blue Borrowed Bright Broken Burning Crooked Distant Double Dusty Electric Empty Endless Faithful "
    "Fallen Final Frozen Gentle Gilded Golden Hidden Hollow Honest Hungry Idle Invisible Iron Jealous Last Little "
    "Lonely Lost Lucky Marble Midnight Missing Modest Narrow Nameless Northern Odd Open Paper Patient Perfect "
    "Plain Quiet Rusty Sacred Salt Second Secret Silent Silver Sleeping Stolen Stubborn Tin Velvet Wandering Western "
    "Wild Wooden"
)
_THINGS = (
    "Alphabet Anchor Answer Apple Archive Balcony Bell Bicycle Bridge Calendar Candle Canyon Carnival Cartographer "
    "Castle Choir Clock Compass Corridor Country Dancer Detective Doctor Engine Envelope Feather Ferry Forest Garden "
    "Ghost Harbour Harvest Hotel Island Journey Kitchen Ladder Lake Lantern Letter Library Lighthouse Locksmith Map "
    "Meadow Mirror Mountain Museum Needle Orchard Orchestra Painter Passenger Piano Promise Railway River Shadow Ship "
    "Station Summer Tailor Theatre Window"
)
_FIRST, _SECOND = _QUALITIES.split(), _THINGS.split()
_PAIRS = len(_FIRST) * len(_SECOND)
_STRIDE = 29  # between the things of two neighbouring items: titles in a row do not look alphabetical


def make_title(item: int) -> str:
    """Return a title that no other item has; after all pairs of words a number follows."""
    edition, pair = divmod(item, _PAIRS)
    turn, first = divmod(pair, len(_FIRST))
    name = f"The {_FIRST[first]} {_SECOND[(turn + _STRIDE * first) % len(_SECOND)]}"
    return name if edition == 0 else f"{name} {edition + 1}"
