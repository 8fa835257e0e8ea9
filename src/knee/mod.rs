//! PURE: the search for the knee, verdicts on a load level, diagnosis of what binds.
