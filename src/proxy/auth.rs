//! Who asks, and whether they may ask this at all: what the head of a request alone decides.
//!
//! A key comes as `Authorization: Bearer`, as OpenAI's clients send it, or as `x-api-key`, as
//! Anthropic's do. It is looked up and forgotten: it is in no record, goes to no replica, and no
//! refusal says it back. A refusal tells a stranger nothing but that the key is not known; only
//! who holds a right key hears that it is blocked or has run out.

use std::sync::Arc;

use http::HeaderMap;
use http::header;

use crate::domain::{Endpoint, Reason, UnixTime};
use crate::tenants::{Directory, Tenant};

use super::respond::Refusal;

const X_API_KEY: &str = "x-api-key";

/// The holder of the key in these headers; `None` where there are no tenants, so that anyone is
/// served.
pub(super) fn identify(
    tenants: &Directory,
    headers: &HeaderMap,
) -> Result<Option<Arc<Tenant>>, Refusal> {
    if tenants.is_empty() {
        return Ok(None);
    }
    let key = key(headers)?;
    let holder = key.and_then(|key| tenants.holder(key));
    holder.map(|tenant| Some(Arc::clone(tenant))).ok_or_else(|| Refusal::plain(Reason::Key))
}

/// Whether a tenant may make this call now, whatever it asks for.
pub(super) fn may_call(tenant: &Tenant, endpoint: Endpoint, now: UnixTime) -> Result<(), Refusal> {
    let rights = &tenant.rights;
    if rights.blocked {
        return Err(Refusal::because(Reason::Key, "The key is blocked."));
    }
    if rights.expired(now) {
        return Err(Refusal::because(Reason::Key, "The key has expired."));
    }
    if !rights.route(endpoint) {
        return Err(Refusal::plain(Reason::Route));
    }
    Ok(())
}

/// The one key that the headers carry.
fn key(headers: &HeaderMap) -> Result<Option<&[u8]>, Refusal> {
    let only = |name| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (value, None) => Ok(value.map(http::HeaderValue::as_bytes)),
            (_, Some(_)) => Err(ambiguous()),
        }
    };
    let bearer = only(header::AUTHORIZATION.as_str())?.and_then(bearer);
    match (bearer, only(X_API_KEY)?.map(<[u8]>::trim_ascii)) {
        (Some(bearer), Some(other)) if bearer != other => Err(ambiguous()),
        (bearer, other) => Ok(bearer.or(other)),
    }
}

/// Which of two keys is meant is not for us to choose.
fn ambiguous() -> Refusal {
    Refusal::because(Reason::Key, "The request carries several keys; it must carry one.")
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, key) = value.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::{KeyDigest, Rights, tenant_id};

    fn tenant(rights: Rights) -> Arc<Tenant> {
        let keys = vec![KeyDigest::of(b"sk-right"), KeyDigest::of(b"sk-rotated")];
        Arc::new(Tenant { keys, rights, ..Tenant::named("search") })
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_key_opens_however_clients_send_it_and_nothing_else_does() {
        let directory = Directory::new(vec![tenant(Rights::default())]);
        let right: [&[(&str, &str)]; 7] = [
            &[("authorization", "Bearer sk-right")],
            &[("authorization", "bearer sk-right")],
            &[("authorization", "BEARER   sk-rotated ")],
            &[("x-api-key", "sk-right")],
            &[("x-api-key", " sk-rotated ")],
            &[("authorization", "Bearer sk-right"), ("x-api-key", "sk-right")],
            &[("authorization", "Basic sk-left"), ("x-api-key", "sk-right")],
        ];
        for pairs in right {
            let found = identify(&directory, &headers(pairs)).unwrap();
            assert_eq!(found.map(|tenant| tenant.id), Some(tenant_id("search")), "{pairs:?}");
        }
        let wrong: [&[(&str, &str)]; 12] = [
            &[],
            &[("authorization", "")],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer ")],
            &[("authorization", "sk-right")],
            &[("authorization", "Basic sk-right")],
            &[("authorization", "Bearer sk-rig")],
            &[("authorization", "Bearer sk-right x")],
            &[("x-api-key", "Bearer sk-right")],
            &[("x-api-key", "SK-RIGHT")],
            &[("authorization", "Bearer sk-right"), ("authorization", "Bearer sk-right")],
            &[("authorization", "Bearer sk-right"), ("x-api-key", "sk-rotated")],
        ];
        for pairs in wrong {
            let refusal = identify(&directory, &headers(pairs)).unwrap_err();
            assert_eq!(refusal.reason, Reason::Key, "{pairs:?}");
            assert!(!format!("{refusal:?}").contains("sk-"), "a refusal says no key back");
        }
    }

    #[test]
    fn without_tenants_anyone_is_served_whatever_key_they_bring() {
        for pairs in [&[][..], &[("authorization", "Bearer anything")]] {
            assert_eq!(identify(&Directory::default(), &headers(pairs)).unwrap(), None);
        }
    }

    #[test]
    fn each_right_has_its_reason() {
        let now = UnixTime::from_secs(1_000);
        let at = |seconds| Some(UnixTime::from_secs(seconds));
        let chat = Endpoint::ChatCompletions;
        for (rights, endpoint, expected) in [
            (Rights::default(), chat, None),
            (Rights { blocked: true, ..Rights::default() }, chat, Some(Reason::Key)),
            (Rights { expires: at(1_001), ..Rights::default() }, chat, None),
            (Rights { expires: at(1_000), ..Rights::default() }, chat, Some(Reason::Key)),
            (Rights { routes: Some(vec![chat]), ..Rights::default() }, chat, None),
            (
                Rights { routes: Some(vec![chat]), ..Rights::default() },
                Endpoint::Embeddings,
                Some(Reason::Route),
            ),
        ] {
            let refused = may_call(&tenant(rights.clone()), endpoint, now).err();
            assert_eq!(refused.map(|refusal| refusal.reason), expected, "{rights:?}");
        }
    }
}
