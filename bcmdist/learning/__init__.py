"""Everything before the first message: what is asked, survey, hyper-parameters, query points."""
