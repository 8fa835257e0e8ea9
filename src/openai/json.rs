//! A walker over JSON bytes that checks all of them and keeps none.
//!
//! It accepts what RFC 8259 accepts and nothing else (no `NaN`, no control characters in strings,
//! no trailing commas), down to [`MAX_DEPTH`] levels. Whatever passes here is read the same way
//! by Python's `json`, which is what the replicas use. Callers see spans and never a tree; that
//! the bytes are UTF-8 is checked once, by `peek`, before.

use std::borrow::Cow;
use std::ops::Range;

/// Levels of arrays and objects that are followed; `serde_json`'s own bound, and far below the
/// one at which Python gives up.
const MAX_DEPTH: u32 = 128;

/// Where and why the bytes are not JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    /// Byte offset.
    pub(super) at: usize,
    /// What was found wrong, as the middle of a sentence.
    pub(super) what: &'static str,
}

/// A string literal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Text {
    /// First byte after the opening quote.
    pub(super) start: usize,
    /// The closing quote.
    pub(super) end: usize,
    /// Whether there are escapes in it.
    pub(super) escaped: bool,
}

impl Text {
    /// Whether it has no characters.
    pub(super) fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, not looked into.
    Number,
    /// A string.
    Text(Text),
    /// An array, and whether it has elements.
    Array(bool),
    /// An object, and whether it has members.
    Object(bool),
}

/// A value and the bytes that it stands in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Value {
    /// What it is.
    pub(super) kind: Kind,
    /// Its bytes, quotes and brackets included.
    pub(super) span: Range<usize>,
}

/// A place in JSON text.
pub(super) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
}

impl<'a> Cursor<'a> {
    /// At the start of `text`.
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// Over the same text from `at` on.
    pub(super) fn at(text: &'a [u8], at: usize) -> Self {
        Self { text, at, depth: 0 }
    }

    /// Checks that nothing but white space follows.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.fault("something after the end")) }
    }

    /// The next byte that is not white space, left in place.
    pub(super) fn next(&mut self) -> Option<u8> {
        self.space();
        self.byte()
    }

    /// Passes over one value of any kind.
    pub(super) fn value(&mut self) -> Result<Value, Fault> {
        let first = self.next();
        let start = self.at;
        let kind = match first {
            Some(b'"') => Kind::Text(self.string()?),
            Some(b'{') => {
                let mut any = false;
                self.members(|cursor, _| {
                    any = true;
                    cursor.value().map(drop)
                })?;
                Kind::Object(any)
            }
            Some(b'[') => {
                let mut any = false;
                self.elements(|cursor| {
                    any = true;
                    cursor.value().map(drop)
                })?;
                Kind::Array(any)
            }
            Some(b't') => self.word(b"true", Kind::Bool(true))?,
            Some(b'f') => self.word(b"false", Kind::Bool(false))?,
            Some(b'n') => self.word(b"null", Kind::Null)?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(_) => return Err(self.fault("no value where one must stand")),
            None => return Err(self.fault("an end where a value must stand")),
        };
        Ok(Value { kind, span: start..self.at })
    }

    /// Passes over an object, calling `each` with every key and the cursor before its value,
    /// which `each` must pass over.
    pub(super) fn members(
        &mut self,
        mut each: impl FnMut(&mut Self, Text) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.open(b'{', "no object where one must stand")?;
        if self.next() == Some(b'}') {
            return self.close();
        }
        loop {
            if self.next() != Some(b'"') {
                return Err(self.fault("no key where one must stand"));
            }
            let key = self.string()?;
            if self.next() != Some(b':') {
                return Err(self.fault("no colon after a key"));
            }
            self.at += 1;
            self.space();
            each(self, key)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b'}') => return self.close(),
                _ => return Err(self.fault("neither comma nor brace after a value")),
            }
        }
    }

    /// Passes over an array, calling `each` with the cursor before every element, which `each`
    /// must pass over.
    pub(super) fn elements(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.open(b'[', "no array where one must stand")?;
        if self.next() == Some(b']') {
            return self.close();
        }
        loop {
            self.space();
            each(self)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b']') => return self.close(),
                _ => return Err(self.fault("neither comma nor bracket after an element")),
            }
        }
    }

    /// The decoded text of a string that this cursor has passed; `None` where its escapes name
    /// no characters (a lone surrogate).
    pub(super) fn decode(&self, text: Text) -> Option<Cow<'a, str>> {
        decode(self.text, text)
    }

    /// The cursor's own place.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// A fault at this place.
    pub(super) fn fault(&self, what: &'static str) -> Fault {
        Fault { at: self.at, what }
    }

    fn open(&mut self, bracket: u8, what: &'static str) -> Result<(), Fault> {
        if self.next() != Some(bracket) {
            return Err(self.fault(what));
        }
        if self.depth == MAX_DEPTH {
            return Err(self.fault("more than 128 levels"));
        }
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "the last word of functions that can fail")]
    fn close(&mut self) -> Result<(), Fault> {
        self.depth -= 1;
        self.at += 1;
        Ok(())
    }

    fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &[u8], kind: Kind) -> Result<Kind, Fault> {
        if self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            self.at += word.len();
            Ok(kind)
        } else {
            Err(self.fault("no value where one must stand"))
        }
    }

    fn number(&mut self) -> Result<Kind, Fault> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(Kind::Number)
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.byte() {
            self.at += 1;
        }
        if self.at == start { Err(self.fault("a number without digits")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<Text, Fault> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain_prefix(self.text.get(self.at..).unwrap_or_default());
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Text { start, end: self.at - 1, escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.fault("a control character in a string")),
                None => return Err(self.fault("a string without an end")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        self.at += match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') if self.hex_follows() => 6,
            _ => return Err(self.fault("an escape that names no character")),
        };
        Ok(())
    }

    fn hex_follows(&self) -> bool {
        let digits = self.text.get(self.at + 2..self.at + 6);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    }
}

/// The decoded text of a string in `bytes`; `None` for a lone surrogate or a wrong span.
pub(super) fn decode(bytes: &[u8], text: Text) -> Option<Cow<'_, str>> {
    if !text.escaped {
        return std::str::from_utf8(bytes.get(text.start..text.end)?).ok().map(Cow::Borrowed);
    }
    let quoted = bytes.get(text.start.checked_sub(1)?..=text.end)?;
    serde_json::from_slice(quoted).ok().map(Cow::Owned)
}

/// How many bytes lie before the first quote, backslash or control character: eight at a time,
/// by the classic test for a zero or small byte in a word.
#[inline]
pub(super) fn plain_prefix(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let mut passed = 0;
    let mut rest = bytes;
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let below = |word: u64, bound: u64| word.wrapping_sub(ONES * bound) & !word;
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let slash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let hits = (quote | slash | below(word, 0x20)) & HIGH;
        if hits != 0 {
            return passed + (hits.trailing_zeros() / 8) as usize;
        }
        passed += 8;
        rest = after;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    passed + rest.iter().position(special).unwrap_or(rest.len())
}
