//! The text of a prompt: how long it is, how many prompts it makes, and its prefix hashes.
//!
//! Works on spans that the walker has checked already, so it needs no grammar: a quote opens a
//! string, and a colon after it makes it a key. What is hashed is the strings and numbers in
//! their order and not the punctuation, so that a conversation matches its own history whatever
//! the client's white space, and the closing bracket of a shorter history is no difference.

use std::ops::Range;

use super::json::{Cursor, Fault, Kind, plain_prefix};
use super::prefix::PrefixHasher;

/// What an image or a recording counts for, bytes: its tokens follow from its size in pixels or
/// seconds, not from the length of its base64.
const MEDIA_BYTES: u64 = 4096;

/// Adds up the text of one request.
pub(super) struct PromptText {
    pub(super) bytes: u64,
    pub(super) hasher: PrefixHasher,
}

impl PromptText {
    pub(super) fn new(expected_bytes: usize) -> Self {
        Self { bytes: 0, hasher: PrefixHasher::new(expected_bytes) }
    }

    /// Adds the strings and numbers of one checked value. `keys` too where the template writes
    /// them into the prompt, as it does with the schemas of tools.
    pub(super) fn add(&mut self, body: &[u8], span: Range<usize>, keys: bool) {
        let Some(text) = body.get(span) else { return };
        let mut rest = text;
        let mut media = false;
        while let Some(at) = rest.iter().position(|b| matches!(b, b'"' | b'-' | b'0'..=b'9')) {
            rest = rest.get(at..).unwrap_or_default();
            if rest.first() != Some(&b'"') {
                let end = rest.iter().position(|b| matches!(b, b',' | b']' | b'}' | b' ' | b'\n'));
                let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
                self.hash(number);
                rest = after;
                continue;
            }
            let (inner, escapes, after) = string(rest);
            let is_key = after.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b':');
            if !is_key || keys {
                let length = inner.len().saturating_sub(escapes) as u64;
                let is_media = (media || inner.starts_with(b"data:")) && length > MEDIA_BYTES;
                self.bytes += if is_media { MEDIA_BYTES } else { length };
                self.hash(inner);
            }
            media = is_key && matches!(inner, b"data" | b"file_data");
            rest = after;
        }
    }

    fn hash(&mut self, piece: &[u8]) {
        self.hasher.add(piece);
        self.hasher.add(&[0]);
    }
}

/// Splits a string literal off: its inside, the bytes that its escapes add, and what follows.
fn string(quoted: &[u8]) -> (&[u8], usize, &[u8]) {
    let body = quoted.get(1..).unwrap_or_default();
    let (mut at, mut escapes) = (0, 0);
    loop {
        let rest = body.get(at..).unwrap_or_default();
        at += plain_prefix(rest);
        match body.get(at) {
            Some(b'\\') => {
                let unicode = body.get(at + 1) == Some(&b'u');
                escapes += if unicode { 3 } else { 1 };
                at += 2;
            }
            Some(b'"') => {
                let after = body.get(at + 1..).unwrap_or_default();
                return (body.get(..at).unwrap_or_default(), escapes, after);
            }
            _ => return (body, escapes, &[]),
        }
    }
}

/// How many prompts a field of prompts holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prompts {
    /// Sequences; at least 1.
    pub(super) sequences: u32,
    /// All tokens together, where every prompt is a list of token ids.
    pub(super) tokens: Option<u32>,
}

/// Counts what `prompt`, `input` or `documents` holds: a string, a list of token ids, or a list
/// of either.
pub(super) fn count_prompts(body: &[u8], start: usize) -> Result<Prompts, Fault> {
    let one = Prompts { sequences: 1, tokens: None };
    let mut cursor = Cursor::at(body, start);
    if cursor.next() != Some(b'[') {
        return Ok(one);
    }
    let (mut elements, mut numbers, mut lists, mut tokens) = (0_u32, 0_u32, 0_u32, 0_u32);
    cursor.elements(|cursor| {
        elements = elements.saturating_add(1);
        if cursor.next() == Some(b'[') {
            let before = tokens;
            let mut ids = 0_u32;
            let mut all = 0_u32;
            cursor.elements(|cursor| {
                all = all.saturating_add(1);
                ids = ids.saturating_add(u32::from(cursor.value()?.kind == Kind::Number));
                Ok(())
            })?;
            lists += u32::from(ids == all);
            tokens = before.saturating_add(ids);
        } else {
            numbers = numbers.saturating_add(u32::from(cursor.value()?.kind == Kind::Number));
        }
        Ok(())
    })?;
    Ok(match elements {
        0 => one,
        _ if numbers == elements => Prompts { sequences: 1, tokens: Some(numbers) },
        _ if lists == elements => Prompts { sequences: elements, tokens: Some(tokens) },
        _ => Prompts { sequences: elements, tokens: None },
    })
}
