"""What `--json` prints, command by command. These shapes are stable: members may be added, none goes or changes."""

from secemb_tools.shapes.kinds import Lines, Many, Named, OneOf, Shape
from secemb_tools.shapes.measuring import MEASURING
from secemb_tools.shapes.operating import OPERATING
from secemb_tools.shapes.researching import RESEARCHING
from secemb_tools.shapes.taking_part import TAKING_PART

__all__ = ["SHAPES", "Lines", "Many", "Named", "OneOf", "Shape"]

SHAPES: dict[str, Shape] = OPERATING | RESEARCHING | MEASURING | TAKING_PART
