"""Published rules and forms that are not part of bcmdist: references of tests, and rivals to compare with."""
