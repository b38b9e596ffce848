//! The poll tokens that are the same in every run.

use mio::Token;

pub(super) const SIGNALS: Token = Token(0);
pub(super) const HELPERS: Token = Token(1);
pub(super) const RUNTIME: Token = Token(2);
pub(super) const MANIFESTS: Token = Token(3);
pub(super) const EVENTS: Token = Token(4);
pub(super) const LOGIND: Token = Token(5);
pub(super) const SLICES: Token = Token(6);
pub(super) const MOUNTS: Token = Token(7);
pub(super) const DEVICES: Token = Token(8);
pub(super) const API_SERVER: [Token; 2] = [Token(9), Token(10)];
/// Tokens from here on belong to the server.
pub(super) const SERVER: usize = 1024;
