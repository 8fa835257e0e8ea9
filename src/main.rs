//! Arguments to a subcommand, and its exit code.

fn main() {}
