//! A length of time as an operator writes it: always with a unit.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// What a duration looks like, for messages.
const EXPECTED: &str = r#"a duration with its unit, such as "400ms", "2s" or "5m""#;

/// Longer than anything is meant to last, and far from any overflow.
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// A length of time, written as `"1m 30s"`; at most a year.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Span(pub Duration);

fn parse(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok().filter(|duration| *duration <= LONGEST)
}

impl Span {
    /// For a field that is an optional [`Duration`]: `#[serde(deserialize_with)]`.
    pub fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Option::<Self>::deserialize(from).map(|span| span.map(|span| span.0))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                parse(text).map(Span).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_needed_and_a_year_is_the_end() {
        assert_eq!(parse("1m 30s"), Some(Duration::from_secs(90)));
        for wrong in ["", "5", "5 parsecs", "-1s", "1.5.2s", "900000000000000000s", "10years"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
