"""Everything before the first message: settings, survey of the data, hyper-parameters, query points."""
