"""The tangent kernels of a classifier before and after training: the result of
:func:`polariscope.examination.diagnose.diagnose`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from polariscope.findings import Chart, Column, Findings, Records, Text
from polariscope.kernels.principal import KernelChange
from polariscope.report import kernel_figures
from polariscope.tabular import Tabular

Verdict = Literal["lazy", "in between", "learns features"]
Form = Literal["trace", "pseudo"]

TITLES = {
    "projections": "Labels in the components",
    "information": "Information in the components",
    "scatter": "The plane of two components",
    "spectrum": "Spectrum",
}


@dataclass(frozen=True, eq=False)
class KernelView:
    """The statistics of one kernel on the data; components are those of the centred kernel."""

    name: str
    error: float
    """Share of held-out examples that ridge regression with this kernel misclassifies. Its loss is the squared error: a
    network trained on the cross-entropy can beat it even if it is lazy."""
    ridge: float
    """Ridge of that regression, relative to the kernel's mean diagonal."""
    alignment: float
    """Alignment of the centred kernel with the labels."""
    projections: list[float]
    """ω², the share of the labels in each leading component."""
    captured: float
    """Their sum: the share of the labels in all leading components shown."""
    information: list[float]
    """Information of each leading component about the label, in bits."""
    separability: float
    """Accuracy of nearest neighbours in the plane of the first two components."""
    effective_rank: float
    """Effective rank of the centred kernel: the number of directions it spreads over."""
    rkhs_norm: float
    """Squared norm of the labels, with a ridge of 1e-2 of the trace: smaller is easier to learn."""
    dimension: float | None
    """Intrinsic dimension of the examples as the kernel sees them, from two neighbours."""
    shares: list[float]
    """Leading eigenvalues as shares of the trace."""
    scatter: NDArray[np.float64] = field(repr=False)
    """The first two components ``(n, 2)``."""


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Tabular):
    """The findings about one network."""

    verdict: Verdict
    reasons: list[str]
    change: KernelChange
    """From the initial to the final kernel."""
    views: list[KernelView]
    """initial, final and, if the network ends in a dense layer, last layer initial and final."""
    network_error: float
    """Share of held-out examples that the network itself misclassifies."""
    chance: float
    """Error of always predicting the most frequent class."""
    floor: float
    """The estimated information for shuffled labels, in bits."""
    form: Form
    labels: NDArray[np.int64] = field(repr=False)
    """Classes of the examples in the scatter plots."""
    fitted: int = 0
    tested: int = 0
    notes: list[str] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the diagnosis, for the document."""
    classes: Sequence[str] = ()
    """Name of the labels."""

    @property
    def headline(self) -> str:
        return f"{self.verdict}{self._doubt}. {self.reasons[0]}"

    @property
    def learned(self) -> bool:
        """Whether the network's error is below that of the most frequent class by more than two standard errors."""
        noise = math.sqrt(self.chance * (1 - self.chance) / max(self.tested, 1))
        return self.network_error < self.chance - 2 * noise

    @property
    def _doubt(self) -> str:
        """A warning if the network has not learned its task; its kernels then show nothing about how it learns."""
        if self.learned:
            return ""
        return (
            f", but the network has not learned its task: its error is {self.network_error:.1%}; that of "
            f"always predicting the most frequent class is {self.chance:.1%}"
        )

    def records(self) -> list[dict[str, Any]]:
        """A row of scalar statistics for each kernel."""
        return [{k: v for k, v in vars(view).items() if v is None or isinstance(v, str | float)} for view in self.views]

    def view(self, name: str) -> KernelView:
        return next(view for view in self.views if view.name == name)

    def findings(
        self, title: str = "", settings: Mapping[str, Any] | None = None, classes: Sequence[str] = ()
    ) -> Findings:
        """The document; ``classes`` are the names of the labels. For a run or a named model, all arguments have
        defaults."""
        title = title or (f"Kernels of {self.settings['model']}" if self.settings else "network")
        settings, classes = self.settings if settings is None else settings, classes or self.classes
        labels = np.asarray(classes)[self.labels] if classes else self.labels
        rows = [{k: v for k, v in vars(view).items() if k != "scatter"} for view in self.views]
        for row in rows:
            row |= {"labels_in_first": row["projections"][0], "bits_of_first": row["information"][0]}
        shown = len(self.views[0].projections)
        hint = (
            f"Kernels over {self.fitted} examples. The network gets {self.network_error:.1%} of {self.tested} held-out "
            f"examples wrong; always predicting the most frequent class would get {self.chance:.1%} wrong. With "
            f"several outputs the kernel is {'their mean' if self.form == 'trace' else 'that of their sum'}."
        )
        return Findings(
            title,
            f"Verdict: {self.verdict}{self._doubt}.",
            [
                Text(name="reasons", title="Why", lines=self.reasons),
                Records(name="kernels", title="Kernels", hint=hint, rows=rows, columns=_columns(shown)),
                *self._charts(labels),
            ],
            self.notes,
            {
                "verdict": self.verdict,
                "change": asdict(self.change),
                "network_error": self.network_error,
                "chance": self.chance,
                "information_floor": self.floor,
                "kernel_form": self.form,
                "examples": {"kernel": self.fitted, "held_out": self.tested},
                "classes": list(classes) or int(self.labels.max()) + 1,
            },
            {"labels": self.labels, **{f"scatter/{view.name}": view.scatter for view in self.views}},
            settings=settings or {},
        )

    def _charts(self, labels: NDArray[Any]) -> list[Chart]:
        def column(key: str) -> dict[str, Any]:
            return {view.name: getattr(view, key) for view in self.views}

        drawn: dict[str, tuple[str, Callable[[], Figure]]] = {
            "projections": (
                "The share of the labels in each principal component of each kernel. Learning features moves the "
                "labels to the first components.",
                lambda: kernel_figures.projection_bars(column("projections"), 1 / self.fitted),
            ),
            "information": (
                "The information of each component alone about the label, linear or not.",
                lambda: kernel_figures.information_curves(column("information"), self.floor),
            ),
            "scatter": (
                "The examples in the plane of the first two components. Mixed classes before training and separate "
                "clusters after it are typical of compression.",
                lambda: kernel_figures.component_scatter(column("scatter"), labels, column("separability")),
            ),
            "spectrum": (
                "Eigenvalues of the centred kernels. A network that compresses keeps few directions.",
                lambda: kernel_figures.spectrum_curves(column("shares")),
            ),
        }
        return [Chart(name=name, title=TITLES[name], hint=hint, draw=draw) for name, (hint, draw) in drawn.items()]


def _columns(shown: int) -> list[Column]:
    return [
        Column("name", "kernel"),
        Column("error", "held-out error", "percent", "error"),
        Column("alignment", "alignment with labels", "%.3f", "align"),
        Column("labels_in_first", "labels in component 1 (ω²)", "%.3f", "ω² 1"),
        Column("captured", f"labels in components 1 to {shown}", "%.3f", f"ω² 1-{shown}"),
        Column("bits_of_first", "information of component 1 (bits)", "%.2f", "bits 1"),
        Column("separability", "accuracy of neighbours in 2 components", "percent", "2-PC"),
        Column("effective_rank", "effective rank", "%.1f", "rank"),
        Column("rkhs_norm", "norm of the labels", "%.3g", "norm"),
        Column("dimension", "intrinsic dimension", "%.1f", "dim."),
    ]
