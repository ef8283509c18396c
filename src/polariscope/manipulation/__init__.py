"""Change data a little, to see what a representation relies on: learned, hand-made and unstructured manipulations.

Names are imported on first use, so that a manipulated world does not load the figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polariscope.lazy import exported, looked_up

if TYPE_CHECKING:
    from polariscope.manipulation.bundle import Bundle as Bundle
    from polariscope.manipulation.bundle import load_bundle as load_bundle
    from polariscope.manipulation.bundle import manipulation_findings as manipulation_findings
    from polariscope.manipulation.bundle import report_on as report_on
    from polariscope.manipulation.bundle import save_bundle as save_bundle
    from polariscope.manipulation.checks import LocalGlobal as LocalGlobal
    from polariscope.manipulation.checks import Preservation as Preservation
    from polariscope.manipulation.checks import local_global as local_global
    from polariscope.manipulation.checks import local_global_of_decoder as local_global_of_decoder
    from polariscope.manipulation.checks import pca_score as pca_score
    from polariscope.manipulation.checks import preservation as preservation
    from polariscope.manipulation.figures import latent_scatter as latent_scatter
    from polariscope.manipulation.figures import traversal_plane as traversal_plane
    from polariscope.manipulation.figures import traversal_rows as traversal_rows
    from polariscope.manipulation.figures import triptych as triptych
    from polariscope.manipulation.folding import fold as fold
    from polariscope.manipulation.generator import Learned as Learned
    from polariscope.manipulation.generator import Manipulator as Manipulator
    from polariscope.manipulation.generator import learn_manipulator as learn_manipulator
    from polariscope.manipulation.generator import predicted_direction as predicted_direction
    from polariscope.manipulation.kinds import manipulate as manipulate
    from polariscope.manipulation.local_structure import LocalStructure as LocalStructure
    from polariscope.manipulation.local_structure import PlaneTheory as PlaneTheory
    from polariscope.manipulation.manipulation import ChangeSize as ChangeSize
    from polariscope.manipulation.manipulation import Manipulated as Manipulated
    from polariscope.manipulation.manipulation import Manipulation as Manipulation
    from polariscope.manipulation.manipulation import apply as apply
    from polariscope.manipulation.noise import Noise as Noise
    from polariscope.manipulation.oversampling import balance as balance
    from polariscope.manipulation.oversampling import g_smote as g_smote
    from polariscope.manipulation.oversampling import smote as smote
    from polariscope.manipulation.selection import Extremes as Extremes
    from polariscope.manipulation.selection import Restart as Restart
    from polariscope.manipulation.selection import extremes as extremes
    from polariscope.manipulation.selection import train_restarts as train_restarts

__getattr__, __dir__ = looked_up(__name__, exported(__name__, __file__))
