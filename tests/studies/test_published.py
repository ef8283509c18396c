"""The published tables against the specification, cell by cell, and beside our own numbers.

Comment lines of a table say where the specification has it: ``# spec: 003 | caption`` is the first Markdown table from
the line with the caption on, in the document 003. Where it has other names, or is laid out otherwise, more lines tell:

- ``# spec rows:`` and ``# spec columns:`` are its names, in the order of ours; a name that occurs again has its count
  behind it, as in ``test Lin (2)``. Without them the names are ours, and there are no others.
- ``# spec labels: 2``: the first two columns name a row together; an empty one goes on with the name above.
- ``# spec layout: transposed``: its columns are our rows.
- ``# spec parts: /``: a cell has several numbers with this between them; they are the columns ``name 1``, ``name 2``.
- ``# spec prose:`` is a sentence with ``{}`` for each number and ``…`` for anything, for rows that stand in no table
  (marked ``-`` among the spec rows, or all of them).
"""

import re
from collections.abc import Iterator
from itertools import pairwise, takewhile
from math import nan
from pathlib import Path

import pytest

from polariscope.studies import Table, studies
from polariscope.studies.published import FOLDER, Published, PublishedTable, names, published, read

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec"
NUMBER = r"[-−]?(?:\d[\d ]*)?\.?\d+(?:e[-−]?\d+)?"
Cells = dict[str, dict[str, str]]


def document(table: PublishedTable) -> str:
    (file,) = SPEC.glob(table.notes["spec"].split("|")[0].strip() + "-*.md")
    return file.read_text(encoding="utf-8")


def listed(table: PublishedTable, note: str) -> list[str]:
    return [name.strip() for name in table.notes.get(note, "").split(" | ") if name]


def counted(labels: list[str]) -> Iterator[str]:
    """Names, with the count behind those that occurred before."""
    for number, label in enumerate(labels):
        before = labels[:number].count(label)
        yield f"{label} ({before + 1})" if before else label


def markdown(table: PublishedTable, text: str) -> Cells:
    """The Markdown table below the caption, as rows of cells by name."""
    lines, caption = text.splitlines(), table.notes["spec"].split("|", 1)[1].strip()
    (start,) = (number for number, line in enumerate(lines) if caption in line)
    first = next(number for number in range(start, len(lines)) if lines[number].startswith("|"))
    grid = [
        [cell.strip(" *") for cell in line.strip()[1:-1].split("|")]
        for line in takewhile(lambda line: line.startswith("|"), lines[first:])
    ]
    (head, _, *body), labels = grid, int(table.notes.get("spec labels", 1))
    for above, row in pairwise(body):
        row[:labels] = [own or other for own, other in zip(row[:labels], above[:labels], strict=True)]
    columns = list(counted(head[labels:]))
    rows = {
        name: dict(zip(columns, row[labels:], strict=True))
        for name, row in zip(counted([" ".join(row[:labels]) for row in body]), body, strict=True)
    }
    if between := table.notes.get("spec parts"):
        rows = {name: dict(_parts(row, between, rows)) for name, row in rows.items()}
    if table.notes.get("spec layout") == "transposed":
        return {column: {row: rows[row][column] for row in rows} for column in columns}
    return rows


def _parts(row: dict[str, str], between: str, rows: Cells) -> Iterator[tuple[str, str]]:
    """The numbers of each cell; an empty one is empty in each of them."""
    most = max(cell.count(between) for cells in rows.values() for cell in cells.values()) + 1
    for column, cell in row.items():
        parts = cell.split(between)
        for number in range(1, most + 1):
            yield f"{column} {number}", parts[number - 1] if number <= len(parts) else parts[0]


def prose(table: PublishedTable, text: str) -> list[float]:
    """The numbers of the sentence, in its order; none where nothing is said in prose."""
    if "spec prose" not in table.notes:
        return []
    pattern = re.escape(table.notes["spec prose"]).replace(r"\{\}", f"({NUMBER})").replace("…", ".*?")
    (result,) = re.finditer(pattern, text, re.DOTALL)
    return [number(word) for word in result.groups()]


def number(word: str) -> float:
    return float(word.replace("−", "-").replace(" ", "").replace("∞", "inf"))


def cell(text: str) -> Published | None:
    """``mean±spread`` or ``mean (spread)``, with or without marks for the best, ``(mean)``; None for an empty one."""
    plain = re.sub(r"[*%)]", "", text).removeprefix("(")
    return None if plain in ("–", "n.a.") else Published(*map(number, re.split(r"±|\(", plain)))


