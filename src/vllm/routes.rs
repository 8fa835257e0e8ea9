//! The allow-list: the only paths that lead to a replica.
//!
//! A path is compared byte for byte and nothing is decoded or normalised first. vLLM's server
//! would decode `%2e`, fold nothing, and serves full inference under `/invocations` outside its
//! API key; so whatever is not spelled exactly as here does not exist. That also keeps out
//! `/v1/responses/{id}` and its cancel, whose state lives in one replica only.
//!
//! Several spellings of one call (`/rerank`, `/v1/rerank`, `/v2/rerank` share one handler in
//! vLLM) become one path upstream, so that nothing of the client's own path is ever sent on.

use http::Method;

use crate::domain::Endpoint;

/// The endpoints that are on where a configuration names none.
pub const DEFAULT_ENDPOINTS: [Endpoint; 7] = [
    Endpoint::ChatCompletions,
    Endpoint::Completions,
    Endpoint::Responses,
    Endpoint::Messages,
    Endpoint::CountTokens,
    Endpoint::Embeddings,
    Endpoint::Models,
];

/// Path and endpoint; the method follows from the endpoint.
const TABLE: [(&str, Endpoint); 18] = [
    ("/v1/chat/completions", Endpoint::ChatCompletions),
    ("/v1/completions", Endpoint::Completions),
    ("/v1/responses", Endpoint::Responses),
    ("/v1/messages", Endpoint::Messages),
    ("/v1/messages/count_tokens", Endpoint::CountTokens),
    ("/v1/embeddings", Endpoint::Embeddings),
    ("/v1/models", Endpoint::Models),
    ("/score", Endpoint::Score),
    ("/v1/score", Endpoint::Score),
    ("/rerank", Endpoint::Rerank),
    ("/v1/rerank", Endpoint::Rerank),
    ("/v2/rerank", Endpoint::Rerank),
    ("/pooling", Endpoint::Pooling),
    ("/classify", Endpoint::Classify),
    ("/v1/audio/transcriptions", Endpoint::Transcriptions),
    ("/v1/audio/translations", Endpoint::Translations),
    ("/tokenize", Endpoint::Tokenize),
    ("/detokenize", Endpoint::Detokenize),
];

/// The endpoint that this method and path name, if it is among those that are `on`.
///
/// `path` is the path as it came, without the query. `None` is "no such path": the caller
/// answers 404 and no replica hears of it.
pub fn route(method: &Method, path: &str, on: &[Endpoint]) -> Option<Endpoint> {
    let (_, endpoint) = TABLE.iter().find(|(known, _)| *known == path)?;
    (*method == verb(*endpoint) && on.contains(endpoint)).then_some(*endpoint)
}

/// The path under which a replica serves an endpoint.
pub const fn upstream_path(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::ChatCompletions => "/v1/chat/completions",
        Endpoint::Completions => "/v1/completions",
        Endpoint::Responses => "/v1/responses",
        Endpoint::Messages => "/v1/messages",
        Endpoint::CountTokens => "/v1/messages/count_tokens",
        Endpoint::Embeddings => "/v1/embeddings",
        Endpoint::Models => "/v1/models",
        Endpoint::Score => "/score",
        Endpoint::Rerank => "/rerank",
        Endpoint::Pooling => "/pooling",
        Endpoint::Classify => "/classify",
        Endpoint::Transcriptions => "/v1/audio/transcriptions",
        Endpoint::Translations => "/v1/audio/translations",
        Endpoint::Tokenize => "/tokenize",
        Endpoint::Detokenize => "/detokenize",
    }
}

const fn verb(endpoint: Endpoint) -> Method {
    match endpoint {
        Endpoint::Models => Method::GET,
        _ => Method::POST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const METHODS: [Method; 7] = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
        Method::CONNECT,
    ];

    #[test]
    fn every_endpoint_is_reached_by_one_method_and_its_upstream_path() {
        for endpoint in Endpoint::ALL {
            let path = upstream_path(endpoint);
            let by: Vec<_> =
                METHODS.iter().filter(|m| route(m, path, &Endpoint::ALL).is_some()).collect();
            assert_eq!(by, [&verb(endpoint)], "{path}");
            assert_eq!(route(&verb(endpoint), path, &Endpoint::ALL), Some(endpoint));
            assert_eq!(route(&verb(endpoint), path, &[]), None, "{path} is switched off");
        }
    }

    #[test]
    fn what_is_off_by_default_is_what_the_design_calls_switchable() {
        use Endpoint::*;
        let off: Vec<_> =
            Endpoint::ALL.into_iter().filter(|e| !DEFAULT_ENDPOINTS.contains(e)).collect();
        assert_eq!(
            off,
            [Score, Rerank, Pooling, Classify, Transcriptions, Translations, Tokenize, Detokenize]
        );
    }

    #[test]
    fn every_path_of_a_real_vllm_that_is_not_listed_is_refused() {
        let text = include_str!("../../tests/recorded/openapi-0.32.json");
        let openapi: serde_json::Value = serde_json::from_str(text).unwrap();
        let paths = openapi["paths"].as_object().unwrap();
        let mut reached = Vec::new();
        for path in paths.keys() {
            let filled = path.replace("{response_id}", "resp_1");
            for method in &METHODS {
                if route(method, &filled, &Endpoint::ALL).is_some() {
                    reached.push(path.as_str());
                }
            }
        }
        reached.sort_unstable();
        let mut expected = [
            "/detokenize",
            "/tokenize",
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/models",
            "/v1/responses",
        ];
        expected.sort_unstable();
        assert_eq!(reached, expected);
        assert!(paths.len() > reached.len(), "the recording has paths to refuse");
    }

    #[test]
    fn a_path_in_disguise_is_no_path() {
        for path in [
            "/v1/chat/completions/",
            "//v1/chat/completions",
            "/v1//chat/completions",
            "/v1/./chat/completions",
            "/v1/models/../chat/completions",
            "/v1/chat%2Fcompletions",
            "/v1/%63hat/completions",
            "/V1/chat/completions",
            "/v1/chat/completions\0",
            "/v1/chat/completions;x=1",
            "/v1/chat/completions/batch",
            "v1/chat/completions",
            "",
            "/",
            "*",
            "/invocations",
            "/ping",
            "/health",
            "/metrics",
            "/load",
            "/version",
            "/sleep",
            "/collective_rpc",
            "/reset_prefix_cache",
            "/v1/responses/resp_1",
            "/v1/responses/resp_1/cancel",
            "/v1/load_lora_adapter",
            "/inference/v1/generate",
        ] {
            for method in &METHODS {
                assert_eq!(route(method, path, &Endpoint::ALL), None, "{method} {path}");
            }
        }
    }

    proptest! {
        #[test]
        fn only_listed_spellings_lead_anywhere(path in "[/a-z0-9_%.]{0,40}", extra in "[/%.a-z]{1,6}") {
            let listed = TABLE.iter().any(|(known, _)| *known == path);
            prop_assert_eq!(route(&Method::POST, &path, &Endpoint::ALL).is_some(),
                listed && path != "/v1/models");
            let (known, _) = TABLE[0];
            prop_assert_eq!(route(&Method::POST, &format!("{known}{extra}"), &Endpoint::ALL), None);
        }
    }
}
