"""The document of an audit of invariance: the audit, walks along the code, and when latents wake."""

from __future__ import annotations

from typing import Any

from polariscope.examination.awakening import awakening
from polariscope.examination.invariance import audit_invariance
from polariscope.examination.property_traversals import traverse_property
from polariscope.findings import Findings
from polariscope.lab.store import Run
from polariscope.worlds.given import Data, as_world
from polariscope.worlds.world import worlds


def invariance_document(
    model: Any,
    data: Data | None = None,
    *,
    title: str = "model",
    property_latents: int | None = None,
    count: int = 2000,
    seed: int = 0,
    **asked: Any,
) -> Findings:
    """All that is known of how a model keeps a property while the rest of its code changes. ``asked`` are further
    settings of :func:`~polariscope.examination.invariance.audit_invariance`. A run with snapshots also shows when its
    latents wake."""
    shared: dict[str, Any] = {"property_latents": property_latents, "count": count, "seed": seed}
    audit = audit_invariance(model, data, **shared, **asked)
    parts = traverse_property(model, data, **shared).parts()
    woken = awakening(model) if isinstance(model, Run) else None
    parts += [] if woken is None else woken.parts()
    settings = shared | asked | ({} if data is None else {"data": worlds.describe(as_world(data))})
    return audit.findings(f"Invariance of {title}", settings, parts)
