//! A recorded load, to be replayed: when requests came and how long they were.
//!
//! Two forms. CSV with a heading that names at least `timestamp`, `input` and `output` (seconds
//! and tokens), and JSON lines as in the Mooncake traces: `timestamp` (milliseconds),
//! `input_length`, `output_length` and, where known, `hash_ids`, one for each block of the
//! prompt, equal where the text is. Either may name a `class`. What else a line says is not read.
//!
//! A trace is taken whole or not at all: a time that is negative or goes back, or a length that
//! is no length, is refused with its line.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::flow::mix;
use super::{Call, Faults, Flow, Piece, Role, Seeds, Stage};

/// Longer than any model's context.
const MOST_TOKENS: u32 = 10_000_000;

/// What the times of a trace are counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum TimeUnit {
    /// Seconds, as CSV has them unless told otherwise.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds, as JSON lines have them unless told otherwise.
    #[serde(rename = "ms")]
    Milliseconds,
}

/// One request of a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Since the first one.
    pub at: Duration,
    /// Prompt tokens.
    pub input: u32,
    /// Tokens of the answer.
    pub output: u32,
    /// Names of the prompt's blocks, first block first; empty where unknown.
    pub blocks: Vec<u64>,
    /// Its class, where the line names one.
    pub class: Option<Arc<str>>,
}

/// A whole trace, in the order of time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    rows: Vec<Row>,
}

/// A line before its times are counted from the first one.
struct Line {
    timestamp: f64,
    input: f64,
    output: f64,
    blocks: Vec<u64>,
    class: Option<String>,
}

#[derive(Deserialize)]
struct JsonLine {
    timestamp: f64,
    input_length: f64,
    output_length: f64,
    #[serde(default)]
    hash_ids: Vec<u64>,
    class: Option<String>,
}

impl Trace {
    /// Reads a text; JSON lines are known by their first brace.
    pub fn read(text: &str, unit: Option<TimeUnit>) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let json = text.trim_start().starts_with('{');
        let (lines, usual) = if json {
            (json_lines(text, &mut faults), TimeUnit::Milliseconds)
        } else {
            (csv_lines(text, &mut faults), TimeUnit::Seconds)
        };
        let scale = match unit.unwrap_or(usual) {
            TimeUnit::Seconds => 1.0,
            TimeUnit::Milliseconds => 1e-3,
        };
        let (mut rows, mut start, mut before) = (Vec::with_capacity(lines.len()), None, 0.0);
        for (number, line) in lines {
            let mut wrong = |what: String| faults.add_line(number, what);
            if !line.timestamp.is_finite() || line.timestamp < 0.0 {
                wrong(format!("the time {} is no time", line.timestamp));
                continue;
            }
            if line.timestamp < before {
                wrong(format!(
                    "the time {} lies before the {before} of an earlier line",
                    line.timestamp
                ));
                continue;
            }
            before = line.timestamp;
            let since = (line.timestamp - *start.get_or_insert(line.timestamp)) * scale;
            let (input, output) = (tokens(line.input), tokens(line.output));
            let at = Duration::try_from_secs_f64(since).ok();
            let (Some(input), Some(output), Some(at)) = (input, output, at) else {
                wrong(format!(
                    "{} tokens in and {} out: both must be 1 to {MOST_TOKENS}",
                    line.input, line.output
                ));
                continue;
            };
            let class = line.class.map(Into::into);
            rows.push(Row { at, input, output, blocks: line.blocks, class });
        }
        if rows.is_empty() && faults.all().is_empty() {
            faults.add("", "the trace has no request");
        }
        faults.or(Self { rows })
    }

    /// Its requests in the order of time.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Requests a second as recorded; `None` for a single one, or all at once.
    pub fn rate(&self) -> Option<f64> {
        let last = self.rows.last()?.at.as_secs_f64();
        let gaps = f64::from(u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX));
        (last > 0.0 && gaps > 0.0).then(|| gaps / last)
    }

    /// The calls of a recorded request, by the number of `flow`; none after the last one.
    ///
    /// `block_tokens` is what one of its blocks holds. A prompt longer than its blocks ends in
    /// text of its own.
    pub(super) fn fill(&self, mut flow: Flow, seeds: Seeds, block_tokens: u32) -> Flow {
        let row = usize::try_from(flow.number).ok().and_then(|number| self.rows.get(number));
        let Some(row) = row else { return flow };
        let salt = mix(seeds.requests, flow.number);
        let mut left = row.input;
        let mut prompt = Vec::with_capacity(row.blocks.len() + 1);
        for block in &row.blocks {
            let tokens = left.min(block_tokens);
            if tokens == 0 {
                break;
            }
            left -= tokens;
            let seed = mix(seeds.texts, mix(seeds.requests, *block));
            prompt.push(Piece { role: Role::User, seed, tokens });
        }
        if left > 0 {
            let seed = mix(seeds.texts, mix(salt, 2));
            prompt.push(Piece { role: Role::User, seed, tokens: left });
        }
        let calls = vec![Call { prompt, output_tokens: row.output, salt }];
        flow.stages = vec![Stage { pause: Duration::ZERO, calls }];
        flow
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number within the range"
)]
fn tokens(count: f64) -> Option<u32> {
    let whole = (1.0..=f64::from(MOST_TOKENS)).contains(&count) && count.fract() == 0.0;
    whole.then_some(count as u32)
}

/// Lines that are not blank, counted from 1.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty())
}

