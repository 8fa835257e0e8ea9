//! What a replica says of itself: its version and the models that it serves.

use std::time::Duration;

use http::HeaderValue;
use serde::Deserialize;

use crate::domain::Endpoint;
use crate::vllm::upstream_path;

use super::fetch::{FetchError, fetch};
use super::replica::Replica;

/// Models listed by one replica, at most; adapters count.
const MAX_MODELS: usize = 1_024;

/// What a replica says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// vLLM's version; `None` where the server has no `/version`.
    pub version: Option<String>,
    /// The models and adapters that it serves, in its own order.
    pub models: Vec<ServedModel>,
}

/// One entry of a replica's `/v1/models`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct ServedModel {
    /// The name that requests use.
    pub id: String,
    /// Longest prompt and output together, in tokens, where the server says so.
    pub max_model_len: Option<u32>,
    /// The base model, where this is an adapter.
    pub parent: Option<String>,
}

impl Facts {
    /// The entry of a model.
    pub fn model(&self, id: &str) -> Option<&ServedModel> {
        self.models.iter().find(|model| model.id == id)
    }

    /// Asks a replica. A server without `/version` is a server all the same.
    pub(super) async fn of(
        replica: &Replica,
        authorization: Option<&HeaderValue>,
        timeout: Duration,
    ) -> Result<Self, FetchError> {
        #[derive(Deserialize)]
        struct List {
            data: Vec<ServedModel>,
        }
        #[derive(Deserialize)]
        struct Version {
            version: String,
        }
        let list = fetch(replica, upstream_path(Endpoint::Models), authorization, timeout).await?;
        let mut models = serde_json::from_slice::<List>(&list)?.data;
        models.truncate(MAX_MODELS);
        let version = match fetch(replica, "/version", authorization, timeout).await {
            Ok(text) => serde_json::from_slice::<Version>(&text).ok().map(|it| it.version),
            Err(FetchError::Status(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { version, models })
    }
}
