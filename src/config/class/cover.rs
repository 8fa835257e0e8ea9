//! Whether a class can ever match, given the classes that are tried before it.
//!
//! A rule is a box over (headers, tenant, endpoint, length), and the earlier ones may cover it
//! together where none does alone ("up to 1,000 tokens", "from 1,001 on"). So the question is
//! put to the rules themselves: requests are made up that the class takes, one for every corner
//! at which something could be left, and the first that no earlier class takes proves that the
//! class is of use. Only the headers that the class itself asks for are sent: with fewer it would
//! not match, with more the earlier ones could only take more.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::HeaderMap;

use super::rule::{Asked, ClassRule};
use crate::domain::{Endpoint, TenantId};

/// An earlier class.
pub(super) type Earlier<'a> = (&'a Arc<str>, &'a ClassRule);

/// The earlier classes that together leave nothing for `rule`; `None` where something is left.
/// `on` are the endpoints that are served.
pub(super) fn shadows<'a>(
    rule: &ClassRule,
    earlier: &[Earlier<'a>],
    on: &[Endpoint],
) -> Option<Vec<&'a Arc<str>>> {
    let headers: HeaderMap = rule.headers.iter().cloned().collect();
    let endpoints: Vec<_> = on.iter().copied().filter(|e| rule.admits_endpoint(*e)).collect();
    let endpoints = unlike(&endpoints, earlier, ClassRule::admits_endpoint);
    // Whoever no class names is always there, or may be by the next reload.
    let tenants: Vec<_> = match &rule.tenants {
        Some(tenants) => tenants.iter().map(|(id, _)| *id).collect(),
        None => vec![TenantId::default()],
    };
    let tenants = unlike(&tenants, earlier, ClassRule::admits_tenant);
    let lengths = corners(rule, earlier);
    let mut taking = BTreeSet::new();
    for (&endpoint, &tenant) in endpoints.iter().flat_map(|e| tenants.iter().map(move |t| (e, t))) {
        for &prompt_bytes in &lengths {
            let headers = &headers;
            let asked = Asked { headers, tenant, endpoint, prompt_bytes, prompt_tokens: None };
            taking.insert(earlier.iter().position(|(_, rule)| rule.takes(&asked))?);
        }
    }
    Some(taking.into_iter().filter_map(|at| earlier.get(at)).map(|(name, _)| *name).collect())
}

/// One of each kind of value that the earlier rules treat alike.
fn unlike<T: Copy>(
    values: &[T],
    earlier: &[Earlier<'_>],
    admits: fn(&ClassRule, T) -> bool,
) -> Vec<T> {
    let mut seen = BTreeSet::new();
    let treated = |value| earlier.iter().map(|(_, rule)| admits(rule, value)).collect::<Vec<_>>();
    values.iter().copied().filter(|value| seen.insert(treated(*value))).collect()
}

/// The lengths at which something could be left: the shortest, and one beyond each earlier end.
fn corners(rule: &ClassRule, earlier: &[Earlier<'_>]) -> BTreeSet<u64> {
    let own = rule.lengths();
    let beyond = earlier.iter().filter_map(|(_, rule)| rule.lengths().end().checked_add(1));
    beyond.chain([*own.start()]).filter(|length| own.contains(length)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rule::ANY;
    use super::*;

    fn box_of(endpoints: u8, tenants: u8, tokens: (u64, u64), bytes: (u64, u64)) -> ClassRule {
        let served = [Endpoint::Completions, Endpoint::Embeddings];
        let pick = |bit: usize, of: u8| of & (1 << bit) != 0;
        let tenants: Vec<_> = (0..2_u32)
            .filter(|id| pick(*id as usize, tenants))
            .map(|id| (TenantId(id + 1), Arc::from("t")))
            .collect();
        ClassRule {
            headers: Vec::new(),
            tenants: (!tenants.is_empty()).then_some(tenants),
            endpoints: (endpoints != 0)
                .then(|| (0..2).filter(|at| pick(*at, endpoints)).map(|at| served[at]).collect()),
            prompt_tokens: tokens.0.min(tokens.1)..=tokens.0.max(tokens.1),
            prompt_bytes: bytes.0.min(bytes.1)..=bytes.0.max(bytes.1),
        }
    }

    fn any_box() -> impl Strategy<Value = ClassRule> {
        (0..4_u8, 0..4_u8, (0..4_u64, 0..4_u64), (0..12_u64, 0..12_u64)).prop_map(
            |(endpoints, tenants, tokens, bytes)| box_of(endpoints, tenants, tokens, bytes),
        )
    }

    proptest! {
        /// Against every request that there can be in a small world.
        #[test]
        fn agrees_with_trying_everything(
            rule in any_box(),
            before in prop::collection::vec(any_box(), 0..5),
        ) {
            // An empty range is a fault of its own.
            prop_assume!(!rule.lengths().is_empty());
            let served = [Endpoint::Completions, Endpoint::Embeddings];
            let name: Arc<str> = "x".into();
            let earlier: Vec<_> = before.iter().map(|rule| (&name, rule)).collect();
            let headers = HeaderMap::new();
            let mut left = false;
            for (endpoint, tenant) in served.iter().flat_map(|e| (0..4).map(move |t| (*e, t))) {
                for prompt_bytes in 0..20_u64 {
                    let asked = Asked {
                        headers: &headers,
                        tenant: TenantId(tenant),
                        endpoint,
                        prompt_bytes,
                        prompt_tokens: None,
                    };
                    left |= rule.takes(&asked) && !before.iter().any(|r| r.takes(&asked));
                }
            }
            prop_assert_eq!(shadows(&rule, &earlier, &served).is_none(), left);
        }
    }

    #[test]
    fn headers_shadow_only_what_asks_for_them_too() {
        let pair = |name: &'static str| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static("1"))
        };
        let with = |headers| ClassRule { headers, ..box_of(0, 0, (0, 0), (0, 0)) };
        let with = |headers| ClassRule { prompt_tokens: ANY, prompt_bytes: ANY, ..with(headers) };
        let name: Arc<str> = "batch".into();
        let (batch, both, none) = (
            with(vec![pair("x-batch")]),
            with(vec![pair("x-batch"), pair("x-agent")]),
            with(Vec::new()),
        );
        let on = [Endpoint::Completions];
        assert_eq!(shadows(&both, &[(&name, &batch)], &on), Some(vec![&name]));
        assert_eq!(shadows(&batch, &[(&name, &both)], &on), None);
        assert_eq!(shadows(&none, &[(&name, &batch)], &on), None);
    }
}
