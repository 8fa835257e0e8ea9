//! One file a subcommand; this one only tells them apart.
//!
//! A subcommand writes to the `Write` it is given and returns its exit code: 0 for success, 1 for
//! a failure of what it did, 2 for arguments or a configuration that are wrong.

pub mod check;
pub mod demo;
pub mod key;
pub mod load;
pub mod replica;
pub mod serve;
pub mod simulate;
pub mod sweep;
mod sweep_files;
mod sweep_html;
pub mod workload;

use std::io::Write;
use std::process::ExitCode;

/// Weir: an admission-control gateway in front of vLLM replicas
#[derive(Debug, clap::Parser)]
#[command(version, about, long_about = None)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the gateway
    Serve(serve::ServeArgs),
    /// Run simulated replicas, the gateway, and more load than they can take
    Demo(demo::DemoArgs),
    /// Run simulated vLLM replicas
    Replica(replica::ReplicaArgs),
    /// Offer load in an open loop and show what came back
    Load(load::LoadArgs),
    /// Find the knee of a server, and write its limits
    Sweep(sweep::SweepArgs),
    /// Say what a recorded load is like
    Workload(workload::WorkloadArgs),
    /// Run scenarios in virtual time: the gate's own decisions beside rivals'
    Simulate(simulate::SimulateArgs),
    /// Validate a configuration, and show what a reload would change
    Check(check::CheckArgs),
    /// Make a tenant's key, or the digest of one
    #[command(subcommand)]
    Key(key::KeyCommand),
}

/// Runs the subcommand to its end.
pub fn run(cli: Cli) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let ended = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args, &mut out),
        Command::Replica(args) => replica::run(&args, &mut out),
        Command::Load(args) => load::run(&args, &mut out),
        Command::Sweep(args) => sweep::run(&args, &mut out),
        Command::Workload(args) => workload::run(&args, &mut out),
        Command::Simulate(args) => simulate::run(&args, &mut out),
        Command::Check(args) => check::run(&args, &mut out).map_err(Into::into),
        Command::Key(command) => key::run(&command, &mut std::io::stdin().lock(), &mut out),
    };
    ended.unwrap_or_else(|error| fail(&error))
}

/// Says an error with everything that caused it, on standard error.
fn fail(error: &anyhow::Error) -> ExitCode {
    // Nothing is left to be done when even this cannot be said.
    let _said = writeln!(std::io::stderr(), "weir: {error:#}").is_ok();
    ExitCode::FAILURE
}
