//! The certificates of a cluster: one CA for servers and clients, as kubeadm creates it, and kubeconfigs with client
//! certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A CA with its files in one directory.
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates the CA, with `ca.crt` and `ca.key` in `dir`.
    pub fn create(dir: &Path) -> Authority {
        fs::create_dir_all(dir).expect("a directory");
        let mut params = params("wherry-lab", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(dir.join("ca.crt"), certificate.pem()).expect("a file");
        fs::write(dir.join("ca.key"), key.serialize_pem()).expect("a file");
        Authority { dir: dir.to_owned(), issuer: Issuer::new(params, key) }
    }

    /// Returns the path of a file of the CA: `ca.crt`, or a certificate or key that was issued.
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    /// Returns the CA's certificate in PEM.
    pub fn certificate(&self) -> String {
        fs::read_to_string(self.path("ca.crt")).expect("ca.crt")
    }

    /// Issues `FILE.crt` and `FILE.key` for a server with these names and addresses.
    pub fn issue_to_server(&self, file: &str, names: &[String]) {
        let mut params = params(file, None);
        params.subject_alt_names = CertificateParams::new(names).expect("valid names").subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(file, &params);
    }

    /// Issues `FILE.crt` and `FILE.key` for a client: the user `name`, in `group`.
    pub fn issue_to_client(&self, file: &str, name: &str, group: Option<&str>) {
        let mut params = params(name, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(file, &params);
    }

    /// Like `issue_to_client`, with a certificate that is valid between these two times, in seconds from now.
    pub fn issue_for(&self, file: &str, name: &str, group: Option<&str>, validity: (i64, i64)) {
        let mut params = params(name, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let at = |seconds: i64| {
            let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
            rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(at.as_second().unsigned_abs())
        };
        (params.not_before, params.not_after) = (at(validity.0), at(validity.1));
        self.issue(file, &params);
    }

    /// Returns the hash of the CA's key, as kubeadm prints it.
    pub fn pin(&self) -> String {
        let digest = Sha256::digest(self.issuer.key().subject_public_key_info());
        format!("sha256:{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    /// Writes a key pair without a certificate: `FILE.pub` and `FILE.key`.
    pub fn generate(&self, file: &str) {
        let key = KeyPair::generate().expect("a key");
        fs::write(self.path(&format!("{file}.pub")), key.public_key_pem()).expect("a file");
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).expect("a file");
    }

    fn issue(&self, file: &str, params: &CertificateParams) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        fs::write(self.path(&format!("{file}.crt")), certificate.pem()).expect("a file");
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).expect("a file");
    }

    /// Returns a kubeconfig for `server` with the client certificate `FILE.crt`. It contains all certificates and the
    /// key, so it can be copied.
    pub fn kubeconfig(&self, file: &str, server: &str) -> String {
        let data = |file: &str| STANDARD.encode(fs::read(self.path(file)).expect("a file"));
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: '{server}', certificate-authority-data: {}}}}}]\n\
             users: [{{name: c, user: {{client-certificate-data: {}, client-key-data: {}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n",
            data("ca.crt"),
            data(&format!("{file}.crt")),
            data(&format!("{file}.key"))
        )
    }
}

/// Returns a request for the certificate of a node, in PEM, with a new key.
pub fn request_of_node(node: &str) -> String {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&format!("system:node:{node}"), Some("system:nodes"));
    params.serialize_request(&key).and_then(|request| request.pem()).expect("a certificate request")
}

fn subject(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    if let Some(group) = group {
        subject.push(DnType::OrganizationName, group);
    }
    subject.push(DnType::CommonName, name);
    subject
}

/// Returns the parameters of a certificate with rcgen's default validity, from 1975 to 4096.
fn params(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(name, group);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    // Without an authority key identifier, only the name of the CA would identify the issuer.
    params.use_authority_key_identifier_extension = true;
    params
}
