//! Certificate and key of the public listener: TLS 1.2 and up, by rustls with ring.
//!
//! Read again on request, so that a renewed certificate needs no restart: connections that
//! stand keep theirs, new ones get the new. What cannot be read leaves the old in force.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Why a certificate could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("{}: {source}", path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        source: rustls_pki_types::pem::Error,
    },
    /// The file has no certificate in it.
    #[error("{}: no certificate in it", .0.display())]
    Empty(PathBuf),
    /// Certificate and key do not belong together, or are of no kind that rustls takes.
    #[error("{}: {source}", path.display())]
    Refused {
        /// The certificate.
        path: PathBuf,
        /// What rustls says.
        source: rustls::Error,
    },
}

/// A certificate in force, and where it came from.
#[derive(Debug)]
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Reads both PEM files.
    ///
    /// # Errors
    /// Where they cannot be read or do not fit.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let config = ArcSwap::new(read(cert, key)?);
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), config })
    }

    /// Reads the same files again; new connections get what they say now.
    ///
    /// # Errors
    /// Where they cannot be read or do not fit; then the old stay in force.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.config.store(read(&self.cert, &self.key)?);
        Ok(())
    }

    /// What is in force now.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }
}

fn read(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let pem = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Pem { path, source }
    };
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect).map_err(pem(cert))?;
    if chain.is_empty() {
        return Err(TlsError::Empty(cert.to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(pem(key))?;
    let refused = |source| TlsError::Refused { path: cert.to_owned(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(refused)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

impl TlsError {
    /// Whether the file is not there (yet), rather than wrong.
    pub fn is_missing(&self) -> bool {
        let Self::Pem { source: rustls_pki_types::pem::Error::Io(error), .. } = self else {
            return false;
        };
        error.kind() == io::ErrorKind::NotFound
    }
}
