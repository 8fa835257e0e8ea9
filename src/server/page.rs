//! The status page: one document with its style and script inside, and nothing from elsewhere.
//!
//! It holds no data: those come over `/status/stream`, which asks for the token. Everything that
//! somebody configured or sent (models, tenants, replicas) goes into the page as text, never as
//! markup; and should that fail one day, the policy below lets no script run but the one whose
//! digest it names.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The document, put together once.
static DOCUMENT: LazyLock<String> =
    LazyLock::new(|| PAGE.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", SCRIPT));

/// What a browser may do with it.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = |text: &str| STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'",
        digest(SCRIPT),
        digest(STYLE),
    )
});

/// `GET /`.
pub(super) async fn show() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, DOCUMENT.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_whole_and_needs_nobody() {
        let page = &*DOCUMENT;
        assert!(page.len() < 100_000, "{} bytes", page.len());
        assert!(page.contains(STYLE) && page.contains(SCRIPT));
        // Namespaces of SVG are names, not addresses.
        let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
        for word in ["http://", "https://", "//cdn", "@import", "url("] {
            assert!(!elsewhere.contains(word), "{word}");
        }
    }

    #[test]
    fn nothing_from_outside_becomes_markup() {
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!SCRIPT.contains(word), "{word}");
        }
        assert!(!SCRIPT.contains("</script"), "would end the script early");
        let markup = PAGE.replace("content=", "");
        assert!(!markup.contains(" on"), "an inline handler, which the policy forbids");
    }

    #[test]
    fn the_policy_names_what_is_in_the_page() {
        let inside = |from: &str, to: &str| {
            let rest = DOCUMENT.split_once(from).unwrap().1;
            STANDARD.encode(Sha256::digest(rest.split_once(to).unwrap().0))
        };
        let script = inside("<script>", "</script>");
        let style = inside("<style>", "</style>");
        assert!(POLICY.contains(&format!("script-src 'sha256-{script}'")));
        assert!(POLICY.contains(&format!("style-src 'sha256-{style}'")));
        assert!(!POLICY.contains("unsafe"));
    }
}
