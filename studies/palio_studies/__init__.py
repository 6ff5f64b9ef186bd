"""The studies: the evaluations of the five papers, repeated over the real routers and planners."""
