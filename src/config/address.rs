//! Where a replica answers.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http::Uri;

/// What is spoken to a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// The word of the URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A replica's base URL, in one spelling: two addresses are equal exactly when they lead to the
/// same place by their text (case of the host, a trailing slash and the default port gone).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplicaAddress {
    scheme: Scheme,
    host: Arc<str>,
    port: u16,
    authority: Arc<str>,
}

impl ReplicaAddress {
    /// What is spoken.
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Name or address, lower case, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, as the `Host` header and metric labels carry it; IPv6 in brackets.
    pub fn authority(&self) -> &Arc<str> {
        &self.authority
    }
}

impl fmt::Display for ReplicaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority)
    }
}

/// Why a text is no replica address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// Not a URL with scheme and host.
    #[error("is not a URL with scheme and host")]
    Shape,
    /// Another scheme.
    #[error("has a scheme that is not http or https")]
    Scheme,
    /// `user:password@`.
    #[error("carries a user name or password")]
    UserInfo,
    /// A path or a query: replicas are addressed by their root.
    #[error("has a path or query, but must name the server's root")]
    Path,
    /// Port 0, or none that fits.
    #[error("has an impossible port")]
    Port,
}

impl FromStr for ReplicaAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let uri: Uri = text.parse().map_err(|_error| AddressError::Shape)?;
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            Some(_) => return Err(AddressError::Scheme),
            None => return Err(AddressError::Shape),
        };
        let authority = uri.authority().ok_or(AddressError::Shape)?;
        if authority.as_str().contains('@') {
            return Err(AddressError::UserInfo);
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(AddressError::Path);
        }
        let bracketed = authority.host();
        let after_host = authority.as_str().strip_prefix(bracketed).unwrap_or_default();
        let port = match after_host.strip_prefix(':') {
            None if after_host.is_empty() => scheme.default_port(),
            None => return Err(AddressError::Shape),
            Some(port) => port.parse::<u16>().map_err(|_error| AddressError::Port)?,
        };
        let host = bracketed.trim_matches(['[', ']']).to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        if host.is_empty() {
            return Err(AddressError::Shape);
        }
        if port == 0 {
            return Err(AddressError::Port);
        }
        let authority =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(Self { scheme, host: host.into(), port, authority: authority.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ReplicaAddress, AddressError> {
        text.parse()
    }

    #[test]
    fn one_place_has_one_spelling() {
        for same in ["http://Replica-1:80/", "HTTP://replica-1", "http://replica-1."] {
            assert_eq!(parse(same), parse("http://replica-1:80"), "{same}");
        }
        assert_ne!(parse("http://replica-1:443"), parse("https://replica-1"));
        let six = parse("http://[::1]:8101").unwrap();
        assert_eq!((six.host(), &**six.authority()), ("::1", "[::1]:8101"));
        assert_eq!(six.to_string(), "http://[::1]:8101");
    }

    #[test]
    fn what_is_no_root_of_a_server_is_refused() {
        for (text, error) in [
            ("replica-1:8000", AddressError::Shape),
            ("", AddressError::Shape),
            ("http://", AddressError::Shape),
            ("/v1", AddressError::Shape),
            ("ftp://replica-1", AddressError::Scheme),
            ("http://me:secret@replica-1", AddressError::UserInfo),
            ("http://replica-1/v1", AddressError::Path),
            ("http://replica-1?x=1", AddressError::Path),
            ("http://replica-1:0", AddressError::Port),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        for wrong in ["http://replica-1:99999", "http://replica-1:", "http://a b", "http://[::1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
