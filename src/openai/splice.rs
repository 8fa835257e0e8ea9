//! Changes a few fields of a body and leaves every other byte as it was.
//!
//! The spans come from `peek`, so nothing is searched for and nothing is parsed again: the edits
//! are sorted by place and the body is copied once around them. With nothing to change it is not
//! copied at all.

use std::ops::Range;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::json::{Kind, decode};
use super::peek::{Field, Member, Peek, Spans};

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
    /// How urgent the engine is told that it is; where `None`, see `strip`.
    pub priority: Option<i64>,
    /// Top-level fields that are taken out, however often they stand there. One that is also set
    /// above is set.
    pub strip: &'a [&'a str],
}

impl Peek {
    /// The same body with these changes. `body` must be what this was peeked from; a form comes
    /// back as it is.
    pub fn splice(&self, body: &Bytes, edits: &Edits<'_>) -> Bytes {
        let Some(open) = self.spans.open else { return body.clone() };
        let mut splicer = Splicer::new(&self.spans, body, edits.strip);
        splicer.remove();
        splicer.set(Field::Model, edits.model.map(quoted));
        splicer.set(Field::CacheSalt, edits.cache_salt.map(quoted));
        splicer.set(Field::Priority, edits.priority.map(|priority| priority.to_string()));
        if let Some(cap) = edits.max_output {
            splicer.bound_output(cap, self.max_output);
        }
        if edits.include_usage && self.stream && !self.usage_asked {
            splicer.ask_usage();
        }
        splicer.finish(open)
    }
}

/// Collects changes to one body.
struct Splicer<'a> {
    spans: &'a Spans,
    body: &'a Bytes,
    /// Which members stay.
    kept: Vec<bool>,
    /// Bytes in place of a span; an empty span is a place to insert.
    changes: Vec<(Range<usize>, String)>,
    /// New members, each with a comma behind it.
    added: String,
}

impl<'a> Splicer<'a> {
    fn new(spans: &'a Spans, body: &'a Bytes, strip: &[&str]) -> Self {
        let strips = |member: &Member| {
            let name = decode(body, member.key);
            name.is_some_and(|name| strip.contains(&&*name))
        };
        let kept = spans.members.iter().map(|member| strip.is_empty() || !strips(member));
        Self { spans, body, kept: kept.collect(), changes: Vec::new(), added: String::new() }
    }

    /// A member that is there and stays.
    fn member(&self, field: Field) -> Option<&'a Member> {
        let mut members = self.spans.members.iter().zip(&self.kept);
        members.find(|(member, kept)| **kept && member.field == Some(field)).map(|(m, _)| m)
    }

    /// Cuts out the members that do not stay, each with the comma behind it; where they are the
    /// last ones, with the comma before them.
    fn remove(&mut self) {
        let members = &self.spans.members;
        let last_kept = self.kept.iter().rposition(|kept| *kept);
        for (at, (member, kept)) in members.iter().zip(&self.kept).enumerate() {
            if *kept || last_kept.is_none_or(|last| at > last) {
                continue;
            }
            let end = members.get(at + 1).map_or(member.value.span.end, Member::start);
            self.changes.push((member.start()..end, String::new()));
        }
        let Some(end) = members.last().map(|member| member.value.span.end) else { return };
        let start = match last_kept {
            Some(last) => members.get(last).map(|member| member.value.span.end),
            None => members.first().map(Member::start),
        };
        if let Some(start) = start.filter(|start| *start < end) {
            self.changes.push((start..end, String::new()));
        }
    }

    fn replace(&mut self, span: Range<usize>, value: impl Into<String>) {
        self.changes.push((span, value.into()));
    }

    /// Adds a member in front of all others.
    fn add(&mut self, field: Field, value: &str) {
        for piece in ["\"", field.as_str(), "\":", value, ","] {
            self.added.push_str(piece);
        }
    }

    fn set(&mut self, field: Field, value: Option<String>) {
        let Some(value) = value else { return };
        match self.member(field) {
            Some(member) => self.replace(member.value.span.clone(), value),
            None => self.add(field, &value),
        }
    }

    /// Lowers every bound above `cap`; where none would bind, the strongest field gets it.
    fn bound_output(&mut self, cap: u32, effective: Option<u32>) {
        let fields = self.spans.output_fields;
        let Some(&strongest) = fields.first() else { return };
        let mut written = false;
        for field in fields {
            let Some(member) = self.member(*field) else { continue };
            written |= member.count.is_some();
            if member.count.is_some_and(|count| count > cap) {
                self.replace(member.value.span.clone(), cap.to_string());
            }
        }
        // A bound that stands nowhere is the replica's default, or none at all.
        if written || effective.is_some_and(|bound| bound <= cap) {
            return;
        }
        let null = fields.iter().find_map(|field| self.member(*field));
        match null {
            Some(member) => self.replace(member.value.span.clone(), cap.to_string()),
            None => self.add(strongest, &cap.to_string()),
        }
    }

    fn ask_usage(&mut self) {
        const WHOLE: &str = r#"{"include_usage":true}"#;
        let Some(options) = &self.spans.options else { return };
        let Some(member) = self.member(Field::StreamOptions) else {
            return self.add(Field::StreamOptions, WHOLE);
        };
        let Kind::Object(any) = member.value.kind else {
            return self.replace(member.value.span.clone(), WHOLE);
        };
        if let Some(span) = &options.continuous {
            self.replace(span.clone(), "false");
        }
        if let Some(span) = &options.include {
            return self.replace(span.clone(), "true");
        }
        let at = member.value.span.start + 1;
        let comma = if any { "," } else { "" };
        self.replace(at..at, format!(r#""include_usage":true{comma}"#));
    }

    fn finish(mut self, open: usize) -> Bytes {
        if !self.added.is_empty() {
            if !self.kept.contains(&true) {
                self.added.pop();
            }
            let added = std::mem::take(&mut self.added);
            self.replace(open + 1..open + 1, added);
        }
        if self.changes.is_empty() {
            return self.body.clone();
        }
        self.changes.sort_by_key(|(span, _)| (span.start, span.end));
        let grown: usize = self.changes.iter().map(|(_, text)| text.len()).sum();
        let mut out = BytesMut::with_capacity(self.body.len() + grown);
        let mut at = 0;
        for (span, text) in self.changes {
            out.put_slice(self.body.get(at..span.start).unwrap_or_default());
            out.put_slice(text.as_bytes());
            at = span.end;
        }
        out.put_slice(self.body.get(at..).unwrap_or_default());
        out.freeze()
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
