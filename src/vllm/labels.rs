//! The label set of one series, read in place.
//!
//! A value may hold any byte, a `}` or a `,` among them, and escapes with `\`. So the end of the
//! set is found by walking it, never by a search for `}`. Values are handed out as they stand,
//! escapes and all: what we compare (ranks, states, numbers) has none.

/// Walks `name="value",..` up to the closing brace.
pub(super) struct Labels<'a> {
    rest: &'a [u8],
    broken: bool,
}

impl<'a> Labels<'a> {
    /// `rest` begins right after the opening brace.
    pub(super) const fn new(rest: &'a [u8]) -> Self {
        Self { rest, broken: false }
    }

    /// Walks to the end and hands back what follows the closing brace; `None` where the set is
    /// broken.
    pub(super) fn finish(mut self) -> Option<&'a [u8]> {
        while self.next().is_some() {}
        match self.rest.split_first() {
            Some((b'}', after)) if !self.broken => Some(after),
            _ => None,
        }
    }

    fn pair(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let equals = memchr::memchr(b'=', self.rest)?;
        let name = self.rest.get(..equals)?.trim_ascii();
        let value = self.rest.get(equals + 1..)?.trim_ascii_start().strip_prefix(b"\"")?;
        let mut at = 0;
        loop {
            at += memchr::memchr2(b'"', b'\\', value.get(at..)?)?;
            match value.get(at)? {
                b'"' => break,
                _ => at += 2,
            }
        }
        let after = value.get(at + 1..)?.trim_ascii_start();
        self.rest = match after.split_first() {
            Some((b',', more)) => more.trim_ascii_start(),
            _ => after,
        };
        Some((name, value.get(..at)?))
    }
}

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.rest = self.rest.trim_ascii_start();
        if self.broken || self.rest.first() == Some(&b'}') {
            return None;
        }
        let pair = self.pair();
        self.broken = pair.is_none();
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(text: &str) -> (Vec<(String, String)>, Option<String>) {
        let text = text.as_bytes();
        let own = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let pairs = Labels::new(text).map(|(name, value)| (own(name), own(value))).collect();
        (pairs, Labels::new(text).finish().map(own))
    }

    #[test]
    fn braces_commas_and_quotes_inside_a_value_end_nothing() {
        let (pairs, after) = walk(r#"a="x}y,z",b="q\"}\\",c=""} 1.0"#);
        let own = |pair: (&str, &str)| (pair.0.to_owned(), pair.1.to_owned());
        assert_eq!(pairs, [("a", "x}y,z"), ("b", r#"q\"}\\"#), ("c", "")].map(own));
        assert_eq!(after.as_deref(), Some(" 1.0"));
    }

    #[test]
    fn spaces_and_a_trailing_comma_are_allowed() {
        let (pairs, after) = walk(r#" a = "1" , b="2", } 3"#);
        assert_eq!(pairs.len(), 2);
        assert_eq!(after.as_deref(), Some(" 3"));
        assert_eq!(walk("} 3"), (Vec::new(), Some(" 3".to_owned())));
    }

    #[test]
    fn a_broken_set_has_no_end() {
        for broken in ["", "a", "a=", "a=1}", "a=\"1", "a=\"1\\", "a=\"1\"", "a=\"1\"b", ",}"] {
            assert_eq!(walk(broken).1, None, "{broken}");
        }
    }
}
