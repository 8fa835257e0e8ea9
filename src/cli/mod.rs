//! One file a subcommand.

pub mod check;
pub mod load;
pub mod replica;
