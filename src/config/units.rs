//! Sizes as an operator writes them: always with a unit. Durations are `domain`'s.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

pub(super) use crate::domain::Span;

/// What a size looks like, for messages.
const SIZE: &str = r#"a size with its unit, such as "64KiB", "16MiB" or "1GiB""#;

/// A number of bytes, written as `"16MiB"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size(pub(super) u64);

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

impl<'de> serde::Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(SIZE)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                size(text).map(Size).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

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
}
