"""HTTP: the REST form of the protocol, answers of tasks, completions of texts, metrics and pages."""
