"""The result document under its former name: plug-ins import it from here; it lives in :mod:`polariscope.findings`."""

from polariscope.findings import Chart as Chart
from polariscope.findings import Column as Column
from polariscope.findings import Curves as Curves
from polariscope.findings import Findings as Findings
from polariscope.findings import Metric as Metric
from polariscope.findings import Part as Part
from polariscope.findings import Pictures as Pictures
from polariscope.findings import Records as Records
from polariscope.findings import Row as Row
from polariscope.findings import Strip as Strip
from polariscope.findings import Text as Text
from polariscope.findings import Value as Value
from polariscope.findings import Values as Values
from polariscope.findings import save as save
