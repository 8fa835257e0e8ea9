//! The running configuration: one handle, watched files and signals, applying a new one.
