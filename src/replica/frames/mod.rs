//! What an endpoint writes, byte for byte in the shapes that vLLM 0.32 was recorded with.

mod messages;
mod openai;
mod responses;

use std::fmt::Write;

use super::call::{Call, Shape};
use super::errors::{ENGINE_DEATH, ENGINE_DEATH_MESSAGES};
use super::room::Ready;
use super::text;
use crate::sim::{Finish, chain_hash};

/// vLLM's own, in its last frame.
const FINGERPRINT: &str = "vllm-0.32.0-c858eaed";

/// What every answer of a call carries, and what it has said so far.
pub(super) struct Writer {
    shape: Shape,
    id: String,
    /// Seconds since the epoch.
    created: u64,
    /// As a JSON string, quotes and all.
    model: String,
    prompt_tokens: u32,
    include_usage: bool,
    continuous_usage: bool,
    max_output: Option<u32>,
    seed: u64,
    /// What each sequence has said.
    said: Vec<Said>,
    /// Whether the engine has said anything.
    begun: bool,
    /// `sequence_number` of the next responses event.
    number: u32,
    /// Content frames written.
    pub(super) frames: u32,
    /// What stands before a chunk's first choice, made once.
    head: String,
}

#[derive(Clone, Copy, Default)]
struct Said {
    tokens: u32,
    finish: Option<Finish>,
}

impl Writer {
    pub(super) fn new(call: &Call, model: &str, id: &str, created: u64, seed: u64) -> Self {
        let mut writer = Self {
            shape: call.shape,
            id: format!("{}{id}", openai::prefix(call.shape)),
            created,
            model: serde_json::Value::from(model).to_string(),
            prompt_tokens: call.prompt_tokens(),
            include_usage: call.include_usage,
            continuous_usage: call.continuous_usage,
            max_output: call.max_output,
            seed,
            said: vec![Said::default(); call.sequences()],
            begun: false,
            number: 0,
            frames: 0,
            head: String::new(),
        };
        writer.head = writer.chunk_head();
        writer
    }

    /// What is sent with the headers, before the engine has begun.
    pub(super) fn open(&mut self, out: &mut String) {
        if self.shape == Shape::Responses {
            self.responses_open(out);
        }
    }

    /// What the engine has made: one frame a sequence that has something.
    pub(super) fn write(&mut self, ready: &[Ready], out: &mut String) {
        if !std::mem::replace(&mut self.begun, true) {
            match self.shape {
                Shape::Chat => self.chat_roles(out),
                Shape::Messages => self.messages_begin(out),
                Shape::Responses => self.responses_begin(out),
                Shape::Completions | Shape::Embeddings => {}
            }
        }
        for (place, ready) in ready.iter().enumerate() {
            if ready.tokens == 0 && ready.finish.is_none() {
                continue;
            }
            let Some(said) = self.said.get_mut(place) else { continue };
            let from = said.tokens;
            said.tokens += ready.tokens;
            said.finish = ready.finish;
            let to = said.tokens;
            self.frames += 1;
            match self.shape {
                Shape::Chat | Shape::Completions => self.chunk(place, from, to, ready.finish, out),
                Shape::Messages => self.messages_delta(from, to, out),
                Shape::Responses => self.responses_delta(from, to, out),
                Shape::Embeddings => {}
            }
        }
    }

    /// What a dying engine makes of the rest.
    pub(super) fn death(&self) -> String {
        match self.shape {
            Shape::Messages => ENGINE_DEATH_MESSAGES.to_owned(),
            _ => format!("data: {ENGINE_DEATH}\n\ndata: [DONE]\n\n"),
        }
    }

    /// Whether every sequence has ended.
    pub(super) fn done(&self) -> bool {
        self.said.iter().all(|said| said.finish.is_some())
    }

    /// What ends the stream well.
    pub(super) fn close(&mut self, out: &mut String) {
        match self.shape {
            Shape::Chat | Shape::Completions => self.chunk_end(out),
            Shape::Messages => self.messages_end(out),
            Shape::Responses => self.responses_end(out),
            Shape::Embeddings => {}
        }
    }

    /// The whole answer at once.
    pub(super) fn whole(&mut self) -> String {
        match self.shape {
            Shape::Chat => self.chat_whole(),
            Shape::Completions => self.completion_whole(),
            Shape::Messages => self.messages_whole(),
            Shape::Responses => self.responses_whole(),
            Shape::Embeddings => self.embeddings_whole(),
        }
    }

    /// Takes what was collected for a whole answer.
    pub(super) fn collect(&mut self, ready: &[Ready]) {
        for (said, ready) in self.said.iter_mut().zip(ready) {
            said.tokens += ready.tokens;
            said.finish = said.finish.or(ready.finish);
        }
    }

    fn completion_tokens(&self) -> u32 {
        self.said.iter().map(|said| said.tokens).sum()
    }

    fn words(&self, place: usize, from: u32, to: u32, out: &mut String) {
        let place = u64::try_from(place).unwrap_or_default();
        text::words(chain_hash(self.seed, place), from, to, out);
    }

    /// All that a sequence has said.
    fn said(&self, place: usize) -> String {
        let mut out = String::new();
        let tokens = self.said.get(place).map_or(0, |said| said.tokens);
        self.words(place, 0, tokens, &mut out);
        out
    }

    /// `"prompt_tokens":..,"total_tokens":..,"completion_tokens":..`
    fn usage(&self, out: &mut String) {
        let (prompt, completion) = (self.prompt_tokens, self.completion_tokens());
        let total = prompt.saturating_add(completion);
        put(
            out,
            format_args!(
                "\"prompt_tokens\":{prompt},\"total_tokens\":{total},\"completion_tokens\":{completion}"
            ),
        );
    }
}

/// Formats into a string, which cannot fail.
fn put(out: &mut String, what: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(what);
    debug_assert!(written.is_ok());
}
