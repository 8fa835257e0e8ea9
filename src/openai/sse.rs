//! Where one server-sent event ends and the next begins, under any chunking.
//!
//! Lines end in LF, CR LF or CR; an empty line ends a frame. Only the new bytes of a read are
//! looked at, so a byte is passed over once however the stream is cut.

use memchr::memchr2;

/// The state between two reads.
#[derive(Debug)]
pub(super) struct Framer {
    /// Whether the next byte begins a line.
    line_start: bool,
    /// Whether the byte before was a CR that ended a line of the running frame.
    after_cr: bool,
    /// Whether the byte before was a CR that ended a frame.
    ended_on_cr: bool,
}

impl Framer {
    pub(super) fn new() -> Self {
        Self { line_start: true, after_cr: false, ended_on_cr: false }
    }

    /// Whether `data` begins with the LF of a CR LF whose CR ended the last frame in the read
    /// before. To be asked once, at the start of every read that is not empty.
    pub(super) fn belated_lf(&mut self, data: &[u8]) -> bool {
        std::mem::take(&mut self.ended_on_cr) && data.first() == Some(&b'\n')
    }

    /// The end of the frame that runs at `from`, line ends included; `None` when it goes on past
    /// `data`.
    pub(super) fn frame_end(&mut self, data: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            let rest = data.get(at..).filter(|rest| !rest.is_empty())?;
            if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
                at += 1;
                continue;
            }
            let Some(offset) = memchr2(b'\n', b'\r', rest) else {
                self.line_start = false;
                return None;
            };
            let empty = self.line_start && offset == 0;
            let cr = rest.get(offset) == Some(&b'\r');
            at += offset + 1;
            self.line_start = true;
            if empty {
                match data.get(at) {
                    Some(b'\n') if cr => at += 1,
                    None => self.ended_on_cr = cr,
                    _ => {}
                }
                return Some(at);
            }
            self.after_cr = cr;
        }
    }
}

/// The event's name and data, as far as one line of data goes; see [`Event::parse`].
#[derive(Debug, Default)]
pub(super) struct Event<'a> {
    /// The `event` field.
    pub(super) name: Option<&'a [u8]>,
    /// The `data` field; several lines are joined by LF.
    pub(super) data: Option<std::borrow::Cow<'a, [u8]>>,
}

impl<'a> Event<'a> {
    /// Reads the fields of one frame.
    pub(super) fn parse(frame: &'a [u8]) -> Self {
        use std::borrow::Cow;
        let mut event = Self::default();
        let mut rest = frame.strip_prefix(b"\xef\xbb\xbf").unwrap_or(frame);
        while !rest.is_empty() {
            let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            let colon = memchr::memchr(b':', line.get(..line.len().min(16)).unwrap_or_default());
            let (field, value) = line.split_at(colon.unwrap_or(line.len()));
            let value = value.strip_prefix(b":").unwrap_or(value);
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match field {
                b"event" => event.name = Some(value),
                b"data" => {
                    event.data = Some(match event.data.take() {
                        None => Cow::Borrowed(value),
                        Some(before) => Cow::Owned([&before, b"\n".as_slice(), value].concat()),
                    });
                }
                _ => {}
            }
        }
        event
    }
}
