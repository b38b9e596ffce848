//! Discovery as kubeadm does it: from the address of a server, a bootstrap token and the hash of a CA to the verified
//! CA of the cluster.
//!
//! The first answer comes from a server that is not verified. It counts only with a signature that the owner of the
//! token's secret made, and with a CA whose key has the given hash; and the same answer has to come again from the
//! server that this CA verifies.

use crate::adapters::api_server::{Answered, Blocking, Contents, Credentials};
use crate::adapters::identity::NodeKubeconfig;
use crate::api::cluster::bootstrap::{CaHash, Token};
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::cluster::requests;
use crate::api::cluster::status::{Failure, Refusal};
use crate::net::x509;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The time limit of each request.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
pub(super) const NEW_TOKEN: &str = "create a new one on the control plane: kubeadm token create --print-join-command";

/// Which keys the CA may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pins {
    /// These.
    Hashes(Vec<CaHash>),
    /// Any: the signature of the token is the only proof.
    Unsafe,
}

/// The steps of the discovery, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiscoveryStage {
    /// The server answers.
    ClusterInfo,
    /// The token has signed the answer.
    Token,
    /// The CA has one of the keys.
    Authority,
    /// The server that the CA verifies gives the same answer.
    Verified,
}

/// Finds the cluster of the server at `address`.
///
/// # Errors
/// The step that failed, the error, and the remedy. The text contains nothing of the token's secret.
pub(super) fn discover(address: &str, token: &Token, pins: &Pins) -> Result<Contents, (DiscoveryStage, String)> {
    let at = |stage: DiscoveryStage| move |why: String| (stage, why);
    let unverified = Credentials::unverified(address).and_then(Blocking::new);
    let mut unverified = unverified.map_err(at(DiscoveryStage::ClusterInfo))?;
    let answered = read(&mut unverified, address).map_err(at(DiscoveryStage::ClusterInfo))?;
    let signed = signed_kubeconfig(&answered.response, token).map_err(at(DiscoveryStage::Token))?;
    let cluster = Contents::parse(signed.as_bytes(), Path::new("/"));
    let cluster = cluster.map_err(|why| (DiscoveryStage::Authority, format!("cluster-info: {why}")))?;
    check_pins(&cluster, pins).map_err(at(DiscoveryStage::Authority))?;
    let again = read_verified(address, &cluster).map_err(at(DiscoveryStage::Verified))?;
    if signed_kubeconfig(&again.response, token).as_ref() != Ok(&signed) {
        let why = "answers the verified request differently; something between here and the server changes the answers";
        return Err((DiscoveryStage::Verified, format!("{address} {why}")));
    }
    Ok(cluster)
}

fn read_verified(address: &str, cluster: &Contents) -> Result<Answered, String> {
    let verified = NodeKubeconfig {
        server: &format!("https://{}", Credentials::unverified(address)?.authority()),
        tls_name: None,
        authorities: &cluster.authorities,
    };
    read(&mut Blocking::new(Credentials::parse(&verified.with_token(None))?)?, address)
}

fn read(api: &mut Blocking, address: &str) -> Result<Answered, String> {
    let answered = api.call(requests::read_cluster_info(), TIMEOUT).map_err(|e| unreachable(address, &e))?;
    match Refusal::of(&answered.response) {
        None => Ok(answered),
        Some(refusal) => match refusal.failure {
            Failure::NotFound | Failure::Forbidden | Failure::Unauthorized => Err(format!(
                "{address} shows no cluster-info in kube-public ({refusal}); if it is not a cluster of kubeadm, use \
                 wherry join --kubeconfig"
            )),
            _ => Err(format!("{address} cannot answer now: {refusal}; try again")),
        },
    }
}

/// There was no answer.
pub(super) fn unreachable(address: &str, error: &ApiError) -> String {
    match error {
        ApiError::NotSent(why) => format!("cannot connect to {address}: {why}"),
        ApiError::Unknown(why) => format!("no complete answer from {address}: {why}; try again"),
        ApiError::TooLarge(why) => format!("{address}: {why}"),
    }
}

/// The kubeconfig of cluster-info, if the owner of the token has signed it.
fn signed_kubeconfig(response: &ApiResponse, token: &Token) -> Result<String, String> {
    let object: Value =
        serde_json::from_slice(&response.body).map_err(|e| format!("cluster-info: invalid JSON: {e}"))?;
    let text = |key: &str| object["data"][key].as_str();
    let kubeconfig = text("kubeconfig").ok_or("cluster-info has no kubeconfig; is this a cluster of kubeadm?")?;
    let signature = text(&format!("jws-kubeconfig-{}", token.id())).ok_or_else(|| {
        format!(
            "the cluster does not know the token {}: it has expired, or is for another cluster; {NEW_TOKEN}",
            token.id()
        )
    })?;
    match is_signed(kubeconfig, signature, token) {
        true => Ok(kubeconfig.to_owned()),
        false => Err(format!(
            "the token {} has not signed this cluster-info: its part after the dot is wrong, or this is another \
             server; {NEW_TOKEN}",
            token.id()
        )),
    }
}

/// A detached JWS (RFC 7515, appendix F): `HEADER..SIGNATURE`.
fn is_signed(payload: &str, signature: &str, token: &Token) -> bool {
    let Some((header, code)) = signature.split_once("..") else { return false };
    let (Ok(decoded), Ok(code)) = (URL_SAFE_NO_PAD.decode(header), URL_SAFE_NO_PAD.decode(code)) else { return false };
    let fields: Value = serde_json::from_slice(&decoded).unwrap_or_default();
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(payload));
    fields["alg"] == "HS256" && fields["kid"] == token.id() && token.has_signed(message.as_bytes(), &code)
}

fn check_pins(cluster: &Contents, pins: &Pins) -> Result<(), String> {
    let Pins::Hashes(pins) = pins else { return Ok(()) };
    let found = hashes(cluster);
    // (kubeadm accepts further CAs beside one that has a hash. The holder of a token could add one.)
    if !found.is_empty()
        && found.len() == cluster.authority_certificates().len()
        && found.iter().all(|hash| pins.contains(hash))
    {
        return Ok(());
    }
    let found = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Err(format!(
        "the public key of the cluster CA does not match: its hash is {found}. If the cluster got a new CA, correct \
         --discovery-token-ca-cert-hash (once for each hash); otherwise this is another server"
    ))
}

/// The hashes of the keys of the CA.
pub(super) fn hashes(cluster: &Contents) -> Vec<CaHash> {
    let certificates = cluster.authority_certificates();
    certificates.iter().filter_map(|der| x509::read(der).ok()).map(|ca| CaHash::of(&ca.public_key)).collect()
}

#[cfg(test)]
mod tests;
