"""Results in a notebook: a sentence, a table, an Arrow table, a data frame where pandas is there, single figures."""

import sys
import types

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

import polariscope
from polariscope.findings import Chart, Pictures


class Net(nn.Module):
    def encode(self, x):
        return x.flatten(1)[:, :3] - 0.5, torch.tensor([-5.0, -5.0, 0.0]).expand(len(x), 3)

    def decode(self, z):
        return torch.sigmoid(z.repeat(1, 22)[:, :64]).reshape(-1, 1, 8, 8)


@pytest.fixture(scope="module")
def found():
    images = np.random.default_rng(0).random((120, 8, 8))
    return polariscope.examine(Net(), images, (images[:, 0, 0] > 0.5).astype(int), measured=["mig"])


def test_a_result_says_itself_in_a_line(found) -> None:
    assert repr(found) == "<Examination: 3 latent variables on 120 examples: 2 active, 1 passive>"
    assert repr(found.representation).startswith("<Representation: 120 examples, 3 latent variables (mean, var, ")
    assert repr(polariscope.as_subject(Net())) == "<Subject Net: encodes, decodes, predicts>"


def test_a_notebook_shows_the_rows(found) -> None:
    page = found._repr_html_()
    assert page.count("<tr>") == 1 + 3
    assert "<th>mean_var</th>" in page
    assert "2 active" in page


def test_rows_as_arrow_and_as_a_frame(found, monkeypatch) -> None:
    table = found.to_arrow()
    assert table.num_rows == 3
    assert table["type"].to_pylist() == [v.type for v in found.variables]
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=lambda rows: ("frame", len(rows))))
    assert found.to_frame() == ("frame", 3)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        ImportError, match=r"to_frame\(\) needs pandas.*pip install pandas.*records\(\) or to_arrow\(\)"
    ):
        found.to_frame()


def test_single_figures_and_a_report_of_the_result_itself(found, tmp_path) -> None:
    document = found.findings("Mine")
    drawn = {chart.name: chart.draw() for chart in document.of(Chart)}
    assert set(drawn) == {"factors", "histograms"}
    assert all(isinstance(figure, Figure) for figure in drawn.values())
    strips = {part.name: part.strips for part in document.of(Pictures)}
    assert {name: len(found) for name, found in strips.items()} == {"reconstructions": 12, "traversals": 3}
    assert strips["traversals"][0].images.shape == (1, 9, 1, 8, 8)
    assert document.save(tmp_path / "report.html") == tmp_path / "report.html"
    assert "<title>Mine" in (tmp_path / "report.html").read_text()


def test_layers_compared_are_a_table_too(found) -> None:
    images = np.random.default_rng(0).random((40, 8, 8))
    same = polariscope.compare(Net(), Net(), polariscope.as_world(images), count=40)
    assert same.to_arrow().column_names[0] == "layer"
    assert repr(same).startswith(
        "<Comparison: Net and Net have nearly the same code: CKA of their mean representations is 1.00"
    )


def test_names_at_the_top_are_found_when_asked_for() -> None:
    assert {"train", "examine", "Findings", "__version__"} <= set(polariscope.__all__) <= set(dir(polariscope))
    for name in set(polariscope.__all__) - {"__version__"}:
        assert getattr(polariscope, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'exmaine'"):
        _ = polariscope.exmaine
