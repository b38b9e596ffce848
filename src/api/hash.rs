//! The kubelet's hash of a container (`io.kubernetes.container.hash`). It depends only on the name and the image.
//!
//! It is FNV-1a (32 bits) over the bytes of a small JSON object as printed by Go's spew, verified with values recorded
//! from kubelet 1.32. Tools compare the hash, so it must be identical.

use std::fmt::Write;

/// Returns the hash of a container. A kubelet writes it in lower-case hexadecimal without leading zeros.
pub fn container(name: &str, image: &str) -> u32 {
    let json = serde_json::json!({ "image": image, "name": name }).to_string();
    // Go's encoder escapes these three characters for use in HTML.
    let json = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let mut text = String::from("([]uint8)[");
    for (i, byte) in json.bytes().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{}{byte}", if i == 0 { "" } else { " " });
    }
    text.push(']');
    fnv1a(text.as_bytes())
}

/// Returns the 32-bit FNV-1a hash.
pub fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_is_the_one_a_kubelet_writes() {
        for (name, hash) in [
            ("main", "7da68b6b"),
            ("one", "c84e66fc"),
            ("two", "8d58f76b"),
            ("ok", "339ef570"),
            ("none", "77ed8262"),
            ("unconf", "e3ce9f72"),
            ("custom", "763882cc"),
            ("i1", "edba07c2"),
            ("side", "1e09f12d"),
            ("second", "afbbcf20"),
        ] {
            assert_eq!(format!("{:x}", super::container(name, "localhost/busybox:1.35")), hash, "{name}");
        }
    }
}
