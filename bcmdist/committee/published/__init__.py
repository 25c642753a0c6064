"""Forms and rules as the papers print them: oracles, and rivals to compare with."""
