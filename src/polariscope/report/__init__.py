"""The report: the one document of every result, its figures, and how it is shown (page, terminal, Markdown)."""

from polariscope.report.findings import Findings as Findings
from polariscope.report.findings import save as save
