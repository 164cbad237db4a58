"""What people and machines are shown: matrices, failures in full, JSON, JUnit."""

from rankdrill.report.drill_html import drill_as_html
from rankdrill.report.drill_json import drill_as_json
from rankdrill.report.failures import print_failures
from rankdrill.report.junit import drill_as_junit
from rankdrill.report.matrix import print_matrix
from rankdrill.report.profiles import print_profiles
from rankdrill.report.progress import watched
from rankdrill.report.tally import Tally

__all__ = [
    "Tally",
    "drill_as_html",
    "drill_as_json",
    "drill_as_junit",
    "print_failures",
    "print_matrix",
    "print_profiles",
    "watched",
]