fn json_lines(text: &str, faults: &mut Faults) -> Vec<(usize, Line)> {
    let mut lines = Vec::new();
    for (number, line) in numbered(text) {
        match serde_json::from_str::<JsonLine>(line) {
            Ok(line) => lines.push((
                number,
                Line {
                    timestamp: line.timestamp,
                    input: line.input_length,
                    output: line.output_length,
                    blocks: line.hash_ids,
                    class: line.class,
                },
            )),
            // The line that serde counts is always the first of this text.
            Err(error) => {
                let text = error.to_string();
                let what = text.split(" at line ").next().unwrap_or(&text).replace('`', "\"");
                faults.add_line(number, what);
            }
        }
    }
    lines
}

fn csv_lines(text: &str, faults: &mut Faults) -> Vec<(usize, Line)> {
    let mut lines = numbered(text);
    let Some((number, heading)) = lines.next() else { return Vec::new() };
    let columns: Vec<String> =
        heading.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    let place = |name: &str| columns.iter().position(|column| column == name);
    let (Some(timestamp), Some(input), Some(output)) =
        (place("timestamp"), place("input"), place("output"))
    else {
        faults.add_line(number, "the heading must name timestamp, input and output");
        return Vec::new();
    };
    let class = place("class");
    let mut read = Vec::new();
    for (number, line) in lines {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
        let number_at = |at: usize| cell(at).parse::<f64>().ok();
        match (number_at(timestamp), number_at(input), number_at(output)) {
            (Some(timestamp), Some(input), Some(output)) => {
                let class = class.map(cell).filter(|name| !name.is_empty()).map(str::to_owned);
                read.push((number, Line { timestamp, input, output, blocks: Vec::new(), class }));
            }
            _ => faults.add_line(number, "timestamp, input and output must be numbers"),
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{ClassId, TenantId};

    fn csv(lines: &str) -> Result<Trace, Faults> {
        Trace::read(&format!("timestamp,input,output\n{lines}"), None)
    }

    fn lines_of(faults: &Faults) -> Vec<usize> {
        faults.all().iter().filter_map(|fault| fault.line).collect()
    }

    #[test]
    fn both_forms_are_read_in_their_own_unit() {
        let csv = Trace::read("Timestamp, model, input,output\n3.5,x,10,2\n\n4,y,20,3\n", None);
        let jsonl = "{\"timestamp\": 3500, \"input_length\": 10, \"output_length\": 2, \"x\": 1}\n\
                     {\"timestamp\": 4000, \"input_length\": 20, \"output_length\": 3}\n";
        let (csv, jsonl) = (csv.unwrap(), Trace::read(jsonl, None).unwrap());
        assert_eq!(csv, jsonl);
        assert_eq!(csv.rows()[1].at, Duration::from_millis(500));
        assert_eq!(csv.rate(), Some(2.0));
        let slow =
            Trace::read("timestamp,input,output\n0,1,1\n1000,1,1\n", Some(TimeUnit::Milliseconds));
        assert_eq!(slow.unwrap().rate(), Some(1.0));
    }

    #[test]
    fn times_that_are_negative_or_go_back_are_refused_with_their_lines() {
        let faults = csv("0,1,1\n5,1,1\n4.9,1,1\n-1,1,1\n6,1,1\nNaN,1,1\n").unwrap_err();
        assert_eq!(lines_of(&faults), [4, 5, 7], "{faults}");
        assert!(faults.to_string().contains("line 4: the time 4.9 lies before the 5"));
    }

    #[test]
    fn lengths_that_are_none_and_lines_that_are_no_lines_are_refused() {
        let faults = csv("0,0,1\n1,1,-5\n2,1.5,1\n3,1,1e12\nfour,1,1\n5,1\n").unwrap_err();
        let mut lines = lines_of(&faults);
        lines.sort_unstable();
        assert_eq!(lines, [2, 3, 4, 5, 6, 7], "{faults}");
        let faults = Trace::read("{\"timestamp\":1}\n{oops\n", None).unwrap_err();
        assert_eq!(lines_of(&faults), [1, 2]);
        assert!(faults.all()[0].message.contains("missing field \"input_length\""));
        assert_eq!(lines_of(&Trace::read("time,in,out\n1,1,1\n", None).unwrap_err()), [1]);
        for empty in ["", "\n \n", "timestamp,input,output\n"] {
            assert!(Trace::read(empty, None).is_err());
        }
    }

    #[test]
    fn equal_blocks_are_equal_text() {
        let jsonl = "{\"timestamp\":0,\"input_length\":1100,\"output_length\":1,\"hash_ids\":[7,8,9]}\n\
                     {\"timestamp\":0,\"input_length\":1030,\"output_length\":1,\"hash_ids\":[7,8]}\n";
        let trace = Trace::read(jsonl, None).unwrap();
        let call = |number, texts| {
            let stages = Vec::new();
            let flow = Flow { number, class: ClassId(0), tenant: TenantId(0), stages };
            let flow = trace.fill(flow, Seeds { requests: 1, texts }, 512);
            flow.calls().next().unwrap().clone()
        };
        let (a, b) = (call(0, 0), call(1, 0));
        assert_eq!((a.prompt_tokens(), b.prompt_tokens()), (1100, 1030));
        assert_eq!(a.block_hashes(512), b.block_hashes(512));
        assert_ne!(a.block_hashes(2)[512], b.block_hashes(2)[512]);
        assert_ne!(a.block_hashes(512)[0], call(0, 1).block_hashes(512)[0]);
    }
}
