//! Generates Rust code in OUT_DIR from `proto/*.proto` with protobuf-codegen's own parser, so that no protoc is needed.

use protobuf_codegen::{Codegen, Customize};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=proto");
    generate("cri", &["proto/cri.proto", "proto/containerd.proto"]);
    generate("health", &["proto/health.proto"]);
    generate("deviceplugin", &["proto/deviceplugin.proto"]);
}

/// Generates the modules of these files, with a `mod.rs`, in a directory of OUT_DIR.
fn generate(directory: &str, files: &[&str]) {
    Codegen::new()
        .pure()
        .include("proto")
        .inputs(files)
        .cargo_out_dir(directory)
        // The lite runtime has no descriptors and no reflection (half the code). Sorted maps make the encoding deterministic.
        .customize(Customize::default().lite_runtime(true).gen_mod_rs(true).btreemaps(true))
        .run_from_script();
}
