//! What a form (`multipart/form-data`) asks for: the model, and whether to stream.
//!
//! The audio endpoints take forms. Only the names and sizes of parts are read, the recording in
//! them is skipped by its delimiter; nothing of a form is ever rewritten. The boundary is the
//! header's, as it is for the replica, never one that is guessed from the body.

use std::sync::Arc;

use memchr::memmem;

use super::peek::{Peek, PeekError, Spans};

/// Parts that are looked at; the API has fewer than twenty.
const MAX_PARTS: usize = 64;
/// Bytes of a part's headers.
const MAX_PART_HEADERS: usize = 4096;
/// Bytes of a field that is read.
const MAX_FIELD: usize = 1024;

/// Reads a form.
pub(super) fn peek(content_type: Option<&str>, body: &[u8]) -> Result<Peek, PeekError> {
    let boundary = content_type.and_then(boundary).ok_or_else(|| {
        let message = "The content type must be multipart/form-data with a boundary.";
        PeekError::malformed(message, None)
    })?;
    let (mut model, mut stream) = (None, None);
    let delimiter = format!("\r\n--{boundary}");
    let find = memmem::Finder::new(&delimiter);
    let mut rest = body.strip_prefix(delimiter.as_bytes().get(2..).unwrap_or_default());
    if rest.is_none() {
        return Err(broken("it does not begin with its boundary"));
    }
    for _ in 0..=MAX_PARTS {
        let part = rest.ok_or_else(|| broken("it ends without its closing boundary"))?;
        if part.starts_with(b"--") {
            let model: String = model.ok_or_else(|| {
                PeekError::malformed("The form has no field `model`.", Some("model"))
            })?;
            return Ok(of_form(model, stream.as_deref().is_some_and(truth)));
        }
        let part = part.strip_prefix(b"\r\n").ok_or_else(|| broken("a boundary ends no line"))?;
        // A part without headers begins with the empty line itself.
        let window = part.get(..part.len().min(MAX_PART_HEADERS)).unwrap_or_default();
        let headers = memmem::find(window, b"\r\n\r\n")
            .ok_or_else(|| broken("a part's headers have no end"))?;
        let (headers, content) = part.split_at(headers + 4);
        let end = find.find(content).ok_or_else(|| broken("a part has no end"))?;
        let (content, after) = content.split_at(end);
        rest = after.get(delimiter.len()..);
        let name = name(headers).ok_or_else(|| broken("a part's headers are not plain"))?;
        let slot = match name.as_str() {
            "model" => (&mut model, "model"),
            "stream" => (&mut stream, "stream"),
            _ => continue,
        };
        let value = std::str::from_utf8(content).ok().filter(|text| text.len() <= MAX_FIELD);
        let value = value.ok_or_else(|| {
            PeekError::malformed(format!("The field `{}` is no short text.", slot.1), Some(slot.1))
        })?;
        if slot.0.replace(value.to_owned()).is_some() {
            let message = format!("The field `{}` stands twice in the form.", slot.1);
            return Err(PeekError::malformed(message, Some(slot.1)));
        }
    }
    Err(broken("it has more than 64 parts"))
}

fn of_form(model: String, stream: bool) -> Peek {
    Peek {
        model,
        stream,
        usage_asked: false,
        continuous_usage: false,
        sequences: 1,
        prompt_bytes: 0,
        prompt_tokens: None,
        max_output: None,
        prefix: Arc::new([]),
        background: false,
        previous_response_id: None,
        cache_salt: None,
        priority: None,
        spans: Spans::default(),
    }
}

fn broken(what: &str) -> PeekError {
    PeekError::malformed(format!("The form is broken: {what}."), None)
}

/// What pydantic takes for true in a form.
fn truth(text: &str) -> bool {
    ["true", "1", "yes", "on", "t", "y"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// The boundary of a content type; at most 70 characters, as RFC 2046 has it.
fn boundary(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    parameter(parameters, "boundary").filter(|text| (1..=70).contains(&text.len()))
}

/// The `name` of a part; `None` where the replica's parser might read another one: no header or
/// two that give it, folded lines, a name twice, or one in RFC 2231's pieces.
fn name(headers: &[u8]) -> Option<String> {
    let headers = std::str::from_utf8(headers).ok()?.strip_suffix("\r\n\r\n")?;
    let mut found = None;
    for line in headers.split("\r\n") {
        let (header, value) = line.split_once(':')?;
        if header.contains([' ', '\t', '\r', '\n']) {
            return None;
        }
        if header.eq_ignore_ascii_case("content-disposition")
            && found.replace(parameter(value.split_once(';')?.1, "name")?).is_some()
        {
            return None;
        }
    }
    found
}

/// One parameter of a header's value, quoted or not, when it stands there once.
fn parameter(mut rest: &str, wanted: &str) -> Option<String> {
    let mut found = None;
    while let Some((key, value)) = rest.split_once('=') {
        let key = key.trim_matches([' ', '\t', ';']).to_ascii_lowercase();
        let value = value.trim_start();
        let (text, after) = match value.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => match value.split_once(';') {
                Some((text, after)) => (text.trim().to_owned(), after),
                None => (value.trim().to_owned(), ""),
            },
        };
        let pieces = key.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('*'));
        if pieces || (key == wanted && found.replace(text).is_some()) {
            return None;
        }
        rest = after;
    }
    found
}

fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((text, quoted.get(at + 1..).unwrap_or_default())),
            '\\' => text.push(characters.next()?.1),
            other => text.push(other),
        }
    }
    None
}