def specified(table: PublishedTable, text: str) -> dict[str, dict[str, Published]]:
    """The cells that the specification has, under our names."""
    columns = list(dict.fromkeys(column for cells in table.rows.values() for column in cells))
    printed = markdown(table, text) if "|" in table.notes["spec"] else {}
    if printed and not listed(table, "spec rows"):
        assert list(printed) == list(table.rows)
    if printed and not listed(table, "spec columns"):
        assert all(list(row) == columns for row in printed.values())
    rows = listed(table, "spec rows") or (list(printed) if printed else ["-"] * len(table.rows))
    answer = iter(prose(table, text))
    result: dict[str, dict[str, Published]] = {}
    for row, name in zip(table.rows, rows, strict=True):
        if name == "-":
            shape = {column: len([part for part in own if part is not None]) for column, own in table.rows[row].items()}
            result[row] = {
                column: Published(*(next(answer, nan) for _ in range(size))) for column, size in shape.items()
            }
        else:
            names = zip(columns, listed(table, "spec columns") or columns, strict=True)
            cells = {column: cell(printed[name][theirs]) for column, theirs in names}
            result[row] = {column: value for column, value in cells.items() if value is not None}
    return result | {f"not in the table: {left}": {} for left in answer}


def agree(table: PublishedTable, text: str) -> bool:
    """Whether all cells do; as text, since a spread that is printed as nan does not equal itself."""
    return str(specified(table, text)) == str(table.rows)


@pytest.mark.spec("003/F3-081")
@pytest.mark.parametrize("name", names())
def test_every_published_number_is_that_of_the_specification(name: str) -> None:
    table = published(name)
    assert table.title
    assert table.source
    assert str(specified(table, document(table))) == str(table.rows)


@pytest.mark.spec("003/F3-081")
def test_no_table_and_no_number_is_missing() -> None:
    """Numbers of all tables of a work: cells and their spreads."""
    result: dict[str, int] = {}
    for name in names():
        cells = [cell for row in published(name).rows.values() for cell in row.values()]
        work = name.split("/")[0]
        result[work] = result.get(work, 0) + sum(part is not None for cell in cells for part in cell)
    assert result == {"inductive_biases": 2915, "informed": 712, "inner_workings": 348}


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "changed"),
    [
        ("informed/finite-mnist", "96.42 ± 0.17", "96.42±0.17", "96.42±0.18"),
        ("informed/parameters-lenet", "36868010", "36 868 010", "36 868 011"),
        ("informed/kernels", "98.40", "(NNGP 98.40", "(NNGP 98.41"),
        ("informed/random-shifted-mnist", "9.73", "10.09 9.73", "10.09 9.74"),
        ("informed/random-shifted-mnist", "32.55 ± 0.24", "32.55±.24", "32.56±.24"),
        ("inner_workings/orthogonality", "1.83 ± 0.05", "1.83 ± 0.05", "1.83 ± 0.06"),
        ("inductive_biases/transition-fit-normal", "0.886", ".0384, .886", ".0384, .887"),
        ("inductive_biases/in-domain-dsprites-quarter", "-11.5 ± 15.6", "−11.5±15.6", "11.5±15.6"),
        ("inductive_biases/alexnet-errors", "88.6428", "Gaussian 88.6428", "Gaussian 88.6429"),
        ("inductive_biases/corruptions-densenet", "65.5", "44.0/65.5", "44.0/65.6"),
        ("inductive_biases/noise-distances", "95.4 ± 5.7", "95.4 ± 5.7", "95.4 ± 5.8"),
    ],
)
def test_a_changed_cell_is_found_on_either_side(name: str, ours: str, theirs: str, changed: str) -> None:
    file, table = (FOLDER / f"{name}.csv").read_text(encoding="utf-8"), published(name)
    text = document(table)
    assert file.count(ours) == 1
    assert theirs in text
    assert agree(read(file), text)
    assert not agree(read(file), text.replace(theirs, changed))
    assert not agree(read(file.replace(ours, "7" + ours.lstrip("-"))), text)
    assert not agree(read(file.replace(ours, "")), text), "an empty cell is not a number"


