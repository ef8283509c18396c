"""Studies: one published experiment each, at the scale you choose, published and measured figures side by side."""

from polariscope.studies.engine import reproduce as reproduce
from polariscope.studies.study import Claim as Claim
from polariscope.studies.study import Study as Study
from polariscope.studies.study import Table as Table
from polariscope.studies.study import studies as studies
