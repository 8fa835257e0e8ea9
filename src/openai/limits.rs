//! Numbers that a client writes into a body, read as the replica's validation reads them.
//!
//! Pydantic takes `16`, `16.0` and `1e2` for integers and refuses the rest; so do we, except that
//! numbers in strings are refused too: an OpenAI-compatible server need not take them.

/// What a field that must be a count of something holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Count {
    /// A whole number that fits.
    Of(u32),
    /// Less than zero, a fraction, or more than 32 bits hold.
    Unusable,
}

/// Reads the text of a JSON number.
pub(super) fn count(number: &[u8]) -> Count {
    let Ok(text) = std::str::from_utf8(number) else { return Count::Unusable };
    if let Ok(count) = text.parse::<u32>() {
        return Count::Of(count);
    }
    match text.parse::<f64>() {
        Ok(value) if value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) =>
        {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked to be whole and in range"
            )]
            Count::Of(value as u32)
        }
        _ => Count::Unusable,
    }
}
