//! How a request of a class is recognised: conditions on what is known of it before the gate.

use std::ops::RangeInclusive;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::domain::{Endpoint, TenantId};

/// Bytes of text a token, where a prompt came as text and is asked for in tokens, or the other way
/// round. Fixed on purpose: with a learned ratio one request would change its class from day to
/// day. And it makes one length of two, so that what a rule can match is plain.
const BYTES_PER_TOKEN: u64 = 4;

/// What a request is recognised by.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The client's headers.
    pub headers: &'a HeaderMap,
    /// Whose it is.
    pub tenant: TenantId,
    /// What it calls.
    pub endpoint: Endpoint,
    /// Bytes of the text that will be tokenized.
    pub prompt_bytes: u64,
    /// Tokens, where the client sent ids and no text.
    pub prompt_tokens: Option<u32>,
}

impl Asked<'_> {
    /// Bytes of the prompt's text, or what they would be.
    fn length(&self) -> u64 {
        self.prompt_tokens.map_or(self.prompt_bytes, |ids| u64::from(ids) * BYTES_PER_TOKEN)
    }
}

/// Conditions that must all hold; what is `None` or a full range is no condition.
#[derive(Clone, PartialEq, Debug)]
pub struct ClassRule {
    /// Headers with a value that each must have.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// One of these, by name; sorted by id.
    pub tenants: Option<Vec<(TenantId, Arc<str>)>>,
    /// One of these.
    pub endpoints: Option<Vec<Endpoint>>,
    /// Tokens of the prompt: of its ids, else a quarter of its bytes.
    pub prompt_tokens: RangeInclusive<u64>,
    /// Bytes of the prompt's text, or four for each of its ids.
    pub prompt_bytes: RangeInclusive<u64>,
}

/// Any length.
pub(super) const ANY: RangeInclusive<u64> = 0..=u64::MAX;

impl ClassRule {
    /// Whether every condition holds.
    pub fn takes(&self, asked: &Asked<'_>) -> bool {
        let length = asked.length();
        self.admits_endpoint(asked.endpoint)
            && self.admits_tenant(asked.tenant)
            && self.prompt_tokens.contains(&length.div_ceil(BYTES_PER_TOKEN))
            && self.prompt_bytes.contains(&length)
            && self.headers.iter().all(|(name, value)| {
                let sent = asked.headers.get_all(name);
                sent.iter().any(|sent| sent.as_bytes() == value.as_bytes())
            })
    }

    /// The lengths that both ranges allow, bytes; empty where they have none in common.
    pub(super) fn lengths(&self) -> RangeInclusive<u64> {
        let (tokens, bytes) = (&self.prompt_tokens, &self.prompt_bytes);
        let shortest = tokens.start().saturating_sub(1).saturating_mul(BYTES_PER_TOKEN);
        let shortest = shortest + u64::from(*tokens.start() > 0);
        let longest = tokens.end().saturating_mul(BYTES_PER_TOKEN);
        shortest.max(*bytes.start())..=longest.min(*bytes.end())
    }

    pub(super) fn admits_tenant(&self, tenant: TenantId) -> bool {
        let listed = |list: &Vec<(TenantId, _)>| list.binary_search_by_key(&tenant, |t| t.0);
        self.tenants.as_ref().is_none_or(|list| listed(list).is_ok())
    }

    pub(super) fn admits_endpoint(&self, endpoint: Endpoint) -> bool {
        self.endpoints.as_ref().is_none_or(|list| list.contains(&endpoint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> ClassRule {
        ClassRule {
            headers: Vec::new(),
            tenants: None,
            endpoints: None,
            prompt_tokens: ANY,
            prompt_bytes: ANY,
        }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn every_condition_counts_and_all_must_hold() {
        let sent = headers(&[("x-kind", "other"), ("x-kind", "batch"), ("x-tier", "gold")]);
        let asked = Asked {
            headers: &sent,
            tenant: TenantId(7),
            endpoint: Endpoint::Completions,
            prompt_bytes: 4_001,
            prompt_tokens: None,
        };
        assert!(rule().takes(&asked));
        let pair = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let tenants =
            |ids: &[u32]| Some(ids.iter().map(|id| (TenantId(*id), "t".into())).collect());
        let holding = [
            ClassRule { headers: vec![pair("x-kind", "batch"), pair("x-tier", "gold")], ..rule() },
            ClassRule { tenants: tenants(&[3, 7, 9]), ..rule() },
            ClassRule { endpoints: Some(vec![Endpoint::Completions]), ..rule() },
            ClassRule { prompt_tokens: 1_001..=1_001, ..rule() },
            ClassRule { prompt_bytes: 4_001..=4_001, ..rule() },
        ];
        let failing = [
            ClassRule { headers: vec![pair("x-kind", "Batch")], ..rule() },
            ClassRule { headers: vec![pair("x-kind", "batch"), pair("x-no", "x")], ..rule() },
            ClassRule { tenants: tenants(&[3, 9]), ..rule() },
            ClassRule { endpoints: Some(vec![Endpoint::Messages]), ..rule() },
            ClassRule { prompt_tokens: 0..=1_000, ..rule() },
            ClassRule { prompt_bytes: 4_002..=9_999, ..rule() },
        ];
        for rule in &holding {
            assert!(rule.takes(&asked), "{rule:?}");
            for other in &failing {
                let both = ClassRule {
                    headers: [&rule.headers[..], &other.headers].concat(),
                    tenants: other.tenants.clone().or(rule.tenants.clone()),
                    endpoints: other.endpoints.clone().or(rule.endpoints.clone()),
                    prompt_tokens: other.prompt_tokens.clone(),
                    prompt_bytes: other.prompt_bytes.clone(),
                };
                assert!(!both.takes(&asked), "{both:?}");
            }
        }
        let ids = Asked { prompt_tokens: Some(12), prompt_bytes: 0, ..asked };
        let twelve = ClassRule { prompt_tokens: 12..=12, prompt_bytes: 48..=48, ..rule() };
        assert!(twelve.takes(&ids), "ids have a length too");
    }

    #[test]
    fn two_ranges_are_one_length() {
        let sent = HeaderMap::new();
        let takes = |rule: &ClassRule, prompt_bytes| {
            rule.takes(&Asked {
                headers: &sent,
                tenant: TenantId(0),
                endpoint: Endpoint::Messages,
                prompt_bytes,
                prompt_tokens: None,
            })
        };
        for (tokens, bytes) in [(0..=2, ANY), (2..=3, ANY), (1..=2, 3..=6), (3..=9, 0..=8)] {
            let rule = ClassRule { prompt_tokens: tokens, prompt_bytes: bytes, ..rule() };
            for length in 0..50 {
                assert_eq!(takes(&rule, length), rule.lengths().contains(&length), "{rule:?}");
            }
        }
        assert!(
            ClassRule { prompt_tokens: 3..=9, prompt_bytes: 0..=8, ..rule() }.lengths().is_empty()
        );
        assert_eq!(rule().lengths(), ANY);
    }
}
