//! Token counts as replicas report them, in either family's names.

use serde::Deserialize;

use crate::domain::{Endpoint, Usage};

use super::json::{Cursor, Kind};

/// What one `usage` object says; the messages API spreads it over two frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct UsagePart {
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
}

impl UsagePart {
    /// Takes over what `later` says.
    pub(super) fn merge(&mut self, later: Self) {
        self.input = later.input.or(self.input);
        self.output = later.output.or(self.output);
        self.cached = later.cached.or(self.cached);
    }

    /// The counts, once any is known.
    pub(super) fn total(self) -> Option<Usage> {
        (self.input.is_some() || self.output.is_some()).then(|| Usage {
            input: self.input.unwrap_or(0),
            output: self.output.unwrap_or(0),
            cached: self.cached,
        })
    }
}

#[derive(Deserialize, Default)]
struct Details {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Raw {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<Details>,
    cache_read_input_tokens: Option<u64>,
}

/// Reads a `usage` object.
pub(super) fn parse(object: &[u8]) -> Option<UsagePart> {
    let raw: Raw = serde_json::from_slice(object).ok()?;
    let details = raw.prompt_tokens_details.or(raw.input_tokens_details);
    Some(UsagePart {
        input: raw.prompt_tokens.or(raw.input_tokens),
        output: raw.completion_tokens.or(raw.output_tokens),
        cached: details.and_then(|d| d.cached_tokens).or(raw.cache_read_input_tokens),
    })
}

/// The usage in an answer that came whole; `None` where it has none or is no JSON object.
pub fn unary_usage(_endpoint: Endpoint, body: &[u8]) -> Option<Usage> {
    let mut cursor = Cursor::new(body);
    let mut span = None;
    cursor
        .members(|cursor, key| {
            let is_usage = cursor.decode(key).as_deref() == Some("usage");
            let value = cursor.value()?;
            if is_usage {
                span = matches!(value.kind, Kind::Object(_)).then_some(value.span);
            }
            Ok(())
        })
        .ok()?;
    parse(body.get(span?)?)?.total()
}
