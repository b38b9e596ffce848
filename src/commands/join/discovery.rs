//! Discovery as in kubeadm: finds the verified CA of the cluster from a server's address, a bootstrap token and the
//! hash of a CA key.
//!
//! The first response comes from a server that is not verified. It is accepted only if the owner of the token's
//! secret has signed it and the key of its CA has the given hash. In addition, the server must return the same
//! response over a connection that this CA verifies.

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

/// The keys that the CA may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pins {
    /// Only keys with these hashes.
    Hashes(Vec<CaHash>),
    /// Any key: the signature with the token is the only proof.
    Unsafe,
}

/// The steps of the discovery, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiscoveryStage {
    /// The server responds.
    ClusterInfo,
    /// The response is signed with the token.
    Token,
    /// The CA has one of the keys.
    Authority,
    /// The server returns the same response over a connection that the CA verifies.
    Verified,
}

/// Finds the cluster of the server at `address`.
///
/// # Errors
/// The step that failed, and a message with the error and the remedy. The message contains no part of the token's
/// secret.
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
        let why = "responds differently over a verified connection; something between this machine and the server \
                   changes the responses";
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
                "{address} shows no cluster-info in kube-public ({refusal}); if the cluster was not created with \
                 kubeadm, use wherry join --kubeconfig"
            )),
            _ => Err(format!("{address} cannot respond now: {refusal}; try again")),
        },
    }
}

/// Returns the message for a server that has not responded.
pub(super) fn unreachable(address: &str, error: &ApiError) -> String {
    match error {
        ApiError::NotSent(why) => format!("cannot connect to {address}: {why}"),
        ApiError::Unknown(why) => format!("no complete response from {address}: {why}; try again"),
        ApiError::TooLarge(why) => format!("{address}: {why}"),
    }
}

/// Returns the kubeconfig of cluster-info, if the owner of the token has signed it.
fn signed_kubeconfig(response: &ApiResponse, token: &Token) -> Result<String, String> {
    let object: Value =
        serde_json::from_slice(&response.body).map_err(|e| format!("cluster-info: invalid JSON: {e}"))?;
    let text = |key: &str| object["data"][key].as_str();
    let kubeconfig =
        text("kubeconfig").ok_or("cluster-info has no kubeconfig; was the cluster created with kubeadm?")?;
    let signature = text(&format!("jws-kubeconfig-{}", token.id())).ok_or_else(|| {
        format!(
            "the cluster does not know the token {}: it has expired, or is for a different cluster; {NEW_TOKEN}",
            token.id()
        )
    })?;
    match is_signed(kubeconfig, signature, token) {
        true => Ok(kubeconfig.to_owned()),
        false => Err(format!(
            "the token {} has not signed this cluster-info: its part after the dot is wrong, or this is the wrong \
             server; {NEW_TOKEN}",
            token.id()
        )),
    }
}

/// Reports whether `signature` is a valid detached JWS of the payload (RFC 7515, appendix F): `HEADER..SIGNATURE`.
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
    // Every CA must match. kubeadm accepts additional CAs beside a matching one, but anyone with the token could add
    // one.
    if !found.is_empty()
        && found.len() == cluster.authority_certificates().len()
        && found.iter().all(|hash| pins.contains(hash))
    {
        return Ok(());
    }
    let found = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Err(format!(
        "the public key of the cluster CA does not match: its hash is {found}. If the cluster got a new CA, correct \
         --discovery-token-ca-cert-hash (once for each hash); otherwise this is the wrong server"
    ))
}

/// Returns the hashes of the CA's keys.
pub(super) fn hashes(cluster: &Contents) -> Vec<CaHash> {
    let certificates = cluster.authority_certificates();
    certificates.iter().filter_map(|der| x509::read(der).ok()).map(|ca| CaHash::of(&ca.public_key)).collect()
}

#[cfg(test)]
mod tests;
