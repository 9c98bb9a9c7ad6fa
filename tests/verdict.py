"""Judge a test run by its report, where pytest's exit status contradicts it.

On one machine pytest ended with status 1 although every test had passed and it had reported no
error; the report, written before pytest cleans up, then decides. A failed test stays a failure.
"""

import sys
from xml.etree import ElementTree

suites = ElementTree.parse(sys.argv[1]).getroot().iter("testsuite")
counts = [[int(suite.get(name, "1")) for name in ("errors", "failures")] for suite in suites]
tests = list(ElementTree.parse(sys.argv[1]).getroot().iter("testcase"))
sys.exit(0 if counts and tests and not any(map(any, counts)) else 1)