@pytest.mark.spec("003/F3-081")
def test_published_and_measured_numbers_stand_side_by_side() -> None:
    study = studies.get("degenerate-squares")()
    ratios = (1.0, 1.2, 1.5, 2.0)
    trained = [{"route": "trained", "ratio": r, "score": 0.5 + r / 10, "distance": 0.1} for r in ratios for _ in "ab"]
    exact = [{"route": "exact", "ratio": r, "distance": 0.0} for r in ratios]
    table = Table(trained + exact)
    printed = published("inner_workings/degenerate-squares").rows
    lines = {row["ratio"]: row for row in study.beside(table)}
    assert list(lines) == ["1.0", "1.2", "1.5", "2.0"]
    for ratio in ("1.0", "1.2", "1.5"):
        assert lines[ratio]["DS published"] == printed["score"][ratio]
        assert lines[ratio]["DtO published"] == printed["distance"][ratio]
        assert lines[ratio]["DS here"] == f"{0.5 + float(ratio) / 10:.2f} ± 0.00 (n=2)"
    assert str(lines["1.2"]["DS published"]) == "0.76 ± 0.25"
    assert lines["2.0"]["DS published"] == "-", "a ratio of our own has no published number"


def test_an_unknown_table_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="informed/kernels"):
        published("informed/kernel")


ROBUSTNESS = "inductive_biases"
NOISES = ("gaussian", "shot", "impulse")


def kinds_of(row: dict[str, Published]) -> dict[str, float]:
    """The corruptions of a row, without what is said of all of them."""
    return {kind: cell.mean for kind, cell in row.items() if kind not in ("clean", "mean", "mCE")}


@pytest.mark.spec("001b/A-32", "001b/A-33")
@pytest.mark.parametrize(
    ("name", "mean"),
    [
        ("corruptions-adversarial-kinds", "mean"),
        ("corruptions-imagenet-kinds", "mean"),
        ("corruptions-imagenet-errors", "mCE"),
        ("corruptions-mnist-kinds", "mean"),
        ("corruptions-inception-kinds", "mean"),
    ],
)
def test_rows_of_corruptions_have_the_mean_that_was_printed(name: str, mean: str) -> None:
    rows = published(f"{ROBUSTNESS}/{name}").rows
    for row in rows.values():
        kinds = kinds_of(row)
        assert len(kinds) == 15
        assert sum(kinds.values()) / 15 == pytest.approx(row[mean].mean, abs=0.6)


@pytest.mark.spec("001b/A-32", "001b/A-33")
def test_tables_that_say_the_same_thing_agree() -> None:
    whole = published(f"{ROBUSTNESS}/corruptions-imagenet").rows
    for model, row in published(f"{ROBUSTNESS}/corruptions-imagenet-kinds").rows.items():
        kinds = kinds_of(row)
        quiet = [value for kind, value in kinds.items() if kind not in NOISES]
        assert sum(quiet) / 12 == pytest.approx(whole[model]["top-1 without noise"].mean, abs=0.6), model
    deep = published(f"{ROBUSTNESS}/noise-generator-depth").rows["4"]
    assert [deep[column].mean for column in ("clean", "IN-C", "without noise")] == [
        whole["ANT^1x1"][column].mean for column in ("clean", "top-1", "top-1 without noise")
    ]
    dense = published(f"{ROBUSTNESS}/corruptions-densenet").rows
    gain = {column: dense["ANT^1x1 DN121"][column].mean - cell.mean for column, cell in dense["Vanilla DN121"].items()}
    assert gain == pytest.approx(
        {"clean": -0.1, "top-1": 8.2, "top-5": 8.2, "top-1 without noise": 2.8, "top-5 without noise": 2.8}
    )


@pytest.mark.spec("001b/A-32")
def test_cells_in_brackets_are_marked_as_the_specification_marks_them() -> None:
    table = published(f"{ROBUSTNESS}/corruptions-imagenet")
    printed = markdown(table, document(table))
    columns = dict(zip(listed(table, "spec columns"), table.rows["Vanilla RN50"], strict=True))
    expected = {(row, columns[c]) for row, cells in printed.items() for c, cell in cells.items() if cell[0] == "("}
    assert table.bracketed == expected
    assert len(expected) == 11
    assert "seen in training" in table.notes["brackets"]
    assert not published(f"{ROBUSTNESS}/corruptions-imagenet-kinds").bracketed


@pytest.mark.spec("001b/B-36")
def test_all_attacks_together_are_as_strong_as_each() -> None:
    """The nearest of all adversarials is no farther than any one of them, in every norm and for every classifier."""
    rows = published("inductive_biases/attacks-synthesis").rows
    assert len(rows) == 25
    for norm in ("L2", "L∞", "L0"):
        several = [cells for name, cells in rows.items() if name.startswith(norm)]
        assert len(several) == {"L2": 11, "L∞": 9, "L0": 2}[norm]
        together = rows[f"All {norm}"]
        assert len(together) == 12
        for column, value in together.items():
            assert value.mean <= min(cells[column].mean for cells in several if column in cells)
