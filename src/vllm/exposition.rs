//! Series out of an exposition, Prometheus text or OpenMetrics, one line at a time.
//!
//! Both share the line: `name{labels} value [timestamp] [# exemplar]`. A scrape has hundreds of
//! lines (histogram buckets, the HTTP server's own) of which a dozen matter; a line whose name
//! is not asked for is skipped at the first look, and nothing is ever copied.

use super::labels::Labels;

/// One series with its value.
#[derive(Clone, Copy)]
pub(super) struct Series<'a> {
    labels: Option<&'a [u8]>,
    /// The value; NaN and infinities as they were sent.
    pub(super) value: f64,
}

impl<'a> Series<'a> {
    /// The value of a label, escapes unresolved.
    pub(super) fn label(&self, name: &str) -> Option<&'a [u8]> {
        self.labels().find(|(known, _)| *known == name.as_bytes()).map(|(_, value)| value)
    }

    /// All labels.
    pub(super) fn labels(&self) -> Labels<'a> {
        Labels::new(self.labels.unwrap_or(b"}"))
    }
}

/// Why a line is no series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineError {
    Labels,
    Value,
}

/// The lines of a text, without their ends.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (line, after) = match memchr::memchr(b'\n', rest) {
            Some(at) => (rest.get(..at)?, rest.get(at + 1..)?),
            None => (rest, [].as_slice()),
        };
        rest = after;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    })
}

/// Name of a line's series and what follows it; `None` for comments and empty lines.
pub(super) fn name(line: &[u8]) -> Option<(&[u8], &[u8])> {
    if line.first().is_none_or(|first| *first == b'#') {
        return None;
    }
    let end = line.iter().position(|byte| matches!(byte, b'{' | b' ' | b'\t'))?;
    line.split_at_checked(end)
}

/// Reads what follows the name.
pub(super) fn series(after_name: &[u8]) -> Result<Series<'_>, LineError> {
    let after_name = after_name.trim_ascii_start();
    let (labels, value) = match after_name.strip_prefix(b"{") {
        Some(labels) => (Some(labels), Labels::new(labels).finish().ok_or(LineError::Labels)?),
        None => (None, after_name),
    };
    Ok(Series { labels, value: number(value).ok_or(LineError::Value)? })
}

/// The first word of `text` as a number. Rust reads `NaN`, `+Inf` and `1e3` as Prometheus
/// writes them.
pub(super) fn number(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    std::str::from_utf8(text.get(..end)?).ok()?.parse().ok()
}
