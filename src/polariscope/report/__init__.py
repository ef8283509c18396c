"""The report: the figures of results, and how their documents are shown (page, terminal, Markdown)."""

from polariscope.findings import Findings as Findings
from polariscope.findings import save as save
