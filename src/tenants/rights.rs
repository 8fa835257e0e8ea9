//! What a tenant may ask for at all, whatever its rates.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::domain::{Endpoint, UnixTime};

/// The rights of one tenant. What is `None` is not restricted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// Models and aliases that it may name. A model's name stands for its aliases too; an alias
    /// stands for itself alone.
    pub models: Option<BTreeSet<Arc<str>>>,
    /// Calls that it may make.
    pub routes: Option<Vec<Endpoint>>,
    /// From then on its keys are refused.
    pub expires: Option<UnixTime>,
    /// Whether its keys are refused now.
    pub blocked: bool,
}

impl Rights {
    /// Whether it may make this call.
    pub fn route(&self, endpoint: Endpoint) -> bool {
        self.routes.as_ref().is_none_or(|routes| routes.contains(&endpoint))
    }

    /// Whether it may name a model this way. `pool` is the model that the name leads to, where
    /// it leads to one.
    pub fn model(&self, name: &str, pool: Option<&str>) -> bool {
        let listed = |models: &BTreeSet<Arc<str>>| {
            models.contains(name) || pool.is_some_and(|pool| models.contains(pool))
        };
        self.models.as_ref().is_none_or(listed)
    }

    /// Whether its keys have run out.
    pub fn expired(&self, now: UnixTime) -> bool {
        self.expires.is_some_and(|end| now >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_restricted_is_allowed() {
        let all = Rights::default();
        assert!(Endpoint::ALL.into_iter().all(|endpoint| all.route(endpoint)));
        assert!(all.model("anything", None));
        assert!(!all.expired(UnixTime::MAX));
    }

    #[test]
    fn a_models_name_stands_for_its_aliases_and_an_alias_for_itself() {
        let of = |name: &str| Rights {
            models: Some(BTreeSet::from([Arc::from(name)])),
            ..Rights::default()
        };
        assert!(of("tiny").model("tiny", Some("tiny")));
        assert!(of("tiny").model("gpt-4", Some("tiny")));
        assert!(of("gpt-4").model("gpt-4", Some("tiny")));
        assert!(!of("gpt-4").model("tiny", Some("tiny")));
        assert!(!of("gpt-4").model("gpt-5", Some("tiny")));
        assert!(!of("tiny").model("other", None));
    }

    #[test]
    fn a_key_ends_in_the_second_of_its_expiry() {
        let rights = Rights { expires: Some(UnixTime::from_secs(100)), ..Rights::default() };
        assert!(!rights.expired(UnixTime::from_secs(99)));
        assert!(rights.expired(UnixTime::from_secs(100)));
    }

    #[test]
    fn an_empty_list_of_routes_allows_none() {
        let none = Rights { routes: Some(Vec::new()), ..Rights::default() };
        assert!(!none.route(Endpoint::Models));
    }
}
