"""The report: figures, and one HTML file that shows what was found out about one model or several."""

from polariscope.report.page import Case as Case
from polariscope.report.page import write_report as write_report
