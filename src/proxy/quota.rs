//! A tenant's quotas, live: one meter a tenant behind a short lock, and what answers tell of it.
//!
//! A request that was admitted carries a [`Hold`] in its recorder, which is there on every exit
//! path; the record's end says what is owed. Levels are told in OpenAI's headers and in those of
//! the IETF's draft (draft-ietf-httpapi-ratelimit-headers), where a window is the time for which
//! a rate may be saved up.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use crate::domain::{Outcome, Reason, Rejection, RequestRecord, Timestamp};
use crate::openai::Peek;
use crate::tenants::{Ask, Charge, Level, Levels, Meter, Quota, Spent};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

/// One tenant's meter, shared by its requests. Outlives reloads.
#[derive(Debug)]
pub(super) struct Account(Mutex<Meter>);

impl Account {
    pub(super) fn new(quota: Quota, now: Timestamp) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Meter::new(quota, now))))
    }

    /// Goes by other quotas from now on.
    pub(super) fn set(&self, quota: Quota, now: Timestamp) {
        self.0.lock().set(quota, now);
    }

    /// Why no request of this tenant may go now, however small.
    pub(super) fn refuses(&self, now: Timestamp) -> Option<Rejection> {
        self.0.lock().refuses(now)
    }

    /// Prompt tokens to expect of a request.
    pub(super) fn input(&self, ask: &Ask) -> u64 {
        self.0.lock().input(ask)
    }

    /// Lets a request go, and charges it.
    pub(super) fn admit(self: &Arc<Self>, now: Timestamp, ask: Ask) -> Result<Hold, Rejection> {
        let charge = self.0.lock().admit(now, ask)?;
        Ok(Hold { account: Arc::clone(self), charge })
    }

    /// Tells a client where its quotas stand.
    pub(super) fn tell(&self, now: Timestamp, headers: &mut HeaderMap) {
        let levels = self.0.lock().levels(now);
        tell(&levels, headers);
    }
}

/// What a request says of its size.
pub(super) fn ask(peek: &Peek, generates: bool) -> Ask {
    Ask {
        prompt_bytes: peek.prompt_bytes,
        prompt_tokens: peek.prompt_tokens,
        sequences: peek.sequences,
        max_output: peek.max_output,
        generates,
    }
}

/// A charge that is settled when its request has ended.
#[derive(Debug)]
pub(super) struct Hold {
    account: Arc<Account>,
    charge: Charge,
}

impl Hold {
    /// The request has ended like this.
    pub(super) fn settle(self, now: Timestamp, record: &RequestRecord) {
        self.account.0.lock().settle(now, self.charge, spent(record));
    }
}

/// What a request owes by its end. A refused one owes nothing, nor one that no replica served.
fn spent(record: &RequestRecord) -> Spent {
    let seen = match record.usage {
        Some(usage) => Spent::Counted { input: usage.input, output: usage.output },
        None => Spent::Seen(record.frames),
    };
    match record.outcome {
        Outcome::Completed => record.usage.map_or(Spent::Expected, |_| seen),
        Outcome::Cancelled if record.attempts > 0 => seen,
        Outcome::Cancelled | Outcome::Failed(Reason::ReplicaRefused) => Spent::Request,
        Outcome::Failed(_) if record.frames > 0 => seen,
        Outcome::Rejected(_) | Outcome::Evicted(_) | Outcome::Failed(_) => Spent::Nothing,
    }
}

fn tell(levels: &Levels, headers: &mut HeaderMap) {
    for (names, level) in [(&REQUESTS, levels.requests), (&TOKENS, levels.tokens)] {
        let Some(level) = level else { continue };
        let [limit, left, reset] = names;
        headers.insert(limit, HeaderValue::from(level.limit));
        headers.insert(left, HeaderValue::from(level.left));
        if let Ok(value) = HeaderValue::from_str(&clock_words(level.full_in)) {
            headers.insert(reset, value);
        }
    }
    let (mut policy, mut state) = (String::new(), String::new());
    let window = whole_seconds(levels.burst);
    let rates = [("requests", levels.requests), ("tokens", levels.tokens)];
    for (name, level) in rates.into_iter().filter_map(|(name, level)| Some((name, level?))) {
        let Level { burst, left, full_in, .. } = level;
        add(&mut policy, format_args!("\"{name}\";q={burst};w={window}"));
        add(&mut state, format_args!("\"{name}\";r={left};t={}", whole_seconds(full_in)));
    }
    if let Some(Level { burst, left, .. }) = levels.parallel {
        add(&mut policy, format_args!("\"parallel\";q={burst};qu=\"concurrent-requests\""));
        add(&mut state, format_args!("\"parallel\";r={left}"));
    }
    for (name, list) in [(RATELIMIT_POLICY, policy), (RATELIMIT, state)] {
        if let Some(value) = HeaderValue::from_str(&list).ok().filter(|list| !list.is_empty()) {
            headers.insert(name, value);
        }
    }
}

fn add(list: &mut String, item: std::fmt::Arguments<'_>) {
    let comma = if list.is_empty() { "" } else { ", " };
    // Writing to a text does not fail.
    let _written = write!(list, "{comma}{item}").is_ok();
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

/// A time as OpenAI writes it: `20ms`, `8.64s`, `6m0s`.
fn clock_words(span: Duration) -> String {
    let millis = span.as_nanos().div_ceil(1_000_000);
    let (seconds, millis) = (millis / 1_000, millis % 1_000);
    let (minutes, rest) = (seconds / 60, seconds % 60);
    let part = format!("{millis:03}");
    let part = part.trim_end_matches('0');
    let dot = if part.is_empty() { "" } else { "." };
    match (minutes, rest) {
        (0, 0) if millis > 0 => format!("{millis}ms"),
        (0, rest) => format!("{rest}{dot}{part}s"),
        (minutes, rest) if minutes < 60 => format!("{minutes}m{rest}{dot}{part}s"),
        (minutes, rest) => format!("{}h{}m{rest}{dot}{part}s", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_openai_writes_them() {
        for (millis, words) in [
            (0, "0s"),
            (20, "20ms"),
            (8_640, "8.64s"),
            (1_000, "1s"),
            (360_000, "6m0s"),
            (61_500, "1m1.5s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(clock_words(Duration::from_millis(millis)), words);
        }
        assert_eq!(clock_words(Duration::from_nanos(1)), "1ms", "never too early");
    }

    #[test]
    fn levels_are_told_in_both_forms() {
        let level = |limit, burst, left, millis| {
            let full_in = Duration::from_millis(millis);
            Some(Level { limit, burst, left, full_in })
        };
        let levels = Levels {
            requests: level(60, 15, 14, 1_000),
            tokens: level(6_000, 1_500, 0, 15_250),
            parallel: level(4, 4, 1, 0),
            burst: Duration::from_secs(15),
        };
        let mut headers = HeaderMap::new();
        tell(&levels, &mut headers);
        for (name, value) in [
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "14"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "6000"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "15.25s"),
            (
                "ratelimit-policy",
                "\"requests\";q=15;w=15, \"tokens\";q=1500;w=15, \
                 \"parallel\";q=4;qu=\"concurrent-requests\"",
            ),
            ("ratelimit", "\"requests\";r=14;t=1, \"tokens\";r=0;t=16, \"parallel\";r=1"),
        ] {
            assert_eq!(headers.get(name).map(|value| value.to_str().unwrap()), Some(value));
        }
        let mut none = HeaderMap::new();
        tell(&Levels::default(), &mut none);
        assert!(none.is_empty(), "who has no quota is told of none");
    }
}
