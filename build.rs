//! Turns `proto/*.proto` into Rust in OUT_DIR, by protobuf-codegen's own parser: no protoc is needed.

use protobuf_codegen::{Codegen, Customize};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=proto");
    Codegen::new()
        .pure()
        .include("proto")
        .input("proto/cri.proto")
        .input("proto/containerd.proto")
        .cargo_out_dir("cri")
        // Lite: no descriptors, no reflection (half the code). Sorted maps: one message has one encoding.
        .customize(Customize::default().lite_runtime(true).gen_mod_rs(true).btreemaps(true))
        .run_from_script();
}
