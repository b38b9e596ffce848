//! The `wherry` binary. All code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    wherry::commands::main(std::env::args_os())
}
