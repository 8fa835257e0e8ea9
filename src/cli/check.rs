//! `weir check`: is a file right, what does it say, and what would a reload change?

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::{Config, ConfigErrors, PoolConfig, diff, load, settings, show_size};
use crate::reload::Loader;

/// The exit code of a configuration that is wrong.
pub const INVALID: u8 = 2;

/// Arguments of `weir check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// The configuration to check
    pub file: PathBuf,
    /// The configuration that is running: shows what a reload would change
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Print every key with its value, defaults included
    #[arg(long)]
    pub all: bool,
}

/// Checks, and prints faults, or a summary and the difference. 0 when right, 2 when not.
pub fn run(args: &CheckArgs, out: &mut impl Write) -> io::Result<ExitCode> {
    let checked = read(&args.file);
    let running = args.against.as_ref().map(read);
    let wrong = checked.as_ref().err().into_iter();
    for errors in wrong.chain(running.as_ref().and_then(|running| running.as_ref().err())) {
        faults(errors, out)?;
    }
    let (Ok(config), Ok(running)) = (checked, running.transpose()) else {
        return Ok(ExitCode::from(INVALID));
    };
    writeln!(out, "{}: valid", args.file.display())?;
    summary(&config, out)?;
    if args.all {
        for setting in settings(&config) {
            writeln!(out, "  {} = {}", setting.path, setting.value)?;
        }
    }
    if let Some(running) = running {
        changes(&running, &config, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &PathBuf) -> Result<Config, ConfigErrors> {
    load(&Loader::new(file).fetch()?)
}

/// Every fault, a line each, and how many there are.
pub fn faults(errors: &ConfigErrors, out: &mut impl Write) -> io::Result<()> {
    for error in &errors.0 {
        writeln!(out, "{error}")?;
    }
    let s = if errors.0.len() == 1 { "" } else { "s" };
    writeln!(out, "{} fault{s}", errors.0.len())
}

fn summary(config: &Config, out: &mut impl Write) -> io::Result<()> {
    let server = &config.server;
    let scheme = if server.tls.is_some() { "https" } else { "http" };
    writeln!(out, "  serves {scheme}://{}, admin http://{}", server.listen, server.admin)?;
    for pool in &config.pools {
        summary_of(pool, out)?;
    }
    let tenants: Vec<_> = config.tenants.tenants().iter().map(|tenant| &*tenant.name).collect();
    if !tenants.is_empty() {
        writeln!(out, "  tenants: {}", tenants.join(", "))?;
    }
    for warning in &config.warnings {
        writeln!(out, "warning: {}: {}", warning.path, warning.message)?;
    }
    Ok(())
}

fn summary_of(pool: &PoolConfig, out: &mut impl Write) -> io::Result<()> {
    let names: Vec<_> = pool.replicas.iter().map(ToString::to_string).collect();
    let queue = &pool.policy.queue;
    let limit = pool.policy.limit.in_flight;
    let limit = limit.map_or_else(String::new, |limit| format!("{limit}, "));
    writeln!(out, "  pool {}, replicas: {}", pool.model, names.join(", "))?;
    writeln!(out, "    in flight, a replica: {limit}{}", pool.limits_from)?;
    let wait = humantime::format_duration(queue.wait);
    let bytes = show_size(queue.bytes);
    writeln!(out, "    queue: {wait}, {} requests, {bytes} of bodies", queue.count)
}

fn changes(running: &Config, config: &Config, out: &mut impl Write) -> io::Result<()> {
    let changes = diff(running, config);
    if changes.is_empty() {
        return writeln!(out, "a reload changes nothing");
    }
    writeln!(out, "a reload changes:")?;
    for change in changes {
        writeln!(out, "  {change}")?;
    }
    Ok(())
}
