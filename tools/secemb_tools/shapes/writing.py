"""Shapes in words, for the reference."""

from types import UnionType

from secemb_tools.shapes.kinds import Lines, Many, Named, OneOf, Shape

_WORDS: dict[object, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    None: "null",
}


def write_shape(shape: Shape) -> str:
    """Return a shape as JSON with words in place of values; what has a `?` is not always there."""
    match shape:
        case dict():
            written = "{" + ", ".join(_member(name, one) for name, one in shape.items()) + "}"
        case Many():
            written = f"[{write_shape(shape.of)}, …]"
        case Named():
            written = f"{{…: {write_shape(shape.of)}}}"
        case OneOf():
            written = f"{write_shape(shape.first)} or {write_shape(shape.second)}"
        case Lines():
            written = write_shape(shape.of)
        case UnionType():
            written = " or ".join(_WORDS[one] for one in shape.__args__)
        case _:
            written = _WORDS[shape]
    return written


def _member(name: str, shape: Shape) -> str:
    optional = "?" if name.endswith("?") else ""
    return f'"{name.removesuffix("?")}"{optional}: {write_shape(shape)}'
