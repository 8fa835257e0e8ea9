//! Durations and sizes as an operator writes them: always with a unit.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};

/// What a duration looks like, for messages.
pub(super) const DURATION: &str = r#"a duration with its unit, such as "400ms", "2s" or "5m""#;
/// What a size looks like, for messages.
pub(super) const SIZE: &str = r#"a size with its unit, such as "64KiB", "16MiB" or "1GiB""#;
/// Longer than anything is meant to last, and far from any overflow.
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// A length of time, written as `"1m 30s"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span(pub(super) Duration);

/// A number of bytes, written as `"16MiB"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size(pub(super) u64);

fn span(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok().filter(|duration| *duration <= LONGEST)
}

fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let factor: u64 = match unit.trim_start() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes <= 1 << 50)
}

macro_rules! from_text {
    ($type:ident, $parse:ident, $expected:expr) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$type, E> {
                        $parse(text).map($type).ok_or_else(|| {
                            E::invalid_value(serde::de::Unexpected::Str(text), &self)
                        })
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    };
}

from_text!(Span, span, DURATION);
from_text!(Size, size, SIZE);

/// A size as an operator would write it, in the largest unit that divides it.
pub fn show_size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in units {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_need_a_known_unit_and_do_not_overflow() {
        assert_eq!(size("16MiB"), Some(16 << 20));
        assert_eq!(size("2 kB"), Some(2_000));
        for wrong in ["", "16", "MiB", "-1KiB", "1.5GiB", "16mib", "99999999999GiB", "1TiB", "é"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
        for bytes in [0, 1, 1023, 1024, 3 << 20, 1 << 30] {
            assert_eq!(size(&show_size(bytes)), Some(bytes));
        }
    }

    #[test]
    fn spans_need_a_unit_and_end_within_a_year() {
        assert_eq!(span("1m 30s"), Some(Duration::from_secs(90)));
        for wrong in ["", "5", "5 parsecs", "-1s", "1.5.2s", "900000000000000000s", "10years"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }
}
