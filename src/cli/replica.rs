//! `weir replica`: simulated vLLM replicas, several ports in one process.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;

use crate::lifecycle::{Clock, Signals, Tasks};
use crate::replica::{NullStream, Options, Replica};
use crate::sim::EngineParams;

/// Arguments of `weir replica`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplicaArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// First port; 0 takes any free one
    #[arg(long, default_value_t = 8101)]
    pub port: u16,
    /// Replicas, on ports that follow one another
    #[arg(long, default_value_t = 1)]
    pub count: u16,
    /// Model that they serve
    #[arg(long, default_value = "tiny")]
    pub model: String,
    /// Key that they ask for on /v1
    #[arg(long)]
    pub api_key: Option<String>,
    /// Factor on the engines' speed
    #[arg(long, default_value_t = 1.0)]
    pub speed: f64,
    /// Sequences that an engine runs at once
    #[arg(long, default_value_t = EngineParams::default().max_num_seqs)]
    pub max_num_seqs: u32,
    /// Tokens computed a step
    #[arg(long, default_value_t = EngineParams::default().max_num_batched_tokens)]
    pub max_num_batched_tokens: u32,
    /// KV blocks of an engine
    #[arg(long, default_value_t = EngineParams::default().num_gpu_blocks)]
    pub num_gpu_blocks: u32,
    /// Tokens a KV block
    #[arg(long, default_value_t = EngineParams::default().block_size)]
    pub block_size: u32,
    /// Compute every prompt anew
    #[arg(long)]
    pub no_prefix_caching: bool,
    /// Longest prompt and answer, tokens
    #[arg(long, default_value_t = Options::default().max_model_len)]
    pub max_model_len: u32,
    /// Say 503 when this many sequences are present, running ones too
    #[arg(long)]
    pub max_num_queued_reqs: Option<u32>,
    /// Tokens of an answer whose request names no limit
    #[arg(long, default_value_t = Options::default().default_output)]
    pub default_output: u32,
    /// Close a connection that is idle this long
    #[arg(long, default_value = "5s")]
    pub keep_alive: humantime::Duration,
    /// Seed of names and texts; each replica adds its number
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Answer without an engine: frames of one size
    #[arg(long)]
    pub null: bool,
    /// Content frames a stream, with --null
    #[arg(long, default_value_t = 200, requires = "null")]
    pub null_frames: u32,
    /// Least bytes a frame, with --null
    #[arg(long, default_value_t = 256, requires = "null")]
    pub null_frame_bytes: usize,
    /// Time between frames, with --null; 0s is as fast as the socket takes them
    #[arg(long, default_value = "0s", requires = "null")]
    pub null_interval: humantime::Duration,
    /// Run on one thread
    #[arg(long)]
    pub single_thread: bool,
}

impl ReplicaArgs {
    /// What replica `number` is made of.
    fn options(&self, number: u16) -> Options {
        let null = NullStream {
            frames: self.null_frames,
            frame_bytes: self.null_frame_bytes,
            interval: self.null_interval.into(),
        };
        Options {
            listen: SocketAddr::new(self.host, self.port_of(number)),
            model: self.model.clone(),
            engine: EngineParams {
                max_num_seqs: self.max_num_seqs,
                max_num_batched_tokens: self.max_num_batched_tokens,
                num_gpu_blocks: self.num_gpu_blocks,
                block_size: self.block_size,
                prefix_caching: !self.no_prefix_caching,
                ..EngineParams::default()
            },
            speed: self.speed,
            api_key: self.api_key.clone(),
            max_model_len: self.max_model_len,
            max_num_queued_reqs: self.max_num_queued_reqs,
            default_output: self.default_output,
            null: self.null.then_some(null),
            keep_alive: self.keep_alive.into(),
            seed: self.seed.wrapping_add(u64::from(number)),
            record: false,
        }
    }

    const fn port_of(&self, number: u16) -> u16 {
        if self.port == 0 { 0 } else { self.port.saturating_add(number) }
    }

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.count >= 1, "--count must be at least 1");
        anyhow::ensure!(
            self.port == 0 || u32::from(self.port) + u32::from(self.count) <= 65_536,
            "--port and --count lead beyond port 65535"
        );
        anyhow::ensure!(
            self.speed > 0.0 && self.speed <= 1e6,
            "--speed must be over 0 and at most 1000000"
        );
        let sizes = [
            ("--max-num-seqs", self.max_num_seqs),
            ("--max-num-batched-tokens", self.max_num_batched_tokens),
            ("--num-gpu-blocks", self.num_gpu_blocks),
            ("--block-size", self.block_size),
            ("--max-model-len", self.max_model_len),
        ];
        for (name, size) in sizes {
            anyhow::ensure!(size >= 1, "{name} must be at least 1");
        }
        anyhow::ensure!(
            self.max_num_batched_tokens >= self.max_num_seqs,
            "--max-num-batched-tokens must not be below --max-num-seqs"
        );
        Ok(())
    }
}

/// Serves until a signal comes, and says where.
pub fn run(args: &ReplicaArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    args.check()?;
    let mut builder = if args.single_thread {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    let runtime = builder.enable_all().build()?;
    let ended = runtime.block_on(serve(args, out));
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended.map(|()| ExitCode::SUCCESS)
}

async fn serve(args: &ReplicaArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let (clock, tasks) = (Clock::start(), Tasks::default());
    let mut replicas = Vec::new();
    for number in 0..args.count {
        let options = args.options(number);
        let listen = options.listen;
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("cannot listen on {listen}"))?;
        let replica = Replica::serve(options, listener, clock, &tasks)?;
        writeln!(out, "replica {} serves {}", replica.url(), args.model)?;
        replicas.push(replica);
    }
    out.flush()?;
    signals.stop.received().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ReplicaArgs,
    }

    fn parse(line: &str) -> Result<ReplicaArgs, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.args)
    }

    #[test]
    fn ports_follow_one_another_and_seeds_differ() {
        let args = parse("replica --port 8101 --count 4 --speed 10 --num-gpu-blocks 512").unwrap();
        args.check().unwrap();
        let last = args.options(3);
        assert_eq!((last.listen.port(), last.seed), (8104, 3));
        assert_eq!((last.engine.num_gpu_blocks, last.null), (512, None));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["replica --count 0", "replica --speed 0", "replica --speed NaN"] {
            assert!(parse(line).unwrap().check().is_err(), "{line}");
        }
        assert!(parse("replica --port 65535 --count 2").unwrap().check().is_err());
        assert!(parse("replica --block-size 0").unwrap().check().is_err());
        assert!(parse("replica --null-frames 3").is_err());
    }
}
