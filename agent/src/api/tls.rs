//! TLS with certificates on both sides, whose files are read again when they change.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::task::block_in_place;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::config::Remote;

/// How often it is looked whether a file has changed.
const LOOK: Duration = Duration::from_secs(1);

/// What the files say, as of the last time that they were right.
pub(super) struct Tls {
    files: [PathBuf; 3],
    loaded: Mutex<Loaded>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    stamps: [Stamp; 3],
    looked: Instant,
}

/// What tells a file from what it was.
type Stamp = Option<(SystemTime, u64)>;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file has not what it should.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Certificate and key do not go together, or the authorities are none.
    #[error("{0}")]
    Config(String),
}

impl Tls {
    pub(super) fn load(remote: &Remote) -> Result<Self, TlsError> {
        let files = [remote.certificate.clone(), remote.key.clone(), remote.client_ca.clone()];
        let stamps = files.each_ref().map(|path| stamp(path));
        let config = read(&files)?;
        Ok(Self { files, loaded: Mutex::new(Loaded { config, stamps, looked: Instant::now() }) })
    }

    /// The configuration for a new connection. Files that are wrong leave it as it was. To be called by one caller, on a thread of a runtime
    /// with several: if the files are on a disk that hangs, that caller alone hangs with it.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock();
        if loaded.looked.elapsed() >= LOOK {
            block_in_place(|| self.look(&mut loaded));
        }
        loaded.config.clone()
    }

    /// Reads the files again if they have changed.
    fn look(&self, loaded: &mut Loaded) {
        loaded.looked = Instant::now();
        let stamps = self.files.each_ref().map(|path| stamp(path));
        if stamps == loaded.stamps {
            return;
        }
        match read(&self.files) {
            Ok(config) => {
                loaded.config = config;
                tracing::info!("certificates of the gRPC interface were read again");
            }
            Err(error) => {
                tracing::error!("certificates of the gRPC interface have changed, and the old ones stay: {error}");
            }
        }
        loaded.stamps = stamps;
    }
}

fn stamp(path: &Path) -> Stamp {
    let of = |file: Metadata| Some((file.modified().ok()?, file.len()));
    fs::metadata(path).ok().and_then(of)
}

fn read([certificate, key, client_ca]: &[PathBuf; 3]) -> Result<Arc<ServerConfig>, TlsError> {
    let wrong = |path: &PathBuf, reason: String| TlsError::File { path: path.clone(), reason };
    let certificates = |path: &PathBuf| {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        match read {
            Ok(found) if found.is_empty() => Err(wrong(path, "it has no certificate in PEM".to_owned())),
            Ok(found) => Ok(found),
            Err(error) => Err(wrong(path, error.to_string())),
        }
    };
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for authority in certificates(client_ca)? {
        roots.add(authority).map_err(|error| wrong(client_ca, error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build();
    let verifier = verifier.map_err(|error| TlsError::Config(error.to_string()))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_client_cert_verifier(verifier).with_single_cert(chain, key));
    let mut config = config.map_err(|error| TlsError::Config(error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// Who a certificate is of, and until when.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// DNS names and URIs of the subject's alternative names; the common name if there are none.
    pub(super) names: Vec<String>,
    pub(super) until: SystemTime,
}

impl Identity {
    /// Reads a certificate that was found right.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> io::Result<Self> {
        let wrong = |error: x509_cert::der::Error| io::Error::other(format!("the client's certificate: {error}"));
        let body = Certificate::from_der(certificate).map_err(wrong)?.tbs_certificate;
        let alternative = body.get::<SubjectAltName>().map_err(wrong)?;
        let mut names: Vec<_> = alternative
            .into_iter()
            .flat_map(|(_, SubjectAltName(names))| names)
            .collect::<Vec<_>>()
            .iter()
            .filter_map(|name| match name {
                GeneralName::DnsName(name) => Some(name.to_string()),
                GeneralName::UniformResourceIdentifier(name) => Some(name.to_string()),
                _ => None,
            })
            .collect();
        if names.is_empty() {
            let attributes = body.subject.0.iter().flat_map(|part| part.0.iter());
            names = attributes
                .filter(|attribute| attribute.oid == CN)
                .filter_map(|attribute| {
                    let value = &attribute.value;
                    let utf8 = value.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned());
                    utf8.or_else(|_| value.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned()))
                        .ok()
                })
                .collect();
        }
        Ok(Self { names, until: body.validity.not_after.to_system_time() })
    }
}
