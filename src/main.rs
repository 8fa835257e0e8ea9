//! Arguments to a subcommand, and its exit code.

use std::process::ExitCode;

use clap::Parser;
use weir::cli::Cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    weir::cli::run(Cli::parse())
}
