//! The process: its clock, its named tasks, its signals, its drain.
