//! Finds heads that frame their body twice.
//!
//! A request with both `Transfer-Encoding` and `Content-Length` is how one request is smuggled
//! inside another. hyper obeys the first and drops the second before we see the head, which is
//! safe for us and allowed, but whoever stands before us may have obeyed the other. So the raw
//! head is looked at as it is read, and such a request is refused. Heads that a client sends
//! before the answer to its last request is over are left to hyper's rule.

/// Longest name that matters, with its colon.
const LONGEST: usize = "transfer-encoding:".len();

/// Reads the bytes of one head after another, in whatever pieces they come.
#[derive(Debug, Default)]
pub(super) struct Framing {
    /// The beginning of the line that is being read, lower case, at most [`LONGEST`] bytes.
    line: [u8; LONGEST],
    /// Bytes of it so far, the line end not counted; stops at [`LONGEST`].
    filled: usize,
    length: bool,
    encoding: bool,
    place: Place,
}

/// Where in a request the next byte stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    /// Before the head: empty lines are allowed there and are not its end.
    #[default]
    Before,
    Head,
    Body,
}

impl Framing {
    /// Takes the next bytes; what is behind the head's end is not looked at.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while self.place != Place::Body && !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest);
            let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
            self.extend(line);
            if end.is_some() {
                self.end_line();
            }
            rest = after.get(1..).unwrap_or_default();
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        let free = self.line.iter_mut().skip(self.filled);
        for (to, from) in free.zip(bytes) {
            *to = from.to_ascii_lowercase();
            self.filled += 1;
        }
    }

    fn end_line(&mut self) {
        let line = self.line.get(..self.filled).unwrap_or_default();
        self.length |= line.starts_with(b"content-length:");
        self.encoding |= line.starts_with(b"transfer-encoding:");
        self.place = match (self.place, matches!(line, b"" | b"\r")) {
            (place, false) if place != Place::Body => Place::Head,
            (Place::Head, true) => Place::Body,
            (place, _) => place,
        };
        self.filled = 0;
    }

    /// Whether the head had both. Begins anew for the next one.
    pub(super) fn take(&mut self) -> bool {
        let head = std::mem::take(self);
        head.length && head.encoding
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOTH: &str =
        "\r\nPOST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n";
    const IN_BODY: &str =
        "POST / HTTP/1.1\r\ncontent-length: 30\r\n\r\ntransfer-encoding: chunked\r\n";
    const IN_NAME: &str =
        "GET / HTTP/1.1\r\nx-content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n";

    proptest! {
        #[test]
        fn both_are_found_however_the_bytes_are_cut(cuts in prop::collection::vec(1_usize..9, 1..90)) {
            for (head, twice) in [(BOTH, true), (IN_BODY, false), (IN_NAME, false)] {
                let mut framing = Framing::default();
                let mut rest = head.as_bytes();
                for cut in &cuts {
                    let (now, later) = rest.split_at((*cut).min(rest.len()));
                    framing.read(now);
                    rest = later;
                }
                framing.read(rest);
                prop_assert_eq!(framing.take(), twice, "{}", head);
                prop_assert!(!framing.take(), "it begins anew");
            }
        }
    }
}
