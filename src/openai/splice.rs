//! Changes a few fields of a body and leaves every other byte as it was.
//!
//! The spans come from `peek`, so nothing is searched for and nothing is parsed again: the edits
//! are sorted by place and the body is copied once around them. With nothing to change it is not
//! copied at all.

use std::ops::Range;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::json::{Kind, decode};
use super::peek::{Field, Member, Peek};

/// What is to be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Edits<'a> {
    /// The name that the replica knows the model by.
    pub model: Option<&'a str>,
    /// Ask for the frame with usage, where the answer streams and its endpoint has one; usage in
    /// *every* frame is then switched off, since the client did not get it before either.
    pub include_usage: bool,
    /// The most output tokens a sequence: larger bounds are lowered to it, an absent one is set.
    pub max_output: Option<u32>,
    /// The salt of the prefix cache, instead of the client's own.
    pub cache_salt: Option<&'a str>,
    /// Top-level fields that are taken out, however often they stand there.
    pub strip: &'a [&'a str],
}

/// Bytes in place of a span; an empty span is a place to insert.
type Change = (Range<usize>, String);

impl Peek {
    /// The same body with these changes. `body` must be what this was peeked from.
    pub fn splice(&self, body: &Bytes, edits: &Edits<'_>) -> Bytes {
        let Some(open) = self.spans.open else { return body.clone() };
        let kept: Vec<bool> = self.spans.members.iter().map(|m| !strips(body, m, edits)).collect();
        let mut changes = self.removals(&kept);
        let mut added = String::new();
        self.set(&mut changes, &mut added, Field::Model, edits.model.map(quoted));
        self.set(&mut changes, &mut added, Field::CacheSalt, edits.cache_salt.map(quoted));
        self.bound_output(&mut changes, &mut added, edits.max_output);
        if edits.include_usage {
            self.ask_usage(&mut changes, &mut added);
        }
        if !added.is_empty() {
            if !kept.contains(&true) {
                added.pop();
            }
            changes.push((open + 1..open + 1, added));
        }
        if changes.is_empty() { body.clone() } else { rebuild(body, changes) }
    }

    /// Cuts out the members that are not kept, each with one comma.
    fn removals(&self, kept: &[bool]) -> Vec<Change> {
        let mut cuts: Vec<Range<usize>> = Vec::new();
        let members = &self.spans.members;
        let mut last_kept_end = None;
        for (at, (member, kept)) in members.iter().zip(kept).enumerate() {
            if *kept {
                last_kept_end = Some(member.value.span.end);
                continue;
            }
            let start = member.key.start - 1;
            match members.get(at + 1) {
                Some(next) => cuts.push(start..next.key.start - 1),
                // The last member of all: the comma before the run of removed ones goes with it.
                None => cuts.push(start..member.value.span.end),
            }
        }
        if let (Some(false), Some(end)) = (kept.last(), last_kept_end) {
            let stop = cuts.last().map_or(end, |cut| cut.end);
            cuts.retain(|cut| cut.start < end);
            cuts.push(end..stop);
        }
        cuts.into_iter().map(|cut| (cut, String::new())).collect()
    }

    fn member(&self, field: Field) -> Option<&Member> {
        self.spans.members.iter().find(|member| member.field == Some(field))
    }

    fn set(
        &self,
        changes: &mut Vec<Change>,
        added: &mut String,
        field: Field,
        value: Option<String>,
    ) {
        let Some(value) = value else { return };
        match self.member(field) {
            Some(member) => changes.push((member.value.span.clone(), value)),
            None => add(added, field, &value),
        }
    }

    fn bound_output(&self, changes: &mut Vec<Change>, added: &mut String, cap: Option<u32>) {
        let (Some(cap), Some(&first)) = (cap, self.spans.output_fields.first()) else { return };
        for &field in self.spans.output_fields {
            if let Some(member) = self.member(field)
                && member.count.is_some_and(|count| count > cap)
            {
                changes.push((member.value.span.clone(), cap.to_string()));
            }
        }
        if self.max_output.is_none_or(|bound| self.output_unwritten() && bound > cap) {
            let null = self.spans.output_fields.iter().find_map(|field| self.member(*field));
            match null {
                Some(member) => changes.push((member.value.span.clone(), cap.to_string())),
                None => add(added, first, &cap.to_string()),
            }
        }
    }

    /// Whether the bound is the replica's default and stands nowhere in the body.
    fn output_unwritten(&self) -> bool {
        self.spans.output_fields.iter().all(|field| self.member(*field).is_none())
    }

    fn ask_usage(&self, changes: &mut Vec<Change>, added: &mut String) {
        let Some(options) = self.spans.options.as_ref().filter(|_| self.stream) else { return };
        if self.usage_asked {
            return;
        }
        let whole = r#"{"include_usage":true}"#;
        let Some(member) = self.member(Field::StreamOptions) else {
            return add(added, Field::StreamOptions, whole);
        };
        let Kind::Object(any) = member.value.kind else {
            return changes.push((member.value.span.clone(), whole.to_owned()));
        };
        if let Some(span) = &options.continuous {
            changes.push((span.clone(), "false".to_owned()));
        }
        if let Some(span) = &options.include {
            changes.push((span.clone(), "true".to_owned()));
        } else {
            let at = member.value.span.start + 1;
            let comma = if any { "," } else { "" };
            changes.push((at..at, format!(r#""include_usage":true{comma}"#)));
        }
    }
}

fn strips(body: &[u8], member: &Member, edits: &Edits<'_>) -> bool {
    !edits.strip.is_empty()
        && decode(body, member.key).is_some_and(|name| edits.strip.contains(&&*name))
}

/// Adds a member in front of all others, with its comma.
fn add(added: &mut String, field: Field, value: &str) {
    for piece in ["\"", field.as_str(), "\":", value, ","] {
        added.push_str(piece);
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn rebuild(body: &Bytes, mut changes: Vec<Change>) -> Bytes {
    changes.sort_by_key(|(span, _)| (span.start, span.end));
    let grown: usize = changes.iter().map(|(_, text)| text.len()).sum();
    let mut out = BytesMut::with_capacity(body.len() + grown);
    let mut at = 0;
    for (span, text) in changes {
        // A change inside what was cut out (a stripped field that is also set) is void.
        if span.start < at {
            continue;
        }
        out.put_slice(body.get(at..span.start).unwrap_or_default());
        out.put_slice(text.as_bytes());
        at = span.end;
    }
    out.put_slice(body.get(at..).unwrap_or_default());
    out.freeze()
}
