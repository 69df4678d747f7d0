"""A reader of the tables in the paper's LaTeX source, to check what was transcribed from it."""

import re

Row = tuple[str, list[float | str]]
_LABELS = "upcommucost downcommucost utility seq ablation secagg commucostsparse servercost breakpoint ablationcommun"
LABELS = tuple(
    f"tab:{one}" for one in f"{_LABELS} ablationcomp datastat hyperbase paramsize rank compfl theocost".split()
)
_MARKS = {r"\checkmark": "yes", r"\times": "no", r"\sqrt{}\mkern-9mu{\smallsetminus}": "partly"}


def read(source: str, label: str) -> list[Row]:
    """Return the rows of figures of a table: the group and the name, and the figures as they are printed."""
    found: list[Row] = []
    group = ""
    for cells in _cells(source, label):
        first, *others = [_plain(one) for one in cells]
        if spanning := re.search(r"\\multicolumn\{\d+\}\{c\}\{(.*?)\}", cells[-1]) if len(cells) == 2 else None:
            group = spanning[1]
            continue
        names = [first]
        if others and not _is_figure(others[0], label) and _is_figure(others[-1], label):
            group, names = first or group, [others.pop(0)]
        if all(_is_figure(one, label) for one in others) and not re.match("Item Size|# of Active", first):
            found.append((" / ".join(filter(None, [group, *names])), [_value(one) for one in others]))
    return found


def _cells(source: str, label: str) -> list[list[str]]:
    source = re.sub(r"(?<!\\)%.*", "", source)
    begin = source.index("\\label{" + label + "}")
    text = source[begin : source.index(r"\end{tabular}", begin)]
    text = re.sub(r"\\(top|mid|bottom)rule|\\cmidrule\(l\)\{[^}]*\}", "", text[text.index(r"\begin{tabular}") :])
    lines = re.split(r"\\\\(?![a-z ]*\})", text[text.index("\n") :])
    return [line.split("&") for line in lines if "&" in line]


def _plain(cell: str) -> str:
    cell = re.sub(r"\\multirow\{\d+\}\{\*\}\{(.*?)\}", r"\1", cell.strip())
    cell = re.sub(r"\\(tiny|normalsize|small)\b", "", cell)
    for _ in range(3):
        cell = re.sub(r"\\(mathbf|textbf)\{([^{}]*)\}", r"\2", cell)
    return re.sub(r"\s+", " ", re.sub(r"\$|\\(?=[#%])", "", cell)).strip()


def _is_figure(cell: str, label: str) -> bool:
    if label in ("tab:secagg", "tab:theocost"):
        return bool(re.match(r"O ?(\(|\\left)|\d", cell))
    return cell in _MARKS or re.fullmatch(r"[\d.,]+( *\\pm *[\d.]+)?%?", cell) is not None


def _value(cell: str) -> float | str:
    if cell in _MARKS:
        return _MARKS[cell]
    try:
        return float(cell.replace(",", "").removesuffix("%"))
    except ValueError:
        return cell.replace(r"\pm", "±")
