"""What people and machines are shown: matrices, failures in full, JSON, JUnit."""

from rankdrill.report.drill_html import drill_as_html
from rankdrill.report.drill_json import drill_as_json
from rankdrill.report.failures import print_failures
from rankdrill.report.junit import drill_as_junit
from rankdrill.report.matrix import print_matrix
from rankdrill.report.picture import Picture, picture_of
from rankdrill.report.profiles import print_profiles
from rankdrill.report.progress import watched
from rankdrill.report.run_html import run_as_html
from rankdrill.report.tally import Tally
from rankdrill.report.trace import run_as_trace

__all__ = [
    "Picture",
    "Tally",
    "drill_as_html",
    "drill_as_json",
    "drill_as_junit",
    "picture_of",
    "print_failures",
    "print_matrix",
    "print_profiles",
    "run_as_html",
    "run_as_trace",
    "watched",
]
