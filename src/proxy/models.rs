//! `GET /v1/models`: what this gateway serves, in the replicas' own words.
//!
//! The list names every pool and alias, and nothing that a request could not use: a replica's
//! own list would name models that no pool has. What clients read besides the name (context
//! length, root, permissions) is taken from the first replica that answers, and kept for a
//! while: the list is asked for by every client's start-up and must not become load. A tenant
//! sees what it may name, and cannot tell what else there is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::domain::Timestamp;
use crate::tenants::Tenant;
use crate::upstream::Replica;

use super::Proxy;
use super::attempt::{Collected, collect};
use super::pools::{Pool, View};
use super::relay::RelayBody;
use super::respond;

/// How long a list is kept.
const KEPT: Duration = Duration::from_secs(10);
/// How long one replica may take to tell.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a replica's list that are read.
const LARGEST: usize = 1024 * 1024;
/// Replicas asked, a pool, before its entry is made up.
const ASKED: usize = 2;

/// The list as last made. Locked while it is made, so that a crowd of clients asks once.
#[derive(Default)]
pub(super) struct ModelList(Mutex<Option<(Timestamp, Arc<[Listed]>)>>);

/// One name that a request may use.
struct Listed {
    name: Arc<str>,
    /// The model that it leads to.
    pool: Arc<str>,
    entry: Value,
}

impl ModelList {
    /// The configuration has changed.
    pub(super) fn forget(&self) {
        // A list in the making is of the old configuration for one `KEPT` at most.
        if let Ok(mut list) = self.0.try_lock() {
            *list = None;
        }
    }
}

impl Proxy {
    /// The list, as far as it is this tenant's to see.
    pub(super) async fn models(&self, view: &View, tenant: Option<&Tenant>) -> Response<RelayBody> {
        let all = self.all_models(view).await;
        let seen = |listed: &&Listed| {
            tenant.is_none_or(|tenant| tenant.rights.model(&listed.name, Some(&listed.pool)))
        };
        let data: Vec<_> = all.iter().filter(seen).map(|listed| &listed.entry).collect();
        let body = json!({ "object": "list", "data": data }).to_string();
        respond::whole(StatusCode::OK, "application/json", Bytes::from(body))
    }

    async fn all_models(&self, view: &View) -> Arc<[Listed]> {
        let mut list = self.models.0.lock().await;
        let now = self.now();
        if let Some((made, list)) = list.as_ref()
            && now.saturating_since(*made) < KEPT
        {
            return Arc::clone(list);
        }
        let made: Arc<[Listed]> = merged(view).await.into();
        *list = Some((now, Arc::clone(&made)));
        made
    }
}

async fn merged(view: &View) -> Vec<Listed> {
    let mut list = Vec::new();
    for pool in &view.pools {
        let entry = known(pool).await.unwrap_or_else(|| made_up(&pool.name));
        let mut add = |name: &Arc<str>, entry| {
            let (name, pool) = (Arc::clone(name), Arc::clone(&pool.name));
            list.push(Listed { name, pool, entry: Value::Object(entry) });
        };
        add(&pool.name, entry.clone());
        for alias in &pool.config.aliases {
            let mut entry = entry.clone();
            entry.insert("id".to_owned(), json!(&**alias));
            entry.insert("parent".to_owned(), json!(&*pool.name));
            add(alias, entry);
        }
    }
    list
}

/// What a replica says of the pool's model.
async fn known(pool: &Pool) -> Option<Map<String, Value>> {
    let mut skip = None;
    for _ in 0..ASKED {
        let replica = pool.any_replica(skip)?;
        skip = Some(replica.id());
        let said = tokio::time::timeout(PATIENCE, told(pool, &replica)).await;
        if let Ok(Some(entry)) = said {
            return Some(entry);
        }
    }
    None
}

async fn told(pool: &Pool, replica: &Arc<Replica>) -> Option<Map<String, Value>> {
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = http::Uri::from_static("/v1/models");
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(key) = &pool.authorization {
        headers.insert(header::AUTHORIZATION, key.clone());
    }
    *request.headers_mut() = headers;
    let exchange = replica.send(request, PATIENCE).await.ok()?;
    if exchange.head.status != StatusCode::OK {
        return None;
    }
    let Collected::Whole(body) = collect(exchange.body, LARGEST).await else { return None };
    let list: Value = serde_json::from_slice(&body).ok()?;
    let entry = list
        .get("data")?
        .as_array()?
        .iter()
        .find(|entry| entry.get("id").and_then(Value::as_str) == Some(&*pool.name))?;
    entry.as_object().cloned()
}

/// What stands for a model whose replicas do not answer now.
fn made_up(name: &str) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("id".to_owned(), json!(name));
    entry.insert("object".to_owned(), json!("model"));
    entry.insert("created".to_owned(), json!(0));
    entry.insert("owned_by".to_owned(), json!("vllm"));
    entry
}
